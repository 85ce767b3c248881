"""gelu: y[i] = x[i] Phi(x[i]) for all i in 0..n-1, any n >= 0; Phi is the normal distribution function.

gelu_f*: Phi(x) is taken as 0.5 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as in torch's gelu with approximate="tanh".

gelu_erf_*: Phi(x) is 0.5 (1 + erf(x / sqrt(2))), as in torch's gelu with approximate="none".

y is inf at inf, nan at nan, and nan at -inf: -inf * 0.

The answer may be off by what rounding does to a few operations. For x < 0 the sum 1 + tanh or 1 + erf cancels, in the
definition and so in torch too: the digits that it loses there are forgiven, that is a few units in the last place of x.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import pi, sqrt
from typing import TYPE_CHECKING

from grader.content.formulas import erf
from grader.content.spec import Accumulated, InputKind, Operations, Rng, Size, Sizes, Spec, Tensor, edge_values, normal

if TYPE_CHECKING:
    from numpy import ndarray


def reference(x: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    return 0.5 * x * (1 + numpy.tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)))


def by_tanh(x: ndarray, u: ndarray) -> ndarray:
    import numpy

    return 0.5 * x * (1 + numpy.tanh(u))


def reference_erf(x: ndarray, sizes: Sizes) -> ndarray:
    return 0.5 * x * (1 + erf(x / sqrt(2)))


def magnitude(x: ndarray, sizes: Sizes) -> ndarray:
    """0.5 |x| (1 + |tanh|) plus |x f'|: each of them about |x| at most."""
    return 2.0 * abs(x)


def middle(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Where Phi is neither 0 nor 1, in either dtype."""
    return rng.uniform(shape, -12.0, 6.0)


def large_inputs(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Where the answer is 0 or x."""
    return rng.uniform(shape, -300.0, 300.0)


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "erf(x / sqrt(2)) in place of its approximation by tanh": reference_erf,
    "without the term 0.044715 x^3": lambda x, sizes: by_tanh(x, sqrt(2 / pi) * x),
    "without the factor sqrt(2 / pi)": lambda x, sizes: by_tanh(x, x + 0.044715 * x**3),
    "x^2 in place of x^3": lambda x, sizes: by_tanh(x, sqrt(2 / pi) * (x + 0.044715 * x**2)),
    "half of the argument of tanh, a 2 is missing": lambda x, sizes: by_tanh(
        x, sqrt(2 / pi) * (x + 0.044715 * x**3) / 2
    ),
    "without the 0.5": lambda x, sizes: 2 * reference(x, sizes),
    "without the factor x": lambda x, sizes: reference(x, sizes) / x,
    "tanh without 1 +": lambda x, sizes: reference(x, sizes) - 0.5 * x,
    "0.44715 in place of 0.044715": lambda x, sizes: by_tanh(x, sqrt(2 / pi) * (x + 0.44715 * x**3)),
    "sqrt(2 / pi) is a factor of x alone, not of x^3": lambda x, sizes: by_tanh(x, sqrt(2 / pi) * x + 0.044715 * x**3),
    "2 / pi in place of its root": lambda x, sizes: by_tanh(x, 2 / pi * (x + 0.044715 * x**3)),
    "1 / sqrt(2) in place of sqrt(2 / pi)": lambda x, sizes: by_tanh(x, sqrt(0.5) * (x + 0.044715 * x**3)),
    "sqrt(pi / 2) in place of sqrt(2 / pi)": lambda x, sizes: by_tanh(x, sqrt(pi / 2) * (x + 0.044715 * x**3)),
    "1 - tanh in place of 1 + tanh": lambda x, sizes: x - reference(x, sizes),
    "the argument of tanh doubled": lambda x, sizes: by_tanh(x, 2 * sqrt(2 / pi) * (x + 0.044715 * x**3)),
    "x sigmoid(1.702 x)": lambda x, sizes: by_tanh(x, 0.851 * x),
    "- 0.044715 x^3, a sign": lambda x, sizes: by_tanh(x, sqrt(2 / pi) * (x - 0.044715 * x**3)),
}


def by_erf(factor: float) -> Callable[..., ndarray]:
    """With another factor of erf's argument."""
    return lambda x, sizes: 0.5 * x * (1 + erf(factor * x))


NEAR_MISSES_ERF = {
    "the approximation by tanh in place of erf": reference,
    "erf(x), not erf(x / sqrt(2))": lambda x, sizes: 0.5 * x * (1 + erf(x)),
    "erf without 1 +": lambda x, sizes: 0.5 * x * erf(x / sqrt(2)),
    "without the 0.5": lambda x, sizes: 2 * reference_erf(x, sizes),
    "without the factor x": lambda x, sizes: reference_erf(x, sizes) / x,
    "erf(sqrt(2 / pi) x): the constant of the approximation by tanh": by_erf(sqrt(2 / pi)),
    "erf(sqrt(2) x), not erf(x / sqrt(2))": by_erf(sqrt(2)),
    "erf(x / 2), not erf(x / sqrt(2))": by_erf(0.5),
    "erf(2 x / sqrt(pi)): the factor of erf's own integral": by_erf(2 / sqrt(pi)),
    "1 - erf in place of 1 + erf": lambda x, sizes: x - reference_erf(x, sizes),
    "x sigmoid(1.702 x)": lambda x, sizes: by_tanh(x, 0.851 * x),
}

SPEC = Spec(
    computes="y = 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))",
    operations=Operations(
        "y = 0.5 x (1 + tanh(c (x + 0.044715 x x x))), c = sqrt(2 / pi), a constant",
        "9 per element: three multiplications and an addition in the inner bracket, c, tanh, 1 +, x, 0.5",
        lambda sizes: 9 * sizes["n"],
    ),
    inputs=(Tensor("x", ("n",)),),
    outputs=(Tensor("y", ("n",)),),
    sizes={"n": Size(0, 5000)},
    values=(
        InputKind("normal", normal(std=2.0)),
        InputKind("middle", middle),
        InputKind("special", edge_values()),
        InputKind("large", large_inputs),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Accumulated(terms=lambda sizes: 4, magnitude=magnitude),
    # Around every vector (2, 4, 8), warp (32) and block (256, 512, 1024 or 2048 elements) of the family's katas.
    named_sizes=tuple(
        {"n": n} for n in (*range(10), 15, 31, 33, 127, 255, 256, 257, 511, 1023, 1025, 2047, 2048, 2049, 4099)
    ),
    large=tuple({"n": n} for n in (300_007, 4_194_304, 20_000_003)),
    work=lambda sizes: 50 * sizes["n"],
    slice_dim="n",
)

ERF = replace(
    SPEC,
    computes="y = 0.5 x (1 + erf(x / sqrt(2)))",
    operations=Operations(
        "y = 0.5 x (1 + erf(x / sqrt(2)))",
        "5 per element: division, erf, addition, two multiplications",
        lambda sizes: 5 * sizes["n"],
    ),
    reference=reference_erf,
    near_misses=NEAR_MISSES_ERF,
)

SPECS = {"gelu_erf_f32": ERF, "gelu_erf_f16x8_pack": ERF}
