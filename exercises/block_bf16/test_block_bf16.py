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
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import TYPE_CHECKING

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
    x = rounded(rng.normal(shape, std=2.0))
    x[:, 0][near_a_tie(swiglu(x, sizes))] = 0.0
    return x


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

    steps: ndarray = 1 + numpy.arange(shape[0] * shape[1]).reshape(shape) * 37 % 64 / 64
    return steps


def decided_gradients(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """x whose two gradients are far from ties, with ``in_steps`` for dy; the others get a gate of 0 and an up of 2."""
    x = rounded(rng.normal(shape, std=2.0))
    dy = in_steps(rng, (shape[0], shape[2]), sizes)
    near = near_a_tie(gradients(x, dy, sizes)).any(axis=1)
    x[:, 0][near], x[:, 1][near] = 0.0, 2.0
    return x


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

    sign: ndarray = 256.0 - 512.0 * (numpy.arange(shape[0] * shape[1]).reshape(shape) * 7 % 5 % 2)
    return sign


def below_half(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Less than half a step of ``base``, away from 0: the rounded sum is ``base`` again. In every second row for all
    columns, in the others for every eighth: what is not rounded changes their mean, or single columns."""
    import numpy

    row, col = numpy.arange(shape[0])[:, None], numpy.arange(shape[1])
    here = (row % 2 == 0) | (col % 8 == 5)
    return numpy.where(here, numpy.sign(base(rng, shape, sizes)) * 0.9921875, 0.0)


def minus(of: Fill) -> Fill:
    """r that cancels x, where both are drawn from the same seed: see ``mirrored``."""
    return lambda rng, shape, sizes: -of(rng, shape, sizes)


def mirrored(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Without draws, all bf16: what ``minus`` takes away again, so that s is 0."""
    import numpy

    value: ndarray = (numpy.arange(shape[0] * shape[1]).reshape(shape) * 37 % 255 - 127.0) / 16
    return value


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
    "the sum of s^2 in place of the mean": missed(
        lambda s, w: s * (mean_square(s) * s.shape[1] + EPS) ** -0.5 * w
    ),
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

SPECS: dict[str, Spec] = {
    "swiglu_bf16": SWIGLU,
    "swiglu_backward_bf16": SWIGLU_BACKWARD,
    "residual_rms_norm_bf16": RESIDUAL_RMS_NORM,
}
