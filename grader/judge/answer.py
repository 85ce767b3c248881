"""Output bytes + Expected -> what is wrong with them: how many elements, the first few, and what they have in common.

A NaN never passes for a number, and an element that still holds the poison was never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from grader.devices import Contents
from grader.judge.case import Expected
from grader.verdict import Mismatch

if TYPE_CHECKING:
    import torch

SHOWN = 5  # wrong elements that a verdict lists
BLOCK_SIZES = (1024, 512, 256, 128, 64, 32)


@dataclass(frozen=True)
class Comparison:
    """One output against its expected value. ``error_share``: largest error over what is allowed; inf: wrong bits."""

    wrong: int
    count: int
    mismatches: tuple[Mismatch, ...]
    pattern: str | None
    error_share: float


def compare(data: Contents, expected: Expected) -> Comparison:
    """Judge one output, element by element."""
    import torch

    raw = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    got = raw.view(getattr(torch, expected.dtype.torch_name)).reshape(expected.value.shape)
    wrong, share = _wrong(got, expected)
    if not wrong.any():
        return Comparison(0, got.numel(), (), None, share)
    unwritten = (raw.reshape(-1, expected.dtype.itemsize) == expected.dtype.poison).all(dim=1).reshape(got.shape)
    places = wrong.nonzero()
    mismatches = tuple(
        Mismatch(
            expected.tensor.name,
            tuple(place),
            expected.value[tuple(place)].item(),
            None if unwritten[tuple(place)] else got[tuple(place)].item(),
        )
        for place in places[:SHOWN].tolist()
    )
    pattern = None
    if got.numel() > 1:
        never = bool(unwritten[wrong].all())
        pattern = describe(wrong, never, expected.tensor.shape)
        if expected.dtype.is_float and not never:
            pattern = _describe_values(wrong, expected.value.to(got.dtype).double(), pattern)
    return Comparison(int(wrong.sum()), got.numel(), mismatches, pattern, share)


def _wrong(got: torch.Tensor, expected: Expected) -> tuple[torch.Tensor, float]:
    """(which elements are wrong, largest error as a share of the bound)."""
    if not expected.dtype.is_float:
        wrong = got.long() != expected.value.long()
        return wrong, inf if wrong.any() else 0.0
    rounded = expected.value.to(got.dtype).double()
    answer = got.double()
    equal = answer == rounded
    if expected.signed_zeros:
        equal &= answer.signbit() == rounded.signbit()
    same = equal | (answer.isnan() & rounded.isnan())
    if expected.bound is None:
        return ~same, inf if not same.all() else 0.0
    error = (answer - expected.value).abs()
    near = error <= expected.bound
    finite = rounded.isfinite() & answer.isfinite()
    ok = same | (finite & near)
    share = (error / expected.bound).where(finite & ~same, error.new_zeros(()))
    worst = float(share.nan_to_num(nan=inf, posinf=inf).max()) if share.numel() else 0.0
    return ~ok, worst if finite[~ok].all() else inf


def describe(wrong: torch.Tensor, unwritten: bool, names: Sequence[str | int]) -> str:
    """What the wrong elements have in common, as a guess. ``names`` are the dimensions' names."""
    what = "never written" if unwritten else "wrong"
    if bool(wrong.all()):
        return f"every element is {what}"
    if wrong.dim() > 1:
        return _describe_axes(wrong, what, names) or f"{int(wrong.sum())} of {wrong.numel()} elements are {what}"
    return _describe_line(wrong, what)


def _describe_values(wrong: torch.Tensor, values: torch.Tensor, places: str) -> str:
    """``places``, unless what must be there, ``values`` in the output's type, explains it: nan, or an infinity."""
    kinds = (("nan", values.isnan()), ("inf", values == inf), ("-inf", values == -inf), ("infinite", values.isinf()))
    for name, special in kinds:
        if bool((wrong == special).all()):
            return f"every element that must be {name} is wrong, and no other"
        if not bool((wrong & ~special).any()):
            return f"{places}; what must be there is {name}"
    return places


def _describe_axes(wrong: torch.Tensor, what: str, names: Sequence[str | int]) -> str | None:
    """One axis explains it: whole rows, whole columns, a last strip of either."""
    for axis, name in enumerate(names):
        others = [other for other in range(wrong.dim()) if other != axis]
        along = wrong.movedim(axis, 0).flatten(1)
        lines = along.any(dim=1)
        if bool((along.all(dim=1) == lines).all()):
            return f"along {name} (axis {axis}, all of axis {others[0]}): {_describe_line(lines, what)}"
    return None


def _describe_line(wrong: torch.Tensor, what: str) -> str:
    places = wrong.nonzero().flatten()
    count, first, last = int(wrong.numel()), int(places[0]), int(places[-1])
    run = last - first + 1 == len(places)
    if len(places) == 1:
        return f"only element {first} is {what}" + (" (the last)" if first == count - 1 else "")
    if run and last == count - 1:
        return f"every element from {first} on is {what}{_boundary(first, count)}"
    if run:
        return f"elements {first} to {last} are {what}"
    return _describe_steps(wrong, places, what) or f"{len(places)} of {count} elements are {what}"


def _boundary(first: int, count: int) -> str:
    """Names the multiple that the first wrong element stands at: of a vector's width, or of a block."""
    for width in (8, 4, 2):
        if count % width and first == count - count % width and count - first < width:
            return f": every element after the last multiple of {width}"
    for size in BLOCK_SIZES:
        if first % size == 0:
            return f", a multiple of {size}"
    return ""


def _describe_steps(wrong: torch.Tensor, places: torch.Tensor, what: str) -> str | None:
    for step in (2, 3, 4, 8, 16, 32):
        remainders = sorted(set((places % step).tolist()))
        if len(remainders) == 1 and bool(wrong[remainders[0] :: step].all()):
            return f"every element whose index is {remainders[0]} modulo {step} is {what}"
    return None
