"""flash_attn: O = softmax(Q K^T / sqrt(D)) V for each batch and head; Q, K, V, O [B, H, N, D] half, any B, H, N >= 1.

With x = q . k / sqrt(D), a row of O is the mean of the rows of V with the weights P = exp(x) / sum of exp(x) over all
keys. D is one of 32, 64, 96, 128; all values are finite. The katas whose acc is f16 keep Q K^T, and P V of a tile, in
half: their q . k stay below 65504.

The bound. u is the roundoff of f32, h that of half, a that of the accumulator, m a row's largest x. Errors of
different keys are independent, so their squares add up.
  * q . k is rounded once for every 16 elements of D that an mma adds, so x is off by dx = a / sqrt(D) times the sum of
    |the partial sums|, and by u (1 + |x| + |m|) as it is shifted and scaled. It is a relative error of the weight.
  * A weight is rounded to half before it meets V: h, as a share; an absolute 2^-25 where it is too small for that. The
    sum of the weights is one of unrounded ones: where all weights are equal, O is off by h |ref| as a whole.
  * P V is rounded for every 16 keys: g(N) u in f32; in half h four times in a tile of 64 keys, then g(N) u.
With E = dx + u (1 + |x| + |m|) + h, hence |y - ref| <= c times
    2 h |ref| + root of sum of (P V E)^2 + |ref| root of sum of (P E)^2 + 2 g(N) u sum of P |V| + 2^-25 sum of |V|,
where the last sum is over the keys with P < 2^-14, and, for sums in half, + 2 h root of sum over tiles of (P |V|)^2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil, log, log2, sqrt
from typing import TYPE_CHECKING

from grader.spec import Accumulated, Numbers, Size, Sizes, Spec, Tensor, Values, normal

if TYPE_CHECKING:
    import torch

ROUNDOFF = {"f32": 2.0**-24, "f16": 2.0**-11}
STEP, TILE = 16, 64  # products that one mma adds before it rounds, keys in a tile
NORMAL, TINY = 2.0**-14, 2.0**-25  # the smallest normal half, and half of the smallest one


def heads(*tensors: torch.Tensor) -> list[tuple[torch.Tensor, ...]]:
    """The matrices [rows, D] of each head. One at a time, since all logits of a long sequence would fill the memory."""
    return list(zip(*(tensor.flatten(0, -3) for tensor in tensors), strict=True))


def reference(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    import torch

    rows = [(q @ k.T / sqrt(sizes["D"])).softmax(dim=-1) @ v for q, k, v in heads(Q, K, V)]
    return torch.stack(rows).reshape(Q.shape)


def magnitude(acc: str) -> Callable[..., torch.Tensor]:
    """The bound of the docstring above, without the h |ref| that every output gets, over the accumulator's roundoff."""
    u, h, a = ROUNDOFF["f32"], ROUNDOFF["f16"], ROUNDOFF[acc]

    def of_head(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        partial = q.new_zeros(q.shape[0], k.shape[0])
        error = partial.clone()
        for start in range(0, q.shape[1], STEP):
            partial += q[:, start : start + STEP] @ k[:, start : start + STEP].T
            error += partial.abs()
        x = partial / sqrt(q.shape[1])
        weight = x.softmax(dim=-1)
        error *= a / sqrt(q.shape[1])
        error += u * (1 + x.abs() + x.abs().amax(dim=-1, keepdim=True)) + h
        off = (weight * error) ** 2
        bound = (off @ v**2).sqrt() + (weight @ v).abs() * (h + off.sum(dim=-1, keepdim=True).sqrt())
        bound += (
            2 * u * min(len(k), 8 * sqrt(len(k))) * (weight @ v.abs()) + TINY * (weight < NORMAL).to(v.dtype) @ v.abs()
        )
        if acc == "f16":
            tiles = zip(weight.split(TILE, dim=1), v.split(TILE), strict=True)
            bound += 2 * h * sum((p @ v.abs()) ** 2 for p, v in tiles).sqrt()
        return bound / a

    def of_all(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, sizes: Sizes) -> torch.Tensor:
        import torch

        return torch.stack([of_head(*head) for head in heads(Q, K, V)]).reshape(Q.shape)

    return of_all


# -- values ----------------------------------------------------------------------------------------------------------


def codes(of: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Vectors of D elements for whole numbers below N: 32 for each bit that is set, -32 for each that is not, then 0.

    The product of two is 1024 for every bit that is equal, and -1024 for every other: largest with itself, by 2048.
    """
    import torch

    bits = max(1, ceil(log2(shape[-2])))
    code = torch.zeros(shape, dtype=torch.float64)
    for bit in range(bits):
        code[..., bit] = (of >> bit & 1) * 64.0 - 32.0
    return code


def wanted(numbers: Numbers, shape: tuple[int, ...], sizes: Sizes) -> torch.Tensor:
    """For each query the code of some key. All other weights are 0 to the last bit, and O is that key's row of V."""
    return codes(numbers.integers(shape[:-1], 0, shape[-2] - 1), shape)


def labels(numbers: Numbers, shape: tuple[int, ...], sizes: Sizes) -> torch.Tensor:
    import torch

    return codes(torch.arange(shape[-2]).expand(shape[:-1]), shape)


def whole(numbers: Numbers, shape: tuple[int, ...], sizes: Sizes) -> torch.Tensor:
    return numbers.integers(shape, -64, 64)


def sink(numbers: Numbers, shape: tuple[int, ...], sizes: Sizes) -> torch.Tensor:
    """Keys of ones, and one of zeros, among the first 64: see ``averse``."""
    import torch

    place = numbers.integers((*shape[:-2], 1), 0, min(shape[-2], TILE) - 1)
    return (torch.arange(shape[-2]) != place).to(torch.float64)[..., None].expand(shape)


def averse(numbers: Numbers, shape: tuple[int, ...], sizes: Sizes) -> torch.Tensor:
    """Queries that give a key of ones 1/4096 of the weight that a key of zeros has: too little for a sum in half."""
    return numbers.choice(shape, (-log(4096) / sqrt(shape[-1]),))


def rising(numbers: Numbers, shape: tuple[int, ...], sizes: Sizes) -> torch.Tensor:
    """Keys whose x, with queries of ones, rises from -24 to -8: every tile has a new maximum. A key that is not there,
    with an x of 0, would take all."""
    import torch

    steps = torch.linspace(-24, -8, shape[-2], dtype=torch.float64) / sqrt(shape[-1])
    return steps[:, None].expand(shape)


def ones(numbers: Numbers, shape: tuple[int, ...], sizes: Sizes) -> torch.Tensor:
    return numbers.choice(shape, (1.0,))


def large(numbers: Numbers, shape: tuple[int, ...], sizes: Sizes) -> torch.Tensor:
    """Rows of size 1, 10 or 100: x up to some 10 000 of either sign."""
    return numbers.normal(shape) * 10.0 ** numbers.integers((*shape[:-1], 1), 0, 2)


VALUES = (
    Values("normal", {"Q": normal(), "K": normal(), "V": normal(mean=1.0)}),
    Values("lookup", {"Q": wanted, "K": labels, "V": whole}, exact=True),
    Values("one key takes much", {"Q": averse, "K": sink, "V": normal(mean=1.0)}),
    Values("rising", {"Q": ones, "K": rising, "V": normal(mean=1.0)}),
)


# -- baselines -------------------------------------------------------------------------------------------------------


def sdpa(backend: str) -> Callable[..., Callable[[], object]]:
    """torch's attention, by one backend and no other."""

    def baseline(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
        from torch.nn import attention
        from torch.nn.functional import scaled_dot_product_attention

        other = getattr(attention, "current_flash_attention_impl", lambda: None)()
        if other is not None:  # the name FLASH_ATTENTION means FlashAttention-2 unless somebody registered another
            raise RuntimeError(f"torch runs {other} in place of FlashAttention-2")

        def run() -> object:
            with attention.sdpa_kernel(getattr(attention.SDPBackend, backend)):
                return scaled_dot_product_attention(Q, K, V)

        return run

    return baseline


BASELINES = {
    "flash_attention_2": sdpa("FLASH_ATTENTION"),
    "sdpa_efficient": sdpa("EFFICIENT_ATTENTION"),
    "sdpa_cudnn": sdpa("CUDNN_ATTENTION"),
}


# -- specs -----------------------------------------------------------------------------------------------------------


def shape(B: int, H: int, N: int, D: int) -> Sizes:
    return {"B": B, "H": H, "N": N, "D": D}


HEADS = ("B", "H", "N", "D")

SPEC = Spec(
    computes="O = softmax(Q K^T / sqrt(D)) V",
    inputs=(Tensor("Q", HEADS), Tensor("K", HEADS, whole=True), Tensor("V", HEADS, whole=True)),
    outputs=(Tensor("O", HEADS),),
    sizes={"B": Size(1, 2), "H": Size(1, 3), "N": Size(1, 200), "D": Size(32, 128)},
    values=VALUES,
    reference=reference,
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=magnitude("f16")),
    # One key; less than one tile of 64 queries or keys, one short of it, one whole, one past; an odd and an even number
    # of tiles, more than two stages hold; several heads and batches; each D.
    edges=(
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
    rows="N",
    baselines=BASELINES,
)

# Sums in float bear logits that are far above what a half holds.
FLOAT = replace(
    SPEC,
    values=(*VALUES, Values("large", {"Q": large, "K": large, "V": normal(mean=1.0)})),
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=magnitude("f32")),
)

# On CUDA cores every product is an instruction of its own.
SCALAR = replace(FLOAT, work=lambda sizes: 4 * sizes["B"] * sizes["H"] * sizes["N"] ** 2 * sizes["D"])


def deep(spec: Spec, *widths: int) -> Spec:
    """For katas made for a large D. All other sizes are small then, or a grade on the simulator would take long."""
    edges = [*DEEP, *(shape(1, 1, 9, D) for D in widths), *(shape(1, 1, 66, D) for D in widths), *LONG]
    large = [shape(1, 2, 1000, D) for D in widths]
    return replace(spec, edges=tuple(edges), large=(*large, *spec.large))


# Every D of the others; after those of the kata's own several tiles, of an even and an odd number.
DEEP = (shape(1, 1, 1, 32), shape(1, 2, 7, 64), shape(2, 1, 17, 96), shape(1, 1, 33, 128), shape(1, 2, 63, 32))
LONG = (shape(2, 3, 65, 32), shape(1, 1, 150, 96), shape(1, 1, 192, 64), shape(1, 1, 260, 32))

SPECS = {
    "flash_attn_materialised_f16": SCALAR,
    "flash_attn_online_f16": SCALAR,
    "flash_attn_mma_fragments_f16": FLOAT,
    "flash_attn_mma_stages_split_kv_acc_f32": FLOAT,
    "flash_attn_mma_stages_split_q_acc_f32": FLOAT,
    "flash_attn_mma_stages_split_q_shared_kv_acc_f32": FLOAT,
    "flash_attn_mma_stages_split_q_shared_kv_acc_f32_rr": FLOAT,
    "flash_attn_mma_stages_split_q_shared_kv_acc_f32_rr_swizzle_qkv": FLOAT,
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
}
