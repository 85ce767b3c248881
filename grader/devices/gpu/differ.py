"""Places on the card -> whether what they hold differs. It is found there: only the answer comes to the host."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_uint64

from grader.devices.gpu.driver import Driver
from grader.devices.gpu.ptx import DIFFER

WORD_BYTES = 4


class Differ:
    """Compares on the driver's stream. Owns a few bytes of the card until it is closed."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._flag, self._kernel = driver, driver.allocate(4), driver.kernel(DIFFER, "differ")

    def close(self) -> None:
        self._driver.free(self._flag)

    def differs(self, pairs: Sequence[tuple[int, int, int]]) -> bool:
        """Whether any of the (address, address, count of 4-byte words) are not the same. Waits for the answer."""
        driver = self._driver
        driver.fill(self._flag, 0, 4)
        for one, other, words in pairs:
            arguments = (c_uint64(one), c_uint64(other), c_uint64(words), c_uint64(self._flag))
            driver.launch(self._kernel, blocks=1024, threads=256, arguments=arguments)
        driver.synchronize()
        return any(driver.download(self._flag, 4))
