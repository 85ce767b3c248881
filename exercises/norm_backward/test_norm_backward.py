"""norm_backward: the gradients of layer_norm and rms_norm, 1 <= cols <= 8192, any rows >= 1.

With x_hat the normalised row and g = dy * weight:

    dx = rstd * (g - mean of g over the row - x_hat * mean of g * x_hat over the row)      rms_norm: no mean of g
    dweight = sum of dy * x_hat over the rows, dbias = sum of dy over the rows             rms_norm: no dbias

x_hat is (x - mean) * rstd with the mean and the rstd = 1 / sqrt(variance + eps) that the forward pass left for each
row, x * rstd in rms_norm, and (y - bias) / weight where the output y is all that was kept: no weight is 0 there. The
kernels use mean and rstd as given, without a check, as torch.ops.aten.native_layer_norm_backward does.

The bound. x - mean is rounded once, so x_hat is off by a few u of itself, and so are g and the products. A sum of n
terms adds g(n) u times the sum of their sizes. Hence for dx, with G = g(cols) + 8:

    G u rstd (|g| + mean of |g| + |x_hat| * mean of |g x_hat|)

and for dweight and dbias (g(rows) + 8) u times the sum of |dy x_hat|, or of |dy|. (y - bias) / weight is off by a few
u of itself as well: y and bias are given, and their difference is rounded once.

The whole numbers: x and dy are equal in the two columns of a pair, the weights are opposite, so that both sums along
the row are 0 for sure, all of dx is rstd * g, and every sum is exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

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
    cancelling,
    growth,
    normal,
)

if TYPE_CHECKING:
    import torch
    from numpy import ndarray


BLOCK = 1 << 17  # elements that are worked out at a time

# -- references ------------------------------------------------------------------------------------------------------


def columns(tensor: ndarray, rows: ndarray | None) -> ndarray:
    """Those of a large answer that are looked at; ``rows`` are columns here."""
    return tensor if rows is None else tensor[..., rows]


def gradients(
    x_hat: ndarray, dy: ndarray, weight: ndarray, rstd: ndarray, rows: ndarray | None, mean: float
) -> tuple[ndarray, ndarray, ndarray]:
    """dx, dweight and dbias; the mean of g counts ``mean`` times."""
    g = dy * weight
    g_mean = mean * g.mean(axis=1, keepdims=True)
    gx_mean = (g * x_hat).mean(axis=1, keepdims=True)
    x_hat, dy, weight = columns(x_hat, rows), columns(dy, rows), columns(weight, rows)
    dx = rstd[:, None] * (dy * weight - g_mean - x_hat * gx_mean)
    return dx, (dy * x_hat).sum(axis=0), dy.sum(axis=0)


def bounds(
    x_hat: ndarray, dy: ndarray, weight: ndarray, rstd: ndarray, rows: ndarray | None, mean: float
) -> tuple[ndarray, ndarray, ndarray]:
    """The bounds of the docstring above, over the roundoff; of the sums down the columns without their factor."""
    cols = dy.shape[1]
    x_hat, dy, weight = abs(x_hat), abs(dy), abs(weight)
    g = dy * weight
    g_mean = mean * g.mean(axis=1, keepdims=True)
    gx_mean = (g * x_hat).mean(axis=1, keepdims=True)
    x_hat, dy, weight = columns(x_hat, rows), columns(dy, rows), columns(weight, rows)
    dx = (growth(cols) + 8) * abs(rstd)[:, None] * (dy * weight + g_mean + x_hat * gx_mean)
    return dx, (dy * x_hat).sum(axis=0), dy.sum(axis=0)


def by_rows(of: Callable[..., tuple[ndarray, ...]], *, bound: bool = False) -> Callable[..., tuple[ndarray, ...]]:
    """``of`` of some rows at a time, which a processor's cache holds: dx is joined, and what is summed down the columns
    is added, times the factor of a ``bound``."""

    def of_inputs(weight: ndarray, sizes: Sizes, rows: ndarray | None, **given: ndarray) -> tuple[ndarray, ...]:
        import numpy

        count, step = sizes["rows"], max(1, BLOCK // max(1, sizes["cols"] if rows is None else weight.size))
        whole = {"weight": weight, "sizes": sizes, "rows": rows}
        if "bias" in given:
            whole["bias"] = given.pop("bias")
        parts = [
            of(**whole, **{name: array[first : first + step] for name, array in given.items()})
            for first in range(0, count, step)
        ]
        dx, *sums = zip(*parts, strict=True)
        factor = growth(count) + 8 if bound else 1.0
        return numpy.concatenate(dx), *(factor * numpy.sum(each, axis=0) for each in sums)

    return of_inputs


def layer_norm(form: Callable[..., tuple[ndarray, ...]]) -> Callable[..., tuple[ndarray, ...]]:
    def of_inputs(
        x: ndarray, dy: ndarray, weight: ndarray, mean: ndarray, rstd: ndarray, sizes: Sizes, rows: ndarray | None
    ) -> tuple[ndarray, ...]:
        return form((x - mean[:, None]) * rstd[:, None], dy, weight, rstd, rows, 1.0)

    return of_inputs


def rms_norm(form: Callable[..., tuple[ndarray, ...]]) -> Callable[..., tuple[ndarray, ...]]:
    def of_inputs(
        x: ndarray, dy: ndarray, weight: ndarray, rstd: ndarray, sizes: Sizes, rows: ndarray | None
    ) -> tuple[ndarray, ...]:
        return form(x * rstd[:, None], dy, weight, rstd, rows, 0.0)[:2]

    return of_inputs


def recompute(form: Callable[..., tuple[ndarray, ...]]) -> Callable[..., tuple[ndarray, ...]]:
    def of_inputs(
        y: ndarray, dy: ndarray, weight: ndarray, bias: ndarray, rstd: ndarray, sizes: Sizes, rows: ndarray | None
    ) -> tuple[ndarray, ...]:
        return form((y - bias) / weight, dy, weight, rstd, rows, 1.0)

    return of_inputs


def other_gradients(
    *,
    g_mean: float = 1.0,
    gx_mean: float = 1.0,
    scaled: bool = True,
    sums: bool = False,
    weighted: bool = True,
    plain_g: bool = False,
    plain_gx: bool = False,
    step: int = 1,
) -> Callable[..., tuple[ndarray, ...]]:
    """The gradients with other factors of the two means, without rstd or weight, or with sums in place of means.
    ``plain_g``, ``plain_gx``: the mean is without weight. ``step``: it has the first of each so many columns alone, in
    rows of whole vectors of so many."""

    def of_inputs(
        x_hat: ndarray, dy: ndarray, weight: ndarray, rstd: ndarray, rows: ndarray | None, mean: float
    ) -> tuple[ndarray, ...]:
        import numpy

        g = dy * weight if weighted else dy
        count = dy.shape[1] if sums else 1
        kept = 1.0 if dy.shape[1] % step else (numpy.arange(dy.shape[1]) % step == 0) * 1.0
        first = mean * g_mean * count * ((dy if plain_g else g) * kept).mean(axis=1, keepdims=True)
        second = gx_mean * count * ((dy if plain_gx else g) * x_hat * kept).mean(axis=1, keepdims=True)
        dx = (rstd[:, None] if scaled else 1.0) * (g - first - x_hat * second)
        return dx, (dy * x_hat).sum(axis=0), dy.sum(axis=0)

    return of_inputs


def other_sums(
    form: Callable[[ndarray, ndarray, ndarray], tuple[ndarray, ndarray]],
) -> Callable[..., tuple[ndarray, ...]]:
    """The gradients with other sums down the columns: a function of x_hat, dy and weight."""

    def of_inputs(
        x_hat: ndarray, dy: ndarray, weight: ndarray, rstd: ndarray, rows: ndarray | None, mean: float
    ) -> tuple[ndarray, ...]:
        return gradients(x_hat, dy, weight, rstd, rows, mean)[0], *form(x_hat, dy, weight)

    return of_inputs


# What is computed in place of it by a usual mistake.
USUAL = {
    "dx without the mean of g": other_gradients(g_mean=0.0),
    "dx without the mean of g * x_hat": other_gradients(gx_mean=0.0),
    "dx without rstd": other_gradients(scaled=False),
    "dx with sums in place of the two means": other_gradients(sums=True),
    "dx without weight": other_gradients(weighted=False),
    "the mean of dy * x_hat in place of g * x_hat in dx, without weight": other_gradients(plain_gx=True),
    "the mean of dy in place of the mean of g in dx, without weight": other_gradients(plain_g=True),
    "the mean of dy and the mean of dy * x_hat in dx, both without weight": other_gradients(
        plain_g=True, plain_gx=True
    ),
    "the mean of g * x_hat is added in dx": other_gradients(gx_mean=-1.0),
    "the mean of g is added in dx": other_gradients(g_mean=-1.0),
    "dx without both means": other_gradients(g_mean=0.0, gx_mean=0.0),
    "the means in dx have the first of each 4 columns alone, in rows of whole vectors": other_gradients(step=4),
    "dweight by dy, without x_hat": other_sums(lambda x_hat, dy, weight: (dy.sum(axis=0), dy.sum(axis=0))),
    "dbias by dy * weight": other_sums(lambda x_hat, dy, weight: ((dy * x_hat).sum(axis=0), (dy * weight).sum(axis=0))),
    "dweight and dbias are means over the rows": other_sums(
        lambda x_hat, dy, weight: ((dy * x_hat).mean(axis=0), dy.mean(axis=0))
    ),
    "dweight by dy * weight": other_sums(lambda x_hat, dy, weight: ((dy * weight * x_hat).sum(axis=0), dy.sum(axis=0))),
    "dweight and dbias swapped": other_sums(lambda x_hat, dy, weight: (dy.sum(axis=0), (dy * x_hat).sum(axis=0))),
    "the last row is missing from dweight and dbias": other_sums(
        lambda x_hat, dy, weight: ((dy * x_hat)[:-1].sum(axis=0), dy[:-1].sum(axis=0))
    ),
}

# Those that are the same as others where no mean is subtracted, and no bias is there.
OF_LAYER_NORM = (
    "dx without the mean of g",
    "the mean of dy in place of the mean of g in dx, without weight",
    "the mean of dy and the mean of dy * x_hat in dx, both without weight",
    "the mean of g is added in dx",
    "dx without both means",
    "dweight by dy, without x_hat",
    "dbias by dy * weight",
)


# -- values ----------------------------------------------------------------------------------------------------------


def uniform(low: float, high: float) -> Fill:
    return lambda rng, shape, sizes: rng.uniform(shape, low, high)


def choice(*values: float) -> Fill:
    return lambda rng, shape, sizes: rng.choice(shape, values)


def far_from_0(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Weights of either sign that one can divide by."""
    return rng.uniform(shape, 0.5, 2.0) * rng.choice(shape, (1.0, 1.0, 1.0, -1.0))


def scales(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Rows of very different size."""
    return rng.normal(shape, mean=0.5) * rng.choice((shape[0], 1), (1.0e-3, 1.0, 30.0, 1000.0))


def poisoned(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """One nan or infinity in some rows, anywhere: it spoils its row of dx and its column of the sums, and no other."""
    import numpy

    place = numpy.floor(rng.uniform((shape[0], 1), 0.0, 1.0) * shape[1])
    plain = rng.normal(shape, mean=0.5)
    poison = rng.choice((shape[0], 1), (float("nan"), float("inf"), 2.0, 2.0, 2.0, 2.0))
    return numpy.where(numpy.arange(shape[1]) != place, plain, poison)


def pairs(low: int, high: int, *, opposite: bool = False) -> Fill:
    """Whole numbers, the two of a pair of columns equal or ``opposite``; an odd last column is 0."""

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        return paired(rng.integers((*shape[:-1], shape[-1] // 2), low, high), shape, opposite=opposite)

    return fill


def powers_of_2(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Weights, opposite in the two columns of a pair; an odd last column is 1."""
    import numpy

    drawn = paired(rng.choice((shape[-1] // 2,), (0.5, 1.0, -1.0, 2.0)), shape, opposite=True)
    return numpy.where(drawn != 0, drawn, 1.0)


def paired(first: ndarray, shape: tuple[int, ...], *, opposite: bool) -> ndarray:
    import numpy

    both = numpy.zeros(shape)
    whole = shape[-1] // 2 * 2
    both[..., 0:whole:2] = first
    both[..., 1:whole:2] = -first if opposite else first
    return both


SAVED = {"mean": normal(mean=0.5, std=0.1), "rstd": uniform(0.5, 1.5)}
WEIGHT = {"weight": normal(mean=1.0, std=0.5)}
DY = {"dy": normal(mean=0.5)}
EXACT = {
    "x": pairs(-3, 3),
    "dy": pairs(-2, 3),
    "weight": powers_of_2,
    "mean": choice(-1.0, 0.0, 1.0),
    "rstd": choice(0.5, 1.0, 2.0),
}


# -- baselines -------------------------------------------------------------------------------------------------------


def torch_layer_norm_backward(
    x: torch.Tensor, dy: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor, **_: torch.Tensor
) -> Callable[[], object]:
    import torch

    backward = torch.ops.aten.native_layer_norm_backward
    saved, every = (mean[:, None], rstd[:, None]), [True, True, True]
    return lambda: backward(dy, x, weight.shape, *saved, weight, weight, every)  # of bias only the dtype matters


def torch_rms_norm_backward(
    x: torch.Tensor, dy: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor, **_: torch.Tensor
) -> Callable[[], object]:
    import torch

    backward = torch.ops.aten._fused_rms_norm_backward
    return lambda: backward(dy, x, weight.shape, rstd[:, None], weight, [True, True])


def torch_recompute(
    y: torch.Tensor, dy: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, rstd: torch.Tensor, **_: torch.Tensor
) -> Callable[[], object]:
    """x_hat from y, and layer_norm's gradient for a row of mean 0 and rstd 1; the row's own rstd last."""
    import torch

    backward = torch.ops.aten.native_layer_norm_backward
    saved, every = (torch.zeros_like(rstd[:, None]), torch.ones_like(rstd[:, None])), [True, True, True]

    def run() -> object:
        x_hat = (y - bias).div_(weight)
        dx, dweight, dbias = backward(dy, x_hat, weight.shape, *saved, weight, bias, every)
        return dx.mul_(rstd[:, None]), dweight, dbias

    return run


# -- specs -----------------------------------------------------------------------------------------------------------


def shape(rows: int, cols: int) -> Sizes:
    return {"rows": rows, "cols": cols}


def whole(name: str, *dims: str) -> Tensor:
    """A part of the columns still needs all of this input: dx has means along the row."""
    return Tensor(name, dims, unsliced=True)


SPEC = Spec(
    computes="dx, dweight and dbias of layer_norm, from dy, x, and each row's mean and 1 / sqrt(variance + eps)",
    operations=Operations(
        "h = (x - mean) * rstd, g = dy * weight, dx = rstd * (g - mean of g - h * mean of g * h); "
        "dweight = column sums of dy * h, dbias = column sums of dy",
        "13 per element: 2 for h, 1 for g, 1 for its sum, 2 for the sum of g * h, 4 for dx, 2 for dweight, 1 for dbias",
        lambda sizes: 13 * sizes["rows"] * sizes["cols"],
    ),
    inputs=(
        whole("x", "rows", "cols"),
        whole("dy", "rows", "cols"),
        whole("weight", "cols"),
        whole("mean", "rows"),
        whole("rstd", "rows"),
    ),
    outputs=(Tensor("dx", ("rows", "cols")), Tensor("dweight", ("cols",)), Tensor("dbias", ("cols",))),
    sizes={"rows": Size(1, 40), "cols": Size(1, 1100)},
    values=(
        InputKind("normal", {"x": normal(mean=0.5), **DY, **WEIGHT, **SAVED}),
        InputKind("whole numbers", EXACT, exact=True),
        InputKind(
            "offset", {"x": normal(mean=1000.0), **DY, **WEIGHT, "mean": normal(mean=1000.0), "rstd": normal(mean=1.0)}
        ),
        InputKind("scales", {"x": scales, "dy": cancelling(scales, axis=0), **WEIGHT, **SAVED}),
        InputKind("poisoned", {"x": poisoned, **DY, **WEIGHT, **SAVED}),
    ),
    reference=by_rows(layer_norm(gradients)),
    near_misses={words: layer_norm(of) for words, of in USUAL.items()},
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=by_rows(layer_norm(bounds), bound=True)),
    # Around every vector (4), a warp (32), what a warp holds in registers (512 columns), what the largest block holds
    # (8192 columns); rows for one block, for several, and for some of them one more than for the others.
    named_sizes=(
        shape(1, 1),
        shape(1, 2),
        shape(3, 1),
        shape(2, 3),
        shape(4, 4),
        shape(5, 7),
        shape(9, 8),
        shape(7, 31),
        shape(13, 32),
        shape(37, 33),
        shape(40, 16),
        shape(9, 100),
        shape(1030, 5),
        shape(3, 255),
        shape(6, 256),
        shape(2, 511),
        shape(11, 512),
        shape(5, 516),
        shape(2, 1023),
        shape(9, 1028),
        shape(3, 2053),
        shape(2, 4100),
        shape(1, 8191),
        shape(2, 8192),
    ),
    large=(shape(4099, 1031), shape(1030, 8192), shape(100_003, 40), shape(2053, 4096)),
    work=lambda sizes: sizes["rows"] * (20_000 + 110 * sizes["cols"]),
    slice_dim="cols",
    reference_takes_rows=True,
    baselines={"torch.native_layer_norm_backward": torch_layer_norm_backward},
)

RMS_NORM = replace(
    SPEC,
    computes="dx and dweight of rms_norm, from dy, x, and each row's 1 / sqrt(mean of x^2 + eps)",
    operations=Operations(
        "h = x * rstd, g = dy * weight, dx = rstd * (g - h * mean of g * h); dweight = column sums of dy * h",
        "9 per element: 1 for h, 1 for g, 2 for the sum of g * h, 3 for dx, 2 for dweight",
        lambda sizes: 9 * sizes["rows"] * sizes["cols"],
    ),
    inputs=(
        whole("x", "rows", "cols"),
        whole("dy", "rows", "cols"),
        whole("weight", "cols"),
        whole("rstd", "rows"),
    ),
    outputs=(Tensor("dx", ("rows", "cols")), Tensor("dweight", ("cols",))),
    values=tuple(values for values in SPEC.values if values.name != "offset"),
    reference=by_rows(rms_norm(gradients)),
    near_misses={words: rms_norm(of) for words, of in USUAL.items() if words not in OF_LAYER_NORM},
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=by_rows(rms_norm(bounds), bound=True)),
    baselines={"torch._fused_rms_norm_backward": torch_rms_norm_backward},
)

FAR, BIAS = {"weight": far_from_0}, {"bias": normal()}

RECOMPUTE = replace(
    SPEC,
    computes="dx, dweight and dbias of layer_norm, from dy, its output y, and each row's 1 / sqrt(variance + eps)",
    operations=Operations(
        "h = (y - bias) / weight, g = dy * weight, dx = rstd * (g - mean of g - h * mean of g * h); "
        "dweight = column sums of dy * h, dbias = column sums of dy",
        "13 per element: 2 for h, 1 for g, 1 for its sum, 2 for the sum of g * h, 4 for dx, 2 for dweight, 1 for dbias",
        lambda sizes: 13 * sizes["rows"] * sizes["cols"],
    ),
    inputs=(
        whole("y", "rows", "cols"),
        whole("dy", "rows", "cols"),
        whole("weight", "cols"),
        whole("bias", "cols"),
        whole("rstd", "rows"),
    ),
    values=(
        InputKind("normal", {"y": normal(mean=0.5), **DY, **FAR, **BIAS, **SAVED}),
        InputKind(
            "whole numbers",
            {**EXACT, "y": pairs(-3, 3, opposite=True), "bias": pairs(-2, 2, opposite=True)},
            exact=True,
        ),
        InputKind("scales", {"y": scales, "dy": cancelling(scales, axis=0), **FAR, **BIAS, **SAVED}),
        InputKind("poisoned", {"y": poisoned, **DY, **FAR, **BIAS, **SAVED}),
    ),
    reference=by_rows(recompute(gradients)),
    near_misses={words: recompute(of) for words, of in USUAL.items()},
    tolerance=Accumulated(terms=lambda sizes: 1, magnitude=by_rows(recompute(bounds), bound=True)),
    baselines={"torch.native_layer_norm_backward": torch_recompute},
)

SPECS: dict[str, Spec] = {
    "layer_norm_backward_f32": SPEC,
    "rms_norm_backward_f32": RMS_NORM,
    "layer_norm_backward_recompute_f32": RECOMPUTE,
}
