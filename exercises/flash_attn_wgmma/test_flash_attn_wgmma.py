"""flash_attn_wgmma: O = softmax(Q K^T / sqrt(D)) V for each batch and head; Q, K, V, O [B, H, N, D] half, D = 128.

B, H, N >= 1; all values are finite, and sums are in float. The docstring of flash_attn's spec derives the bound.
"""

from __future__ import annotations

from grader.content.attention import HEADS, NEAR_MISSES, VALUES, baselines, large, magnitude, reference, shape
from grader.content.spec import Accumulated, InputKind, Operations, Size, Spec, Tensor, normal

D = 128


def sizes_of(*counts: tuple[int, int, int]) -> tuple[dict[str, int], ...]:
    return tuple(dict(shape(B, H, N, D)) for B, H, N in counts)


# (B, H, N): one key; one short of 64 queries, 64, one past; the same of a tile of 128 keys, and of 128 queries.
SHORT = ((1, 1, 1), (1, 2, 7), (2, 1, 63), (1, 1, 64), (1, 3, 65), (1, 1, 127), (1, 1, 128), (2, 1, 129))
LONG = ((1, 2, 257), (1, 1, 384), (1, 1, 897))  # three, three and eight tiles: the slots go round four times

SPEC = Spec(
    computes="O = softmax(Q K^T / sqrt(D)) V",
    operations=Operations(
        "O = P V, P = softmax(Q K^T / sqrt(D)); the two products only",
        "4 per query, key and column of D: a multiply-add in Q K^T and one in P V. The softmax is left out",
    ),
    inputs=(Tensor("Q", HEADS), Tensor("K", HEADS, unsliced=True), Tensor("V", HEADS, unsliced=True)),
    outputs=(Tensor("O", HEADS),),
    sizes={"B": Size(1, 2), "H": Size(1, 3), "N": Size(1, 300), "D": Size(D, D)},
    values=(*VALUES, InputKind("large", {"Q": large, "K": large, "V": normal(mean=1.0)})),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=magnitude("f32")),
    named_sizes=sizes_of(*SHORT, *LONG),
    large=sizes_of((2, 3, 1000), (1, 1, 8192), (1, 20_001, 3), (2, 2, 2049)),
    work=lambda sizes: sizes["B"] * sizes["H"] * sizes["N"] ** 2 * sizes["D"] // 8,
    flops=lambda sizes: 4 * sizes["B"] * sizes["H"] * sizes["N"] ** 2 * sizes["D"],
    slice_dim="N",
    baselines=baselines(),
)
