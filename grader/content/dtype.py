"""Dtype name -> what C++, numpy, torch and the tolerance formula need to know of it.

One table; a dtype that is not in it does not exist for the grader. Nothing here imports numpy or torch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dtype:
    """``roundoff`` is u, half the distance from 1.0 to the next number (Higham, Accuracy and Stability, 2.1);
    ``tiny`` is the smallest normal number, below which u * tiny is the most that rounding changes.

    ``poison`` is the byte that outputs are filled with before a call: a NaN for every float format, a large
    negative number for integers.
    """

    name: str  # as in difficulty.yaml and in kata names
    ctype: str  # as in a launcher's parameter list
    storage: str  # the numpy dtype that holds its bits
    torch_name: str  # attribute of the torch module
    itemsize: int  # bytes
    roundoff: float  # 0.0 for integers
    tiny: float  # 0.0 for integers
    header: str | None = None  # CUDA header that declares ctype
    poison: int = 0xFF

    @property
    def is_float(self) -> bool:
        return self.roundoff > 0.0

    @property
    def unwritten_run(self) -> int:
        """How many elements side by side must hold poison, and nothing else, to count as never written.

        Whole numbers of one byte take all values, poison among them.
        """
        return 1 if self.is_float or self.itemsize > 1 else 8


DTYPES: dict[str, Dtype] = {
    dtype.name: dtype
    for dtype in (
        Dtype("f64", "double", "float64", "float64", 8, 2.0**-53, 2.0**-1022),
        Dtype("f32", "float", "float32", "float32", 4, 2.0**-24, 2.0**-126),
        Dtype(
            "tf32", "float", "float32", "float32", 4, 2.0**-11, 2.0**-126
        ),  # stored as f32, multiplied with 11 significant bits
        Dtype("f16", "half", "float16", "float16", 2, 2.0**-11, 2.0**-14, "cuda_fp16.h"),
        Dtype("bf16", "__nv_bfloat16", "uint16", "bfloat16", 2, 2.0**-8, 2.0**-126, "cuda_bf16.h"),
        Dtype("fp8_e4m3", "__nv_fp8_e4m3", "uint8", "float8_e4m3fn", 1, 2.0**-4, 2.0**-6, "cuda_fp8.h"),
        Dtype("fp8_e5m2", "__nv_fp8_e5m2", "uint8", "float8_e5m2", 1, 2.0**-3, 2.0**-14, "cuda_fp8.h"),
        Dtype("i64", "int64_t", "int64", "int64", 8, 0.0, 0.0, "cstdint", poison=0x9D),
        Dtype("i32", "int", "int32", "int32", 4, 0.0, 0.0, poison=0x9D),
        Dtype("i8", "int8_t", "int8", "int8", 1, 0.0, 0.0, "cstdint", poison=0x9D),
        Dtype("u8", "uint8_t", "uint8", "uint8", 1, 0.0, 0.0, "cstdint", poison=0x9D),
    )
}
