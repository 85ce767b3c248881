"""flash_attn_wgmma: O = softmax(Q K^T / sqrt(D)) V for each batch and head; Q, K, V, O [B, H, N, D] half.

B, H, N >= 1, and D is 128, in fa_wgmma_d64_f16 64. All values are finite, and sums are in float. The docstring of
flash_attn's spec derives the bound.

fa_wgmma_causal_f16, fa_wgmma_causal_lpt_f16: a query sees its own key and those before it.
"""

from __future__ import annotations

from dataclasses import replace

from grader.content.attention import (
    HEADS,
    NEAR_MISSES,
    NEAR_MISSES_CAUSAL,
    VALUES,
    baselines,
    causal,
    labels,
    large,
    magnitude,
    reference,
    shape,
    wanted_before,
    whole,
)
from grader.content.spec import Accumulated, InputKind, Operations, Size, Spec, Tensor, normal


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

SPECS = {
    "fa_wgmma_serial_f16": SPEC,
    "fa_wgmma_producer_f16": SPEC,
    "fa_wgmma_two_consumers_f16": SPEC,
    "fa_wgmma_overlap_f16": SPEC,
    "fa_wgmma_causal_f16": CAUSAL,
    "fa_wgmma_causal_lpt_f16": CAUSAL_LPT,
    "fa_wgmma_d64_f16": D64,
}
