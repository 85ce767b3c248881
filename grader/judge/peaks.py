"""A card's clocks and widths -> the most that it can do in a second. What is faster was not measured right."""

from __future__ import annotations

from collections.abc import Mapping

# Where the peaks come from, for those who read them.
SOURCE = "from its number of SMs, highest clocks and bus width, as its driver reports them; grader/judge/peaks.py"

# Dense operations per SM and cycle: (compute capability) -> by the dtype that is multiplied, a multiply-add counting as
# two. f32 is the CUDA cores'; the rest the Tensor Cores' with f32 accumulators or faster.
# NVIDIA's architecture white papers: A100 (table 1), GA102 (table 2), AD102 (table 2), H100 (table 2), Blackwell
# (RTX PRO and B200 data sheets, rates divided by SMs and clock).
_PER_CYCLE: Mapping[tuple[int, int], Mapping[str, int]] = {
    (8, 0): {"f32": 128, "tf32": 1024, "f16": 2048, "bf16": 2048, "i8": 4096},
    (8, 6): {"f32": 256, "tf32": 256, "f16": 1024, "bf16": 512},
    (8, 9): {"f32": 256, "tf32": 256, "f16": 1024, "bf16": 512},
    (9, 0): {"f32": 256, "tf32": 2048, "f16": 4096, "bf16": 4096, "fp8_e4m3": 8192, "i8": 8192},
    (10, 0): {"f32": 256, "tf32": 4096, "f16": 8192, "bf16": 8192},
    (12, 0): {"f32": 256, "tf32": 256, "f16": 1024, "bf16": 512},
}


def peak_flops(card: Mapping[str, int], capability: tuple[int, int], dtype: str) -> float:
    """Operations a second at the highest clock; 0.0 where the table has no such card or dtype."""
    per_cycle = _PER_CYCLE.get(capability, {}).get(dtype, 0)
    return float(per_cycle) * card.get("sms", 0) * card.get("clock_khz", 0) * 1e3


def peak_bytes(card: Mapping[str, int]) -> float:
    """Bytes a second between the SMs and memory: two transfers per cycle on every line of the bus."""
    return 2.0 * card.get("memory_clock_khz", 0) * 1e3 * card.get("memory_bus_bits", 0) / 8
