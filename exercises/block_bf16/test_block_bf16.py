"""block_bf16: the small kernels between the matrix products of a decoder layer, a specification for each.

All tensors are bf16, all arithmetic is f32, and every result is rounded to bf16 once. An answer may be off by a few
roundings to bf16 of itself, and by what a few operations in f32 do. Where two roundings in place of one would pass
that bound, a kind of values is far enough from every tie between two bf16 that the answer must match to the bit.

swiglu_bf16: y[t, i] = silu(g) u with the gate g = x[t, i] and the up u = x[t, F + i], silu(a) = a / (1 + exp(-a)).
silu(-inf) is 0, its limit. A nan gives nan. The bound is few u (1 + |g|) |silu(g) u|: the exponential's argument is
rounded, and that counts |g| times. Where sigmoid(g) is below the smallest normal float, it may become 0.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from grader.content.rows import FLUSHED
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

SPECS: dict[str, Spec] = {
    "swiglu_bf16": SWIGLU,
}
