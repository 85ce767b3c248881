"""wgmma_fused: products A @ B^T with more in the same kernel, A [M, K], B [N, K], row-major half, sums in float.

M >= 1, N and K multiples of 8. The order of the K additions is free. Tensor Cores cut off what a sum has below its last
bits, so a sum may be off by what rounding can do to a sum of K products, and by the rounding to half.

wgmma_bias_relu_f16: C[i, j] = max(s + bias[j], 0), s the sum over k of A[i, k] * B[j, k]. It is rounded once, and a nan
stays a nan.

wgmma_gelu_aux_f16: Z[i, j] = s + bias[j], rounded once, and Y = gelu(Z), gelu the tanh form of torch. Y may be computed
from the half that Z stores: the bound of Y has the rounding of Z in it, times the derivative of gelu.

wgmma_residual_f16: C = s + R, rounded once.

wgmma_grouped_f16: the rows of A are in groups. The first counts[0] rows are group 0's, then those of group 1 follow,
and all counts have the sum T. Group e has a matrix B[e] [N, K], and C[t, j] is the sum over k of A[t, k] * B[e, j, k]
for a row t of group e, rounded once. A group may be empty.

wgmma_split_k_f16, wgmma_stream_k_f16: C = s, rounded once. Every call gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan, pi, sqrt
from typing import TYPE_CHECKING

from grader.content.spec import (
    Accumulated,
    Fill,
    InputKind,
    Operations,
    Rng,
    Size,
    Sizes,
    Spec,
    Tensor,
    cancelling,
    doubled,
    growth,
    normal,
)

if TYPE_CHECKING:
    import torch
    from numpy import ndarray


# -- values ----------------------------------------------------------------------------------------------------------


def signs(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """1 and -1: every partial sum is a whole number, and no product is 0."""
    return rng.choice(shape, (1.0, -1.0))


def large_and_small(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Elements of either sign from about 2^-4 to 2^4."""
    return rng.repeated(shape, lambda count: rng.normal([count]) * 2.0 ** rng.integers([count], -4, 4))


def odd(low: int, high: int, places: float, factor: float = 1.0) -> Fill:
    """Odd numbers from low to high of either sign, times factor, in some ``places`` of every row; zeros elsewhere."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        def draw(count: int) -> ndarray:
            drawn = (2 * rng.integers([count], low // 2, high // 2) + 1) * rng.choice([count], (factor, -factor))
            return drawn * (rng.uniform([count], 0.0, 1.0) < places / shape[-1])

        return rng.repeated(shape, draw)

    return fill


def eights(low: int, high: int) -> Fill:
    """Multiples of 8, from 8 low to 8 high."""
    return lambda rng, shape, sizes: 8.0 * rng.integers(shape, low, high)


def with_edges(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Normal draws, and now and then an infinity or a nan."""
    import numpy

    plain = rng.normal(shape, std=4.0)
    return numpy.where(rng.integers(shape, 0, 3) > 0, plain, rng.choice(shape, (inf, -inf, nan, 0.0)))


def kinds(name: str, other: Fill) -> tuple[InputKind, ...]:
    """Values for A, B and an addend of this name: sums that no kernel may round twice, and sums that cancel."""
    return (
        InputKind("offset", normal(mean=1.0)),
        InputKind("signs", signs, exact=True),
        InputKind("cancelling", {"A": cancelling(large_and_small), "B": doubled(large_and_small), name: other}),
        InputKind("rounded once", {"A": odd(15, 31, 200), "B": odd(15, 31, 200), name: odd(1, 2047, inf)}, exact=True),
    )


# -- what is computed ------------------------------------------------------------------------------------------------


def range_of(count: int) -> ndarray:
    import numpy

    return numpy.arange(count)


def by_row(bias: ndarray, sizes: Sizes) -> ndarray:
    """The element of each row's number, in place of each column's; they repeat."""
    import numpy

    return numpy.resize(bias, sizes["M"])[:, None]


def without_nan(C: ndarray) -> ndarray:
    import numpy

    return numpy.where(C > 0, C, 0.0)


def relu(x: ndarray) -> ndarray:
    import numpy

    return numpy.maximum(x, 0.0)


def finite(x: ndarray) -> ndarray:
    """Sizes of the finite elements, 0 for the others, which have no error."""
    import numpy

    return numpy.where(numpy.isfinite(x), abs(x), 0.0)


def sigmoid_of(x: ndarray) -> ndarray:
    """(1 + tanh(u)) / 2, u as in gelu."""
    import numpy

    return 1 / (1 + numpy.exp(-2 * sqrt(2 / pi) * (x + 0.044715 * x**3)))


def gelu(x: ndarray) -> ndarray:
    return x * sigmoid_of(x)


def gelu_slope(x: ndarray) -> ndarray:
    s = sigmoid_of(x)
    return s + x * s * (1 - s) * 2 * sqrt(2 / pi) * (1 + 3 * 0.044715 * x**2)


def gelu_magnitudes(A: ndarray, B: ndarray, bias: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    """That of a sum for Z. For Y what an error of Z becomes: that of its sum, and that of its rounding to half."""
    z, of_sum = A @ B.T + bias, abs(A) @ abs(B).T + abs(bias)
    of_rounding = 2.0 ** (24 - 11) / growth(sizes["K"] + 1) * abs(z)
    return of_sum, abs(gelu_slope(z)) * (of_sum + of_rounding)


# -- baselines -------------------------------------------------------------------------------------------------------


def f32_sums() -> None:
    """Makes cuBLAS keep its sums in f32."""
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def torch_bias_relu(A: torch.Tensor, B: torch.Tensor, bias: torch.Tensor, C: torch.Tensor) -> Callable[[], object]:
    """cuBLAS, then two kernels over C."""
    import torch

    f32_sums()
    return lambda: torch.mm(A, B.T, out=C).add_(bias).relu_()


def torch_addmm_relu(A: torch.Tensor, B: torch.Tensor, bias: torch.Tensor, C: torch.Tensor) -> Callable[[], object]:
    """cuBLASLt with the epilogue that it has for a bias and relu."""
    import torch

    f32_sums()
    return lambda: torch._addmm_activation(bias, A, B.T, out=C)


def torch_bias_gelu(
    A: torch.Tensor, B: torch.Tensor, bias: torch.Tensor, Z: torch.Tensor, Y: torch.Tensor
) -> Callable[[], object]:
    """cuBLAS, then a kernel over Z and one from Z to Y."""
    import torch

    f32_sums()
    return lambda: torch.ops.aten.gelu.out(torch.mm(A, B.T, out=Z).add_(bias), approximate="tanh", out=Y)


def torch_addmm_gelu(
    A: torch.Tensor, B: torch.Tensor, bias: torch.Tensor, Z: torch.Tensor, Y: torch.Tensor
) -> Callable[[], object]:
    """cuBLASLt with the epilogue that it has for a bias, then a kernel from Z to Y."""
    import torch

    f32_sums()
    return lambda: torch.ops.aten.gelu.out(torch.addmm(bias, A, B.T, out=Z), approximate="tanh", out=Y)


def torch_residual(A: torch.Tensor, B: torch.Tensor, R: torch.Tensor, C: torch.Tensor) -> Callable[[], object]:
    """cuBLAS, then a kernel over R and C."""
    import torch

    f32_sums()
    return lambda: torch.mm(A, B.T, out=C).add_(R)


def torch_addmm(A: torch.Tensor, B: torch.Tensor, R: torch.Tensor, C: torch.Tensor) -> Callable[[], object]:
    """A copy of R to C, then cuBLAS, which adds to C."""
    import torch

    f32_sums()
    return lambda: torch.addmm(R, A, B.T, out=C)


def torch_mm(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor, **others: torch.Tensor) -> Callable[[], object]:
    """The product alone."""
    import torch

    f32_sums()
    return lambda: torch.mm(A, B.T, out=C)


def torch_mm_to_z(A: torch.Tensor, B: torch.Tensor, Z: torch.Tensor, **others: torch.Tensor) -> Callable[[], object]:
    """The product alone."""
    return torch_mm(A, B, Z)


# -- the katas -------------------------------------------------------------------------------------------------------


def shape(M: int, N: int, K: int) -> Sizes:
    return {"M": M, "N": N, "K": K}


SIZES = {"M": Size(1, 200), "N": Size(1, 300), "K": Size(1, 200)}

# A block's tile is 128 x 256, two of them are one below the other, a slice of K is 64, a ring has 4 stages. Less than a
# tile; one past and one short of a tile in M, 8 past and 8 short in N; K of part of a slice, of one, of fewer and of
# more slices than a kernel spreads its epilogue over. More tiles than SMs, so that a block computes several: of few
# rows on a card of two or three SMs, of many rows and few slices on an H200. Two strips of tiles, the second one lower,
# of one slice.
NAMED = (
    shape(1, 8, 8),
    shape(17, 24, 64),
    shape(65, 72, 136),
    shape(129, 8, 264),
    shape(3, 264, 320),
    shape(130, 136, 56),
    shape(385, 8, 200),
    shape(8, 16, 840),
    shape(17_025, 200, 72),
    shape(2600, 520, 8),
)
# gelu and the residual are spread over up to 16 slices: more of them, in several tiles on a card of few SMs.
MANY_SLICES = (*NAMED, shape(520, 8, 1544))
LARGE = (
    shape(1023, 1032, 1032),
    shape(7, 8, 20_008),
    shape(70_001, 8, 72),
    shape(1, 70_008, 8),
    shape(1024, 1024, 1024),
    shape(4104, 2056, 840),
)
PER = "2 per product: a multiplication and an addition, for each of M * N * K products"


def flops(sizes: Sizes) -> int:
    return 2 * sizes["M"] * sizes["N"] * sizes["K"]


def work(sizes: Sizes) -> int:
    return 4 * sizes["M"] * sizes["N"] * sizes["K"]


A, B, BIAS = Tensor("A", ("M", "K")), Tensor("B", ("N", "K")), Tensor("bias", ("N",))

BIAS_RELU = Spec(
    computes="C = max(A @ B^T + bias, 0)",
    operations=Operations("C = A @ B^T", f"{PER}. The epilogue's few per element do not count"),
    inputs=(A, B, BIAS),
    outputs=(Tensor("C", ("M", "N")),),
    sizes=SIZES,
    values=(*kinds("bias", normal()), InputKind("edges", {"A": normal(), "B": normal(), "bias": with_edges})),
    reference=lambda A, B, bias, sizes: relu(A @ B.T + bias),
    near_misses={
        "without the bias": lambda A, B, bias, sizes: relu(A @ B.T),
        "without the maximum": lambda A, B, bias, sizes: A @ B.T + bias,
        "the bias after the maximum": lambda A, B, bias, sizes: relu(A @ B.T) + bias,
        "the bias of the row's number": lambda A, B, bias, sizes: relu(A @ B.T + by_row(bias, sizes)),
        "the bias of the first column for all": lambda A, B, bias, sizes: relu(A @ B.T + bias[:1]),
        "the bias of the first of each 8 columns for all 8": lambda A, B, bias, sizes: relu(
            A @ B.T + bias[range_of(sizes["N"]) // 8 * 8]
        ),
        "the bias of the first of each 2 columns for both": lambda A, B, bias, sizes: relu(
            A @ B.T + bias[range_of(sizes["N"]) // 2 * 2]
        ),
        "the two bias of each pair of columns exchanged": lambda A, B, bias, sizes: relu(
            A @ B.T + bias[(range_of(sizes["N"]) ^ 1).clip(max=sizes["N"] - 1)]
        ),
        "the bias is subtracted": lambda A, B, bias, sizes: relu(A @ B.T - bias),
        "the product alone": lambda A, B, bias, sizes: A @ B.T,
        "the last k is missing": lambda A, B, bias, sizes: relu(A[:, :-1] @ B[:, :-1].T + bias),
        "nan becomes 0": lambda A, B, bias, sizes: without_nan(A @ B.T + bias),
        "only whole slices of 64 k": lambda A, B, bias, sizes: relu(
            A[:, : sizes["K"] // 64 * 64] @ B[:, : sizes["K"] // 64 * 64].T + bias
        ),
    },
    tolerance=Accumulated(
        terms=lambda sizes: sizes["K"] + 1,
        magnitude=lambda A, B, bias, sizes: abs(A) @ abs(B).T + finite(bias),
    ),
    named_sizes=NAMED,
    large=LARGE,
    work=work,
    flops=flops,
    slice_dim="M",
    baselines={
        "torch.mm, add, relu": torch_bias_relu,
        "torch._addmm_activation": torch_addmm_relu,
        "torch.mm": torch_mm,
    },
)

# gelu of a multiple of 8 is exact in half: itself, or 0 for a negative one.
GELU_AUX = Spec(
    computes="Z = A @ B^T + bias, Y = gelu(Z)",
    operations=Operations("Z = A @ B^T", f"{PER}. The epilogue's few per element do not count"),
    inputs=(A, B, BIAS),
    outputs=(Tensor("Z", ("M", "N")), Tensor("Y", ("M", "N"))),
    sizes=SIZES,
    values=(
        InputKind("near 0", {"A": normal(std=0.25), "B": normal(std=0.5), "bias": normal()}),
        InputKind("offset", normal(mean=1.0)),
        InputKind("multiples of 8", {"A": signs, "B": eights(-1, 1), "bias": eights(-9, 9)}, exact=True),
        InputKind("cancelling", {"A": cancelling(large_and_small), "B": doubled(large_and_small), "bias": normal()}),
        InputKind(
            "rounded once",
            {"A": odd(15, 31, 60), "B": odd(3, 9, 60, factor=8.0), "bias": eights(-250, 250)},
            exact=True,
        ),
    ),
    reference=lambda A, B, bias, sizes: (A @ B.T + bias, gelu(A @ B.T + bias)),
    near_misses={
        "without the bias": lambda A, B, bias, sizes: (A @ B.T, gelu(A @ B.T)),
        "Z after gelu": lambda A, B, bias, sizes: (gelu(A @ B.T + bias), gelu(A @ B.T + bias)),
        "Y without gelu": lambda A, B, bias, sizes: (A @ B.T + bias, A @ B.T + bias),
        "Y without the bias": lambda A, B, bias, sizes: (A @ B.T + bias, gelu(A @ B.T)),
        "Z without the bias": lambda A, B, bias, sizes: (A @ B.T, gelu(A @ B.T + bias)),
        "the bias after gelu": lambda A, B, bias, sizes: (A @ B.T, gelu(A @ B.T) + bias),
        "Y and Z exchanged": lambda A, B, bias, sizes: (gelu(A @ B.T + bias), A @ B.T + bias),
        "the bias of the row's number": lambda A, B, bias, sizes: (
            A @ B.T + by_row(bias, sizes),
            gelu(A @ B.T + by_row(bias, sizes)),
        ),
    },
    tolerance=Accumulated(terms=lambda sizes: sizes["K"] + 1, magnitude=gelu_magnitudes),
    named_sizes=MANY_SLICES,
    large=LARGE,
    work=work,
    flops=flops,
    slice_dim="M",
    baselines={
        "torch.mm, add, gelu": torch_bias_gelu,
        "torch.addmm, gelu": torch_addmm_gelu,
        "torch.mm": torch_mm_to_z,
    },
)

RESIDUAL = Spec(
    computes="C = A @ B^T + R",
    operations=Operations("C = A @ B^T", f"{PER}. The addition of R does not count"),
    inputs=(A, B, Tensor("R", ("M", "N"))),
    outputs=(Tensor("C", ("M", "N")),),
    sizes=SIZES,
    values=kinds("R", normal()),
    reference=lambda A, B, R, sizes: A @ B.T + R,
    near_misses={
        "without R": lambda A, B, R, sizes: A @ B.T,
        "twice R": lambda A, B, R, sizes: A @ B.T + 2 * R,
        "only whole slices of 64 k": lambda A, B, R, sizes: (
            A[:, : sizes["K"] // 64 * 64] @ B[:, : sizes["K"] // 64 * 64].T + R
        ),
    },
    tolerance=Accumulated(
        terms=lambda sizes: sizes["K"] + 1, magnitude=lambda A, B, R, sizes: abs(A) @ abs(B).T + abs(R)
    ),
    named_sizes=MANY_SLICES,
    large=LARGE,
    work=work,
    flops=flops,
    slice_dim="M",
    baselines={"torch.mm, add": torch_residual, "torch.addmm": torch_addmm, "torch.mm": torch_mm},
)

# One tile and several, with fewer slices than an H200 has pairs of SMs, more of them, and a number that does not divide
# them; as many tiles as pairs of SMs and more. K is odd in slices, and its last one is cut.
SPLIT_K = Spec(
    computes="C = A @ B^T",
    operations=Operations("C = A @ B^T", PER),
    inputs=(A, B),
    outputs=(Tensor("C", ("M", "N")),),
    sizes=SIZES,
    values=tuple(
        InputKind(kind.name, kind.fill if callable(kind.fill) else {name: kind.fill[name] for name in "AB"}, kind.exact)
        for kind in kinds("none", normal())
    ),
    reference=lambda A, B, sizes: A @ B.T,
    near_misses={
        "the last k is missing": lambda A, B, sizes: A[:, :-1] @ B[:, :-1].T,
        "only whole slices of 64 k": lambda A, B, sizes: (
            A[:, : sizes["K"] // 64 * 64] @ B[:, : sizes["K"] // 64 * 64].T
        ),
        "only the first half of the slices": lambda A, B, sizes: (
            A[:, : (sizes["K"] + 63) // 128 * 64] @ B[:, : (sizes["K"] + 63) // 128 * 64].T
        ),
        "twice the product": lambda A, B, sizes: 2 * (A @ B.T),
    },
    tolerance=Accumulated(terms=lambda sizes: sizes["K"], magnitude=lambda A, B, sizes: abs(A) @ abs(B).T),
    named_sizes=(
        shape(1, 8, 8),
        shape(17, 24, 64),
        shape(65, 72, 136),
        shape(8, 16, 840),
        shape(130, 264, 1160),
        shape(3, 8, 4360),
        shape(129, 8, 264),
        shape(300, 520, 584),
        shape(2600, 600, 72),
        shape(17_025, 8, 72),
    ),
    large=(
        shape(1023, 1032, 1032),
        shape(7, 8, 20_008),
        shape(520, 776, 16_392),
        shape(70_001, 8, 72),
        shape(1, 70_008, 8),
        shape(512, 512, 32_768),
    ),
    work=work,
    flops=flops,
    slice_dim="M",
    repeatable=True,
    baselines={"torch.mm": torch_mm},
)

# Fewer tiles than an H200 has pairs of SMs, so that all slices are shared; a few more; over twice as many, so that some
# tiles are whole. Shares that begin and end inside a tile, and tiles of two clusters, of three and of many. Five tiles
# of two slices in little work, which a card of one pair of SMs also gets: rounds of whole tiles.
STREAM_K = replace(
    SPLIT_K,
    named_sizes=(
        shape(1, 8, 8),
        shape(17, 24, 64),
        shape(65, 72, 136),
        shape(8, 16, 840),
        shape(130, 264, 1160),
        shape(3, 8, 4360),
        shape(8, 1032, 104),
        shape(300, 520, 584),
        shape(2600, 600, 72),
        shape(17_025, 8, 200),
        shape(17_025, 264, 72),
    ),
)

# -- rows in groups --------------------------------------------------------------------------------------------------


def of_groups(cuts: Callable[[Rng, int, int], ndarray]) -> Fill:
    """Counts of groups whose ends are the E - 1 numbers that ``cuts(rng, E - 1, T)`` gives, sorted, and T."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        (groups,) = shape
        ends = numpy.sort(cuts(rng, groups - 1, sizes["T"])) if groups > 1 else numpy.zeros(0, numpy.int64)
        return numpy.diff(ends, prepend=0, append=sizes["T"])

    return fill


def anywhere(rng: Rng, cuts: int, rows: int) -> ndarray:
    return rng.integers([cuts], 0, rows)


def even(rng: Rng, cuts: int, rows: int) -> ndarray:
    import numpy

    return rows * numpy.arange(1, cuts + 1) // (cuts + 1)


def outside_one(rng: Rng, cuts: int, rows: int) -> ndarray:
    """All rows are in one group."""
    import numpy

    return numpy.where(numpy.arange(cuts) < rng.integers([1], 0, cuts), 0, rows)


def at_few_places(rng: Rng, cuts: int, rows: int) -> ndarray:
    """Many groups are empty."""
    return rng.choice([cuts], (rows // 4, rows // 3, rows)).astype(int)


def grouped(A: ndarray, B: ndarray, counts: ndarray, moved: int = 0) -> ndarray:
    """Each group's rows times its matrix, transposed; groups end ``moved`` rows later than they should."""
    import numpy

    ends = numpy.minimum(numpy.cumsum(counts.astype(int)) + moved, len(A))
    begins = numpy.concatenate([[0], ends[:-1]])
    parts = [A[begin:end] @ matrix.T for begin, end, matrix in zip(begins, ends, B, strict=True)]
    done = numpy.concatenate(parts)
    return numpy.concatenate([done, numpy.zeros((len(A) - len(done), done.shape[1]))])


def torch_groups(A: torch.Tensor, B: torch.Tensor, counts: torch.Tensor, C: torch.Tensor) -> Callable[[], object]:
    """cuBLAS once per group, with counts that the host has from before."""
    import torch

    f32_sums()
    sizes = counts.tolist()
    groups = [group for group in zip(A.split(sizes), B.transpose(1, 2), C.split(sizes), strict=True) if len(group[0])]

    def run() -> None:
        for rows, matrix, out in groups:
            torch.mm(rows, matrix, out=out)

    return run


def grouped_flops(sizes: Sizes) -> int:
    return 2 * sizes["T"] * sizes["N"] * sizes["K"]


def groups(T: int, E: int, N: int, K: int) -> Sizes:
    return {"T": T, "E": E, "N": N, "K": K}


# Groups of less than a tile, of a few rows, of none; many more groups than rows; tiles that hang over the right edge,
# into the rows of the next group's matrix; more tiles than an H200 has pairs of SMs.
GROUPED = Spec(
    computes="C[t] = A[t] @ B[group of t]^T",
    operations=Operations("C[t] = A[t] @ B[group of t]^T", "2 per product: one for each of T * N * K products"),
    inputs=(Tensor("A", ("T", "K")), Tensor("B", ("E", "N", "K")), Tensor("counts", ("E",), "i32")),
    outputs=(Tensor("C", ("T", "N")),),
    sizes={"T": Size(1, 600), "E": Size(1, 6), "N": Size(1, 300), "K": Size(1, 200)},
    values=(
        InputKind("offset", {"A": normal(mean=1.0), "B": normal(mean=1.0), "counts": of_groups(anywhere)}),
        InputKind("signs", {"A": signs, "B": signs, "counts": of_groups(at_few_places)}, exact=True),
        InputKind(
            "cancelling",
            {"A": cancelling(large_and_small), "B": doubled(large_and_small), "counts": of_groups(outside_one)},
        ),
        InputKind(
            "rounded once",
            {"A": odd(15, 31, 200), "B": odd(15, 31, 200), "counts": of_groups(anywhere)},
            exact=True,
        ),
        InputKind("even", {"A": normal(mean=1.0), "B": normal(), "counts": of_groups(even)}),
    ),
    reference=lambda A, B, counts, sizes: grouped(A, B, counts),
    near_misses={
        "all rows times the first matrix": lambda A, B, counts, sizes: A @ B[0].T,
        "each group ends a row too late": lambda A, B, counts, sizes: grouped(A, B, counts, moved=1),
        "each group takes the matrix of the one before": lambda A, B, counts, sizes: grouped(
            A, B[[0, *range(len(B) - 1)]], counts
        ),
    },
    tolerance=Accumulated(
        terms=lambda sizes: sizes["K"],
        magnitude=lambda A, B, counts, sizes: grouped(abs(A), abs(B), counts),
    ),
    named_sizes=(
        groups(1, 1, 8, 8),
        groups(17, 2, 24, 64),
        groups(65, 3, 72, 136),
        groups(300, 2, 264, 72),
        groups(130, 5, 136, 56),
        groups(512, 2, 16, 840),
        groups(20, 70, 8, 72),
        groups(2600, 9, 264, 72),
        groups(17_025, 4, 8, 72),
    ),
    large=(
        groups(1023, 5, 1032, 1032),
        groups(70_001, 3, 8, 72),
        groups(7, 2, 8, 20_008),
        groups(4104, 33, 520, 264),
    ),
    work=lambda sizes: 2 * grouped_flops(sizes),
    flops=grouped_flops,
    slice_dim="N",
    repeatable=True,
    baselines={"torch.mm per group": torch_groups},
)

SPECS = {
    "wgmma_bias_relu_f16": BIAS_RELU,
    "wgmma_gelu_aux_f16": GELU_AUX,
    "wgmma_residual_f16": RESIDUAL,
    "wgmma_split_k_f16": SPLIT_K,
    "wgmma_stream_k_f16": STREAM_K,
    "wgmma_grouped_f16": GROUPED,
}
