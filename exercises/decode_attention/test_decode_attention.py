"""decode_attention: O = softmax(K q / sqrt(D)) V for one query q per head; q, O [B, H, D], K, V [B, H, N, D] half.

B may be 0, D is 64 or 128. K and V are a cache with room for N >= 1 keys per head. Sequence b has lengths[b] keys, any
number from 0 to N. The cache after them is unused and may be nan. Without keys, O is 0.

The bound. u is the roundoff of f32, h that of half, m the largest x = q . k / sqrt(D) of a head. Errors of different
keys are independent, so their squares add up.
  * q . k is a sum of D products, so x is off by dx = g(D) u sum of |q| |k| / sqrt(D), and by u (1 + |x| + |m|) as it is
    shifted and scaled. It is a relative error of the weight P = exp(x) / sum of exp(x).
  * A weight may be rounded to half before it meets V: h, as a share; an absolute 2^-25 where it is too small for that.
  * The weighted values and the weights are sums of N: g(N) u of their absolute values, each.
With E = dx + u (1 + |x| + |m|) + h, hence |y - ref| <= c times
    h |ref| + root of sum of (P V E)^2 + |ref| root of sum of (P E)^2 + 2 g(N) u sum of P |V| + 2^-25 sum of |V|,
where the last sum is over the keys with P < 2^-14.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf, log, log2, nan, sqrt
from typing import TYPE_CHECKING

from grader.content.formulas import softmax
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
    normal,
)

if TYPE_CHECKING:
    import torch
    from numpy import ndarray

UNIT, HALF = 2.0**-24, 2.0**-11  # roundoff of f32, of half
NORMAL, TINY = 2.0**-14, 2.0**-25  # the smallest normal half, and half of the smallest one


def g(terms: int) -> float:
    """By how many roundings a sum of so many terms is off."""
    return min(terms, 8 * sqrt(terms))


def by_sequence(of: Callable[..., ndarray], q: ndarray, K: ndarray, V: ndarray, lengths: ndarray) -> ndarray:
    """What ``of`` makes of the q [H, 1, D] and the keys and values [H, length, D] of each sequence; 0 without keys."""
    import numpy

    out = numpy.zeros_like(q)
    for b, length in enumerate(lengths.tolist()):
        if length > 0:
            out[b] = of(q[b][:, None], K[b, :, :length], V[b, :, :length])[:, 0]
    return out


def attention(q: ndarray, k: ndarray, v: ndarray) -> ndarray:
    return softmax(q @ k.swapaxes(-1, -2) / sqrt(q.shape[-1])) @ v


def attention_bound(q: ndarray, k: ndarray, v: ndarray) -> ndarray:
    """The bound of the docstring above, without the h |ref| that every output gets, over the roundoff of f32."""
    import numpy

    width, keys, columns = q.shape[-1], k.shape[-2], k.swapaxes(-1, -2)
    x = q @ columns / sqrt(width)
    weight = softmax(x)
    error = g(width) * (abs(q) @ abs(columns)) / sqrt(width) + 1 + abs(x) + abs(x).max(axis=-1, keepdims=True)
    off = (weight * (UNIT * error + HALF)) ** 2
    bound = numpy.sqrt(off @ v**2) + abs(weight @ v) * numpy.sqrt(off.sum(axis=-1, keepdims=True))
    bound += 2 * g(keys) * UNIT * (weight @ abs(v)) + TINY * (weight < NORMAL) @ abs(v)
    return bound / UNIT


def reference(q: ndarray, K: ndarray, V: ndarray, lengths: ndarray, sizes: Sizes) -> ndarray:
    return by_sequence(attention, q, K, V, lengths)


def magnitude(q: ndarray, K: ndarray, V: ndarray, lengths: ndarray, sizes: Sizes) -> ndarray:
    return by_sequence(attention_bound, q, K, V, lengths)


# -- values ----------------------------------------------------------------------------------------------------------

# Lengths follow from the sizes, so that the functions that fill the cache know where they end. All of these are [B].


def full(sizes: Sizes) -> ndarray:
    """Every sequence fills its room. Timed calls get these: then torch's operator without lengths answers the same."""
    import numpy

    return numpy.full(sizes["B"], sizes["N"])


def ragged(sizes: Sizes) -> ndarray:
    """From N down, each sequence some two fifths of N shorter than the one before, around the corner after 1."""
    import numpy

    return (sizes["N"] - 1 - numpy.arange(sizes["B"]) * (2 * sizes["N"] // 5 + 1)) % sizes["N"] + 1


def with_empty(sizes: Sizes) -> ndarray:
    """0 keys, 1 key, about half of N, and again."""
    import numpy

    return numpy.array([0, 1, (sizes["N"] + 1) // 2])[numpy.arange(sizes["B"]) % 3]


Lengths = Callable[[Sizes], "ndarray"]


def given(lengths: Lengths) -> Fill:
    return lambda rng, shape, sizes: lengths(sizes)


def stale(fill: Fill, lengths: Lengths) -> Fill:
    """K or V with nan after each sequence's keys. A kernel that reads it gives nan, even with weight 0."""

    def filled(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        behind = numpy.arange(sizes["N"]) >= lengths(sizes)[:, None]
        return numpy.where(behind[:, None, :, None], nan, fill(rng, shape, sizes))

    return filled


def codes(of: ndarray, sizes: Sizes) -> ndarray:
    """Vectors of D elements for whole numbers below N: 32 for each bit that is set, -32 for each that is not, then 0.

    The product of two is 1024 for every bit that is equal, and -1024 for every other: largest with itself, by 2048.
    """
    import numpy

    code = numpy.zeros((*of.shape, sizes["D"]))
    for bit in range(max(1, ceil(log2(sizes["N"])))):
        code[..., bit] = (of >> bit & 1) * 64.0 - 32.0
    return code


def wanted(lengths: Lengths) -> Fill:
    """For each query the code of some key that is there. All other weights are 0: O is that key's row of V."""

    def filled(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        places = rng.uniform(shape[:-1], 0, 1) * lengths(sizes)[:, None]
        return codes(places.astype(numpy.int64), sizes)

    return filled


def labels(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    import numpy

    return numpy.broadcast_to(codes(numpy.arange(sizes["N"]), sizes), shape)


def whole(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    return rng.integers(shape, -64, 64)


def ones(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    return rng.choice(shape, (1.0,))


def rising(low: float, high: float) -> Fill:
    """Keys whose x, with queries of ones, rises from low to high: a key that is not there, with an x of 0, takes all
    where these are negative."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        steps = numpy.linspace(low, high, sizes["N"]) / sqrt(sizes["D"])
        return numpy.broadcast_to(steps[:, None], shape)

    return fill


def large(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Rows of size 1, 10 or 100: x up to some 10 000 of either sign, which the sums of the weights must bear."""
    return rng.normal(shape) * 10.0 ** rng.integers((*shape[:-1], 1), 0, 2)


def values(name: str, lengths: Lengths, q: Fill, K: Fill, V: Fill, *, exact: bool = False) -> InputKind:
    """Values with these lengths, and nan behind them where that is anywhere."""
    if lengths is not full:
        K, V = stale(K, lengths), stale(V, lengths)
    return InputKind(name, {"q": q, "K": K, "V": V, "lengths": given(lengths)}, exact=exact)


# -- baselines -------------------------------------------------------------------------------------------------------


def whole_cache(backend: str) -> Callable[..., Callable[[], object]]:
    """torch's attention by one backend over all N keys, as if every sequence filled its room."""

    def baseline(q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
        from torch.nn import attention
        from torch.nn.functional import scaled_dot_product_attention

        other = getattr(attention, "current_flash_attention_impl", lambda: None)()
        if other is not None:  # the name FLASH_ATTENTION means FlashAttention-2 unless the process registered another
            raise RuntimeError(f"torch runs {other} in place of FlashAttention-2")
        q = q[:, :, None]

        def run() -> object:
            with attention.sdpa_kernel(getattr(attention.SDPBackend, backend)):
                return scaled_dot_product_attention(q, K, V)

        return run

    return baseline


def masked(
    q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, lengths: torch.Tensor, **_: torch.Tensor
) -> Callable[[], object]:
    """torch's attention, the backend left to torch, the lengths as a mask that is made before the clock runs."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    there = torch.arange(K.shape[-2], device=K.device) < lengths[:, None]
    mask = torch.zeros(there.shape, dtype=q.dtype, device=q.device).masked_fill(~there, -inf)[:, None, None]
    q = q[:, :, None]
    return lambda: scaled_dot_product_attention(q, K, V, attn_mask=mask)


# -- spec ------------------------------------------------------------------------------------------------------------


def shape(B: int, H: int, N: int, D: int) -> Sizes:
    return {"B": B, "H": H, "N": N, "D": D}


CACHE = ("B", "H", "N", "D")


def of_logits(change: Callable[[ndarray, int], ndarray]) -> Callable[..., ndarray]:
    """Attention of q . k, and D, changed to other logits."""

    def of_inputs(q: ndarray, K: ndarray, V: ndarray, lengths: ndarray, sizes: Sizes) -> ndarray:
        return by_sequence(lambda q, k, v: softmax(change(q @ k.swapaxes(-1, -2), q.shape[-1])) @ v, q, K, V, lengths)

    return of_inputs


def weights_total(q: ndarray, k: ndarray) -> ndarray:
    """The sum of exp(logit - the largest) of each query."""
    import numpy

    x = q @ k.swapaxes(-1, -2) / sqrt(q.shape[-1])
    return numpy.exp(x - x.max(axis=-1, keepdims=True)).sum(axis=-1, keepdims=True)


def with_last_again(q: ndarray, k: ndarray, v: ndarray) -> ndarray:
    import numpy

    keys, rows = (numpy.concatenate((each, each[..., -1:, :]), axis=-2) for each in (k, v))
    return attention(q, keys, rows)


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "without the factor 1 / sqrt(D)": of_logits(lambda x, D: x),
    "1 / D in place of 1 / sqrt(D)": of_logits(lambda x, D: x / D),
    "powers of 2 in place of e: no factor log2(e)": of_logits(lambda x, D: x / sqrt(D) * log(2)),
    "the mean of V: all weights are equal": of_logits(lambda x, D: 0 * x),
    "the last key of each sequence is missing": lambda q, K, V, lengths, sizes: reference(q, K, V, lengths - 1, sizes),
    "the first key alone": lambda q, K, V, lengths, sizes: reference(q, K, V, lengths.clip(max=1), sizes),
    "the factor log2(e) twice": of_logits(lambda x, D: x / sqrt(D) / log(2)),
    "sqrt(D) in place of 1 / sqrt(D)": of_logits(lambda x, D: x * sqrt(D)),
    "the opposite sign of the logits": of_logits(lambda x, D: -x / sqrt(D)),
    "the first key is missing": lambda q, K, V, lengths, sizes: by_sequence(
        lambda q, k, v: attention(q, k[..., 1:, :], v[..., 1:, :]), q, K, V, lengths
    ),
    "not divided by the sum of the weights": lambda q, K, V, lengths, sizes: by_sequence(
        lambda q, k, v: attention(q, k, v) * weights_total(q, k), q, K, V, lengths
    ),
    "the last key alone": lambda q, K, V, lengths, sizes: by_sequence(
        lambda q, k, v: attention(q, k[..., -1:, :], v[..., -1:, :]), q, K, V, lengths
    ),
    "the last key counts twice": lambda q, K, V, lengths, sizes: by_sequence(with_last_again, q, K, V, lengths),
    "all places of the cache count, beyond each sequence's length": lambda q, K, V, lengths, sizes: reference(
        q, K, V, 0 * lengths + sizes["N"], sizes
    ),
    "K is used for V": lambda q, K, V, lengths, sizes: reference(q, K, K, lengths, sizes),
    "the length of the first sequence for all": lambda q, K, V, lengths, sizes: reference(
        q, K, V, 0 * lengths + lengths[:1], sizes
    ),
}

SPEC = Spec(
    computes="O = softmax(K q / sqrt(D)) V over the first lengths[b] keys",
    operations=Operations(
        "O = p V, p = softmax(K q / sqrt(D)); the two products only",
        "4 per key and column of D: a multiply-add in K q and one in p V. The softmax is left out",
        lambda sizes: 4 * sizes["B"] * sizes["H"] * sizes["N"] * sizes["D"],
    ),
    inputs=(
        Tensor("q", ("B", "H", "D")),
        Tensor("K", CACHE),
        Tensor("V", CACHE),
        Tensor("lengths", ("B",), "i32"),
    ),
    outputs=(Tensor("O", ("B", "H", "D")),),
    sizes={"B": Size(0, 4), "H": Size(1, 4), "N": Size(1, 600), "D": Size(64, 128)},
    values=(
        values("normal", full, normal(), normal(), normal(mean=1.0)),
        values("lookup", ragged, wanted(ragged), labels, whole, exact=True),
        values("ragged", ragged, normal(), normal(), normal(mean=1.0)),
        values("some empty", with_empty, normal(), normal(), normal(mean=1.0)),
        values("rising", ragged, ones, rising(-24, -8), normal(mean=1.0)),
        # Unless the row's own maximum is subtracted, no exponential is above 0, or all are infinite.
        values("far below", ragged, ones, rising(-124, -108), normal(mean=1.0)),
        values("far above", ragged, ones, rising(108, 124), normal(mean=1.0)),
        values("large", ragged, large, large, normal(mean=1.0)),
        # What a chunk of keys adds, a later one takes away: O is small, and a part of it that is kept in half is seen.
        values("cancelling", full, normal(), doubled(normal(), axis=-2), cancelling(normal(mean=1.0), axis=-2)),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=magnitude),
    # No sequence, one key; around what a warp or a block takes in one step (4 to 64 keys), and around chunks of 128 to
    # 512: one, several, a last one that is short or lies behind the length. Sequences enough for unlike lengths.
    named_sizes=(
        shape(0, 1, 1, 64),
        shape(1, 1, 1, 64),
        shape(2, 1, 1, 128),
        shape(3, 2, 2, 64),
        shape(1, 3, 7, 128),
        shape(4, 1, 17, 64),
        shape(2, 2, 31, 128),
        shape(3, 1, 33, 64),
        shape(2, 1, 63, 128),
        shape(3, 2, 64, 64),
        shape(2, 3, 65, 64),
        shape(3, 1, 127, 128),
        shape(2, 1, 128, 64),
        shape(3, 1, 129, 64),
        shape(4, 2, 150, 64),
        shape(3, 1, 255, 64),
        shape(3, 1, 256, 128),
        shape(3, 2, 257, 64),
        shape(2, 1, 300, 128),
        shape(3, 1, 511, 64),
        shape(3, 1, 513, 64),
        shape(1, 1, 1030, 64),
        shape(1, 1, 4300, 128),  # more chunks than a block has groups
        shape(1, 2113, 1, 64),  # more heads than all chunks that are kept
        shape(3, 2, 400, 128),  # the last one gets every kind of values
    ),
    # The first two are tried on a GPU by default: many chunks of few heads, and heads whose chunks
    # would be more than are kept.
    large=(shape(2, 3, 20_011, 128), shape(7, 300, 300, 128), shape(1, 1, 1_000_003, 64), shape(20, 250, 70, 64)),
    work=lambda sizes: 4 * sizes["B"] * sizes["H"] * (sizes["N"] + 5) * sizes["D"],
    slice_dim="B",
    baselines={
        "flash_attention_2": whole_cache("FLASH_ATTENTION"),
        "sdpa_cudnn": whole_cache("CUDNN_ATTENTION"),
        "sdpa_masked": masked,
    },
)
