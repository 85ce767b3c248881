"""flash_attn: O = softmax(Q K^T / sqrt(D)) V for each batch and head; Q, K, V, O [B, H, N, D] half, any B, H, N >= 1.

With x = q . k / sqrt(D), a row of O is the mean of the rows of V with the weights P = exp(x) / sum of exp(x) over all
keys. All values are finite. Where sums may round as in f16, Q K^T, and P V of a tile, may be kept in half: all q . k
stay below 65504 there.

flash_attn_mma_causal_f16: a query sees only its own key and those before it. The weights of the others are 0, and so is
what they add to the bound.

flash_attn_mma_lse_f16: the natural logarithm of each row's sum of exp(x) is a second output.

flash_attn_mma_gqa_f16: R heads of queries share a head of keys and values.

The bound. u is the roundoff of f32, h that of half, a that of the accumulator, m a row's largest x. Errors of
different keys are independent, so their squares add up.
  * q . k is rounded once for every 16 elements of D that an mma adds, so x is off by dx = a / sqrt(D) times the sum of
    |the partial sums|, and by u (1 + |x| + |m|) as it is shifted and scaled. It is a relative error of the weight.
  * A weight is rounded to half before it meets V: h, as a share; an absolute 2^-25 where it is too small for that. The
    sum of the weights is one of unrounded ones: where all weights are equal, O is off by h |ref| as a whole. The katas
    with sum_mma in their names add up the rounded ones, and what all weights of a row are off by cancels there: they
    need less than this bound, which is one for all.
  * P V is rounded for every 16 keys: g(N) u in f32; in half h four times in a tile of 64 keys, then g(N) u.
With E = dx + u (1 + |x| + |m|) + h, hence |y - ref| <= c times
    2 h |ref| + root of sum of (P V E)^2 + |ref| root of sum of (P E)^2 + 2 g(N) u sum of P |V| + 2^-25 sum of |V|,
where the last sum is over the keys with P < 2^-14, and, for sums in half, + 2 h root of sum over tiles of (P |V|)^2.
"""

from __future__ import annotations

from dataclasses import replace

from grader.content.attention import (
    HEADS,
    NEAR_MISSES,
    NEAR_MISSES_CAUSAL,
    NEAR_MISSES_LSE,
    VALUES,
    baselines,
    causal,
    grouped,
    labels,
    large,
    magnitude,
    magnitude_with_lse,
    reference,
    shape,
    wanted_before,
    whole,
    with_lse,
)
from grader.content.spec import Accumulated, InputKind, Operations, Size, Sizes, Spec, Tensor, normal

SPEC = Spec(
    computes="O = softmax(Q K^T / sqrt(D)) V",
    operations=Operations(
        "O = P V, P = softmax(Q K^T / sqrt(D)); the two products only",
        "4 per query, key and column of D: a multiply-add in Q K^T and one in P V. The softmax is left out",
    ),
    inputs=(Tensor("Q", HEADS), Tensor("K", HEADS, unsliced=True), Tensor("V", HEADS, unsliced=True)),
    outputs=(Tensor("O", HEADS),),
    sizes={"B": Size(1, 2), "H": Size(1, 3), "N": Size(1, 200), "D": Size(32, 128)},
    values=VALUES,
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=magnitude("f16")),
    # One key; less than one tile of 64 queries or keys, one short of it, one whole, one past; an odd and an even number
    # of tiles, more than two stages hold; several heads and batches; each D.
    named_sizes=(
        shape(1, 1, 1, 32),
        shape(1, 1, 2, 32),
        shape(1, 2, 7, 64),
        shape(2, 1, 17, 96),
        shape(1, 1, 33, 128),
        shape(1, 2, 63, 64),
        shape(1, 1, 64, 32),
        shape(2, 3, 65, 32),
        shape(1, 1, 129, 128),
        shape(1, 2, 150, 96),
        shape(1, 1, 192, 64),
        shape(1, 1, 255, 128),
        shape(1, 1, 256, 32),
        shape(1, 1, 520, 32),
    ),
    # The first two are tried on a GPU by default.
    large=(shape(2, 3, 1000, 128), shape(1, 70_001, 3, 32), shape(1, 1, 8192, 64), shape(2, 2, 2049, 96)),
    work=lambda sizes: sizes["B"] * sizes["H"] * sizes["N"] ** 2 * sizes["D"] // 4,
    flops=lambda sizes: 4 * sizes["B"] * sizes["H"] * sizes["N"] ** 2 * sizes["D"],
    slice_dim="N",
    batch=("B", "H"),
    baselines=baselines(),
)

# Sums in float bear logits that are far above what a half holds.
FLOAT = replace(
    SPEC,
    values=(*VALUES, InputKind("large", {"Q": large, "K": large, "V": normal(mean=1.0)})),
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=magnitude("f32")),
)

# On CUDA cores every product is an instruction of its own.
SCALAR = replace(FLOAT, work=lambda sizes: 4 * sizes["B"] * sizes["H"] * sizes["N"] ** 2 * sizes["D"])

# 70 heads have more logits than materialised's SCRATCH holds: two turns, of 67 heads and of 3.
MATERIALISED = replace(SCALAR, large=(shape(1, 70, 1000, 32), *SCALAR.large[1:], SCALAR.large[0]))


def deep(spec: Spec, *widths: int) -> Spec:
    """For katas made for a large D. All other sizes are small then, or a grade on the simulator would take long."""
    wide = [shape(1, 1, N, D) for N in (9, 66) for D in widths]
    edges = [*SHORT, *wide, *LONG]
    large = [shape(1, 2, 1000, D) for D in widths]
    return replace(spec, named_sizes=tuple(edges), large=(*large, *spec.large))


# What comes first is tried however slow the machine is: a tile of the smallest D and of the kata's own. Then the
# others, last several tiles, an even and an odd number of them.
SHORT = (shape(1, 1, 1, 32), shape(1, 2, 7, 64))
LONG = (
    shape(2, 1, 17, 96),
    shape(1, 1, 33, 128),
    shape(2, 3, 65, 32),
    shape(1, 1, 150, 96),
    shape(1, 1, 192, 64),
    shape(1, 1, 260, 32),
)

# A query sees its own key and those before it.
CAUSAL = replace(
    FLOAT,
    computes="O = softmax(mask(Q K^T / sqrt(D))) V",
    operations=Operations(
        "O = P V, P = softmax(mask(Q K^T / sqrt(D))); the two products only, for the keys that a query sees",
        "4 per query, key that it sees and column of D: a multiply-add in Q K^T and one in P V. "
        "A head has N (N + 1) / 2 such pairs",
    ),
    values=tuple(
        replace(values, fill={"Q": wanted_before, "K": labels, "V": whole}) if values.exact else values
        for values in FLOAT.values
    ),
    reference=causal,
    near_misses=NEAR_MISSES_CAUSAL,
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=magnitude("f32", masked=True)),
    flops=lambda sizes: 2 * sizes["B"] * sizes["H"] * sizes["N"] * (sizes["N"] + 1) * sizes["D"],
    reference_takes_rows=True,
    baselines=baselines(is_causal=True),
)

# A logarithm is not exact.
LSE = replace(
    FLOAT,
    computes="O = softmax(Q K^T / sqrt(D)) V, LSE = log(sum of exp(Q K^T / sqrt(D)))",
    outputs=(Tensor("O", HEADS), Tensor("LSE", HEADS[:-1], "f32")),
    values=tuple(replace(values, exact=False) for values in FLOAT.values),
    reference=with_lse,
    near_misses=NEAR_MISSES_LSE,
    computed=("LSE", "O"),
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=magnitude_with_lse),
)

GROUPS, SHARED = ("B", "G", "R", "N", "D"), ("B", "G", "N", "D")


def in_groups(sizes: Sizes) -> Sizes:
    """H heads of queries as R to a head of keys: as many as divide H, of 2, 3 and 1."""
    shared_by = next(count for count in (2, 3, 1) if sizes["H"] % count == 0)
    return {"B": sizes["B"], "G": sizes["H"] // shared_by, "R": shared_by, "N": sizes["N"], "D": sizes["D"]}


def with_heads(sizes: Sizes) -> Sizes:
    return shape(sizes["B"], sizes["G"] * sizes["R"], sizes["N"], sizes["D"])


# R heads of queries share a head of keys and values.
GROUPED = replace(
    FLOAT,
    computes="O = softmax(Q K^T / sqrt(D)) V, R heads of queries to a head of keys and values",
    inputs=(Tensor("Q", GROUPS), Tensor("K", SHARED, unsliced=True), Tensor("V", SHARED, unsliced=True)),
    outputs=(Tensor("O", GROUPS),),
    sizes={"B": Size(1, 2), "G": Size(1, 3), "R": Size(1, 3), "N": Size(1, 100), "D": Size(32, 128)},
    reference=grouped(reference),
    near_misses={words: grouped(of) for words, of in NEAR_MISSES.items()},
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=grouped(magnitude("f32"))),
    # Last, the queries of a group are whole tiles of 64 and 128, and one more than that.
    named_sizes=(
        *(in_groups(sizes) for sizes in FLOAT.named_sizes),
        {"B": 2, "G": 2, "R": 2, "N": 64, "D": 32},
        {"B": 2, "G": 2, "R": 3, "N": 43, "D": 32},
    ),
    large=tuple(in_groups(sizes) for sizes in FLOAT.large),
    batch=("B", "G"),
    work=lambda sizes: FLOAT.work(with_heads(sizes)),
    flops=lambda sizes: SPEC.flops(with_heads(sizes)) if SPEC.flops else 0,
    baselines=baselines(enable_gqa=True),
)

SPECS = {
    "flash_attn_materialised_f16": MATERIALISED,
    "flash_attn_online_f16": SCALAR,
    "flash_attn_mma_fragments_f16": FLOAT,
    "flash_attn_mma_stages_split_kv_acc_f32": FLOAT,
    "flash_attn_mma_stages_split_q_acc_f32": FLOAT,
    "flash_attn_mma_stages_split_q_shared_kv_acc_f32": FLOAT,
    "flash_attn_mma_stages_split_q_shared_kv_acc_f32_rr": FLOAT,
    "flash_attn_mma_stages_split_q_shared_kv_acc_f32_rr_swizzle_qkv": FLOAT,
    "flash_attn_mma_stages_split_q_shared_kv_acc_f32_rr_swizzle_qkv_whole_tiles": FLOAT,
    "flash_attn_mma_stages_split_q_shared_kv_acc_f32_rr_swizzle_qkv_overlap": FLOAT,
    "flash_attn_mma_stages_split_q_shared_kv_acc_f32_rr_swizzle_qkv_warp32": FLOAT,
    "flash_attn_mma_stages_split_q_shared_kv_acc_f32_rr_swizzle_qkv_warp32_peeled": FLOAT,
    "flash_attn_mma_stages_split_q_shared_kv_acc_f32_rr_swizzle_qkv_warp32_peeled_sum_mma": FLOAT,
    "flash_attn_mma_stages_split_q_shared_qkv_acc_f32": FLOAT,
    "flash_attn_mma_stages_split_q_shared_qkv_acc_f32_rr": FLOAT,
    "flash_attn_mma_stages_split_q_tiling_qk": deep(SPEC, 256),
    "flash_attn_mma_stages_split_q_tiling_qk_acc_f32": deep(FLOAT, 256),
    "flash_attn_mma_stages_split_q_tiling_qk_swizzle_q": deep(SPEC, 256),
    "flash_attn_mma_stages_split_q_tiling_qk_swizzle_qk": deep(SPEC, 256),
    "flash_attn_mma_stages_split_q_tiling_qk_swizzle_qkv": deep(SPEC, 256),
    "flash_attn_mma_stages_split_q_tiling_qkv": deep(SPEC, 256, 512, 1024),
    "flash_attn_mma_stages_split_q_tiling_qkv_acc_f32": deep(FLOAT, 256, 512, 1024),
    "flash_attn_mma_stages_split_q_tiling_qkv_swizzle_q": deep(SPEC, 256, 512, 1024),
    "flash_attn_mma_stages_split_q_tiling_qkv_swizzle_qk": deep(SPEC, 256, 512, 1024),
    "flash_attn_mma_stages_split_q_tiling_qkv_swizzle_qkv": deep(SPEC, 256, 512, 1024),
    "flash_attn_mma_stages_split_q_tiling_qkv_acc_f32_swizzle_q": deep(FLOAT, 256, 512, 1024),
    "flash_attn_mma_stages_split_q_tiling_qkv_acc_f32_swizzle_qk": deep(FLOAT, 256, 512, 1024),
    "flash_attn_mma_stages_split_q_tiling_qkv_acc_f32_swizzle_qkv": deep(FLOAT, 256, 512, 1024),
    "flash_attn_mma_stages_split_q_tiling_qkv_acc_f32_swizzle_qkv_split_d": deep(FLOAT, 256, 512, 1024),
    "flash_attn_mma_stages_split_q_tiling_qkv_acc_f32_swizzle_qkv_split_d_peeled_sum_mma": deep(FLOAT, 256, 512, 1024),
    "flash_attn_mma_causal_f16": CAUSAL,
    "flash_attn_mma_lse_f16": LSE,
    "flash_attn_mma_gqa_f16": GROUPED,
}
