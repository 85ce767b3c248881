"""A card's name -> what it can do at most, for estimates, and how many blocks of a kernel its SMs hold.

Peaks are those of NVIDIA's data sheets: dense, at the boost clock, f16 and bf16 with sums in f32. Limits of an SM are
those of the CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

T = 1e12
WARP = 32
REGISTERS = 65536  # of an SM; a quarter belongs to each of its four schedulers
REGISTER_UNIT = 256  # registers are given to warps in multiples of this
SHARED_UNIT = 128  # bytes


@dataclass(frozen=True)
class Limits:
    """What an SM holds at a time. ``shared_bytes`` is all of its shared memory, ``reserved`` what each block adds."""

    threads: int
    blocks: int
    shared_bytes: int
    reserved: int = 1024


LIMITS: Mapping[tuple[int, int], Limits] = {
    (7, 0): Limits(2048, 32, 96 << 10, 0),
    (7, 5): Limits(1024, 16, 64 << 10, 0),
    (8, 0): Limits(2048, 32, 164 << 10),
    (8, 6): Limits(1536, 16, 100 << 10),
    (8, 9): Limits(1536, 24, 100 << 10),
    (9, 0): Limits(2048, 32, 228 << 10),
    (10, 0): Limits(2048, 32, 228 << 10),
    (12, 0): Limits(1536, 24, 100 << 10),
}


@dataclass(frozen=True)
class Card:
    """Peaks: bytes a second, and operations a second by the dtype that is multiplied (f32: on CUDA cores).

    ``source`` says where they come from, for those who read them.
    """

    name: str
    capability: tuple[int, int]
    bytes_s: float
    flops_s: Mapping[str, float]
    source: str

    @property
    def arch(self) -> str:
        """What nvcc calls it; with the instructions that only this architecture has, where there are such."""
        major, minor = self.capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"

    def peak(self, dtype: str) -> float:
        """Operations a second in a dtype. Older cards multiply what they have no Tensor Cores for on CUDA cores."""
        return self.flops_s.get(dtype, self.flops_s["f32"])

    def time_s(self, bytes_moved: float, operations: float, dtype: str) -> float:
        """The least time that so much work takes: what the roofline allows."""
        return max(bytes_moved / self.bytes_s, operations / self.peak(dtype))


def _card(
    name: str, capability: tuple[int, int], bandwidth: float, f32: float, tf32: float, f16: float, form: str = ""
) -> Card:
    """From TB/s and TFLOPS. 0: there is no such unit. ``form``: of which form of the card the figures are."""
    given = {"f32": f32, "tf32": tf32, "f16": f16, "bf16": f16 if capability >= (8, 0) else 0.0}
    if capability in ((8, 0), (9, 0)):  # bytes at twice the rate of halves
        given |= {"i8": 2 * f16} | ({"fp8_e4m3": 2 * f16} if capability == (9, 0) else {})
    of = f"{name.replace('-', ' ')}{', ' if form else ''}{form}"
    source = f"NVIDIA's published figures of the {of}: dense, at the boost clock"
    return Card(name, capability, bandwidth * T, {dtype: rate * T for dtype, rate in given.items() if rate}, source)


CARDS = (
    _card("H200", (9, 0), 4.8, 67.0, 494.7, 989.4, "SXM"),
    _card("H100", (9, 0), 3.35, 67.0, 494.7, 989.4, "SXM"),
    _card("H100-PCIe", (9, 0), 2.0, 51.0, 378.0, 756.0),
    _card("A100", (8, 0), 2.039, 19.5, 156.0, 312.0, "SXM with 80 GB"),
    _card("A100-40GB", (8, 0), 1.555, 19.5, 156.0, 312.0),
    _card("B200", (10, 0), 8.0, 75.0, 1100.0, 2250.0, "1000 W (for f32, publications differ: 75 to 80 TFLOPS)"),
    _card("L40S", (8, 9), 0.864, 91.6, 183.0, 362.0),
    _card("L4", (8, 9), 0.3, 30.3, 60.0, 121.0),
    _card("RTX-4090", (8, 9), 1.008, 82.6, 82.6, 165.2),
    _card("RTX-3090", (8, 6), 0.936, 35.6, 35.6, 71.0),
    _card("V100", (7, 0), 0.9, 15.7, 0.0, 125.0, "SXM2"),
    _card("T4", (7, 5), 0.32, 8.1, 0.0, 65.0),
)


def blocks_per_sm(limits: Limits, threads: int, registers: int, shared_bytes: int) -> int:
    """How many blocks of so many threads an SM holds; ``registers`` are of a thread, ``shared_bytes`` of a block."""
    warps = -(-threads // WARP)
    of_a_warp = max(1, -(-registers * WARP // REGISTER_UNIT)) * REGISTER_UNIT
    by_registers = 4 * (REGISTERS // 4 // of_a_warp) // warps
    of_a_block = -(-(shared_bytes + limits.reserved) // SHARED_UNIT) * SHARED_UNIT
    by_shared = limits.shared_bytes // of_a_block if of_a_block else limits.blocks
    return min(limits.blocks, limits.threads // (warps * WARP), by_registers, by_shared)


def occupancy(limits: Limits, threads: int, registers: int, shared_bytes: int) -> float:
    """The share of an SM's warps that its blocks fill."""
    warps = -(-threads // WARP)
    return blocks_per_sm(limits, threads, registers, shared_bytes) * warps * WARP / limits.threads
