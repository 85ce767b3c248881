"""block_bf16: the small kernels between the matrix products of a decoder layer, a specification for each.

All tensors are bf16, all arithmetic is f32, and every result is rounded to bf16 once. An answer may be off by a few
roundings to bf16 of itself, and by what a few operations in f32 do. Where two roundings in place of one would pass
that bound, a kind of values is far enough from every tie between two bf16 that the answer must match to the bit.

swiglu_bf16: y[t, i] = silu(g) u with the gate g = x[t, i] and the up u = x[t, F + i], silu(a) = a / (1 + exp(-a)).
silu(-inf) is 0, its limit. A nan gives nan. The bound is few u (1 + |g|) |silu(g) u|: the exponential's argument is
rounded, and that counts |g| times. Where sigmoid(g) is below the smallest normal float, it may become 0.

swiglu_backward_bf16: dx[t, i] = dy u s (1 + g (1 - s)), dx[t, F + i] = dy g s with s = sigmoid(g), g and u as above.
For a gate of -inf, silu and its derivative are 0. For +inf the derivative is nan, as in torch. The bound is that of
the forward pass, with s + |g| s (1 - s) in place of the derivative.

residual_rms_norm_bf16: s = x + r, rounded to bf16, and y = s / sqrt(mean of s^2 + eps) * w, row by row, 1 <= cols <=
16384. The mean is over the rounded s, which the next layer reads. Where it is not decided by ties, s is exact. A nan
makes its whole row of y nan; an infinity makes itself nan and the rest of its row 0. The bound is that of rms_norm:
rounding the squares' sum is worth g(cols) u of |y|.

qkv_rope_cache_bf16: qkv[t] has 4 Hk queries, then Hk keys, then Hk values of D elements each. A query or key x becomes
z = x / sqrt(mean of x^2 + eps) * weight with qw or kw, and its pairs (z[i], z[i + D / 2]) are rotated by pos[t]
theta^(-2 i / D) radians: the first is z[i] cos - z[i + D / 2] sin. All of that is in f32, and rounded once. Queries go
to q_out[t]. Keys and values go to row slot[t] of their cache, values as they are; a token with slot -1 stores neither.
Slots are different. Rows of the caches that no token has keep what they hold. The bound is that of rms_norm and of a
rotation: a few u of the pair's length, with the exact angle, for positions up to 131072.

bias_gelu_dropout_bf16: with s = x + bias, y = gelu(s) / (1 - p) and dx = dy gelu'(s) / (1 - p) where an element is
kept, and 0 where it is dropped, also for a nan. gelu is the tanh form of torch. Element e = row cols + col is kept if
word e mod 4 of a block of Philox4x32-10 is at least p 2^32, as integers. The block's counter is (e div 4 low, high,
seed[1] low, high) and its key seed[0] low, high, 32 bits each, low first. A round makes of the counter c and the key k
(hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0)), M0 = 0xD2511F53, M1 = 0xCD9E8D57, and then adds
0x9E3779B9 to k0 and 0xBB67AE85 to k1; there are ten rounds. Infinite sums give what the formulas give. The bound is
that of a few operations in f32; 1 + tanh may cancel, as in torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf, nan, pi, sqrt
from typing import TYPE_CHECKING, Any

from grader.content.formulas import side_by_side
from grader.content.rows import FLUSHED, per_row, poisoned
from grader.content.spec import (
    Accumulated,
    Fill,
    InputKind,
    Operations,
    Parameter,
    Rng,
    Size,
    Sizes,
    Spec,
    Tensor,
    edge_values,
    normal,
)

if TYPE_CHECKING:
    import torch
    from numpy import ndarray

BITS = 8  # significant bits of a bf16
BLOCK = 1 << 17  # elements that are worked out at a time, where many intermediate results are needed
TILE = 64  # rows after which values that are looked at one by one repeat

# -- values ----------------------------------------------------------------------------------------------------------


def near_a_tie(y: ndarray) -> ndarray:
    """Which numbers are so near the middle between two bf16 that an error in f32 might decide where they round to."""
    import numpy

    mantissa = numpy.ldexp(numpy.frexp(y)[0], BITS)
    near: ndarray = abs(abs(mantissa - numpy.rint(mantissa)) - 0.5) < 1 / 32
    return near


def rounded(x: ndarray) -> ndarray:
    """To bf16, as float64; no denormals."""
    import numpy

    mantissa, exponent = numpy.frexp(x)
    nearest: ndarray = numpy.ldexp(numpy.rint(numpy.ldexp(mantissa, BITS)), exponent - BITS)
    return nearest


def repeated(tile: ndarray, rows: int) -> ndarray:
    """A tile of some rows, again and again; all its numbers are bf16, or fit a float32."""
    import numpy

    return numpy.take(tile.astype(numpy.float32), numpy.arange(rows) % max(1, len(tile)), axis=0)


# -- swiglu ----------------------------------------------------------------------------------------------------------


def halves(x: ndarray) -> tuple[ndarray, ndarray]:
    """The gates and the ups, [T, F] each."""
    return x[:, 0], x[:, 1]


def sigmoid(a: ndarray) -> ndarray:
    import numpy

    s: ndarray = 1 / (1 + numpy.exp(-a))
    return s


def silu(a: ndarray) -> ndarray:
    import numpy

    y: ndarray = numpy.where(a == -inf, 0.0, a * sigmoid(a))
    return y


def swiglu(x: ndarray, sizes: Sizes) -> ndarray:
    gate, up = halves(x)
    return silu(gate) * up


def swiglu_magnitude(x: ndarray, sizes: Sizes) -> ndarray:
    """The bound of the docstring above, over the roundoff."""
    gate, up = halves(x)
    bound: ndarray = (1 + abs(gate)) * abs(up) * (abs(silu(gate)) + FLUSHED)
    return bound


def gates(fill: Fill, up: Fill) -> Fill:
    """x of gates and ups."""

    def both(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        half = (shape[0], shape[2])
        return numpy.stack([fill(rng, half, sizes), up(rng, half, sizes)], axis=1)

    return both


def sweep(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """From where sigmoid is the smallest denormal float to where it is 1; exp(-a) passes the largest float."""
    return rng.uniform(shape, -110.0, 110.0)


def decided(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Gates and ups whose product is far from a tie; a gate of 0 replaces the others."""
    x = rounded(rng.normal((min(shape[0], TILE), *shape[1:]), std=2.0))
    x[:, 0][near_a_tie(swiglu(x, sizes))] = 0.0
    return repeated(x, shape[0])


def tokens(T: int, F: int) -> Sizes:
    return {"T": T, "F": F}


# What is computed in place of it by a usual mistake.
SWIGLU_MISSES: dict[str, Callable[..., ndarray]] = {
    "silu(up) gate: gate and up are exchanged": lambda x, sizes: silu(halves(x)[1]) * halves(x)[0],
    "sigmoid(gate) up, without the factor gate": lambda x, sizes: sigmoid(halves(x)[0]) * halves(x)[1],
    "silu(gate), without up": lambda x, sizes: silu(halves(x)[0]),
    "silu(gate up)": lambda x, sizes: silu(halves(x)[0] * halves(x)[1]),
    "silu(gate) silu(up)": lambda x, sizes: silu(halves(x)[0]) * silu(halves(x)[1]),
    "gate up, without silu": lambda x, sizes: halves(x)[0] * halves(x)[1],
    "gate sigmoid(-gate) up": lambda x, sizes: halves(x)[0] * sigmoid(-halves(x)[0]) * halves(x)[1],
    "gates and ups in turn, not F apart": lambda x, sizes: (
        silu(x.reshape(len(x), -1)[:, 0::2]) * x.reshape(len(x), -1)[:, 1::2]
    ),
}


def torch_swiglu(x: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    from torch.nn.functional import silu

    gate, up = x.unbind(1)
    return lambda: silu(gate) * up


SWIGLU_VALUES = (
    InputKind("normal", gates(normal(std=2.0), normal(mean=1.0))),
    InputKind("sweep", gates(sweep, normal())),
    InputKind("far from ties", decided, exact=True),
    InputKind("special gates", gates(edge_values(), normal())),
    InputKind("special ups", gates(normal(), edge_values())),
    InputKind("large ups", gates(sweep, normal(std=1.0e30))),
)

# No token; F of every length modulo a vector; around a warp (32), a block of single elements (256) and of vectors of
# eight (2048); F that is a multiple of 4 and not of 8, where gates are aligned and ups are not.
SWIGLU_SIZES = (
    tokens(0, 8),
    tokens(1, 1),
    tokens(3, 1),
    tokens(1, 2),
    tokens(2, 3),
    tokens(3, 4),
    tokens(3, 7),
    tokens(1, 8),
    tokens(3, 8),
    tokens(3, 9),
    tokens(5, 12),
    tokens(7, 16),
    tokens(2, 31),
    tokens(3, 64),
    tokens(2, 129),
    tokens(3, 255),
    tokens(2, 256),
    tokens(3, 257),
    tokens(2, 516),
    tokens(3, 1000),
    tokens(2, 2040),
    tokens(3, 2048),
    tokens(2, 2056),
    tokens(1, 6152),
)

SWIGLU = Spec(
    computes="y = silu(gate) * up, x = gates and ups side by side",
    operations=Operations(
        "y = g / (1 + exp(-g)) * u",
        "4 per element of y: exp, addition, division, multiplication",
        lambda sizes: 4 * sizes["T"] * sizes["F"],
    ),
    inputs=(Tensor("x", ("T", 2, "F")),),
    outputs=(Tensor("y", ("T", "F")),),
    sizes={"T": Size(0, 20), "F": Size(1, 1200)},
    values=SWIGLU_VALUES,
    reference=swiglu,
    near_misses=SWIGLU_MISSES,
    tolerance=Accumulated(terms=lambda sizes: 2, magnitude=swiglu_magnitude),
    named_sizes=SWIGLU_SIZES,
    large=(tokens(4099, 1031), tokens(1030, 8200), tokens(300_007, 40), tokens(5, 4_000_008)),
    work=lambda sizes: sizes["T"] * (40 * sizes["F"] + 20 * 256),
    slice_dim="T",
    baselines={"torch.silu": torch_swiglu},
)

# -- swiglu_backward -------------------------------------------------------------------------------------------------


def slope(a: ndarray) -> ndarray:
    """The derivative of silu."""
    import numpy

    s = sigmoid(a)
    y: ndarray = numpy.where(a == -inf, 0.0, s * (1 + a * (1 - s)))
    return y


def both_halves(gate: ndarray, up: ndarray) -> ndarray:
    import numpy

    return numpy.stack([gate, up], axis=1)


def gradients(x: ndarray, dy: ndarray, sizes: Sizes) -> ndarray:
    gate, up = halves(x)
    return both_halves(dy * up * slope(gate), dy * silu(gate))


def gradients_magnitude(x: ndarray, dy: ndarray, sizes: Sizes) -> ndarray:
    """The bound of the docstring above, over the roundoff."""
    gate, up = halves(x)
    s, far = sigmoid(gate), 1 + abs(gate)
    return both_halves(
        abs(dy * up) * far * (s + abs(gate) * s * (1 - s) + FLUSHED), abs(dy) * far * (abs(silu(gate)) + FLUSHED)
    )


def in_steps(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """dy without draws, all bf16, for a fill of x that must know it: 1 to 2 in steps of 1/64."""
    import numpy

    row, col = numpy.arange(shape[0])[:, None] % TILE, numpy.arange(shape[1])
    steps: ndarray = 1 + (row * 11 + col * 37) % 64 / 64
    return steps


def decided_gradients(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """x whose two gradients are far from ties, with ``in_steps`` for dy; the others get a gate of 0 and an up of 2."""
    x = rounded(rng.normal((min(shape[0], TILE), *shape[1:]), std=2.0))
    dy = in_steps(rng, (len(x), shape[2]), sizes)
    near = near_a_tie(gradients(x, dy, sizes)).any(axis=1)
    x[:, 0][near], x[:, 1][near] = 0.0, 2.0
    return repeated(x, shape[0])


def turned(of: Callable[[ndarray], ndarray], by: Callable[[ndarray], ndarray]) -> Callable[..., ndarray]:
    """The gradients, with ``of`` in place of the derivative and ``by`` in place of silu."""
    return lambda x, dy, sizes: both_halves(dy * halves(x)[1] * of(halves(x)[0]), dy * by(halves(x)[0]))


# What is computed in place of it by a usual mistake.
BACKWARD_MISSES: dict[str, Callable[..., ndarray]] = {
    "the gates' gradient is dy u s: the derivative without its second term": turned(sigmoid, silu),
    "the gates' gradient is dy u s (1 - s): the derivative of sigmoid": turned(
        lambda a: sigmoid(a) * (1 - sigmoid(a)), silu
    ),
    "the gates' gradient is dy u g s (1 - s), without s": turned(lambda a: silu(a) * (1 - sigmoid(a)), silu),
    "the gates' gradient is dy u s (1 - g (1 - s)): a sign": turned(
        lambda a: sigmoid(a) * (1 - a * (1 - sigmoid(a))), silu
    ),
    "the ups' gradient is dy s, without g": turned(slope, sigmoid),
    "the gradients of gates and ups are exchanged": lambda x, dy, sizes: gradients(x, dy, sizes)[:, ::-1],
    "the gates' gradient is without the factor u": lambda x, dy, sizes: both_halves(
        dy * slope(halves(x)[0]), dy * silu(halves(x)[0])
    ),
    "the gradients for a dy of 1": lambda x, dy, sizes: gradients(x, 0 * dy + 1, sizes),
}


def torch_swiglu_backward(x: torch.Tensor, dy: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    """What autograd makes of torch's two operators, without their forward pass."""
    import torch

    x = x.detach().requires_grad_()
    gate, up = x.unbind(1)
    y = torch.nn.functional.silu(gate) * up
    return lambda: torch.autograd.grad(y, x, dy, retain_graph=True)


def backward_values(name: str, x: Fill, dy: Fill, *, exact: bool = False) -> InputKind:
    return InputKind(name, {"x": x, "dy": dy}, exact=exact)


SWIGLU_BACKWARD = Spec(
    computes="dx = the gradients of the gates and of the ups, side by side, of y = silu(gate) * up",
    operations=Operations(
        "dg = dy * u * s * (1 + g * (1 - s)), du = dy * g * s, s = 1 / (1 + exp(-g))",
        "11 per element of dy: exp, addition, division; 1 - s, times g, 1 +, times s, times u, times dy; g s, times dy",
        lambda sizes: 11 * sizes["T"] * sizes["F"],
    ),
    inputs=(Tensor("x", ("T", 2, "F")), Tensor("dy", ("T", "F"))),
    outputs=(Tensor("dx", ("T", 2, "F")),),
    sizes={"T": Size(0, 20), "F": Size(1, 1200)},
    values=(
        backward_values("normal", gates(normal(std=2.0), normal(mean=1.0)), normal(mean=0.5)),
        backward_values("sweep", gates(sweep, normal()), normal()),
        backward_values("far from ties", decided_gradients, in_steps, exact=True),
        backward_values("special gates", gates(edge_values(), normal()), normal()),
        backward_values("special ups", gates(normal(), edge_values()), normal()),
        backward_values("special dy", gates(normal(), normal()), edge_values()),
        backward_values("large ups", gates(sweep, normal(std=1.0e30)), normal()),
    ),
    reference=gradients,
    near_misses=BACKWARD_MISSES,
    tolerance=Accumulated(terms=lambda sizes: 2, magnitude=gradients_magnitude),
    named_sizes=SWIGLU_SIZES,
    large=(tokens(4099, 1031), tokens(1030, 8200), tokens(300_007, 40), tokens(5, 4_000_008)),
    work=lambda sizes: sizes["T"] * (60 * sizes["F"] + 20 * 256),
    slice_dim="T",
    baselines={"torch's autograd": torch_swiglu_backward},
)

# -- residual_rms_norm -----------------------------------------------------------------------------------------------

EPS = 1e-6


def summed(x: ndarray, r: ndarray) -> ndarray:
    """s, rounded to bf16 as float32 rounds to it: denormals, too, and what is too large becomes infinite."""
    import numpy

    with numpy.errstate(all="ignore"):
        exact = (x + r).astype(numpy.float32)
    bits = exact.view(numpy.uint32)
    even = (bits + numpy.uint32(0x7FFF) + (bits >> numpy.uint32(16) & numpy.uint32(1))) & numpy.uint32(0xFFFF0000)
    s: ndarray = numpy.where(numpy.isfinite(exact), even.view(numpy.float32), exact).astype(numpy.float64)
    return s


def mean_square(s: ndarray) -> ndarray:
    mean: ndarray = (s**2).mean(axis=1, keepdims=True)
    return mean


def normed(s: ndarray, w: ndarray) -> ndarray:
    y: ndarray = s * (mean_square(s) + EPS) ** -0.5 * w
    return y


def residual_norm(x: ndarray, r: ndarray, w: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    s = summed(x, r)
    return s, normed(s, w)


def residual_norm_magnitude(x: ndarray, r: ndarray, w: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    s, y = residual_norm(x, r, w, sizes)
    return 0 * s, abs(y)


def scales(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Rows of very different size. For the smallest, eps is most of the mean."""
    return rng.normal(shape) * per_row(rng, shape, (1.0e-4, 1.0e-3, 1.0, 1.0e4, 1.0e12))


def base(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """256 or -256, where bf16 are 2 apart; without draws, for ``below_half``, which must know it."""
    import numpy

    place = numpy.arange(min(shape[0], 5))[:, None] * shape[1] + numpy.arange(shape[1])
    return repeated(256.0 - 512.0 * (place * 7 % 5 % 2), shape[0])


def below_half(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Less than half a step of ``base``, away from 0: the rounded sum is ``base`` again. In every second row for all
    columns, in the others for every eighth: what is not rounded changes their mean, or single columns."""
    import numpy

    rows = min(shape[0], 10)
    row, col = numpy.arange(rows)[:, None], numpy.arange(shape[1])
    here = (row % 2 == 0) | (col % 8 == 5)
    tile = numpy.where(here, numpy.sign(base(rng, (rows, shape[1]), sizes)) * 0.9921875, 0.0)
    return repeated(tile, shape[0])


def minus(of: Fill) -> Fill:
    """r that cancels x, where both are drawn from the same seed: see ``mirrored``."""
    return lambda rng, shape, sizes: -of(rng, shape, sizes)


def mirrored(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Without draws, all bf16: what ``minus`` takes away again, so that s is 0."""
    import numpy

    place = numpy.arange(min(shape[0], 255))[:, None] * shape[1] + numpy.arange(shape[1])
    return repeated((place * 37 % 255 - 127.0) / 16, shape[0])


def near_one(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Weights, all different, of either sign."""
    return rng.uniform(shape, 0.5, 2.0) * rng.choice(shape, (1.0, 1.0, -1.0))


def norm_values(name: str, x: Fill, r: Fill, *, exact: bool = False) -> InputKind:
    return InputKind(name, {"x": x, "r": r, "w": near_one}, exact=exact)


def matrix(rows: int, cols: int) -> Sizes:
    return {"rows": rows, "cols": cols}


def by_row(columns: ndarray, s: ndarray) -> ndarray:
    """The element of each row's number, in place of each column's; they repeat."""
    import numpy

    return numpy.resize(columns, s.shape[0])[:, None]


def missed(y: Callable[[ndarray, ndarray], ndarray]) -> Callable[..., tuple[ndarray, ndarray]]:
    """The right s, and ``y`` of s and w."""
    return lambda x, r, w, sizes: (summed(x, r), y(summed(x, r), w))


# What is computed in place of it by a usual mistake.
RESIDUAL_MISSES: dict[str, Callable[..., tuple[ndarray, ndarray]]] = {
    "without eps": missed(lambda s, w: s * mean_square(s) ** -0.5 * w),
    "eps is added to the root": missed(lambda s, w: s / (mean_square(s) ** 0.5 + EPS) * w),
    "the sum of s^2 in place of the mean": missed(lambda s, w: s * (mean_square(s) * s.shape[1] + EPS) ** -0.5 * w),
    "the mean is over cols - 1": missed(
        lambda s, w: s * (mean_square(s) * s.shape[1] / (s.shape[1] - 1) + EPS) ** -0.5 * w
    ),
    "divided by mean + eps, not by its root": missed(lambda s, w: s / (mean_square(s) + EPS) * w),
    "without w": missed(lambda s, w: normed(s, 0 * w + 1)),
    "the weight of the row's number": missed(lambda s, w: normed(s, 0 * w + 1) * by_row(w, s)),
    "y is the norm of x, without r": lambda x, r, w, sizes: (summed(x, r), normed(x, w)),
    "y is the norm of r, without x": lambda x, r, w, sizes: (summed(x, r), normed(r, w)),
    "r is added after the norm": lambda x, r, w, sizes: (summed(x, r), normed(x, w) + r),
    "s is x": lambda x, r, w, sizes: (x, normed(summed(x, r), w)),
    "s and y are exchanged": lambda x, r, w, sizes: residual_norm(x, r, w, sizes)[::-1],
}


def torch_rms_norm(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    from torch.nn.functional import rms_norm

    def run() -> object:
        s = x + r
        return s, rms_norm(s, w.shape, w, EPS)

    return run


RESIDUAL_RMS_NORM = Spec(
    computes="s = x + r, y = s / sqrt(mean of s^2 + eps) * w, row by row",
    operations=Operations(
        "s = x + r, y = s * q * w, q = 1 / sqrt(sum of s * s / cols + eps)",
        "5 per element: x + r, s * s and its sum, times q, times w",
        lambda sizes: 5 * sizes["rows"] * sizes["cols"],
    ),
    inputs=(Tensor("x", ("rows", "cols")), Tensor("r", ("rows", "cols")), Tensor("w", ("cols",))),
    outputs=(Tensor("s", ("rows", "cols")), Tensor("y", ("rows", "cols"))),
    sizes={"rows": Size(1, 24), "cols": Size(1, 3000)},
    values=(
        norm_values("normal", normal(mean=0.5), normal(mean=0.5)),
        norm_values("small", normal(std=5.0e-4), normal(std=5.0e-4)),  # s^2 is some 5e-7, half of eps
        norm_values("scales", scales, scales),
        norm_values("rounded sum", base, below_half, exact=True),
        norm_values("poisoned", poisoned(nan, inf, -inf), normal()),
        norm_values("poisoned residual", normal(), poisoned(nan, inf, -inf)),
        norm_values("zeros", mirrored, minus(mirrored), exact=True),
    ),
    reference=residual_norm,
    near_misses=RESIDUAL_MISSES,
    tolerance=Accumulated(terms=lambda sizes: sizes["cols"] + 8, magnitude=residual_norm_magnitude),
    # Around a vector (8), a warp (32), what a warp holds in registers (512 elements) and what the largest block holds
    # (16384); rows that are 16-byte aligned, and rows that are not.
    named_sizes=(
        matrix(1, 1),
        matrix(1, 2),
        matrix(3, 1),
        matrix(2, 3),
        matrix(4, 7),
        matrix(5, 8),
        matrix(3, 9),
        matrix(7, 16),
        matrix(3, 31),
        matrix(2, 32),
        matrix(5, 33),
        matrix(9, 100),
        matrix(3, 255),
        matrix(2, 256),
        matrix(5, 257),
        matrix(3, 511),
        matrix(2, 512),
        matrix(3, 520),
        matrix(2, 1000),
        matrix(3, 1025),
        matrix(4, 2053),
        matrix(2, 4104),
        matrix(1, 16_383),
        matrix(2, 16_384),
    ),
    large=(matrix(4099, 1031), matrix(257, 16_384), matrix(300_007, 40), matrix(1030, 8200)),
    parameters=(Parameter("eps", "float", EPS),),
    work=lambda sizes: sizes["rows"] * (15_000 + 60 * sizes["cols"]),
    slice_dim="rows",
    baselines={"torch.rms_norm": torch_rms_norm},
)

# -- qkv_rope_cache --------------------------------------------------------------------------------------------------

THETA = 1_000_000.0
LAST_POSITION = 131_072
GROUP = 4  # query heads per key head
QKV_EPS = 1e-6

Heads = Callable[[ndarray, ndarray, ndarray], ndarray] if TYPE_CHECKING else object
"""(heads [T, n, D], weight, position) -> what becomes of them."""


def weighted(x: ndarray, weight: ndarray) -> ndarray:
    y: ndarray = x * ((x**2).mean(axis=-1, keepdims=True) + QKV_EPS) ** -0.5 * weight
    return y


def angles(D: int, pos: ndarray, theta: float = THETA) -> ndarray:
    """[T, 1, D / 2]"""
    import numpy

    return numpy.outer(pos, theta ** (-2.0 * numpy.arange(D // 2) / D))[:, None]


def rotated(x: ndarray, pos: ndarray, *, sign: float = 1.0, theta: float = THETA) -> ndarray:
    """The pairs (i, i + D / 2) of heads [T, n, D], each turned by its angle."""
    import numpy

    a, b = numpy.split(x, 2, axis=-1)
    sine, cosine = sign * numpy.sin(angles(x.shape[-1], pos, theta)), numpy.cos(angles(x.shape[-1], pos, theta))
    return numpy.concatenate([a * cosine - b * sine, a * sine + b * cosine], axis=-1)


def rotated_neighbours(x: ndarray, pos: ndarray) -> ndarray:
    """The pairs (2i, 2i + 1), as the family rope has them."""
    import numpy

    apart = numpy.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)
    a, b = numpy.split(rotated(apart, pos), 2, axis=-1)
    return numpy.stack([a, b], axis=-1).reshape(x.shape)


def right(x: ndarray, weight: ndarray, pos: ndarray) -> ndarray:
    return rotated(weighted(x, weight), pos)


def stored(cache: ndarray, rows: ndarray, slot: ndarray) -> ndarray:
    """The cache with the rows of all tokens that have a slot."""
    after = cache.copy()
    after[slot[slot >= 0]] = rows[slot >= 0]
    return after


def by_tokens(of: Heads, x: ndarray, weight: ndarray, pos: ndarray) -> ndarray:
    """``of`` of all heads, some tokens at a time: what is in between stays in a processor's cache."""
    import numpy

    step = max(1, BLOCK // x[0].size)
    parts = [(x[first : first + step], weight, pos[first : first + step]) for first in range(0, len(x), step)]
    return numpy.concatenate(side_by_side(of, parts))


def fates(
    of: Heads = right,
    value: Callable[[ndarray, ndarray, ndarray], ndarray] | None = None,
    *,
    qw_for_k: bool = False,
    by_number: bool = False,
    moved: Callable[[ndarray, int], ndarray] | None = None,
) -> Callable[..., tuple[ndarray, ndarray, ndarray]]:
    """(q_out, k_cache, v_cache), with ``of`` for queries and keys, ``value`` for values, and ``moved`` slots.

    ``by_number``: the tokens' positions are their numbers.
    """

    def outputs(
        qkv: ndarray, qw: ndarray, kw: ndarray, pos: ndarray, slot: ndarray, k_cache: ndarray, v_cache: ndarray,
        sizes: Sizes,
    ) -> tuple[ndarray, ndarray, ndarray]:  # fmt: skip
        import numpy

        T, Hk, D = sizes["T"], sizes["Hk"], sizes["D"]
        heads = qkv.reshape(T, (GROUP + 2) * Hk, D)
        q, k, v = heads[:, : GROUP * Hk], heads[:, GROUP * Hk : -Hk], heads[:, -Hk:]
        if moved is not None:
            slot = moved(slot, sizes["S"])
        if by_number:
            pos = numpy.arange(T)
        return (
            by_tokens(of, q, qw, pos).reshape(T, GROUP, Hk, D),
            stored(k_cache, by_tokens(of, k, qw if qw_for_k else kw, pos), slot),
            stored(v_cache, v if value is None else by_tokens(value, v, kw, pos), slot),
        )

    return outputs


def pair_length(x: ndarray, weight: ndarray, pos: ndarray) -> ndarray:
    """|z[i]| + |z[i + D / 2]| for both elements of a pair: an angle that is off moves each by a share of the other."""
    import numpy

    a, b = numpy.split(abs(weighted(x, weight)), 2, axis=-1)
    return numpy.concatenate([a + b, a + b], axis=-1)


def nothing(x: ndarray, weight: ndarray, pos: ndarray) -> ndarray:
    return 0 * x


def fates_magnitude(k_cache: ndarray, v_cache: ndarray, **given: ndarray) -> tuple[ndarray, ndarray, ndarray]:
    """The bound of the docstring above, over the roundoff; 0 for what is not computed."""
    return fates(pair_length, nothing)(k_cache=0 * k_cache, v_cache=0 * v_cache, **given)


# What is computed in place of it by a usual mistake.
FATES_MISSES: dict[str, Callable[..., tuple[ndarray, ...]]] = {
    "the pairs are (2i, 2i + 1)": fates(lambda x, weight, pos: rotated_neighbours(weighted(x, weight), pos)),
    "turned the other way round: the sign of the sine": fates(
        lambda x, weight, pos: rotated(weighted(x, weight), pos, sign=-1.0)
    ),
    "theta is 10000": fates(lambda x, weight, pos: rotated(weighted(x, weight), pos, theta=1e4)),
    "the token's number in place of its position": fates(by_number=True),
    "the weights are applied after the rotation": fates(
        lambda x, weight, pos: rotated(weighted(x, 0 * weight + 1), pos) * weight
    ),
    "without the weights": fates(lambda x, weight, pos: right(x, 0 * weight + 1, pos)),
    "without the norm": fates(lambda x, weight, pos: rotated(x * weight, pos)),
    "without the rotation": fates(lambda x, weight, pos: weighted(x, weight)),
    "the mean is over D / 2": fates(lambda x, weight, pos: right(x, weight, pos) * 0.5**0.5),
    "keys get the weights of queries": fates(qw_for_k=True),
    "values are normalised and rotated, too": fates(value=right),
    "values are normalised, too": fates(value=lambda x, weight, pos: weighted(x, weight)),
    "values are rotated, too": fates(value=lambda x, weight, pos: rotated(x, pos)),
    "the token's number in place of its slot": fates(moved=lambda slot, S: numbered(slot, S)),
}


def numbered(slot: ndarray, S: int) -> ndarray:
    import numpy

    number = numpy.arange(len(slot))
    return numpy.where((slot >= 0) & (number < S), number, -1)


def in_order(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Slots 0, 1, 2, ...; tokens past the cache have none."""
    import numpy

    token = numpy.arange(shape[0])
    return numpy.where(token < sizes["S"], token, -1)


def reversed_slots(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    import numpy

    return numpy.maximum(sizes["S"] - 1 - numpy.arange(shape[0]), -1)


def scattered(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Any slots in any order, as a paged cache has them."""
    import numpy

    order = numpy.argsort(rng.uniform((sizes["S"],), 0.0, 1.0))[: shape[0]]
    return numpy.concatenate([order, numpy.full(shape[0] - len(order), -1)])


def some_without(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Every third token has no slot: padding."""
    import numpy

    return numpy.where(numpy.arange(shape[0]) % 3 == 1, -1, scattered(rng, shape, sizes))


def all_without(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    import numpy

    return numpy.full(shape, -1)


def prompt(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    import numpy

    return numpy.arange(shape[0]) % LAST_POSITION


def far(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Anywhere, in any order, the last position among them: a batch of tokens from as many sequences."""
    drawn = rng.integers(shape, 0, LAST_POSITION)
    drawn[:1] = LAST_POSITION
    return drawn


def at_start(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    import numpy

    return numpy.zeros(shape, dtype=numpy.int64)


def one_size(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Queries and keys of one size, which the norm makes 1 or -1; any values."""
    drawn = rng.choice(shape, (256.0, -256.0))
    drawn[:, GROUP + 1] = rng.normal(drawn[:, GROUP + 1].shape)
    return drawn


def head_sizes(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Heads of very different size. For the smallest, eps is most of the mean."""
    return rng.normal(shape) * per_row(rng, shape, (1.0e-4, 1.0e-3, 1.0, 100.0, 1.0e10))


def fates_values(name: str, qkv: Fill, pos: Fill, slot: Fill, *, exact: bool = False) -> InputKind:
    caches = {"k_cache": normal(), "v_cache": normal()}
    fill = {"qkv": qkv, "qw": near_one, "kw": near_one, "pos": pos, "slot": slot, **caches}
    return InputKind(name, fill, exact=exact)


def layer(T: int, Hk: int, D: int, S: int) -> Sizes:
    return {"T": T, "Hk": Hk, "D": D, "S": S}


def fates_bytes(sizes: Sizes, itemsize: int) -> int:
    """The row of every token in and out, with a slot for each as far as there are slots; two weights, two tables."""
    rows = (2 * GROUP + 2) * sizes["T"] + 2 * min(sizes["T"], sizes["S"])
    return itemsize * sizes["D"] * (rows * sizes["Hk"] + 2) + 8 * sizes["T"]


def torch_qkv(
    qkv: torch.Tensor, qw: torch.Tensor, kw: torch.Tensor, pos: torch.Tensor, slot: torch.Tensor,
    k_cache: torch.Tensor, v_cache: torch.Tensor, **_: torch.Tensor,
) -> Callable[[], object]:  # fmt: skip
    """torch's operators, from a table of sines and cosines that is there already."""
    import torch
    from torch.nn.functional import rms_norm

    D = qkv.shape[-1]
    inverse = THETA ** (-2.0 * torch.arange(D // 2, device=qkv.device, dtype=torch.float64) / D)
    angle = torch.outer(pos.double(), inverse)[:, None]
    sine, cosine = angle.sin().to(qkv.dtype), angle.cos().to(qkv.dtype)
    heads, slots = qkv.flatten(1, 2), slot.long()
    keys = GROUP * qkv.shape[2]
    q, k, v = heads[:, :keys], qkv[:, GROUP], qkv[:, GROUP + 1]

    def turned(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cosine - b * sine, a * sine + b * cosine], dim=-1)

    def run() -> object:
        k_cache[slots] = turned(rms_norm(k, kw.shape, kw, QKV_EPS))
        v_cache[slots] = v
        return turned(rms_norm(q, qw.shape, qw, QKV_EPS))

    return run


QKV_ROPE_CACHE = Spec(
    computes="q_out = queries, k_cache, v_cache = keys, values at their slots; queries and keys are normed and rotated",
    operations=Operations(
        "z = x * q * w, q = 1 / sqrt(sum of x * x / D + eps), then z0 cos(a) - z1 sin(a), z0 sin(a) + z1 cos(a)",
        "7 per element of queries and keys: x * x and its sum, times q, times w, two products and a sum; the angles of "
        "a token serve all of its heads and are left out",
        lambda sizes: 7 * sizes["T"] * (GROUP + 1) * sizes["Hk"] * sizes["D"],
        moved="qkv once, q_out once, of the caches one row per token; weights, pos and slot once",
    ),
    inputs=(
        Tensor("qkv", ("T", GROUP + 2, "Hk", "D")),
        Tensor("qw", ("D",)),
        Tensor("kw", ("D",)),
        Tensor("pos", ("T",), "i32"),
        Tensor("slot", ("T",), "i32"),
        Tensor("k_cache", ("S", "Hk", "D")),
        Tensor("v_cache", ("S", "Hk", "D")),
    ),
    outputs=(
        Tensor("q_out", ("T", GROUP, "Hk", "D")),
        Tensor("k_cache", ("S", "Hk", "D")),
        Tensor("v_cache", ("S", "Hk", "D")),
    ),
    sizes={"T": Size(1, 40), "Hk": Size(1, 8), "D": Size(64, 128), "S": Size(1, 60)},
    values=(
        fates_values("scattered", normal(mean=0.5), far, scattered),
        fates_values("prompt", normal(), prompt, in_order),
        fates_values("far, some without a slot", normal(), far, some_without),
        fates_values("last first", head_sizes, prompt, reversed_slots),
        fates_values("position 0, one size", one_size, at_start, some_without, exact=True),
        fates_values("no slots", normal(), far, all_without),
        fates_values("poisoned", poisoned(nan, inf, -inf), far, scattered),
    ),
    reference=fates(),
    near_misses=FATES_MISSES,
    tolerance=Accumulated(terms=lambda sizes: sizes["D"] + 8, magnitude=fates_magnitude),
    # One token, around the tokens of a block (4) and of two; one head per warp step and several; caches with fewer rows
    # than there are tokens, with as many, and with more.
    named_sizes=(
        layer(1, 1, 64, 1),
        layer(1, 1, 128, 3),
        layer(2, 1, 64, 2),
        layer(3, 2, 128, 5),
        layer(4, 3, 64, 4),
        layer(5, 1, 128, 2),
        layer(7, 5, 64, 9),
        layer(8, 4, 128, 8),
        layer(9, 2, 64, 33),
        layer(17, 8, 128, 17),
        layer(17, 7, 64, 40),
        layer(33, 3, 128, 20),
        layer(100, 1, 64, 130),
    ),
    large=(layer(4099, 8, 128, 5000), layer(70_001, 1, 64, 70_001), layer(1030, 16, 128, 900), layer(3, 257, 128, 70)),
    parameters=(Parameter("eps", "float", QKV_EPS), Parameter("theta", "float", THETA)),
    work=lambda sizes: sizes["T"] * (40_000 + 16 * (GROUP + 2) * sizes["Hk"] * sizes["D"]),
    min_bytes=fates_bytes,
    baselines={"torch's operators": torch_qkv},
)

# -- bias_gelu_dropout -----------------------------------------------------------------------------------------------

P = 13_421_773 / 2**27  # 0.1, as a float
WORDS = 4  # of a block of Philox
LOW = 0xFFFFFFFF
SQRT_2_OVER_PI = sqrt(2 / pi)


def philox(counter: tuple[ndarray, ...], key: tuple[int, int], rounds: int = 10) -> tuple[ndarray, ...]:
    """Philox4x32-10: four words of 32 bits for each counter, all uint64."""
    import numpy

    c0, c1, c2, c3 = counter
    k0, k1 = key
    half = numpy.uint64(32)
    for _ in range(rounds):
        product0, product1 = numpy.uint64(0xD2511F53) * c0, numpy.uint64(0xCD9E8D57) * c2
        c0, c2 = (product1 >> half) ^ c1 ^ numpy.uint64(k0), (product0 >> half) ^ c3 ^ numpy.uint64(k1)
        c1, c3 = product1 & numpy.uint64(LOW), product0 & numpy.uint64(LOW)
        k0, k1 = (k0 + 0x9E3779B9) & LOW, (k1 + 0xBB67AE85) & LOW
    return c0, c1, c2, c3


def raised_early(counter: tuple[ndarray, ...], key: tuple[int, int]) -> tuple[ndarray, ...]:
    """The key is raised before each round."""
    return philox(counter, ((key[0] + 0x9E3779B9) & LOW, (key[1] + 0xBB67AE85) & LOW))


def words_of(
    e: ndarray, seed: ndarray, of: Callable[..., tuple[ndarray, ...]] = philox, taken: Sequence[int] = range(WORDS)
) -> ndarray:
    """The random word of each element e, [rows, cols] int64 of consecutive columns. ``taken``: which of a block's words
    its four elements take."""
    import numpy

    key, stream = ((int(number) & LOW, int(number) >> 32 & LOW) for number in seed)
    first = e[:, :1] // WORDS
    blocks = (first + numpy.arange((e.shape[1] + WORDS - 1) // WORDS + 1)).astype(numpy.uint64)
    zero = numpy.zeros_like(blocks)
    counter = (
        blocks & numpy.uint64(LOW),
        blocks >> numpy.uint64(32),
        zero + numpy.uint64(stream[0]),
        zero + numpy.uint64(stream[1]),
    )
    made = of(counter, key)
    words = numpy.stack([made[each] for each in taken], axis=-1).reshape(len(e), -1)
    drawn: ndarray = numpy.take_along_axis(words, e - first * WORDS, axis=1)
    return drawn


def elements(x: ndarray, sizes: Sizes, rows: ndarray | None) -> ndarray:
    """The index in the whole tensor of each element of some rows."""
    import numpy

    row = numpy.arange(len(x)) if rows is None else rows
    index: ndarray = row.astype(numpy.int64)[:, None] * sizes["cols"] + numpy.arange(x.shape[1])
    return index


def kept(x: ndarray, seed: ndarray, sizes: Sizes, rows: ndarray | None) -> ndarray:
    import numpy

    mask: ndarray = words_of(elements(x, sizes, rows), seed) >= numpy.uint64(int(P * 2**32))
    return mask


def gelu_and_slope(s: ndarray) -> tuple[ndarray, ndarray]:
    import numpy

    t = numpy.tanh(SQRT_2_OVER_PI * (s + 0.044715 * s * s * s))
    rise = SQRT_2_OVER_PI * (1 + 3 * 0.044715 * s * s)
    return 0.5 * s * (1 + t), 0.5 * (1 + t) + 0.5 * s * ((1 - t) * (1 + t)) * rise


def dropout(
    x: ndarray, bias: ndarray, dy: ndarray, seed: ndarray, sizes: Sizes, rows: ndarray | None, *,
    mask: Callable[..., ndarray] = kept, scale: float = 1 / (1 - P),
) -> tuple[ndarray, ndarray]:  # fmt: skip
    import numpy

    here = mask(x, seed, sizes, rows)
    value, slope = gelu_and_slope(x + bias)
    return numpy.where(here, value * scale, 0.0), numpy.where(here, dy * slope * scale, 0.0)


def dropout_magnitude(
    x: ndarray, bias: ndarray, dy: ndarray, seed: ndarray, sizes: Sizes, rows: ndarray | None
) -> tuple[ndarray, ndarray]:
    """As in the family fused; gelu's slope is a sum of terms below 2, and passes on an error of its argument."""
    import numpy

    here = kept(x, seed, sizes, rows) / (1 - P)
    y = here * (2.0 * abs(x + bias) + abs(x) + abs(bias))
    return y, numpy.where(here > 0, here * abs(dy) * (4.0 + abs(x) + abs(bias)), 0.0)


def of_row(x: ndarray, seed: ndarray, sizes: Sizes, rows: ndarray | None) -> ndarray:
    """The mask of the first row for all rows."""
    import numpy

    row = numpy.broadcast_to(numpy.arange(x.shape[1], dtype=numpy.int64), x.shape)
    mask: ndarray = words_of(row, seed) >= numpy.uint64(int(P * 2**32))
    return mask


def kept_by(threshold: float = P, **of: Any) -> Callable[..., ndarray]:
    """By another threshold, or other words."""

    def mask(x: ndarray, seed: ndarray, sizes: Sizes, rows: ndarray | None) -> ndarray:
        import numpy

        return words_of(elements(x, sizes, rows), seed, **of) >= numpy.uint64(int(threshold * 2**32))

    return mask


def inverted(x: ndarray, seed: ndarray, sizes: Sizes, rows: ndarray | None) -> ndarray:
    return ~kept(x, seed, sizes, rows)


def everywhere(x: ndarray, seed: ndarray, sizes: Sizes, rows: ndarray | None) -> ndarray:
    return kept(x, seed, sizes, rows) | True


def swapped(x: ndarray, seed: ndarray, sizes: Sizes, rows: ndarray | None) -> ndarray:
    """The key and the stream exchanged."""
    return kept(x, seed[::-1], sizes, rows)


Missed = Callable[..., tuple["ndarray", "ndarray"]]


def instead(**changed: object) -> Missed:
    return lambda x, bias, dy, seed, sizes, rows: dropout(  # type: ignore[arg-type]
        x, bias, dy, seed, sizes, rows, **changed
    )


# What is computed in place of it by a usual mistake.
DROPOUT_MISSES: dict[str, Missed] = {
    "without dropout": instead(mask=everywhere, scale=1.0),
    "without the factor 1 / (1 - p)": instead(scale=1.0),
    "with the factor 1 / p": instead(scale=1 / P),
    "with the factor 1 - p": instead(scale=1 - P),
    "what must be kept is dropped, and the other way round": instead(mask=inverted),
    "all rows get the mask of the first": instead(mask=of_row),
    "key and stream are exchanged": instead(mask=swapped),
    "without bias": lambda x, bias, dy, seed, sizes, rows: dropout(x, 0 * bias, dy, seed, sizes, rows),
    "dx is without the mask": lambda x, bias, dy, seed, sizes, rows: (
        dropout(x, bias, dy, seed, sizes, rows)[0],
        dropout(x, bias, dy, seed, sizes, rows, mask=everywhere)[1],
    ),
    "dx is without dy": lambda x, bias, dy, seed, sizes, rows: dropout(x, bias, 0 * dy + 1, seed, sizes, rows),
    "1 - p of the elements are dropped, not p": instead(mask=kept_by(1 - P)),
    "Philox's key is raised before each round, not after it": instead(mask=kept_by(of=raised_early)),
    "seven rounds of Philox": instead(mask=kept_by(of=partial(philox, rounds=7))),
    "the four elements of a block take Philox's words in reverse order": instead(mask=kept_by(taken=(3, 2, 1, 0))),
    "the four elements of a block take the same word of Philox, the first": instead(mask=kept_by(taken=(0, 0, 0, 0))),
    "dx is without the factor 1 / (1 - p)": lambda x, bias, dy, seed, sizes, rows: (
        dropout(x, bias, dy, seed, sizes, rows)[0],
        dropout(x, bias, dy, seed, sizes, rows, scale=1.0)[1],
    ),
}


def seeds(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """All 64 bits of both numbers."""
    return rng.integers(shape, -(2**62), 2**62)


CHOICES = 16


def a_bias(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """bias without draws, all bf16, for a fill of x that must know it."""
    import numpy

    bias: ndarray = (numpy.arange(shape[0]) % CHOICES * 8 + 5) / 256
    return bias


def a_dy(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """dy without draws, all bf16, for a fill of x that must know it."""
    import numpy

    row, col = numpy.arange(min(shape[0], TILE))[:, None], numpy.arange(shape[1])
    return repeated(1 + (row * 5 + col) % CHOICES / 16, shape[0])


def table_of_x() -> ndarray:
    """[bias, dy, choice]: x for which both answers are far from ties, and x + bias has more bits than a bf16."""
    import numpy

    x = -1.25 - numpy.arange(180) / 128
    bias = (numpy.arange(CHOICES) * 8 + 5)[:, None, None] / 256
    dy = 1 + numpy.arange(CHOICES)[:, None] / 16
    value, slope = gelu_and_slope(x + bias)
    bad = near_a_tie(value / (1 - P)) | near_a_tie(dy * slope / (1 - P))
    order = numpy.argsort(bad, axis=-1, kind="stable")[..., : 8 * CHOICES : 8]
    return x[order]


def choosy(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    import numpy

    row, col = numpy.arange(min(shape[0], TILE))[:, None], numpy.arange(shape[1])
    tile = table_of_x()[col % CHOICES, (row * 5 + col) % CHOICES, (row * 3 + col * 7) % CHOICES]
    return repeated(tile, shape[0])


def fixed(key: int, stream: int) -> Fill:
    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        return numpy.array([key, stream], dtype=numpy.int64)

    return fill


# Found by a search: p 2^32 is 429 496 736. The word of element 0 is 429 496 735, which as a float is the same; the word
# of element 1 is 429 496 736.
just_below = fixed(0x1234567822C092DD, 0x0000000600000005)
exactly = fixed(0x123456782571BD02, 0x0000000600000005)


def dropout_values(name: str, x: Fill, bias: Fill, dy: Fill, *, seed: Fill = seeds, exact: bool = False) -> InputKind:
    return InputKind(name, {"x": x, "bias": bias, "dy": dy, "seed": seed}, exact=exact)


def middle(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Where gelu is neither 0 nor its argument."""
    return rng.uniform(shape, -8.0, 4.0)


def torch_dropout(x: torch.Tensor, bias: torch.Tensor, dy: torch.Tensor, **_: torch.Tensor) -> Callable[[], object]:
    """torch's operators and its autograd, with a mask of its own."""
    import torch

    x = x.detach().requires_grad_()

    def run() -> object:
        y = torch.nn.functional.dropout(torch.nn.functional.gelu(x + bias, approximate="tanh"), P)
        return torch.autograd.grad(y, x, dy)

    return run


BIAS_GELU_DROPOUT = Spec(
    computes="y = dropout(gelu(x + bias)), and dx, its gradient for dy, with the same mask",
    operations=Operations(
        "y = g / (1 - p), dx = dy * d / (1 - p), where w >= p 2^32; g = 0.5 s (1 + t), "
        "t = tanh(c (s + 0.044715 s s s)), s = x + bias, d = 0.5 (1 + t) + 0.5 s (1 - t t) c (1 + 0.134145 s s)",
        "24 per element: 10 for g, 10 more for d, times dy, two divisions by the constant 1 - p, the comparison. The "
        "integers that make w do not count",
        lambda sizes: 24 * sizes["rows"] * sizes["cols"],
    ),
    inputs=(
        Tensor("x", ("rows", "cols")),
        Tensor("bias", ("cols",)),
        Tensor("dy", ("rows", "cols")),
        Tensor("seed", (2,), "i64"),
    ),
    outputs=(Tensor("y", ("rows", "cols")), Tensor("dx", ("rows", "cols"))),
    sizes={"rows": Size(1, 30), "cols": Size(1, 600)},
    values=(
        dropout_values("normal", normal(), normal(), normal(mean=0.5)),
        dropout_values("middle", middle, normal(), normal()),
        dropout_values("far from ties", choosy, a_bias, a_dy, exact=True),
        dropout_values("special", edge_values(), normal(), normal()),
        dropout_values("a word just below p 2^32", normal(mean=3.0), normal(), normal(), seed=just_below),
        dropout_values("a word of p 2^32", normal(mean=3.0), normal(), normal(), seed=exactly),
        dropout_values("special dy", normal(), normal(), edge_values()),
        dropout_values("large", normal(std=300.0), normal(std=300.0), normal()),
    ),
    reference=dropout,
    near_misses=DROPOUT_MISSES,
    tolerance=Accumulated(terms=lambda sizes: 4, magnitude=dropout_magnitude),
    # Around the two rows of a thread; columns of every length modulo a block of Philox (4) and a vector (8), where both
    # end inside a row; around a warp (32), a block of single elements (256) and of vectors (2048).
    named_sizes=(
        matrix(1, 1),
        matrix(2, 1),
        matrix(3, 2),
        matrix(5, 3),
        matrix(2, 4),
        matrix(3, 5),
        matrix(4, 7),
        matrix(1, 8),
        matrix(3, 8),
        matrix(5, 9),
        matrix(7, 16),
        matrix(3, 31),
        matrix(4, 32),
        matrix(5, 33),
        matrix(3, 100),
        matrix(2, 255),
        matrix(3, 256),
        matrix(2, 257),
        matrix(3, 520),
        matrix(2, 1000),
        matrix(3, 2040),
        matrix(2, 2056),
        matrix(3, 4104),
    ),
    large=(matrix(4099, 1031), matrix(1030, 8200), matrix(300_007, 40), matrix(5, 4_000_008)),
    parameters=(Parameter("p", "float", P),),
    work=lambda sizes: sizes["rows"] * (100 * sizes["cols"] + 20 * 256),
    slice_dim="rows",
    reference_takes_rows=True,
    baselines={"torch's autograd": torch_dropout},
)

SPECS: dict[str, Spec] = {
    "bias_gelu_dropout_bf16": BIAS_GELU_DROPOUT,
    "qkv_rope_cache_bf16": QKV_ROPE_CACHE,
    "swiglu_bf16": SWIGLU,
    "swiglu_backward_bf16": SWIGLU_BACKWARD,
    "residual_rms_norm_bf16": RESIDUAL_RMS_NORM,
}
