"""What the driver says of the card besides computing: who else uses it, and how fast it runs. Through NVML."""

from __future__ import annotations

import contextlib
import ctypes
from ctypes import byref, c_uint, c_void_p
from dataclasses import dataclass

_SM_CLOCK = 1  # nvmlClockType_t
_LIBRARY = "libnvidia-ml.so.1"


class Monitor:
    """One card. Every answer is None or 0 where NVML is missing or does not say."""

    def __init__(self, pci_bus_id: str) -> None:
        self._device = c_void_p()
        self._library: ctypes.CDLL | None = None
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(_LIBRARY)
            place = pci_bus_id.encode()
            if library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByPciBusId_v2(place, byref(self._device)) == 0:
                self._library = library

    def sm_clock_mhz(self) -> int | None:
        clock = c_uint()
        if self._library is None or self._library.nvmlDeviceGetClockInfo(self._device, _SM_CLOCK, byref(clock)) != 0:
            return None
        return clock.value

    def other_processes(self) -> int:
        """How many processes besides the one that asks, which must have one itself, have a CUDA context on the card."""
        return max(0, self.processes() - 1)

    def processes(self) -> int:
        """How many processes have a CUDA context on the card."""
        if self._library is None:
            return 0
        count = c_uint(0)
        # With room for none NVML answers with how many there are (NVML API, nvmlDeviceGetComputeRunningProcesses).
        with contextlib.suppress(AttributeError):
            self._library.nvmlDeviceGetComputeRunningProcesses_v3(self._device, byref(count), None)
        return count.value


@dataclass(frozen=True)
class Asked:
    """What NVML says when it is asked at all. ``error`` is of nvmlReturn_t, 0 for none; ``cards`` are all there are."""

    error: int
    cards: int


def ask(library: str = _LIBRARY) -> Asked | None:
    """None where NVML is not installed, so that there is no driver."""
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return None
    if error := nvml.nvmlInit_v2():
        return Asked(error, 0)
    count = c_uint(0)
    error = nvml.nvmlDeviceGetCount_v2(byref(count))
    nvml.nvmlShutdown()
    return Asked(error, count.value)
