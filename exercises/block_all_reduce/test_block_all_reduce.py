"""block_all_reduce: y[0] = x[0] + x[1] + ... + x[n-1], any n >= 0; the sum of no elements is 0.

The order of the additions is free, and with float atomics it differs from call to call. So the answer may be off by
what rounding can do to a sum of n terms in any order, and two calls need not agree in their last bits. Sums of whole
numbers up to 2^24 need no rounding in float: these must be exact, and they show a single lost element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grader.spec import Accumulated, Numbers, Size, Sizes, Spec, Tensor, Values, normal

if TYPE_CHECKING:
    import torch


def reference(x: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    return x.sum().reshape(1)


def magnitude(x: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    return x.abs().sum().reshape(1)


def whole_numbers(numbers: Numbers, shape: tuple[int, ...], sizes: Sizes) -> torch.Tensor:
    """From 1 up to 8, or less for large n, so that no partial sum passes 2^24. None is 0: every element shows."""
    return numbers.integers(shape, 1, min(8, 2**24 // max(1, sizes["n"])))


def large_and_small(numbers: Numbers, shape: tuple[int, ...], sizes: Sizes) -> torch.Tensor:
    """Terms of either sign from about 2^-12 to 2^12."""
    return numbers.normal(shape) * 2.0 ** numbers.integers(shape, -12, 12)


SPEC = Spec(
    computes="y = sum of x",
    inputs=(Tensor("x", ("n",)),),
    outputs=(Tensor("y", (1,), "acc"),),
    sizes={"n": Size(0, 5000)},
    values=(
        Values("offset", normal(mean=4.0)),
        Values("whole numbers", whole_numbers, exact=True),
        Values("large and small", large_and_small),
    ),
    reference=reference,
    tolerance=Accumulated(terms=lambda sizes: sizes["n"], magnitude=magnitude),
    # Around a vector of 4, a warp (32), and a block (256 or 1024 elements); then several blocks.
    edges=tuple(
        {"n": n}
        for n in (*range(6), 7, 31, 32, 33, 63, 127, 255, 256, 257, 511, 1023, 1024, 1025, 1027, 2049, 3001, 4099)
    ),
    # At most 2^24 elements, so that the whole numbers stay exact.
    large=tuple({"n": n} for n in (300_007, 1_000_003, 4_194_304, 16_777_213)),
    work=lambda sizes: 60 * sizes["n"],
    deterministic=False,
)
