"""NVML, the driver's management library, through ctypes: which cards there are, who uses one, and how fast it runs.

Unlike cuInit it leaves nothing behind that a forked child would trip over. This module imports only the standard
library, and it works where NVML is not installed.
"""

from __future__ import annotations

import contextlib
import ctypes
from ctypes import byref, c_int, c_uint, c_void_p
from dataclasses import dataclass
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK = 1  # nvmlClockType_t
_FUNCTION_NOT_FOUND = 13  # nvmlReturn_t


class NvmlError(Exception):
    """NVML does not answer. ``code`` is its nvmlReturn_t, None where it is not installed."""

    def __init__(self, code: int | None) -> None:
        super().__init__("NVML is not installed" if code is None else f"NVML error {code}")
        self.code = code


class Nvml:
    """The library, initialised; ``with`` shuts it down. Raises NvmlError where it is missing or does not start.

    A method raises NvmlError where the driver is older than the function that it calls.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError:
            raise NvmlError(None) from None
        if code := self._result("nvmlInit_v2"):
            raise NvmlError(code)

    def __enter__(self) -> Nvml:
        return self

    def __exit__(self, *_: object) -> None:
        self._result("nvmlShutdown")

    def _result(self, function: str, *arguments: Any) -> int:
        """The nvmlReturn_t of one call."""
        try:
            found = getattr(self._library, function)
        except AttributeError:
            raise NvmlError(_FUNCTION_NOT_FOUND) from None
        return int(found(*arguments))

    def count(self) -> int:
        """How many cards there are, whatever CUDA_VISIBLE_DEVICES says."""
        count = c_uint(0)
        if code := self._result("nvmlDeviceGetCount_v2", byref(count)):
            raise NvmlError(code)
        return count.value

    def card(self, name: str) -> c_void_p | None:
        """The card that CUDA_VISIBLE_DEVICES calls so, by index or by UUID. For a slice of a card it is the slice."""
        device = c_void_p()
        if name.isdigit():
            code = self._result("nvmlDeviceGetHandleByIndex_v2", c_uint(int(name)), byref(device))
        else:
            code = self._result("nvmlDeviceGetHandleByUUID", name.encode(), byref(device))
        return None if code else device

    def card_at(self, pci_bus_id: str) -> c_void_p | None:
        device = c_void_p()
        code = self._result("nvmlDeviceGetHandleByPciBusId_v2", pci_bus_id.encode(), byref(device))
        return None if code else device

    def whole(self, device: c_void_p) -> c_void_p:
        """The card that a slice (MIG) is part of; a whole card itself."""
        parent = c_void_p()
        return device if self._result("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", device, byref(parent)) else parent

    def capability(self, device: c_void_p) -> tuple[int, int] | None:
        major, minor = c_int(), c_int()
        code = self._result("nvmlDeviceGetCudaComputeCapability", device, byref(major), byref(minor))
        return None if code else (major.value, minor.value)

    def name(self, device: c_void_p) -> str:
        return self._text(96, "nvmlDeviceGetName", device)

    def uuid(self, device: c_void_p) -> str:
        return self._text(96, "nvmlDeviceGetUUID", device)

    def driver(self) -> str:
        """The driver's version, such as 580.65.06."""
        return self._text(80, "nvmlSystemGetDriverVersion")

    def _text(self, size: int, function: str, *arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(size)
        self._result(function, *arguments, buffer, c_uint(size))
        return buffer.value.decode(errors="replace")

    def cuda(self) -> tuple[int, int]:
        """The newest version of CUDA that the driver runs."""
        version = c_int()
        self._result("nvmlSystemGetCudaDriverVersion_v2", byref(version))
        return version.value // 1000, version.value % 1000 // 10

    def memory_bytes(self, device: c_void_p) -> int:
        memory = (ctypes.c_ulonglong * 3)()  # nvmlMemory_t: total, free, used
        self._result("nvmlDeviceGetMemoryInfo", device, byref(memory))
        return memory[0]

    def pci_bus_id(self, device: c_void_p) -> str:
        """Such as 00000000:3B:00.0; empty where it is not known."""
        info = ctypes.create_string_buffer(128)  # nvmlPciInfo_t has 68 bytes, the last 32 of them this text
        with contextlib.suppress(NvmlError):
            if self._result("nvmlDeviceGetPciInfo_v3", device, info) == 0:
                return info.raw[36:68].split(b"\0")[0].decode(errors="replace")
        return ""

    def sm_clock_mhz(self, device: c_void_p) -> int | None:
        clock = c_uint()
        with contextlib.suppress(NvmlError):
            if self._result("nvmlDeviceGetClockInfo", device, _SM_CLOCK, byref(clock)) == 0:
                return clock.value
        return None

    def processes(self, device: c_void_p) -> int:
        """How many processes have a CUDA context on the card; 0 where that is not known."""
        count = c_uint(0)
        # With room for none NVML answers with how many there are (NVML API, nvmlDeviceGetComputeRunningProcesses).
        with contextlib.suppress(NvmlError):
            self._result("nvmlDeviceGetComputeRunningProcesses_v3", device, byref(count), None)
        return count.value


class Monitor:
    """One card. Every answer is None or 0 where NVML is missing or does not say."""

    def __init__(self, pci_bus_id: str, library: str = LIBRARY) -> None:
        self._nvml: Nvml | None = None
        self._device: c_void_p | None = None
        with contextlib.suppress(NvmlError):
            self._nvml = Nvml(library)  # for as long as the process lives
            self._device = self._nvml.card_at(pci_bus_id)

    def sm_clock_mhz(self) -> int | None:
        return None if self._nvml is None or self._device is None else self._nvml.sm_clock_mhz(self._device)

    def other_processes(self) -> int:
        """How many processes besides the one that asks, which must have one itself, have a CUDA context on the card."""
        return max(0, self.processes() - 1)

    def processes(self) -> int:
        """How many processes have a CUDA context on the card."""
        return 0 if self._nvml is None or self._device is None else self._nvml.processes(self._device)


@dataclass(frozen=True)
class NvmlStatus:
    """Whether NVML answers. ``error`` is its nvmlReturn_t, 0 for none; ``cards`` are all there are."""

    error: int
    cards: int


def probe(library: str = LIBRARY) -> NvmlStatus | None:
    """None where NVML is not installed, so that there is no driver."""
    try:
        with Nvml(library) as nvml:
            return NvmlStatus(0, nvml.count())
    except NvmlError as error:
        return None if error.code is None else NvmlStatus(error.code, 0)
