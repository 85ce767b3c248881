"""A baseline's name -> what runs it once on the stream: the card's own bandwidth, or a function of the family's spec.

A spec's baseline works on the kata's inputs, in contents that the launcher never gets, and on outputs of its own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_uint64
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grader.content.dtype import DTYPES
from grader.content.spec import find_spec
from grader.devices import Buffer, Rehearsal, TimingRequest
from grader.devices.gpu.driver import Driver
from grader.devices.gpu.ptx import read_ptx

if TYPE_CHECKING:
    import torch

Run = Callable[[], object]


class BaselineError(Exception):
    """A baseline of a spec cannot run on this machine; the message says why."""


_MULTIPROCESSOR_COUNT = 16  # CUdevice_attribute
_READ_THREADS, _READ_BLOCKS_PER_SM = 512, 2
_NOISE_BYTES = 64 << 20


class Baselines:
    """What runs beside the launcher. Owns its memory until it is closed."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._memory: list[int] = []

    def close(self) -> None:
        for memory in self._memory:
            self._driver.free(memory)
        self._memory.clear()

    def open(self, request: TimingRequest, inputs: Mapping[str, int], buffers: tuple[Buffer, ...]) -> Run:
        """What runs the baseline of a timing request. ``inputs`` has the addresses of the contents that it may use."""
        own = {"copy": self._copy, "read": self._read}
        if request.baseline in own:
            return own[request.baseline](request.bytes_moved)
        return self._from_spec(request, inputs, buffers)

    def _copy(self, bytes_moved: int) -> Run:
        """Half of the bytes read, half of them written: a copy from one buffer to another."""
        size = max(1, bytes_moved // 2)
        source, target = self._noise(size), self._allocate(size)
        return lambda: self._driver.copy(target, source, size)

    def _read(self, bytes_moved: int) -> Run:
        """All of the bytes read, to a whole number of 16, and nothing written."""
        driver, size = self._driver, -(-bytes_moved // 16) * 16
        source, unused = self._noise(size), self._allocate(4)
        kernel = driver.kernel(read_ptx(), "read_all")
        arguments = (c_uint64(source), c_uint64(source + size), c_uint64(unused))
        blocks = _READ_BLOCKS_PER_SM * driver.attribute(_MULTIPROCESSOR_COUNT)
        return lambda: driver.launch(kernel, blocks=blocks, threads=_READ_THREADS, arguments=arguments)

    def _from_spec(self, request: TimingRequest, inputs: Mapping[str, int], buffers: tuple[Buffer, ...]) -> Run:
        """The spec's own, on torch tensors that lie where the inputs are. The first call may choose its kernels."""
        assert request.spec is not None
        make = find_spec(Path(request.spec), request.kata).baselines[request.baseline]
        try:
            _use_stream(self._driver)
            tensors = {item.name: _tensor(inputs.get(item.name), item) for item in buffers}
            run = make(**tensors)
            run()
        except (RuntimeError, AssertionError) as error:  # torch without CUDA, without memory, without this operator
            raise BaselineError(f"the baseline {request.baseline} cannot run: {error}") from error
        return run

    def _allocate(self, size: int) -> int:
        self._memory.append(self._driver.allocate(size))
        return self._memory[-1]

    def _noise(self, size: int) -> int:
        """Device memory of ``size`` bytes with contents of full entropy: zeros would move faster."""
        memory = self._allocate(size)
        block = _entropy(min(size, _NOISE_BYTES))
        for place in range(0, size, len(block)):
            self._driver.upload(memory + place, block[: size - place])
        return memory


_DRAWN: list[bytearray] = []  # the longest noise of this process: to draw 64 MB takes a quarter of a second


def _entropy(size: int) -> memoryview:
    """Bytes that follow from nothing, the same whenever the process asks for as many."""
    if not _DRAWN or len(_DRAWN[0]) < size:
        _DRAWN[:] = [bytearray(os.urandom(size))]  # that ctypes can point to a part of
    return memoryview(_DRAWN[0])[:size]


def rehearse(driver: Driver, wanted: Sequence[Rehearsal]) -> None:
    """Run each once on the stream, on zeros. What cannot run says so when it is timed."""
    import torch

    with contextlib.suppress(Exception):
        _use_stream(driver)
        for each in wanted:
            make = find_spec(Path(each.spec), each.kata).baselines[each.baseline]
            tensors = {
                name: torch.zeros(shape, dtype=getattr(torch, DTYPES[dtype].torch_name), device="cuda")
                for name, dtype, shape in each.tensors
            }
            make(**tensors)()
    with contextlib.suppress(Exception):
        driver.synchronize()
        torch.cuda.empty_cache()


def _use_stream(driver: Driver) -> None:
    import torch

    torch.cuda.set_stream(torch.cuda.ExternalStream(driver.stream.value or 0))  # type: ignore[no-untyped-call]


class _Bytes:
    """Device memory in the form in which CUDA libraries of Python hand it to each other."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def _tensor(address: int | None, buffer: Buffer) -> torch.Tensor:
    """A torch tensor that lies at ``address``, nothing being copied; without an address, one of its own."""
    import torch

    dtype = getattr(torch, DTYPES[buffer.dtype].torch_name)
    if address is None or not buffer.data:
        return torch.empty(buffer.shape, dtype=dtype, device="cuda")
    there = torch.as_tensor(_Bytes(address, len(buffer.data)), device="cuda")
    return there.view(dtype).reshape(buffer.shape)
