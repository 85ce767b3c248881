"""linear_attention: O[t] = sum over s <= t of (Q[t] . K[s]) V[s] for each batch and head; all [B, H, N, 64] float.

Any B, H >= 1, N >= 0; all values are finite. There is no softmax and no scale, so the sums may be taken in any order:
of Q[t] . K[s] times V[s], or of Q[t] times the sum of K[s] V[s]^T.

The bound. In either order an element of O is a sum of products of three, 64 (t + 1) of them, that are added up in sums
of 64 and of t + 1 terms, or fewer. So it is that of a sum of N + 64 terms, with the magnitude sum over s <= t of
(|Q[t]| . |K[s]|) |V[s]|. Whole numbers below 3 keep every sum below 512 N: exact for N up to 32768.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import TYPE_CHECKING

from grader.content.spec import (
    Accumulated,
    InputKind,
    Operations,
    Rng,
    Size,
    Sizes,
    Spec,
    Tensor,
    cancelling,
    doubled,
    integers,
    normal,
)

if TYPE_CHECKING:
    import torch
    from numpy import ndarray

D = 64
QUERIES = 512  # whose products with all keys are held at a time


def reference(Q: ndarray, K: ndarray, V: ndarray, sizes: Sizes, rows: ndarray | None) -> ndarray:
    """Each query against all keys, those after it hidden; rows are the queries' places, None for all."""
    import numpy

    places = numpy.arange(K.shape[-2])
    own = (places if rows is None else rows)[:, None]
    out = numpy.empty_like(Q)
    for b, h in numpy.ndindex(Q.shape[:2]):
        for first in range(0, Q.shape[2], QUERIES):
            some = slice(first, first + QUERIES)
            out[b, h, some] = numpy.where(places > own[some], 0.0, Q[b, h, some] @ K[b, h].T) @ V[b, h]
    return out


def magnitude(Q: ndarray, K: ndarray, V: ndarray, sizes: Sizes, rows: ndarray | None) -> ndarray:
    terms = K.shape[-2] + D
    return min(terms, 8 * sqrt(terms)) * reference(abs(Q), abs(K), abs(V), sizes, rows)


def fading(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Rows that become 2^12 times smaller from the first to the last: what came long before outweighs what is near."""
    import numpy

    return rng.normal(shape) * numpy.logspace(0, -12, shape[-2], base=2.0)[:, None]


# -- baselines -------------------------------------------------------------------------------------------------------


def chunks_of(chunk: int) -> Callable[..., Callable[[], object]]:
    """The shortest chain of torch's operators whose work is linear in N, which must be a multiple of chunk."""

    def baseline(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
        q, k, v = (tensor.unflatten(2, (-1, chunk)) for tensor in (Q, K, V))

        def run() -> object:
            added = k.mT @ v
            state = added.cumsum(dim=2) - added
            return q @ state + (q @ k.mT).tril_() @ v

        return run

    return baseline


def quadratic(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    """All products of queries and keys, those of later keys set to 0."""
    return lambda: (Q @ K.mT).tril_() @ V


# -- spec ------------------------------------------------------------------------------------------------------------


def shape(B: int, H: int, N: int) -> Sizes:
    return {"B": B, "H": H, "N": N}


HEADS = ("B", "H", "N", D)


def after(Q: ndarray, K: ndarray, V: ndarray, sizes: Sizes, rows: ndarray | None) -> ndarray:
    """Each query against the keys after it and its own."""
    return reference(Q[:, :, ::-1], K[:, :, ::-1], V[:, :, ::-1], sizes, None)[:, :, ::-1]


def of_all(Q: ndarray, K: ndarray, V: ndarray, sizes: Sizes, rows: ndarray | None) -> ndarray:
    return Q @ (K.swapaxes(-1, -2) @ V)


def own(Q: ndarray, K: ndarray, V: ndarray, sizes: Sizes, rows: ndarray | None) -> ndarray:
    return (Q * K).sum(axis=-1, keepdims=True) * V


def numbers(count: int) -> ndarray:
    """1, 2, 3, ... one below the other."""
    import numpy

    return numpy.arange(1.0, count + 1)[:, None]


def in_chunks(of: Callable[[ndarray, ndarray, ndarray], ndarray]) -> Callable[..., ndarray]:
    """``of`` the tokens of each chunk alone."""

    def of_inputs(Q: ndarray, K: ndarray, V: ndarray, chunk: int) -> ndarray:
        out = 0 * Q
        for first in range(0, Q.shape[-2], chunk):
            some = slice(first, first + chunk)
            out[:, :, some] = of(Q[:, :, some], K[:, :, some], V[:, :, some])
        return out

    return of_inputs


def of_chunk(Q: ndarray, K: ndarray, V: ndarray, chunk: int) -> ndarray:
    """Each query against all keys of its own chunk."""
    return in_chunks(lambda Q, K, V: Q @ (K.swapaxes(-1, -2) @ V))(Q, K, V, chunk)


def masked_chunk(Q: ndarray, K: ndarray, V: ndarray, chunk: int) -> ndarray:
    """Each query against the keys of its own chunk up to itself."""
    return in_chunks(lambda Q, K, V: reference(Q, K, V, {}, None))(Q, K, V, chunk)


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "no key is hidden: not causal": of_all,
    "the keys after the query, not those before it": after,
    "the query's own key is left out": lambda Q, K, V, sizes, rows: (
        reference(Q, K, V, sizes, rows) - own(Q, K, V, sizes, rows)
    ),
    "the query's own key alone": own,
    "scaled by 1 / sqrt(D)": lambda Q, K, V, sizes, rows: reference(Q, K, V, sizes, rows) / Q.shape[-1] ** 0.5,
    "the keys of the query's own chunk of 32 count in S, too": lambda Q, K, V, sizes, rows: (
        reference(Q, K, V, sizes, rows) + of_chunk(Q, K, V, 32)
    ),
    "the keys of the query's own chunk of 64 count in S, too": lambda Q, K, V, sizes, rows: (
        reference(Q, K, V, sizes, rows) + of_chunk(Q, K, V, 64)
    ),
    "no key of the query's own chunk of 32 is hidden": lambda Q, K, V, sizes, rows: (
        reference(Q, K, V, sizes, rows) - masked_chunk(Q, K, V, 32) + of_chunk(Q, K, V, 32)
    ),
    "the keys of the chunks of 32 before the query's own are missing": lambda Q, K, V, sizes, rows: masked_chunk(
        Q, K, V, 32
    ),
    "the keys of the query's own chunk of 32 are missing": lambda Q, K, V, sizes, rows: (
        reference(Q, K, V, sizes, rows) - masked_chunk(Q, K, V, 32)
    ),
    "K is used for V": lambda Q, K, V, sizes, rows: reference(Q, K, K, sizes, rows),
    "V is used for K": lambda Q, K, V, sizes, rows: reference(Q, V, V, sizes, rows),
    "K and V exchanged": lambda Q, K, V, sizes, rows: reference(Q, V, K, sizes, rows),
    "Q and K exchanged": lambda Q, K, V, sizes, rows: reference(K, Q, V, sizes, rows),
    "the mean over the keys, not the sum": lambda Q, K, V, sizes, rows: (
        reference(Q, K, V, sizes, rows) / numbers(Q.shape[-2])
    ),
}

SPEC = Spec(
    computes="O[t] = sum over s <= t of (Q[t] . K[s]) V[s]",
    operations=Operations(
        "S += K[t] outer V[t], O[t] = Q[t] S: a state S of D x D per head, D = 64",
        "4 per token and element of S: a multiply-add to update it and one to read it",
    ),
    inputs=(Tensor("Q", HEADS), Tensor("K", HEADS, unsliced=True), Tensor("V", HEADS, unsliced=True)),
    outputs=(Tensor("O", HEADS),),
    sizes={"B": Size(1, 2), "H": Size(1, 3), "N": Size(0, 300)},
    values=(
        InputKind("normal", {"Q": normal(), "K": normal(), "V": normal()}),
        InputKind("whole numbers", integers(-2, 2), exact=True),
        InputKind(
            "positive", {"Q": normal(mean=1.0, std=0.25), "K": normal(mean=1.0, std=0.25), "V": normal(mean=1.0)}
        ),
        InputKind("fading", {"Q": normal(), "K": fading, "V": normal(mean=1.0)}),
        InputKind(
            "cancelling",
            {"Q": normal(), "K": doubled(normal(), axis=-2), "V": cancelling(normal(mean=1.0), axis=-2)},
        ),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=magnitude),
    # No token, one; around chunks of 16, 32 and 64 tokens; several chunks, whole and not; several heads and batches.
    named_sizes=(
        shape(1, 1, 0),
        shape(1, 1, 1),
        shape(2, 1, 2),
        shape(1, 3, 7),
        shape(1, 1, 15),
        shape(1, 2, 17),
        shape(1, 1, 31),
        shape(2, 1, 32),
        shape(1, 1, 33),
        shape(1, 1, 63),
        shape(1, 2, 64),
        shape(1, 1, 65),
        shape(1, 1, 96),
        shape(2, 3, 40),
        shape(1, 1, 129),
        shape(2, 1, 100),
        shape(1, 1, 161),
        shape(1, 1, 257),
        shape(1, 1, 580),
        shape(1, 2, 300),
        shape(1, 1, 130),
    ),
    # The first two are tried on a GPU by default: many segments of few heads, more heads than are cut in segments. The
    # last ones: as many heads as are cut in two, and one more; four segments of three chunks, of which the last has
    # none and the third a partial one.
    large=(
        shape(1, 3, 4001),
        shape(3, 211, 100),
        shape(1, 1, 32_001),
        shape(2, 1000, 33),
        shape(1, 256, 65),
        shape(1, 257, 65),
        shape(1, 103, 270),
    ),
    # 12 000 floating-point operations and half as many loads a token.
    work=lambda sizes: 20_000 * sizes["B"] * sizes["H"] * (sizes["N"] + 16),
    flops=lambda sizes: 4 * D * D * sizes["B"] * sizes["H"] * sizes["N"],
    slice_dim="N",
    reference_takes_rows=True,
    baselines={
        "torch.chunks_of_64": chunks_of(64),
        "torch.chunks_of_128": chunks_of(128),
        "torch.quadratic": quadratic,
    },
)
