"""flash_attn_wgmma: O = softmax(Q K^T / sqrt(D)) V for each batch and head; Q, K, V, O [B, H, N, D] half.

B, H, N >= 1, and D is 128, in fa_wgmma_d64_f16 64. All values are finite, and sums are in float. The docstring of
flash_attn's spec derives the bound.

fa_wgmma_causal_f16, fa_wgmma_causal_lpt_f16: a query sees its own key and those before it.

fa_wgmma_fp8: Q, K and V are e4m3, and they stand for sq Q, sk K and sv V, with positive sq, sk, sv [B, H]. The Tensor
Cores add 32 products and the sum before them at a time. Each of these 33 terms loses what lies more than 13 bits below
the exponent of the largest of them, and so does the new sum. Numbers of 14 bits are exact.

Its bound, with the names of flash_attn's. Each of the four steps of q . k is off by at most 34 * 2^-13 times the
largest term. It is exact where the elements of the rows are whole multiples of a unit and no sum exceeds 2^13 of the
units' product. That is dx, after the scales. A weight is rounded to e4m3 as 256 times its share of the row's largest,
by h = 2^-4 of it, or by 2^-18 of the row's largest where it is below 2^-14 of that. The largest itself is exact.
Equal weights are rounded in the same direction, so the sum of P V over all others may be off by h as a whole. A tile of
P V has four steps, and each loses at most 34 * 2^-13 of the tile's sum of P |V|. Tiles add up in float. So |y - ref| <=
|ref| / 2048 + twice
    root of sum of (P V E)^2 + |ref| root of sum of (P E)^2 + h |sum of P V but that of the largest P|
    + (136 * 2^-13 + 2 g(N) u) sum of P |V| + 2^-18 max P sum of |V|, the last sum over the small weights,
with E = dx + u (1 + |x| + |m|) + h, and h only where P is not the largest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING

from grader.content.attention import (
    HEADS,
    NEAR_MISSES,
    NEAR_MISSES_CAUSAL,
    NOTHING_OF_A_BOUND,
    VALUES,
    averse,
    baselines,
    by_parts,
    causal,
    labels,
    large,
    logits,
    magnitude,
    reference,
    shape,
    wanted_before,
    weights,
    whole,
)
from grader.content.spec import Accumulated, Fill, InputKind, Operations, Rng, Size, Sizes, Spec, Tensor, normal

if TYPE_CHECKING:
    import torch
    from numpy import ndarray

UNIT, ROUNDED = 2.0**-24, 2.0**-4  # roundoff of f32 and of e4m3
STEP, LOST, BITS = 32, 34 * 2.0**-13, 2.0**13  # products of e4m3 that are added at a time; what 34 terms lose of one
TILE = 128  # keys whose products stay in the Tensor Cores' sums
SMALL, TINY = 2.0**-14, 2.0**-18  # of the largest weight: below it a weight is denormal, and half of the smallest one


def sizes_of(*counts: tuple[int, int, int], D: int = 128) -> tuple[dict[str, int], ...]:
    return tuple(dict(shape(B, H, N, D)) for B, H, N in counts)


# (B, H, N): one key; one short of 64 queries, 64, one past; the same of a tile of 128 keys, and of 128 queries.
SHORT = ((1, 1, 1), (1, 2, 7), (2, 1, 63), (1, 1, 64), (1, 3, 65), (1, 1, 127), (1, 1, 128), (2, 1, 129))
LONG = ((1, 2, 257), (1, 1, 384), (1, 1, 897))  # three, three and eight tiles: the slots go round four times
LARGE = ((2, 3, 1000), (1, 1, 8192), (1, 20_001, 3), (2, 2, 2049))

SPEC = Spec(
    computes="O = softmax(Q K^T / sqrt(D)) V",
    operations=Operations(
        "O = P V, P = softmax(Q K^T / sqrt(D)); the two products only",
        "4 per query, key and column of D: a multiply-add in Q K^T and one in P V. The softmax is left out",
    ),
    inputs=(Tensor("Q", HEADS), Tensor("K", HEADS, unsliced=True), Tensor("V", HEADS, unsliced=True)),
    outputs=(Tensor("O", HEADS),),
    sizes={"B": Size(1, 2), "H": Size(1, 3), "N": Size(1, 300), "D": Size(128, 128)},
    values=(*VALUES, InputKind("large", {"Q": large, "K": large, "V": normal(mean=1.0)})),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=magnitude("f32")),
    named_sizes=sizes_of(*SHORT, *LONG),
    large=sizes_of(*LARGE),
    work=lambda sizes: sizes["B"] * sizes["H"] * sizes["N"] ** 2 * sizes["D"] // 8,
    flops=lambda sizes: 4 * sizes["B"] * sizes["H"] * sizes["N"] ** 2 * sizes["D"],
    slice_dim="N",
    batch=("B", "H"),
    baselines=baselines(),
)

CAUSAL = replace(
    SPEC,
    computes="O = softmax(mask(Q K^T / sqrt(D))) V",
    operations=Operations(
        "O = P V, P = softmax(mask(Q K^T / sqrt(D))); the two products only, for the keys that a query sees",
        "4 per query, key that it sees and column of D: a multiply-add in Q K^T and one in P V. "
        "A head has N (N + 1) / 2 such pairs",
    ),
    values=tuple(
        replace(values, fill={"Q": wanted_before, "K": labels, "V": whole}) if values.exact else values
        for values in SPEC.values
    ),
    reference=causal,
    near_misses=NEAR_MISSES_CAUSAL,
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=magnitude("f32", masked=True)),
    work=lambda sizes: SPEC.work(sizes) // 2,
    flops=lambda sizes: 2 * sizes["B"] * sizes["H"] * sizes["N"] * (sizes["N"] + 1) * sizes["D"],
    reference_takes_rows=True,
    baselines=baselines(is_causal=True),
)

# Four heads at a time: all of them, and one that is left.
CAUSAL_LPT = replace(CAUSAL, named_sizes=sizes_of(*SHORT, (2, 2, 129), (1, 5, 257), *LONG[1:]))

# Three consumers: one short of 192 queries, 192, and one past.
D64 = replace(
    SPEC,
    sizes={**SPEC.sizes, "D": Size(64, 64)},
    named_sizes=sizes_of(*SHORT, (1, 1, 191), (1, 2, 192), (2, 1, 193), *LONG, D=64),
    large=sizes_of(*LARGE, D=64),
)

# -- fa_wgmma_fp8 ----------------------------------------------------------------------------------------------------


def scaled(of: Callable[..., ndarray]) -> Callable[..., ndarray]:
    """A function of Q, K and V -> one of tensors and the scale of each head of each."""

    def of_scaled(
        Q: ndarray, K: ndarray, V: ndarray, sq: ndarray, sk: ndarray, sv: ndarray, sizes: Sizes, *rows: ndarray | None
    ) -> ndarray:
        return of(*(X * s[..., None, None] for X, s in ((Q, sq), (K, sk), (V, sv))), sizes, *rows)

    return of_scaled


def units(X: ndarray) -> ndarray:
    """For each row the largest power of two of which all its elements are multiples. e4m3 ends at 2^-9."""
    import numpy

    whole_numbers = (X * 2.0**9).astype(numpy.int64)
    found: ndarray = numpy.bitwise_or.reduce(whole_numbers, axis=-1)
    return (found & -found) * 2.0**-9


def lost_of_logits(q: ndarray, k: ndarray) -> ndarray:
    """What q . k may lose, [rows, keys]."""
    import numpy

    partial, lost, largest, size, other = numpy.zeros((5, *q.shape[:-1], k.shape[-2]), q.dtype)
    for start in range(0, q.shape[-1], STEP):
        part = (q[..., start : start + STEP], k[..., start : start + STEP])
        highest, of_keys = (abs(each).max(axis=-1) for each in part)
        term = numpy.multiply(highest[..., :, None], of_keys[..., None, :], out=other)
        numpy.maximum(term, size, out=term)
        partial += part[0] @ part[1].swapaxes(-1, -2)
        numpy.maximum(term, numpy.abs(partial, out=size), out=term)
        numpy.maximum(largest, term, out=largest)
        lost += numpy.multiply(term, LOST, out=term)
    units_of = (BITS * units(q)).astype(q.dtype)[..., :, None], units(k).astype(q.dtype)[..., None, :]
    lost[largest <= numpy.multiply(*units_of, out=other)] = 0.0
    return lost


def fp8_magnitude(Q: ndarray, K: ndarray, V: ndarray, sq: ndarray, sk: ndarray, sv: ndarray, sizes: Sizes) -> ndarray:
    """The bound of the docstring above, without what every output gets for its last rounding, over u. It is worked out
    in float32: to 10^-6 of itself."""

    def of_part(q: ndarray, k: ndarray, v: ndarray, scale: ndarray) -> ndarray:
        import numpy

        exact = logits(q, k)
        exact *= scale[:, :1, :1]
        x = exact.astype(numpy.float32)
        exact -= exact.max(axis=-1, keepdims=True)  # a rounded logit of 30 would change its weight by 2 in 10^6
        wide = weights(exact, NOTHING_OF_A_BOUND)  # of sums that cancel, only these are kept in float64
        weight, values = wide.astype(numpy.float32), v
        q, k, v, scale = (array.astype(numpy.float32) for array in (q, k, v, scale[:, :1, :1]))
        error = lost_of_logits(q, k)
        error *= scale / sqrt(q.shape[-1])
        size, keys, top = abs(v), k.shape[-2], weight.max(axis=-1, keepdims=True)
        numpy.abs(x, out=x)
        x += 1 + x.max(axis=-1, keepdims=True)
        x *= UNIT
        error += x
        error += numpy.multiply(weight < top, numpy.float32(ROUNDED), out=x)
        error *= weight
        off = numpy.square(error, out=error)
        bound = numpy.sqrt(off @ v**2) + abs(wide @ values) * numpy.sqrt(off.sum(axis=-1, keepdims=True))
        bound += ROUNDED * abs((wide * (weight < top)) @ values)
        bound += (TILE // STEP * LOST + 2 * UNIT * min(keys, 8 * sqrt(keys))) * (weight @ size)
        bound += TINY * top * ((weight < SMALL * top) @ size)
        over: ndarray = bound.astype(numpy.float64) / UNIT
        return over

    scale = (sq * sk)[..., None, None] + 0 * K[..., :1]
    found = by_parts(of_part, Q, K, V, scale).reshape(Q.shape)
    return found * sv[..., None, None]


def between(low: float, high: float) -> Fill:
    return lambda rng, shape, sizes: rng.uniform(shape, low, high)


def powers(low: int, high: int) -> Fill:
    """Powers of two from 2^low to 2^high: a product with one of them is exact."""
    return lambda rng, shape, sizes: 2.0 ** rng.integers(shape, low, high)


def first_is_zero(fill: Fill) -> Fill:
    """The row of the first key is 0."""

    def of_others(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        rows = numpy.array(numpy.broadcast_to(fill(rng, shape, sizes), shape))
        rows[..., 0, :] = 0
        return rows

    return of_others


def ones(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    return rng.choice(shape, (1.0,))


def few(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Whole numbers that e4m3 has."""
    return rng.integers(shape, -15, 15)


SCALES = {"sq": between(0.7, 1.4), "sk": between(0.7, 1.4), "sv": between(0.5, 2.0)}


def with_scales(values: InputKind) -> InputKind:
    fill = values.fill
    assert isinstance(fill, dict)
    if values.exact:
        return replace(values, fill={**fill, "V": few, "sq": powers(0, 1), "sk": powers(0, 1), "sv": powers(-3, 3)})
    return replace(values, fill={**fill, **SCALES})


def in_halves(of: Callable[..., Callable[[], object]]) -> Callable[..., Callable[[], object]]:
    """torch's attention of the same tensors in half, which are made before the clock runs. The scales are left out."""

    def baseline(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
        return of(Q.half(), K.half(), V.half())

    return baseline


FP8 = replace(
    SPEC,
    computes="O = sv softmax(sq sk Q K^T / sqrt(D)) V",
    inputs=(
        *(replace(tensor) for tensor in SPEC.inputs),
        *(Tensor(name, ("B", "H"), "f32", unsliced=True) for name in ("sq", "sk", "sv")),
    ),
    outputs=(Tensor("O", HEADS, "f16"),),
    values=(
        *(with_scales(values) for values in SPEC.values if values.name != "large"),
        # All other keys together have less weight than the first, but only they have values.
        InputKind(
            "small weights",
            {
                "Q": averse,
                "K": first_is_zero(ones),
                "V": first_is_zero(normal(mean=1.0)),
                "sq": powers(0, 0),
                "sk": powers(0, 0),
                "sv": between(0.5, 2.0),
            },
        ),
    ),
    reference=scaled(reference),
    near_misses={
        **{name: scaled(of) for name, of in NEAR_MISSES.items()},
        "without sq": lambda Q, K, V, sq, sk, sv, sizes: scaled(reference)(Q, K, V, sq * 0 + 1, sk, sv, sizes),
        "without sk": lambda Q, K, V, sq, sk, sv, sizes: scaled(reference)(Q, K, V, sq, sk * 0 + 1, sv, sizes),
        "without sv": lambda Q, K, V, sq, sk, sv, sizes: scaled(reference)(Q, K, V, sq, sk, sv * 0 + 1, sizes),
        "sv of the first head for all": lambda Q, K, V, sq, sk, sv, sizes: scaled(reference)(
            Q, K, V, sq, sk, sv * 0 + sv[:1, :1], sizes
        ),
    },
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=fp8_magnitude, c=2.0),
    baselines={name: in_halves(of) for name, of in SPEC.baselines.items()},
)

SPECS = {
    "fa_wgmma_serial_f16": SPEC,
    "fa_wgmma_producer_f16": SPEC,
    "fa_wgmma_two_consumers_f16": SPEC,
    "fa_wgmma_overlap_f16": SPEC,
    "fa_wgmma_causal_f16": CAUSAL,
    "fa_wgmma_causal_lpt_f16": CAUSAL_LPT,
    "fa_wgmma_d64_f16": D64,
    "fa_wgmma_fp8": FP8,
}
