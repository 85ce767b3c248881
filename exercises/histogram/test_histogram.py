"""histogram: counts[v] = how many of a[0..n-1] equal v, for all v in 0..bins-1.

Every value of a is in 0..bins-1. A bin that does not occur holds 0. Counts are whole numbers: the answer is exact in
any order of the threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grader.content.spec import Exact, InputKind, Rng, Size, Sizes, Spec, Tensor

if TYPE_CHECKING:
    from numpy import ndarray


def reference(a: ndarray, sizes: Sizes) -> ndarray:
    import numpy

    return numpy.bincount(a, minlength=sizes["bins"])


def uniform(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Every bin equally often."""
    return rng.integers(shape, 0, sizes["bins"] - 1)


def skewed(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Most values in the first few bins: many threads of a warp meet in one."""
    return rng.uniform(shape, 0.0, 1.0) ** 4 * sizes["bins"] // 1


def all_equal(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """All threads meet in one bin."""
    return rng.integers((1,), 0, sizes["bins"] - 1).repeat(shape[0])


def runs(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    """Sorted, as images and keys often are: neighbours are equal, and the last element is in the last bin."""
    values = rng.integers(shape, 0, sizes["bins"] - 1)
    values.sort()
    values[-1:] = sizes["bins"] - 1
    return values


def shape(n: int, bins: int) -> Sizes:
    return {"n": n, "bins": bins}


def after_one(counts: ndarray) -> ndarray:
    """The counts one bin later, the last one nowhere."""
    moved = 0 * counts
    moved[1:] = counts[:-1]
    return moved


# What is counted in place of it by a usual mistake.
NEAR_MISSES = {
    "each value is added in place of 1": lambda a, sizes: reference(a, sizes) * range_of(sizes),
    "the last value is not counted": lambda a, sizes: reference(a[:-1], sizes),
    "the first value is not counted": lambda a, sizes: reference(a[1:], sizes),
    "every value is counted twice": lambda a, sizes: 2 * reference(a, sizes),
    "0 or 1: whether a value occurs": lambda a, sizes: (reference(a, sizes) > 0) * 1,
    "the values after the last whole vector of 4 are not counted": lambda a, sizes: reference(
        a[: len(a) // 4 * 4], sizes
    ),
    "each value is counted in the bin after its own": lambda a, sizes: after_one(reference(a, sizes)),
    "the first of each 4 values alone is counted": lambda a, sizes: reference(a[::4], sizes),
    "each value is counted 4 times": lambda a, sizes: 4 * reference(a, sizes),
    "the sum of the counts up to the bin": lambda a, sizes: reference(a, sizes).cumsum(),
}


def range_of(sizes: Sizes) -> ndarray:
    import numpy

    return numpy.arange(sizes["bins"])


SPEC = Spec(
    computes="counts[v] = how often v occurs in a",
    inputs=(Tensor("a", ("n",)),),
    outputs=(Tensor("counts", ("bins",)),),
    sizes={"n": Size(0, 5000), "bins": Size(1, 300)},
    values=(
        InputKind("uniform", uniform),
        InputKind("skewed", skewed),
        InputKind("all equal", all_equal),
        InputKind("runs", runs),
    ),
    reference=reference,
    near_misses=NEAR_MISSES,
    tolerance=Exact(),
    named_sizes=(
        shape(0, 1),
        shape(0, 257),
        shape(1, 1),
        shape(1, 7),
        shape(2, 1),
        shape(3, 2),
        shape(4, 300),
        shape(5, 4),
        shape(7, 3),
        shape(8, 8),
        shape(31, 5),
        shape(33, 32),
        shape(127, 31),
        shape(255, 64),
        shape(256, 256),
        shape(257, 10),
        shape(511, 2),
        shape(1023, 255),
        shape(1024, 1),
        shape(1025, 257),
        shape(2049, 100),
        shape(3001, 17),
        shape(2500, 20_011),  # more bins than 48 KB of shared memory have room for
        shape(5, 12_289),  # one bin more than 48 KB have room for; sorted values end in it
        shape(4099, 256),
    ),
    # The first two are tried on a GPU: all values in one bin; more than a grid that fills the GPU takes in one step.
    large=(shape(300_007, 1), shape(4_194_304, 256), shape(1_000_003, 1_000_003), shape(20_000_003, 1000)),
    work=lambda sizes: 20 * sizes["n"],
)
