"""Outputs on the card -> some of their rows, and how many elements were never written. All of an output is looked at on
the card: of a large one, only what the parent judges comes to the host."""

from __future__ import annotations

from ctypes import c_uint64, c_void_p
from math import prod

from grader.content.dtype import DTYPES
from grader.devices import Buffer, Rows
from grader.devices.gpu.driver import Driver
from grader.devices.gpu.ptx import UNWRITTEN


class RowReader:
    """Works on the driver's stream. Owns a few bytes of the card until it is closed."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._count = 0
        self._kernel: c_void_p | None = None  # until it is first needed

    def close(self) -> None:
        if self._kernel is not None:
            self._driver.free(self._count)
        self._kernel = None

    def read(self, place: int, buffer: Buffer, rows: Rows) -> bytearray:
        """These rows of the output that lies there, one after the other, as if it had no others."""
        axis = rows.axes[buffer.name]
        outer, row = prod(buffer.shape[:axis]), prod(buffer.shape[axis + 1 :]) * buffer.itemsize
        there, pitch = bytearray(outer * rows.count * row), buffer.shape[axis] * row
        at = 0
        for first, last in rows.runs:
            width = (last - first) * row
            self._driver.download_strips(there, at, place + first * row, width, outer, pitch)
            at += width
        return there

    def unwritten(self, place: int, buffer: Buffer) -> int:
        """How many elements of the output were never written. Waits for the answer."""
        driver, dtype = self._driver, DTYPES[buffer.dtype]
        size = dtype.unwritten_run * dtype.itemsize
        if self._kernel is None:
            self._kernel, self._count = driver.kernel(UNWRITTEN, "unwritten"), driver.allocate(8)
        driver.fill(self._count, 0, 8)
        arguments = (c_uint64(place), c_uint64(len(buffer.data) // size), c_uint64(size), c_uint64(dtype.poison))
        driver.launch(self._kernel, blocks=1024, threads=256, arguments=(*arguments, c_uint64(self._count)))
        driver.synchronize()
        return dtype.unwritten_run * int.from_bytes(driver.download(self._count, 8), "little")
