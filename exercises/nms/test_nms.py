"""nms: which of n boxes stay, if a box goes that overlaps a kept box of higher score by more than iou_threshold.

Boxes are x1, y1, x2, y2 with x1 <= x2 and y1 <= y2. The order is by falling score, of equal scores the lower index
first. In this order each box is kept if its intersection over union with every box kept so far is at most the
threshold; 0 / 0, of two empty boxes, suppresses nothing. keep has the indices of the kept boxes in this order, then -1;
count says how many they are.

All coordinates are multiples of 1/16 below 64 in magnitude: areas and their sums are exact in float then, and the
quotient, rounded once, is on the same side of 1/2 as the exact one. So a kernel in float and this reference in double
make the same decision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from grader.content.spec import Exact, InputKind, Parameter, Rng, Size, Sizes, Spec, Tensor, normal

if TYPE_CHECKING:
    from numpy import ndarray

IOU_THRESHOLD = 0.5
STEP = 1 / 16


def reference(boxes: ndarray, scores: ndarray, sizes: Sizes) -> tuple[ndarray, ndarray]:
    return kept_boxes(boxes, scores, sizes)


def kept_boxes(
    boxes: ndarray,
    scores: ndarray,
    sizes: Sizes,
    *,
    union: Callable[[ndarray, ndarray, ndarray], ndarray] = lambda area, own, inter: area + own - inter,
    threshold: float = IOU_THRESHOLD,
    gone_count: bool = False,
    clipped: bool = True,
    far: int = 1 << 31,
) -> tuple[ndarray, ndarray]:
    """``gone_count``: a box that goes takes others with it, too. ``clipped``: a side of an intersection is at least 0.
    ``far``: how many of the next boxes one is compared with."""
    import numpy

    order = numpy.argsort(-scores, kind="stable")
    low, high = boxes[order, :2], boxes[order, 2:]
    area = (high - low).prod(axis=1)
    removed = numpy.zeros(sizes["n"], dtype=bool)
    kept = []
    for rank in range(sizes["n"]):
        if not removed[rank]:
            kept.append(rank)
        elif not gone_count:
            continue
        sides = numpy.minimum(high, high[rank]) - numpy.maximum(low, low[rank])
        inter = (sides.clip(min=0) if clipped else sides).prod(axis=1)
        distance = numpy.arange(sizes["n"]) - rank
        later = (distance > 0) & (distance <= far)
        removed |= later & (inter / union(area, area[rank], inter) > threshold)
    keep = numpy.full(sizes["n"], -1)
    keep[: len(kept)] = order[kept]
    return keep, numpy.array([len(kept)])


# What is computed in place of it by a usual mistake.
NEAR_MISSES = {
    "a union from which the intersection is not taken off": lambda boxes, scores, sizes: kept_boxes(
        boxes, scores, sizes, union=lambda area, own, inter: area + own
    ),
    "the intersection over the area of the better box": lambda boxes, scores, sizes: kept_boxes(
        boxes, scores, sizes, union=lambda area, own, inter: own + 0 * area
    ),
    "the intersection over the area of the worse box": lambda boxes, scores, sizes: kept_boxes(
        boxes, scores, sizes, union=lambda area, own, inter: area
    ),
    "a box that goes takes others with it": lambda boxes, scores, sizes: kept_boxes(
        boxes, scores, sizes, gone_count=True
    ),
    "an overlap of exactly the threshold is too much": lambda boxes, scores, sizes: kept_boxes(
        boxes, scores, sizes, threshold=IOU_THRESHOLD * (1 - 2.0**-40)
    ),
    "in the order of the boxes, not of the scores": lambda boxes, scores, sizes: kept_boxes(boxes, 0 * scores, sizes),
    "in the order of rising scores": lambda boxes, scores, sizes: kept_boxes(boxes, -scores, sizes),
    "the intersection over the smaller area": lambda boxes, scores, sizes: kept_boxes(
        boxes, scores, sizes, union=lambda area, own, inter: area.clip(max=own)
    ),
    "the intersection over the larger area": lambda boxes, scores, sizes: kept_boxes(
        boxes, scores, sizes, union=lambda area, own, inter: area.clip(min=own)
    ),
    "the overlap of boxes that are apart in both directions is not 0": lambda boxes, scores, sizes: kept_boxes(
        boxes, scores, sizes, clipped=False
    ),
    "each box is compared with the next 63 alone": lambda boxes, scores, sizes: kept_boxes(
        boxes, scores, sizes, far=63
    ),
}


def boxes_at(low: ndarray, extent: ndarray) -> ndarray:
    """[n, 4] from corners and extents [n, 2] in whole steps."""
    import numpy

    return numpy.concatenate((low, low + extent), axis=1) * STEP


def scattered(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """All over the plane, some of them in each other's way."""
    pairs = (shape[0], 2)
    return boxes_at(rng.integers(pairs, -300, 300), rng.integers(pairs, 1, 200))


def crowded(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Around a few places, as detectors see one thing many times: most go, each because of a box that is kept."""
    places = rng.integers((8, 2), -300, 300)
    chosen = places[rng.integers((shape[0],), 0, 7)]
    pairs = (shape[0], 2)
    return boxes_at(chosen + rng.integers(pairs, -24, 24), rng.integers(pairs, 80, 120))


def chain(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """In a line, each over the next by 0.57, over the one after it by 0.32: a box that goes must not take others."""
    import numpy

    low = (numpy.arange(shape[0]) * 15 % 1395 - 900)[:, None].repeat(2, axis=1)
    return boxes_at(low, numpy.full_like(low, 100))


def degenerate(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Points, lines, the same box again, boxes in boxes, exactly half in each other."""
    pairs = (shape[0], 2)
    return boxes_at(rng.integers(pairs, 0, 2) * 8, rng.choice(pairs, (0, 8, 16, 32)))


def few_scores(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    return rng.choice(shape, (0.0, 0.25, 0.5))


def all_equal(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    return rng.choice((1,), (0.5, -1.0)).repeat(shape[0])


def falling(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Sorted already, so that neighbours in a chain come one after the other."""
    drawn = rng.normal(shape)
    drawn.sort()
    return drawn[::-1]


SPEC = Spec(
    computes="keep = the boxes that no better kept box overlaps",
    inputs=(Tensor("boxes", ("n", 4)), Tensor("scores", ("n",))),
    outputs=(Tensor("keep", ("n",), "i64"), Tensor("count", (1,), "i32")),
    sizes={"n": Size(0, 300)},
    values=(
        InputKind("scattered", {"boxes": scattered, "scores": normal()}),
        InputKind("crowded", {"boxes": crowded, "scores": normal()}),
        InputKind("chain", {"boxes": chain, "scores": falling}),
        InputKind("chain in any order", {"boxes": chain, "scores": normal()}),
        InputKind("few scores", {"boxes": scattered, "scores": few_scores}),
        InputKind("equal scores", {"boxes": crowded, "scores": all_equal}),
        InputKind("degenerate", {"boxes": degenerate, "scores": few_scores}),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Exact(),
    # Around a tile of 64 boxes and a block of 256, several tiles; the last of them with all kinds of values.
    named_sizes=tuple(
        {"n": n} for n in (*range(6), 13, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 193, 255, 257, 321)
    ),
    large=({"n": 4096}, {"n": 4001}),
    parameters=(Parameter("iou_threshold", "float", IOU_THRESHOLD),),
    work=lambda sizes: 25 * sizes["n"] * (sizes["n"] + 64),
)
