"""The CUDA driver through ctypes, without torch: a child process is then ready in half a second instead of four."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_void_p
from typing import Any


class DriverError(Exception):
    """A call of the CUDA driver that must succeed did not."""


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
            raise DriverError(f"{name}: {self.describe(result)}")

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
