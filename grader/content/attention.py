"""What the specs of attention share: the reference, its bound, values, baselines, and usual mistakes.

The docstring of exercises/flash_attn/test_flash_attn.py derives the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, e, inf, log, log2, sqrt
from typing import TYPE_CHECKING, Any

from grader.content.formulas import logsumexp, side_by_side, softmax
from grader.content.spec import Fill, InputKind, Rng, Sizes, cancelling, doubled, integers, normal

if TYPE_CHECKING:
    import torch
    from numpy import ndarray

ROUNDOFF = {"f32": 2.0**-24, "f16": 2.0**-11}
STEP, TILE = 16, 64  # products that one mma adds before it rounds, keys in a tile
NORMAL, TINY = 2.0**-14, 2.0**-25  # the smallest normal half, and half of the smallest one


# Worked out at a time: a processor's cache holds them, and their memory is used again for the next ones. New memory for
# all heads of a long sequence took a third of the time, and threads waited for one another to get it.
LOGITS = 1 << 18
NEXT_TO_NOTHING = 1e-280
NOTHING_OF_A_BOUND = 1e-15  # as a weight: its square is a normal float still


def by_parts(function: Callable[..., ndarray], Q: ndarray, *others: ndarray, hidden: ndarray | None = None) -> ndarray:
    """A function of Q, K, ... [heads, rows, D], of some heads or some rows of Q at a time -> all that it makes of them.

    ``hidden``, [rows of Q or 1, rows of K], is its last argument where it is given.
    """
    import numpy

    rows, keys = Q.shape[-2], others[0].shape[-2]
    heads, step = max(1, LOGITS // (rows * keys)), max(1, min(rows, LOGITS // keys))
    flat = [array.reshape(-1, *array.shape[-2:]) for array in (Q, *others)]
    parts = []
    for first in range(0, len(flat[0]), heads):
        q, *rest = (array[first : first + heads] for array in flat)
        for row in range(0, rows, step):
            masks = [] if hidden is None else [hidden[row : row + step] if len(hidden) > 1 else hidden]
            parts.append((q[:, row : row + step], *rest, *masks))
    return numpy.concatenate([found.reshape(-1, *found.shape[2:]) for found in side_by_side(function, parts)])


def weights(x: ndarray, nothing: float = NEXT_TO_NOTHING) -> ndarray:
    """softmax, where what is next to nothing is 0: a product with a subnormal number takes a hundred times as long."""
    import numpy

    found = softmax(x)
    numpy.multiply(found, found >= nothing, out=found)
    return found


def logits(q: ndarray, k: ndarray) -> ndarray:
    products: ndarray = q @ k.swapaxes(-1, -2) / sqrt(q.shape[-1])
    return products


def reference(Q: ndarray, K: ndarray, V: ndarray, sizes: Sizes) -> ndarray:
    return by_parts(lambda q, k, v: weights(logits(q, k)) @ v, Q, K, V).reshape(Q.shape)


def later(rows: ndarray | None, keys: int) -> ndarray:
    """[queries, keys]: whether a key comes after a query, the queries being those with the indices rows, or all."""
    import numpy

    places = numpy.arange(keys)
    return places > (places if rows is None else rows)[:, None]


def causal(Q: ndarray, K: ndarray, V: ndarray, sizes: Sizes, rows: ndarray | None) -> ndarray:
    """The same where a query sees its own key and those before it."""
    import numpy

    def of_part(q: ndarray, k: ndarray, v: ndarray, hidden: ndarray) -> ndarray:
        mixed: ndarray = weights(numpy.where(hidden, -inf, logits(q, k))) @ v
        return mixed

    return by_parts(of_part, Q, K, V, hidden=later(rows, K.shape[-2])).reshape(Q.shape)


def with_lse(Q: ndarray, K: ndarray, V: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    """O as above, and LSE = log(sum over the keys of exp(x)), the natural logarithm."""
    lse = by_parts(lambda q, k: logsumexp(logits(q, k)), Q, K)
    return reference(Q, K, V, sizes), lse.reshape(Q.shape[:-1])


def shared(K: ndarray, sizes: Sizes) -> ndarray:
    """[B, G, N, D] -> [B, G, R, N, D]: each head of keys or values as often as it has heads of queries."""
    return K[:, :, None].repeat(sizes["R"], axis=2)


def grouped(of: Callable[..., ndarray]) -> Callable[..., ndarray]:
    """A function of Q, K and V with as many heads each -> one where heads of queries share those of keys and values."""

    def of_groups(Q: ndarray, K: ndarray, V: ndarray, sizes: Sizes) -> ndarray:
        return of(Q, shared(K, sizes), shared(V, sizes), sizes)

    return of_groups


def squares_of_tiles(weight: ndarray, size: ndarray) -> ndarray:
    """The sum over tiles of keys of the squares of their share of weight @ size. All whole tiles are one operation:
    between short ones, threads wait for the interpreter."""
    heads, rows, keys = weight.shape
    count = keys // TILE
    whole = weight[..., : count * TILE].reshape(heads, rows, count, TILE).swapaxes(1, 2)
    found: ndarray = ((whole @ size[:, : count * TILE].reshape(heads, count, TILE, size.shape[-1])) ** 2).sum(axis=1)
    if count * TILE < keys:
        found += (weight[..., count * TILE :] @ size[:, count * TILE :]) ** 2
    return found


def magnitude(acc: str, *, masked: bool = False, halves: bool = True) -> Callable[..., ndarray]:
    """The bound of the docstring above, without the h |ref| that every output gets, over the accumulator's roundoff. It
    is worked out in float32, in half the time: to 10^-6 of itself, and to 4 in 1000 for logits of 10 000."""
    u, h, a = ROUNDOFF["f32"], ROUNDOFF["f16"] * halves, ROUNDOFF[acc]

    def of_part(q: ndarray, k: ndarray, v: ndarray, hidden: ndarray | None = None) -> ndarray:
        import numpy

        q, k, v = (array.astype(numpy.float32) for array in (q, k, v))
        width, keys = q.shape[-1], k.shape[-2]
        x, error, other = numpy.zeros((3, *q.shape[:-1], keys), numpy.float32)
        for start in range(0, width, STEP):
            x += numpy.matmul(q[..., start : start + STEP], k[..., start : start + STEP].swapaxes(-1, -2), out=other)
            error += numpy.abs(x, out=other)
        x /= sqrt(width)
        weight = weights(x if hidden is None else numpy.where(hidden, -inf, x), NOTHING_OF_A_BOUND)
        x = numpy.abs(x if hidden is None else numpy.where(hidden, 0, x), out=x)
        error *= a / sqrt(width)
        numpy.add(1, x, out=other)
        other += x.max(axis=-1, keepdims=True)
        other *= u
        other += h
        error += other
        error *= weight
        off = numpy.square(error, out=error)
        bound = numpy.sqrt(off @ v**2) + abs(weight @ v) * (h + numpy.sqrt(off.sum(axis=-1, keepdims=True)))
        size = abs(v)
        bound += 2 * u * min(keys, 8 * sqrt(keys)) * (weight @ size)
        if halves:
            bound += numpy.multiply(numpy.float32(TINY), weight < NORMAL, out=other) @ size
        if acc == "f16":
            bound += 2 * h * numpy.sqrt(squares_of_tiles(weight, size))
        over: ndarray = bound.astype(numpy.float64) / a
        return over

    def of_all(Q: ndarray, K: ndarray, V: ndarray, sizes: Sizes, rows: ndarray | None = None) -> ndarray:
        hidden = later(rows, K.shape[-2]) if masked else None
        return by_parts(of_part, Q, K, V, hidden=hidden).reshape(Q.shape)

    return of_all


def magnitude_with_lse(Q: ndarray, K: ndarray, V: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    """LSE is off by the relative error of the sum of weights: the bound of O for V = 1 and weights not rounded."""
    import numpy

    return magnitude("f32")(Q, K, V, sizes), magnitude("f32", halves=False)(Q, K, numpy.ones_like(V), sizes)[..., 0]


# -- values ----------------------------------------------------------------------------------------------------------


def codes(of: ndarray, shape: tuple[int, ...]) -> ndarray:
    """Vectors of D elements for whole numbers below N: 32 for each bit that is set, -32 for each that is not, then 0.

    The product of two is 1024 for every bit that is equal, and -1024 for every other: largest with itself, by 2048.
    """
    import numpy

    bits = max(1, ceil(log2(shape[-2])))
    code = numpy.zeros(shape, numpy.float16)  # which has them all, in a quarter of the memory
    for bit in range(bits):
        code[..., bit] = (of >> bit & 1) * 64.0 - 32.0
    return code


def wanted(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """For each query the code of some key. All other weights are 0 to the last bit, and O is that key's row of V."""
    return codes(rng.integers(shape[:-1], 0, shape[-2] - 1), shape)


def wanted_before(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """The same, of a key that is not after the query."""
    import numpy

    places = rng.uniform(shape[:-1], 0, 1) * (numpy.arange(shape[-2]) + 1)
    return codes(places.astype(numpy.int64), shape)


def labels(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    import numpy

    return codes(numpy.arange(shape[-2]), shape)


whole = integers(-64, 64)


def sink(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Keys of ones, and one of zeros, among the first 64: see ``averse``."""
    import numpy

    place = rng.integers((*shape[:-2], 1), 0, min(shape[-2], TILE) - 1)
    keys: ndarray = (numpy.arange(shape[-2]) != place).astype(float)[..., None].repeat(shape[-1], axis=-1)
    return keys


def averse(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Queries that give a key of ones 1/4096 of the weight that a key of zeros has: too little for a sum in half."""
    return rng.choice(shape, (-log(4096) / sqrt(shape[-1]),))


def rising(low: float, high: float) -> Fill:
    """Keys whose x, with queries of ones, rises from low to high: every tile has a new maximum. Where all are negative,
    a key that is not there, with an x of 0, would take all."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        steps = numpy.linspace(low, high, shape[-2]) / sqrt(shape[-1])
        return numpy.broadcast_to(steps[:, None], shape)

    return fill


def ones(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    return rng.choice(shape, (1.0,))


def large(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Rows of size 1, 10 or 100: x up to some 10 000 of either sign."""
    return rng.normal(shape) * 10.0 ** rng.integers((*shape[:-1], 1), 0, 2)


cancelled = cancelling(normal(mean=1.0), axis=-2)

VALUES = (
    InputKind("normal", {"Q": normal(), "K": normal(), "V": normal(mean=1.0)}),
    InputKind("lookup", {"Q": wanted, "K": labels, "V": whole}, exact=True),
    InputKind("one key takes much", {"Q": averse, "K": sink, "V": normal(mean=1.0)}),
    InputKind("rising", {"Q": ones, "K": rising(-24, -8), "V": normal(mean=1.0)}),
    # Unless the row's own maximum is subtracted, no exponential is above 0, or all are infinite.
    InputKind("far below", {"Q": ones, "K": rising(-124, -108), "V": normal(mean=1.0)}),
    InputKind("far above", {"Q": ones, "K": rising(108, 124), "V": normal(mean=1.0)}),
    # What one tile of keys adds, a later one takes away: O is small, and a part of it that is kept in half is seen.
    InputKind("cancelling", {"Q": normal(), "K": doubled(normal(), axis=-2), "V": cancelled}),
)


# -- baselines -------------------------------------------------------------------------------------------------------


def sdpa(backend: str, **options: bool) -> Callable[..., Callable[[], object]]:
    """torch's attention, by one backend and no other. Heads of queries in groups become one dimension for it."""

    def baseline(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
        from torch.nn import attention
        from torch.nn.functional import scaled_dot_product_attention

        other = getattr(attention, "current_flash_attention_impl", lambda: None)()
        if other is not None:  # the name FLASH_ATTENTION means FlashAttention-2 unless the process registered another
            raise RuntimeError(f"torch runs {other} in place of FlashAttention-2")
        Q = Q.flatten(1, -3)
        flags: dict[str, Any] = {**options}

        def run() -> object:
            with attention.sdpa_kernel(getattr(attention.SDPBackend, backend)):
                return scaled_dot_product_attention(Q, K, V, **flags)

        return run

    return baseline


def baselines(**options: bool) -> dict[str, Callable[..., Callable[[], object]]]:
    return {
        "flash_attention_2": sdpa("FLASH_ATTENTION", **options),
        "sdpa_efficient": sdpa("EFFICIENT_ATTENTION", **options),
        "sdpa_cudnn": sdpa("CUDNN_ATTENTION", **options),
    }


# -- usual mistakes --------------------------------------------------------------------------------------------------


def shape(B: int, H: int, N: int, D: int) -> Sizes:
    return {"B": B, "H": H, "N": N, "D": D}


HEADS = ("B", "H", "N", "D")


def attended(scale: Callable[[int], float], *, base: float = e) -> Callable[..., ndarray]:
    """Attention with another ``scale`` of the logits, as a function of D, or powers of another ``base``."""

    def of_inputs(Q: ndarray, K: ndarray, V: ndarray, sizes: Sizes) -> ndarray:
        factor = scale(Q.shape[-1]) * sqrt(Q.shape[-1]) * log(base)
        weight = softmax(logits(Q * factor, K))
        mixed: ndarray = weight @ V
        return mixed

    return of_inputs


def with_more_keys(more: Callable[[int], int]) -> Callable[..., ndarray]:
    """Attention in which N keys are followed by ``more`` of them that are 0, as rows of V past the end are."""

    def of_inputs(Q: ndarray, K: ndarray, V: ndarray, sizes: Sizes) -> ndarray:
        import numpy

        zeros = numpy.zeros((*K.shape[:-2], more(K.shape[-2]), K.shape[-1]))
        keys, rows = (numpy.concatenate((given, zeros), axis=-2) for given in (K, V))
        mixed: ndarray = softmax(logits(Q, keys)) @ rows
        return mixed

    return of_inputs


def seen_up_to(last: Callable[[ndarray], ndarray]) -> Callable[..., ndarray]:
    """A query sees the keys up to a function of its place."""

    def of_inputs(Q: ndarray, K: ndarray, V: ndarray, sizes: Sizes, rows: ndarray | None) -> ndarray:
        import numpy

        places = numpy.arange(K.shape[-2])
        mixed: ndarray = softmax(numpy.where(places > last(places)[:, None], -inf, logits(Q, K))) @ V
        return mixed

    return of_inputs


def hidden_from(distance: int, scale: Callable[[int], float] = lambda D: 1.0) -> Callable[..., ndarray]:
    """A query sees the keys before its own place + ``distance``. ``scale``: of the logits, beside 1 / sqrt(D)."""

    def of_inputs(Q: ndarray, K: ndarray, V: ndarray, sizes: Sizes, rows: ndarray | None) -> ndarray:
        import numpy

        places = numpy.arange(K.shape[-2])
        hidden = places >= places[:, None] + distance
        mixed: ndarray = softmax(numpy.where(hidden, -inf, logits(Q * scale(Q.shape[-1]), K))) @ V
        return mixed

    return of_inputs


def undivided(Q: ndarray, K: ndarray, V: ndarray, sizes: Sizes) -> ndarray:
    """The weights are not divided by their sum; the largest of a row is 1."""
    import numpy

    given = logits(Q, K)
    mixed: ndarray = numpy.exp(given - given.max(axis=-1, keepdims=True)) @ V
    return mixed


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "not divided by the sum of the weights": undivided,
    "without the factor 1 / sqrt(D)": attended(lambda D: 1.0),
    "1 / D in place of 1 / sqrt(D)": attended(lambda D: 1 / D),
    "sqrt(D) in place of 1 / sqrt(D)": attended(sqrt),
    "powers of 2 in place of e: no factor log2(e)": attended(lambda D: 1 / sqrt(D), base=2.0),
    "the factor log2(e) twice": attended(lambda D: 1 / sqrt(D), base=e ** (1 / log(2))),
    "the mean of V: all weights are equal": lambda Q, K, V, sizes: V.mean(axis=-2, keepdims=True).repeat(
        V.shape[-2], axis=-2
    ),
    "the sum of V": lambda Q, K, V, sizes: V.sum(axis=-2, keepdims=True).repeat(V.shape[-2], axis=-2),
    "a causal mask": lambda Q, K, V, sizes: hidden_from(1)(Q, K, V, sizes, None),
    "the last key is missing": lambda Q, K, V, sizes: softmax(logits(Q, K[..., :-1, :])) @ V[..., :-1, :],
    "the first key past the end is not masked": with_more_keys(lambda N: 1 if N % 16 else 0),
    "keys past the end are not masked, in tiles of 16": with_more_keys(lambda N: -N % 16),
    "keys past the end are not masked, in tiles of 32": with_more_keys(lambda N: -N % 32),
    "keys past the end are not masked, in tiles of 64": with_more_keys(lambda N: -N % 64),
    "K is used for V": lambda Q, K, V, sizes: softmax(logits(Q, K)) @ K,
    "V is used for K": lambda Q, K, V, sizes: softmax(logits(Q, V)) @ V,
    "K and V exchanged": lambda Q, K, V, sizes: softmax(logits(Q, V)) @ K,
    "Q and K exchanged": lambda Q, K, V, sizes: softmax(logits(K, Q)) @ V,
    "Q is used for K": lambda Q, K, V, sizes: softmax(logits(Q, Q)) @ V,
    "a softmax over the queries, not over the keys": lambda Q, K, V, sizes: softmax(logits(Q, K), axis=-2) @ V,
    "logits of the opposite sign": attended(lambda D: -1 / sqrt(D)),
    "the logits themselves, without a softmax": lambda Q, K, V, sizes: logits(Q, K) @ V,
    "the first key is missing": lambda Q, K, V, sizes: softmax(logits(Q, K[..., 1:, :])) @ V[..., 1:, :],
}
NEAR_MISSES_CAUSAL = {
    "no key is hidden: not causal": lambda Q, K, V, sizes, rows: reference(Q, K, V, sizes),
    "the query's own key is hidden, too": hidden_from(0),
    "the key after the query's own is not hidden": hidden_from(2),
    "without the factor 1 / sqrt(D)": hidden_from(1, sqrt),
    "1 / D in place of 1 / sqrt(D)": hidden_from(1, lambda D: 1 / sqrt(D)),
    "powers of 2 in place of e: no factor log2(e)": hidden_from(1, lambda D: log(2)),
    "the factor log2(e) twice": hidden_from(1, lambda D: 1 / log(2)),
    "rows 8 to 15 of each 16 have the mask of the row eight above": seen_up_to(
        lambda places: places - places // 8 % 2 * 8
    ),
    "rows 0 to 7 of each 16 have the mask of the row eight below": seen_up_to(
        lambda places: places + (1 - places // 8 % 2) * 8
    ),
    "all rows of 64 have the mask of their first": seen_up_to(lambda places: places // 64 * 64),
    "no key of the query's own tile of 16 is hidden": seen_up_to(lambda places: places // 16 * 16 + 15),
    "no key of the query's own tile of 64 is hidden": seen_up_to(lambda places: places // 64 * 64 + 63),
    "the keys from the query's own on, not those up to it": lambda Q, K, V, sizes, rows: hidden_from(1)(
        Q[..., ::-1, :], K[..., ::-1, :], V[..., ::-1, :], sizes, None
    )[..., ::-1, :],
}
NEAR_MISSES_LSE = {
    "LSE by powers of 2": lambda Q, K, V, sizes: (reference(Q, K, V, sizes), with_lse(Q, K, V, sizes)[1] / log(2)),
    "LSE without the maximum": lambda Q, K, V, sizes: (
        reference(Q, K, V, sizes),
        with_lse(Q, K, V, sizes)[1] - logits(Q, K).max(axis=-1),
    ),
    "the maximum in place of LSE": lambda Q, K, V, sizes: (reference(Q, K, V, sizes), logits(Q, K).max(axis=-1)),
    "LSE of logits without the factor 1 / sqrt(D)": lambda Q, K, V, sizes: (
        reference(Q, K, V, sizes),
        logsumexp(logits(Q, K) * sqrt(Q.shape[-1])),
    ),
}
