"""fused: the small kernels between the matrix products of a transformer encoder, a specification for each.

add_bias_gelu_f16: y = gelu(x + bias), the tanh form of torch, with one bias for each column. The answer may be off by
what rounding does to a few operations in float, and by one rounding to half; for negative sums 1 + tanh cancels, as
in torch, and is forgiven as in the family gelu.

add_bias_residual_layer_norm_f16: s = x + residual + bias, y = (s - mean) / sqrt(variance + eps) * gamma + beta, each
row by its own mean, 1 <= cols <= 16384. The variance is the biased one and eps stands inside the root; a nan or an
infinity makes its whole row nan, and no other. The bound is that of layer_norm, g(cols) u (|gamma| r (mean a + a + |s -
mean|) + |beta|) with r = 1 / sqrt(variance + eps), but for a = |x| + |residual| + |bias| in place of |x|: the two
additions round what may cancel. Both are roundings in float; a sum that is rounded to half is not allowed for.

qkv_bias_transpose_f16: q, k and v, [batch, heads, seq, dim] each, are the three parts of qkv + bias, [batch, seq, 3,
heads, dim]. One addition of two halves, rounded once, has one right answer (any nan stands for any other).

masked_softmax_f16: y = softmax over the keys of scale x, or of -inf where mask is 0, for any x there, also nan.
A query that sees no key, or only -inf, gets a row of zeros where torch has nan. Everything else is torch's: a nan or
+inf that a query sees makes its whole row nan, a -inf gives 0. The bound is that of softmax, with z = scale x and m
the largest z that is seen: |y| (1 + |z - m| + |m| + sum of y (|z - m| + |m|) + g(keys)) u. The |m| is for kernels that
take z as a product with another factor, such as scale log2(e), and round it and m apart.

remove_padding_f16: packed has the first lengths[b] rows of x[b] for all b in turn. It has room for a given number of
tokens: rows that are left over become 0, tokens that find no room are lost. ends[b] is the sum of lengths[0] to
lengths[b], room or not. Copies and whole numbers, so the answer must match to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from math import e, log, pi, sqrt
from typing import TYPE_CHECKING

from grader.content.formulas import erf, softmax
from grader.content.spec import (
    Accumulated,
    Exact,
    Fill,
    InputKind,
    Operations,
    Parameter,
    Rng,
    Size,
    Sizes,
    Spec,
    Tensor,
    cancelling,
    edge_values,
    integers,
    normal,
)

if TYPE_CHECKING:
    import torch
    from numpy import ndarray

# -- add_bias_gelu ---------------------------------------------------------------------------------------------------


def gelu_reference(x: ndarray, bias: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    s = x + bias
    return 0.5 * s * (1 + numpy.tanh(sqrt(2 / pi) * (s + 0.044715 * s * s * s)))


# What is computed in place of it by a usual mistake.
GELU_MISSES = {
    "without bias": lambda x, bias, sizes: gelu_reference(x, 0 * bias, sizes),
    "gelu(x) + bias": lambda x, bias, sizes: gelu_reference(x, 0 * bias, sizes) + bias,
    "x + bias, without gelu": lambda x, bias, sizes: x + bias,
    "x gelu's factor of x + bias": lambda x, bias, sizes: gelu_reference(x, bias, sizes) / (x + bias) * x,
    "without the 0.5": lambda x, bias, sizes: 2 * gelu_reference(x, bias, sizes),
    "gelu by erf, not by tanh": lambda x, bias, sizes: 0.5 * (x + bias) * (1 + erf((x + bias) / sqrt(2))),
    "the bias is subtracted": lambda x, bias, sizes: gelu_reference(x, -bias, sizes),
    "the bias of the row's number": lambda x, bias, sizes: gelu_reference(x, by_row(bias, x), sizes),
    "relu in place of gelu": lambda x, bias, sizes: (x + bias).clip(0),
    "x sigmoid(1.702 x) in place of gelu": lambda x, bias, sizes: (x + bias) / (1 + e ** (-1.702 * (x + bias))),
}


def gelu_magnitude(x: ndarray, bias: ndarray, sizes: Sizes) -> ndarray:
    """The sum, and twice what the family gelu has: its own rounding is passed on with a factor of about 1 at most."""
    return 2.0 * abs(x + bias) + abs(x) + abs(bias)


def torch_gelu(x: torch.Tensor, bias: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    from torch.nn.functional import gelu

    return lambda: gelu(x + bias, approximate="tanh")


def middle(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Where gelu is neither 0 nor its argument."""
    return rng.uniform(shape, -8.0, 4.0)


def matrix(rows: int, cols: int) -> Sizes:
    return {"rows": rows, "cols": cols}


ADD_BIAS_GELU = Spec(
    computes="y = gelu(x + bias)",
    operations=Operations(
        "y = 0.5 s (1 + tanh(c (s + 0.044715 s s s))), s = x + bias, c = sqrt(2 / pi), a constant",
        "10 per element: the bias, three multiplications and an addition in the inner bracket, c, tanh, 1 +, s, 0.5",
        lambda sizes: 10 * sizes["rows"] * sizes["cols"],
    ),
    inputs=(Tensor("x", ("rows", "cols")), Tensor("bias", ("cols",))),
    outputs=(Tensor("y", ("rows", "cols")),),
    sizes={"rows": Size(0, 40), "cols": Size(1, 600)},
    values=(
        InputKind("normal", {"x": normal(), "bias": normal()}),
        InputKind("middle", {"x": middle, "bias": normal()}),
        InputKind("bias leads", {"x": normal(std=0.1), "bias": normal(std=4.0)}),
        InputKind("special", {"x": edge_values(), "bias": normal()}),
        InputKind("special bias", {"x": normal(), "bias": edge_values()}),
        InputKind("large", {"x": normal(std=300.0), "bias": normal(std=300.0)}),
    ),
    reference=gelu_reference,
    near_misses=GELU_MISSES,
    tolerance=Accumulated(terms=lambda sizes: 4, magnitude=gelu_magnitude),
    # Rows around the four that a thread may take, columns of every length modulo a vector, around a warp (32), a block
    # of single elements (256) and what a warp takes in vectors of eight (256).
    named_sizes=(
        matrix(0, 8),
        matrix(1, 1),
        matrix(1, 2),
        matrix(2, 3),
        matrix(4, 4),
        matrix(3, 7),
        matrix(1, 8),
        matrix(5, 8),
        matrix(4, 9),
        matrix(7, 16),
        matrix(13, 31),
        matrix(8, 32),
        matrix(3, 33),
        matrix(257, 8),
        matrix(9, 100),
        matrix(5, 136),
        matrix(2, 255),
        matrix(6, 256),
        matrix(3, 257),
        matrix(11, 264),
        matrix(17, 520),
        matrix(2, 1025),
        matrix(3, 2056),
        matrix(1, 4100),
    ),
    large=(matrix(4099, 1031), matrix(1030, 8200), matrix(300_007, 40), matrix(1_000_003, 8), matrix(5, 4_000_008)),
    work=lambda sizes: 40 * sizes["rows"] * sizes["cols"] + 60 * (sizes["cols"] + 256),
    slice_dim="rows",
    baselines={"torch.gelu": torch_gelu},
)

# -- add_bias_residual_layer_norm ------------------------------------------------------------------------------------

EPS = 1e-5


def centred(x: ndarray) -> tuple[ndarray, ndarray]:
    """Each row's distances from its mean, and its 1 / sqrt(variance + eps)."""
    distance = x - x.mean(axis=1, keepdims=True)
    return distance, ((distance**2).mean(axis=1, keepdims=True) + EPS) ** -0.5


def norm_reference(
    x: ndarray, residual: ndarray, bias: ndarray, gamma: ndarray, beta: ndarray, sizes: Sizes
) -> ndarray:
    distance, scale = centred(x + residual + bias)
    return distance * scale * gamma + beta


def by_row(columns: ndarray, x: ndarray) -> ndarray:
    """The element of each row's number, in place of each column's; they repeat."""
    import numpy

    return numpy.resize(columns, x.shape[0])[:, None]


# What is computed in place of it by a usual mistake.
NORM_MISSES = {
    "without the residual": lambda x, residual, bias, gamma, beta, sizes: norm_reference(
        x, 0 * residual, bias, gamma, beta, sizes
    ),
    "without bias": lambda x, residual, bias, gamma, beta, sizes: norm_reference(
        x, residual, 0 * bias, gamma, beta, sizes
    ),
    "without gamma": lambda x, residual, bias, gamma, beta, sizes: norm_reference(
        x, residual, bias, 0 * gamma + 1, beta, sizes
    ),
    "without beta": lambda x, residual, bias, gamma, beta, sizes: norm_reference(
        x, residual, bias, gamma, 0 * beta, sizes
    ),
    "the beta of the row's number": lambda x, residual, bias, gamma, beta, sizes: norm_reference(
        x, residual, bias, gamma, by_row(beta, x), sizes
    ),
    "the residual is added after the norm": lambda x, residual, bias, gamma, beta, sizes: (
        norm_reference(x, 0 * residual, bias, gamma, beta, sizes) + residual
    ),
    "without eps": lambda x, residual, bias, gamma, beta, sizes: (
        centred(x + residual + bias)[0] / (x + residual + bias).var(axis=1, keepdims=True) ** 0.5 * gamma + beta
    ),
    "the mean is not subtracted": lambda x, residual, bias, gamma, beta, sizes: (
        (x + residual + bias) * centred(x + residual + bias)[1] * gamma + beta
    ),
    "the variance is over cols - 1": lambda x, residual, bias, gamma, beta, sizes: (
        centred(x + residual + bias)[0]
        / ((x + residual + bias).var(axis=1, keepdims=True) * x.shape[1] / (x.shape[1] - 1) + EPS) ** 0.5
        * gamma
        + beta
    ),
    "gamma and beta exchanged": lambda x, residual, bias, gamma, beta, sizes: norm_reference(
        x, residual, bias, beta, gamma, sizes
    ),
    "the bias is added after the norm": lambda x, residual, bias, gamma, beta, sizes: (
        norm_reference(x, residual, 0 * bias, gamma, beta, sizes) + bias
    ),
    "the residual is subtracted": lambda x, residual, bias, gamma, beta, sizes: norm_reference(
        x, -residual, bias, gamma, beta, sizes
    ),
    "the bias is added twice": lambda x, residual, bias, gamma, beta, sizes: norm_reference(
        x, residual, 2 * bias, gamma, beta, sizes
    ),
}


def norm_magnitude(
    x: ndarray, residual: ndarray, bias: ndarray, gamma: ndarray, beta: ndarray, sizes: Sizes
) -> ndarray:
    distance, scale = centred(x + residual + bias)
    summed = abs(x) + abs(residual) + abs(bias)
    return abs(gamma) * scale * (summed.mean(axis=1, keepdims=True) + summed + abs(distance)) + abs(beta)


def torch_layer_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    bias: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    **_: torch.Tensor,
) -> Callable[[], object]:
    from torch.nn.functional import layer_norm

    return lambda: layer_norm(x + residual + bias, gamma.shape, gamma, beta, EPS)


def offset(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Rows of one value, near which halves are 0.5 apart: a sum that is rounded to half is that value again."""
    return rng.choice((shape[0], 1), (1000.0, -1000.0)).repeat(shape[1], axis=1)


def steps(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Added to rows of one value: all that y depends on, and less than half of the distance to the next half there."""
    return rng.choice(shape, (0.2, -0.2))


def scales(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Rows of very different spread. For the smallest, eps dominates the variance."""
    return rng.normal(shape, mean=0.5) * rng.choice((shape[0], 1), (1.0e-3, 1.0e-2, 1.0, 30.0, 1000.0))


def poisoned(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """One nan or infinity in some rows, anywhere."""
    import numpy

    place = numpy.floor(rng.uniform((shape[0], 1), 0.0, 1.0) * shape[1])
    plain = rng.normal(shape) + 2.0
    poison = rng.choice((shape[0], 1), (float("nan"), float("inf"), float("-inf"), 2.0, 2.0))
    return numpy.where(numpy.arange(shape[1]) != place, plain, poison)


def near_one(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """All different, and none so small that it hides an error."""
    return rng.uniform(shape, 0.5, 1.5)


def norm_values(name: str, x: Fill, residual: Fill, bias: Fill) -> InputKind:
    columns = {"gamma": near_one, "beta": normal()}
    return InputKind(name, {"x": x, "residual": residual, "bias": bias, **columns})


ADD_BIAS_RESIDUAL_LAYER_NORM = Spec(
    computes="y = layer norm of x + residual + bias, row by row",
    operations=Operations(
        "s = x + residual + bias, d = s - mean, y = d * r * gamma + beta, "
        "mean = sum of s / cols, r = 1 / sqrt(sum of d * d / cols + eps)",
        "9 per element: two additions, sum of s, d, d * d and its sum, times r, times gamma, plus beta",
        lambda sizes: 9 * sizes["rows"] * sizes["cols"],
    ),
    inputs=(
        Tensor("x", ("rows", "cols")),
        Tensor("residual", ("rows", "cols")),
        Tensor("bias", ("cols",)),
        Tensor("gamma", ("cols",)),
        Tensor("beta", ("cols",)),
    ),
    outputs=(Tensor("y", ("rows", "cols")),),
    sizes={"rows": Size(0, 24), "cols": Size(1, 2000)},
    values=(
        norm_values("normal", normal(mean=0.5), normal(), normal()),
        norm_values("small", normal(mean=0.005, std=0.01), normal(std=0.01), normal(std=0.01)),
        norm_values("scales", scales, scales, normal(std=0.01)),
        norm_values("poisoned", poisoned, normal(), normal()),
        norm_values("offset", offset, steps, normal(std=0.001)),
        norm_values("poisoned residual", normal(), poisoned, normal()),
        norm_values("balanced", cancelling(normal(mean=1.0)), cancelling(normal(mean=1.0)), normal(std=0.01)),
    ),
    reference=norm_reference,
    near_misses=NORM_MISSES,
    tolerance=Accumulated(terms=lambda sizes: sizes["cols"] + 8, magnitude=norm_magnitude),
    # Around every vector (8), a warp (32), a block (256), what a warp holds in registers (1024 elements) and what the
    # largest block holds (16384); rows that are 16-byte aligned, 4-byte aligned, and not at all.
    named_sizes=(
        matrix(0, 8),
        matrix(1, 1),
        matrix(1, 2),
        matrix(3, 1),
        matrix(2, 3),
        matrix(4, 7),
        matrix(5, 8),
        matrix(7, 16),
        matrix(3, 31),
        matrix(2, 32),
        matrix(5, 33),
        matrix(9, 100),
        matrix(3, 255),
        matrix(2, 256),
        matrix(5, 257),
        matrix(2, 768),
        matrix(3, 1022),
        matrix(2, 1024),
        matrix(3, 1025),
        matrix(2, 1032),
        matrix(2, 2053),
        matrix(2, 4100),
        matrix(1, 16_383),
        matrix(1, 16_384),
    ),
    large=(matrix(4099, 1031), matrix(257, 16_384), matrix(300_007, 40), matrix(1030, 8200)),
    parameters=(Parameter("eps", "float", EPS),),
    work=lambda sizes: sizes["rows"] * (15_000 + 100 * sizes["cols"]),
    slice_dim="rows",
    baselines={"torch.layer_norm": torch_layer_norm},
)

# -- qkv_bias_transpose ----------------------------------------------------------------------------------------------


def heads_of(qkv: ndarray, bias: ndarray) -> tuple[ndarray, ...]:
    """q, k and v, [batch, heads, seq, dim] each, as views of one sum."""
    return tuple((qkv + bias).transpose(2, 0, 3, 1, 4))


def heads_reference(qkv: ndarray, bias: ndarray, sizes: Sizes) -> tuple[ndarray, ...]:
    return heads_of(qkv, bias)


def torch_permute(qkv: torch.Tensor, bias: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    return lambda: (qkv + bias).permute(2, 0, 3, 1, 4).contiguous()


def heads(batch: int, seq: int, heads: int, dim: int) -> Sizes:
    return {"batch": batch, "seq": seq, "heads": heads, "dim": dim}


BY_HEAD = ("batch", "heads", "seq", "dim")

QKV_BIAS_TRANSPOSE = Spec(
    computes="q, k, v = the three parts of qkv + bias, head by head",
    operations=Operations(
        "q, k, v = the three parts of qkv + bias, head by head",
        "1 per element: the addition",
        lambda sizes: 3 * sizes["batch"] * sizes["seq"] * sizes["heads"] * sizes["dim"],
    ),
    inputs=(Tensor("qkv", ("batch", "seq", 3, "heads", "dim")), Tensor("bias", (3, "heads", "dim"))),
    outputs=(Tensor("q", BY_HEAD), Tensor("k", BY_HEAD), Tensor("v", BY_HEAD)),
    sizes={"batch": Size(0, 5), "seq": Size(0, 40), "heads": Size(1, 7), "dim": Size(1, 72)},
    values=(
        InputKind("normal", {"qkv": normal(), "bias": normal()}),
        InputKind("whole", {"qkv": integers(-500, 500), "bias": integers(-500, 500)}, exact=True),
        InputKind("special", {"qkv": edge_values(), "bias": edge_values()}),
    ),
    reference=heads_reference,
    near_misses={
        "without bias": lambda qkv, bias, sizes: heads_of(qkv, 0 * bias),
        "the bias of q for q, k and v": lambda qkv, bias, sizes: heads_of(qkv, bias[:1]),
        "q and k swapped": lambda qkv, bias, sizes: tuple(heads_of(qkv, bias)[part] for part in (1, 0, 2)),
        "k and v swapped": lambda qkv, bias, sizes: tuple(heads_of(qkv, bias)[part] for part in (0, 2, 1)),
    },
    tolerance=Exact(),
    # Sequences around the four tokens that a thread may take, heads of every length modulo a vector, one head and
    # several, one sequence and several, less than a block and more.
    named_sizes=(
        heads(0, 4, 1, 8),
        heads(2, 0, 1, 8),
        heads(1, 1, 1, 1),
        heads(1, 2, 1, 2),
        heads(2, 1, 2, 1),
        heads(1, 1, 1, 8),
        heads(2, 3, 2, 3),
        heads(1, 4, 3, 8),
        heads(3, 5, 2, 8),
        heads(2, 2, 5, 7),
        heads(1, 7, 1, 64),
        heads(4, 3, 2, 16),
        heads(2, 9, 3, 24),
        heads(1, 8, 4, 33),
        heads(3, 1, 7, 32),
        heads(2, 5, 2, 64),
        heads(1, 33, 2, 40),
        heads(2, 31, 1, 72),
        heads(3, 6, 4, 20),
        heads(1, 64, 2, 64),
        heads(5, 13, 3, 8),
        heads(2, 17, 2, 128),
    ),
    large=(heads(3, 1001, 12, 64), heads(2, 513, 7, 80), heads(40_000, 3, 2, 8), heads(1, 200_003, 1, 36)),
    work=lambda sizes: 60 * sizes["batch"] * (sizes["seq"] + 4) * sizes["heads"] * sizes["dim"] + 5000,
    slice_dim="seq",
    baselines={"torch.permute": torch_permute},
)

# -- masked_softmax --------------------------------------------------------------------------------------------------

SCALE = 0.125


def logits(x: ndarray, mask: ndarray) -> tuple[ndarray, ndarray]:
    """(scale x, -inf where it is hidden; which rows have only -inf, [..., 1])"""
    import numpy

    z = numpy.where(mask[:, None] == 0, float("-inf"), x * SCALE)
    return z, (z == float("-inf")).all(axis=-1, keepdims=True)


def softmax_reference(x: ndarray, mask: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    z, empty = logits(x, mask)
    return numpy.where(empty, 0.0, softmax(z))


def masked(mask: ndarray, z: ndarray) -> ndarray:
    """softmax of z, where it is not hidden."""
    import numpy

    hidden = numpy.where(mask[:, None] == 0, float("-inf"), z)
    return numpy.where((hidden == float("-inf")).all(axis=-1, keepdims=True), 0.0, softmax(hidden))


def shown(mask: ndarray) -> ndarray:
    """1 or 0 for each element of x."""
    return mask[:, None] * 1.0


def undivided(mask: ndarray, z: ndarray) -> ndarray:
    """The weights, the largest of a row 1; 0 where all of it is hidden."""
    import numpy

    hidden = numpy.where(mask[:, None] == 0, float("-inf"), z)
    most = hidden.max(axis=-1, keepdims=True)
    return numpy.where(most == float("-inf"), 0.0, numpy.exp(hidden - most))


# What is computed in place of it by a usual mistake.
SOFTMAX_MISSES = {
    "without the scale": lambda x, mask, sizes: masked(mask, x),
    "powers of 2 in place of e": lambda x, mask, sizes: masked(mask, x * SCALE * log(2)),
    "the factor log2(e) twice": lambda x, mask, sizes: masked(mask, x * SCALE / log(2)),
    "divided by the scale": lambda x, mask, sizes: masked(mask, x / SCALE),
    "without the mask": lambda x, mask, sizes: softmax(x * SCALE),
    "the mask of batch 0 for all": lambda x, mask, sizes: masked(0 * mask + mask[:1], x * SCALE),
    "the mask of query 0 for all": lambda x, mask, sizes: masked(0 * mask + mask[:, :1], x * SCALE),
    "not divided by the sum of the weights": lambda x, mask, sizes: undivided(mask, x * SCALE),
    "what the mask hides, and not what it shows": lambda x, mask, sizes: masked(mask == 0, x * SCALE),
    "1 is added where the mask hides, not -infinity": lambda x, mask, sizes: softmax(x * SCALE + shown(mask == 0)),
    "masked logits are 0, not -infinity": lambda x, mask, sizes: softmax(x * SCALE * shown(mask != 0)),
    "softmax of -x": lambda x, mask, sizes: masked(mask, -x * SCALE),
}


def softmax_magnitude(x: ndarray, mask: ndarray, sizes: Sizes) -> ndarray:
    """The bound of the docstring above, over the roundoff."""
    import numpy

    y = softmax_reference(x, mask, sizes)
    z, _ = logits(x, mask)
    maximum = z.max(axis=-1, keepdims=True)
    distance = numpy.where(y > 0, abs(z - maximum) + abs(maximum), y)  # what is hidden has its 0 for sure
    growth = min(sizes["keys"], 8 * sizes["keys"] ** 0.5)
    return y * (1 + distance + (y * distance).sum(axis=-1, keepdims=True) + growth)


def torch_softmax(x: torch.Tensor, mask: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    hidden = mask[:, None] == 0  # torch's masks are of its own kind of bool: no part of what is timed
    return lambda: (x * SCALE).masked_fill(hidden, float("-inf")).softmax(dim=-1)


def some(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Three of four keys are seen, any of them; any byte but 0 shows."""
    return rng.choice(shape, (0, 1, 128, 255))


def past(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """A query sees the keys up to its own."""
    import numpy

    return numpy.tril(numpy.ones(shape))


def lengths_as_mask(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """A sequence's padding is hidden from all its queries, and its padded queries see nothing."""
    import numpy

    length = numpy.floor(rng.uniform((shape[0], 1, 1), 0.0, 1.0) * (shape[2] + 1))
    return ((numpy.arange(shape[2]) < length) & (numpy.arange(shape[1])[:, None] < length)).astype(numpy.int64)


def thirds(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Every third key is hidden from all queries."""
    import numpy

    return numpy.broadcast_to(numpy.where(numpy.arange(shape[-1]) % 3 != 1, 1, 0), shape)


def hidden_poison(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Where thirds hides them stand the worst numbers there are."""
    import numpy

    poison = rng.choice(shape, (float("nan"), float("inf"), float("-inf"), 65504.0))
    return numpy.where(numpy.arange(shape[-1]) % 3 != 1, rng.normal(shape, std=16.0), poison)


def shifted(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Rows far from 0: every exponential of theirs overflows, or vanishes, unless shifted back."""
    return rng.normal(shape, std=24.0) + rng.choice((*shape[:-1], 1), (3.0e4, -3.0e4, 2.0e3, -2.0e3))


def seen_poison(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """A nan or an infinity in every other row."""
    import numpy

    plain = rng.normal(shape, std=16.0)
    place = numpy.floor(rng.uniform((*shape[:-1], 1), 0.0, 1.0) * shape[-1])
    here = numpy.arange(shape[-1]) == place
    hit = rng.integers((*shape[:-1], 1), 0, 1) > 0
    return numpy.where(here & hit, rng.choice((*shape[:-1], 1), (float("nan"), float("inf"), float("-inf"))), plain)


def scores(batch: int, heads: int, queries: int, keys: int) -> Sizes:
    return {"batch": batch, "heads": heads, "queries": queries, "keys": keys}


ROWS = ("batch", "heads", "queries", "keys")

MASKED_SOFTMAX = Spec(
    computes="y = softmax of scale x over the keys that the mask shows",
    operations=Operations(
        "z = scale * x where mask != 0, y = exp(z - m) / s, m = maximum of the row, s = sum of exp(z - m)",
        "7 per element: scale, the comparison of mask, the comparison for m, subtraction, exp, addition to s, division",
        lambda sizes: 7 * sizes["batch"] * sizes["heads"] * sizes["queries"] * sizes["keys"],
    ),
    inputs=(Tensor("x", ROWS), Tensor("mask", ("batch", "queries", "keys"), "u8")),
    outputs=(Tensor("y", ROWS),),
    sizes={"batch": Size(0, 3), "heads": Size(1, 5), "queries": Size(0, 20), "keys": Size(1, 1024)},
    values=(
        InputKind("normal", {"x": normal(std=16.0), "mask": some}),
        InputKind("padding", {"x": normal(std=16.0), "mask": lengths_as_mask}),
        InputKind("hidden poison", {"x": hidden_poison, "mask": thirds}),
        InputKind("past", {"x": shifted, "mask": past}),
        InputKind("seen poison", {"x": seen_poison, "mask": some}),
    ),
    reference=softmax_reference,
    near_misses=SOFTMAX_MISSES,
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=softmax_magnitude),
    slice_dim="queries",
    # Around a vector (8), a warp (32), and what a warp holds with 8, 16 or 32 elements per lane (256, 512, 1024); heads
    # around the four per warp, queries around the eight per block.
    named_sizes=(
        scores(0, 1, 3, 8),
        scores(1, 2, 0, 8),
        scores(1, 1, 1, 1),
        scores(1, 2, 1, 2),
        scores(2, 1, 3, 1),
        scores(1, 1, 2, 3),
        scores(1, 3, 2, 8),
        scores(2, 2, 3, 7),
        scores(1, 2, 9, 16),
        scores(3, 1, 5, 31),
        scores(1, 4, 8, 32),
        scores(2, 3, 1, 33),
        scores(1, 5, 7, 24),
        scores(2, 2, 4, 100),
        scores(1, 1, 17, 64),
        scores(1, 2, 2, 255),
        scores(2, 1, 3, 256),
        scores(1, 2, 2, 257),
        scores(1, 3, 2, 264),
        scores(1, 1, 3, 512),
        scores(1, 2, 1, 520),
        scores(1, 1, 2, 1023),
        scores(1, 3, 2, 1024),
        scores(2, 3, 5, 48),
    ),
    large=(scores(3, 5, 1001, 384), scores(2, 3, 257, 1021), scores(1, 16, 4099, 128), scores(300_007, 2, 1, 8)),
    parameters=(Parameter("scale", "float", SCALE),),
    work=lambda sizes: (
        sizes["batch"] * (sizes["queries"] + 7) * (sizes["heads"] + 1) * (20_000 + 50 * sizes["keys"]) // 2
    ),
    baselines={"torch.softmax": torch_softmax},
)

# -- remove_padding --------------------------------------------------------------------------------------------------


def packed_reference(x: ndarray, lengths: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    import numpy

    there = numpy.arange(sizes["seq"]) < lengths[:, None]
    rows = x[there][: sizes["tokens"]]
    packed = numpy.zeros((sizes["tokens"], sizes["hidden"]))
    packed[: len(rows)] = rows
    return packed, lengths.cumsum()


def torch_index_select(
    x: torch.Tensor, lengths: torch.Tensor, packed: torch.Tensor, **_: torch.Tensor
) -> Callable[[], object]:
    """The copy alone, with the index of every token given: what torch has for the rest waits for the host."""
    import torch

    there = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    rows = there.flatten().nonzero().flatten()[: packed.shape[0]]
    return lambda: x.flatten(0, 1).index_select(0, rows)


def in_pairs(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Any lengths, but two from the ends make a whole: half of an even number of sequences is padding."""
    import numpy

    half = rng.integers((shape[0] // 2,), 0, sizes["seq"])
    middle = rng.integers((shape[0] % 2,), 0, sizes["seq"])
    return numpy.concatenate((half, middle, sizes["seq"] - half[::-1]))


def any_length(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    return rng.integers(shape, 0, sizes["seq"])


def all_or_nothing(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """No token or every one: runs of sequences that end where they begin."""
    return rng.choice(shape, (0, 0, sizes["seq"]))


def nothing(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    return rng.integers(shape, 0, 0)


def room(tokens: int, batch: int, seq: int, hidden: int) -> Sizes:
    return {"tokens": tokens, "batch": batch, "seq": seq, "hidden": hidden}


def moved(sizes: Sizes, itemsize: int) -> int:
    """A row read and a row written for each token that finds room, where the lengths fill it; the lengths, the ends."""
    rows = min(sizes["tokens"], sizes["batch"] * sizes["seq"])
    return (rows + sizes["tokens"]) * sizes["hidden"] * itemsize + 8 * sizes["batch"]


REMOVE_PADDING = Spec(
    computes="packed = the first lengths[b] rows of each sequence of x, ends = the prefix sums of lengths",
    operations=Operations(
        "packed = the first lengths[b] rows of each sequence of x, ends = the prefix sums of lengths",
        "0: rows are copied, and what the lengths cost is left out",
        lambda sizes: 0,
        moved="of x one row for each row of packed; lengths, packed and ends once",
    ),
    inputs=(Tensor("x", ("batch", "seq", "hidden")), Tensor("lengths", ("batch",), "i32")),
    outputs=(Tensor("packed", ("tokens", "hidden")), Tensor("ends", ("batch",), "i32")),
    sizes={"tokens": Size(0, 120), "batch": Size(1, 60), "seq": Size(1, 12), "hidden": Size(1, 80)},
    values=(
        InputKind("in pairs", {"x": normal(), "lengths": in_pairs}),
        InputKind("any", {"x": edge_values(), "lengths": any_length}),
        InputKind("all or nothing", {"x": normal(), "lengths": all_or_nothing}),
        InputKind("nothing", {"x": normal(), "lengths": nothing}),
    ),
    reference=packed_reference,
    near_misses={
        "ends are those of the sequences before: the sum leaves its own out": lambda x, lengths, sizes: (
            packed_reference(x, lengths, sizes)[0],
            lengths.cumsum() - lengths,
        ),
        "ends are the lengths themselves": lambda x, lengths, sizes: (packed_reference(x, lengths, sizes)[0], lengths),
    },
    computed=("ends", "packed"),
    tolerance=Exact(signed_zeros=True),
    # Room for nothing, for exactly the tokens that there are, for fewer and for more; rows of every length modulo a
    # vector, around what a warp moves in one step (256 elements) and in four; batches around a warp (32), a scan's step
    # (1024) and several of these.
    named_sizes=(
        room(0, 1, 1, 8),
        room(1, 1, 1, 1),
        room(1, 2, 1, 2),
        room(2, 1, 3, 3),
        room(4, 2, 4, 8),
        room(3, 5, 2, 7),
        room(9, 3, 3, 8),
        room(6, 4, 3, 16),
        room(8, 2, 7, 33),
        room(17, 31, 1, 8),
        room(32, 32, 2, 8),
        room(50, 33, 3, 4),
        room(5, 2, 3, 255),
        room(4, 4, 2, 256),
        room(7, 3, 4, 264),
        room(3, 2, 2, 1024),
        room(2, 2, 2, 1032),
        room(60, 63, 2, 24),
        room(65, 130, 1, 8),
        room(33, 1023, 1, 8),
        room(40, 1024, 1, 1),
        room(64, 1025, 1, 8),
        room(100, 4100, 1, 8),
        room(90, 12, 15, 40),
    ),
    large=(
        room(50_001, 300, 333, 768),
        room(30_011, 20_003, 3, 72),
        room(200_003, 1_000_003, 1, 8),
        room(1001, 7, 411, 1031),
    ),
    work=lambda sizes: 25 * sizes["tokens"] * (sizes["hidden"] + 64) + 60 * (sizes["batch"] + 1024),
    min_bytes=moved,
    baselines={"torch.index_select": torch_index_select},
)

SPECS: dict[str, Spec] = {
    "add_bias_gelu_f16": ADD_BIAS_GELU,
    "add_bias_residual_layer_norm_f16": ADD_BIAS_RESIDUAL_LAYER_NORM,
    "qkv_bias_transpose_f16": QKV_BIAS_TRANSPOSE,
    "masked_softmax_f16": MASKED_SOFTMAX,
    "remove_padding_f16": REMOVE_PADDING,
}
