"""The CUDA driver through ctypes, without torch: a child process is then ready in half a second instead of four."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

from grader.devices import Contents, Poison, pointer

_HOST, _DEVICE = 1, 2  # CUmemorytype


class _Strips(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = [
        (f"{end}{name}", kind)
        for end in ("src", "dst")
        for name, kind in (
            ("XInBytes", c_size_t), ("Y", c_size_t), ("MemoryType", c_int), ("Host", c_void_p), ("Device", c_uint64),
            ("Array", c_void_p), ("Pitch", c_size_t),
        )
    ] + [("WidthInBytes", c_size_t), ("Height", c_size_t)]  # fmt: skip


class DriverError(Exception):
    """A call of the CUDA driver that must succeed did not. ``result`` is its CUresult."""

    def __init__(self, message: str, result: int = 0) -> None:
        super().__init__(message)
        self.result = result


class Driver:
    """The CUDA driver and the primary context of the first GPU, which the kata's own runtime uses too."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DriverError(f"the NVIDIA driver is not installed ({error})") from None
        device, context, self.stream = c_int(), c_void_p(), c_void_p()
        self.do("cuInit", 0)
        self.do("cuDeviceGet", byref(device), 0)
        self.do("cuDevicePrimaryCtxRetain", byref(context), device)
        self.do("cuCtxSetCurrent", context)
        # A stream that waits for no other: a launcher that ignores it has no order to rely on.
        self.do("cuStreamCreate", byref(self.stream), 1)

    def result(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._library, name)(*arguments))

    def do(self, name: str, *arguments: Any) -> None:
        result = self.result(name, *arguments)
        if result != 0:
            raise DriverError(f"{name}: {self.describe(result)}", result)

    def describe(self, result: int) -> str:
        name, text = c_char_p(), c_char_p()
        self._library.cuGetErrorName(result, byref(name))
        self._library.cuGetErrorString(result, byref(text))
        return f"{(name.value or b'unknown').decode()} ({(text.value or b'').decode()})"

    def attribute(self, number: int) -> int:
        """A CUdevice_attribute of the first GPU."""
        value = c_int()
        self.do("cuDeviceGetAttribute", byref(value), number, 0)
        return value.value

    def pci_bus_id(self) -> str:
        """Where the first GPU sits, as NVML also knows it."""
        name = ctypes.create_string_buffer(32)
        self.do("cuDeviceGetPCIBusId", name, 32, 0)
        return name.value.decode()

    def allocate(self, size: int) -> int:
        """The address of ``size`` bytes of device memory, aligned to 256 bytes. Freed by ``free``."""
        memory = c_uint64()
        self.do("cuMemAlloc_v2", byref(memory), c_size_t(max(1, size)))
        return memory.value

    def free_bytes(self) -> int:
        """How much device memory is free."""
        free, total = c_size_t(), c_size_t()
        self.do("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    def free(self, address: int) -> None:
        self.do("cuMemFree_v2", c_uint64(address))

    def upload(self, address: int, data: Contents | Poison) -> None:
        """Poison is written by the card itself, and may not be there before the context is synchronised."""
        size = c_size_t(len(data))
        if not len(data):
            return
        if isinstance(data, Poison):
            self.do("cuMemsetD8_v2", c_uint64(address), data.byte, size)
        else:
            self.do("cuMemcpyHtoD_v2", c_uint64(address), pointer(data), size)

    def download(self, address: int, size: int) -> bytearray:
        there = bytearray(size)
        self.download_to(there, address)
        return there

    def download_to(self, there: bytearray | memoryview, address: int) -> None:
        """As many bytes as there is room for."""
        if len(there):
            self.do("cuMemcpyDtoH_v2", pointer(there), c_uint64(address), c_size_t(len(there)))

    def download_strips(self, target: bytearray, at: int, address: int, width: int, count: int, pitch: int) -> None:
        """So many strips of ``width`` bytes, one each ``pitch`` bytes. They come to lie evenly over ``target``, from
        ``at`` on."""
        if not width or not count:
            return
        strips = _Strips(
            dstMemoryType=_HOST,
            dstHost=ctypes.addressof((ctypes.c_char * len(target)).from_buffer(target)) + at,
            dstPitch=len(target) // count,
            srcMemoryType=_DEVICE,
            srcDevice=address,
            srcPitch=pitch,
            WidthInBytes=width,
            Height=count,
        )
        self.do("cuMemcpy2DUnaligned_v2", byref(strips))

    def fill(self, address: int, byte: int, size: int) -> None:
        """In the order of the stream, as ``copy``."""
        if size:
            self.do("cuMemsetD8Async", c_uint64(address), byte, c_size_t(size), self.stream)

    def copy(self, target: int, source: int, size: int) -> None:
        if size:
            self.do("cuMemcpyDtoDAsync_v2", c_uint64(target), c_uint64(source), c_size_t(size), self.stream)

    def synchronize(self) -> None:
        """Wait for the stream, and for it alone."""
        self.do("cuStreamSynchronize", self.stream)

    def kernel(self, ptx: str, name: str) -> c_void_p:
        """A kernel from PTX text, compiled by the driver."""
        module, kernel = c_void_p(), c_void_p()
        self.do("cuModuleLoadData", byref(module), ptx.encode() + b"\0")
        self.do("cuModuleGetFunction", byref(kernel), module, name.encode())
        return kernel

    def launch(self, kernel: c_void_p, *, blocks: int, threads: int, arguments: tuple[Any, ...]) -> None:
        """Launch on the stream, in one dimension. ``arguments`` are ctypes values, copied by the call."""
        addresses = (c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        self.do("cuLaunchKernel", kernel, blocks, 1, 1, threads, 1, 1, 0, self.stream, addresses, None)
