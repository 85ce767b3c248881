"""A library that answers as NVML does on a machine with two different GPUs, one of which has a slice."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = r"""
#include <cstdlib>
#include <cstring>
extern "C" {
struct Device { int major, minor; const char* uuid; const char* name; bool slice; };
static Device devices[] = {
    {8, 9, "GPU-aa", "Small", false},
    {9, 0, "GPU-bb", "Large", false},
    {0, 0, "MIG-cc", "a slice of Large", true},
};
int nvmlInit_v2() { return std::getenv("NVML_BROKEN") ? 18 : 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device** device) {
    if (index > 1) return 2;
    *device = &devices[index];
    return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, Device** device) {
    for (auto& candidate : devices) {
        if (!std::strcmp(candidate.uuid, uuid)) return *device = &candidate, 0;
    }
    return 6;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device* slice, Device** parent) {
    if (!slice->slice) return 2;
    *parent = &devices[1];
    return 0;
}
int nvmlDeviceGetCudaComputeCapability(Device* device, int* major, int* minor) {
    *major = device->major, *minor = device->minor;
    return 0;
}
int nvmlDeviceGetName(Device* device, char* name, unsigned) { std::strcpy(name, device->name); return 0; }
int nvmlDeviceGetUUID(Device* device, char* uuid, unsigned) { std::strcpy(uuid, device->uuid); return 0; }
int nvmlDeviceGetMemoryInfo(Device*, unsigned long long* memory) { memory[0] = 8ull << 30; return 0; }
int nvmlDeviceGetPciInfo_v3(Device* device, char* info) {
    std::strcpy(info + 36, device == &devices[1] ? "00000000:3B:00.0" : "00000000:1A:00.0");
    return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* place, Device** device) {
    if (std::strcmp(place, "00000000:3B:00.0")) return 6;
    *device = &devices[1];
    return 0;
}
int nvmlDeviceGetClockInfo(Device*, int clock, unsigned* mhz) { *mhz = 1980; return clock == 1 ? 0 : 2; }
int nvmlDeviceGetComputeRunningProcesses_v3(Device*, unsigned* count, void* rows) {
    *count = 3;
    return rows ? 2 : 7;  // with room for none: too small
}
int nvmlSystemGetDriverVersion(char* text, unsigned) { std::strcpy(text, "580.65.06"); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int* version) { *version = 13010; return 0; }
}
"""


def build_nvml(folder: Path, source: str = _SOURCE) -> str:
    """Its path, for the argument ``library``. With NVML_BROKEN in the environment it does not start."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    (folder / "nvml.cpp").write_text(source)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", folder / "nvml.so", folder / "nvml.cpp"], check=True)
    return str(folder / "nvml.so")
