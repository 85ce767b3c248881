"""The failing case -> sizes and kinds of values near it that fail, and those that pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from grader.judge.case import CaseKey
from grader.judge.lab import Lab
from grader.verdict import Clue

STEPS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SHOWN = 5  # sizes of either kind
KINDS = 3  # of values, by which a size is right
CONFIRMED = 3  # sizes that passed in the search
TRIED = 26  # new cases
DOUBTFUL, SEEDS = 2, 3  # sizes that pass, and other contents that they must pass with, too
WORK = 4  # times the work of the failing case, and at least
LEAST_WORK = 200_000


def beside_values(lab: Lab, failed: CaseKey) -> Iterator[Clue]:
    """Which kinds of values fail on the failing shape; nothing where all do."""
    states = {key.values: wrong for key, wrong in lab.known.items() if key == replace(failed, values=key.values)}
    wrong = lab.failing = [name for name, is_wrong in states.items() if is_wrong]
    right = [name for name, is_wrong in states.items() if not is_wrong]
    if wrong and right:
        yield Clue("values", f"wrong: {', '.join(wrong)}; right: {', '.join(right)}")


def beside_sizes(lab: Lab, failed: CaseKey) -> Iterator[Clue]:
    """For each size, with the others as they are: which fail, and which pass; nothing where all fail."""
    sizes = dict(failed.sizes)
    each = max(6, TRIED // len(sizes))
    by_chance = not all(_elsewhere(lab, failed))  # then what passes may have passed by chance, too
    for name in sizes:
        states = {sizes[name]: True}
        for value in _candidates(lab, sizes, name)[:each]:
            found = _is_wrong(lab, replace(failed, sizes=_with(failed, name, value)))
            if found is not None:
                states[value] = found
        for value, wrong in _tried(lab, failed, name).items():
            states[value] = states.get(value, False) or wrong
        states = {value: wrong for value, wrong in states.items() if wrong or value > 0}
        for value in _doubtful(states, sizes[name], SHOWN if by_chance else DOUBTFUL):
            states[value] = any(_elsewhere(lab, replace(failed, sizes=_with(failed, name, value))))
        step = lab.kata.multiples.get(name, 1)
        if words := describe_sizes(name, states, sizes[name], step, by_rule=by_chance):
            yield Clue("sizes", words)


def _doubtful(states: Mapping[int, bool], failed: int, most: int) -> list[int]:
    """Sizes that are right and may be so by chance, the nearest first: where there are few."""
    right = sorted((size for size, wrong in states.items() if not wrong), key=lambda size: abs(size - failed))
    return right if len(right) <= most else []


def _elsewhere(lab: Lab, key: CaseKey) -> list[bool]:
    """Whether the case fails with other contents of the same kind, for each of them."""
    others = [replace(key, seed=key.seed + more) for more in range(1, SEEDS + 1)]
    return [found.wrong for found in map(lab.try_key, others) if found is not None]


def _is_wrong(lab: Lab, key: CaseKey) -> bool | None:
    """Whether a case fails. It is right only where no other kind of values that fails on the failing shape does."""
    others = [values.name for values in lab.spec.values if values.name != key.values]
    for kind in [key.values, *(kind for kind in others if kind in lab.failing)][:KINDS]:
        other = replace(key, values=kind)
        if lab.known.get(other) is None and lab.try_key(other) is None:
            return None
        if lab.known[other]:
            return True
    return False


def _candidates(lab: Lab, sizes: Mapping[str, int], name: str) -> list[int]:
    """Sizes to try, those that tell most first: the neighbours, then multiples of vectors, warps and tiles."""
    size, allowed, step = sizes[name], lab.spec.sizes[name], lab.kata.multiples.get(name, 1)
    wanted = [size - step, size + step]
    wanted += [size - size % each + each for each in STEPS]
    wanted += [size - size % 32 + 33, 2 * size, 2 * size + step, size + 2 * step, size + 3 * step, size - 2 * step]
    most = max(WORK * lab.spec.work(sizes), LEAST_WORK)
    found = [value for value in dict.fromkeys(wanted) if max(allowed.min, 0) <= value <= allowed.max]
    found = [value for value in found if value % step == 0 and value != size]
    return [value for value in found if lab.spec.work({**sizes, name: value}) <= most]


def _tried(lab: Lab, failed: CaseKey, name: str) -> dict[int, bool]:
    """Cases of the search that differ from the failing one in this size, or in seed, alone: those that fail, and of
    those that pass the nearest, if they pass with other kinds of values too."""
    others = {key: size for key, size in failed.sizes if key != name}
    found: dict[int, bool] = {}
    for key, wrong in lab.known.items():
        sizes = dict(key.sizes)
        if {each: size for each, size in sizes.items() if each != name} != others or key.card != failed.card:
            continue
        if key.values == failed.values:
            found[sizes[name]] = found.get(sizes[name], False) or wrong
    own = dict(failed.sizes)[name]
    right = sorted((size for size, wrong in found.items() if not wrong), key=lambda size: abs(size - own))
    confirmed = {size: _is_wrong(lab, replace(failed, sizes=_with(failed, name, size))) for size in right[:CONFIRMED]}
    checked = {size: wrong for size, wrong in confirmed.items() if wrong is not None}
    return {**{size: True for size, wrong in found.items() if wrong}, **checked}


def _with(failed: CaseKey, name: str, value: int) -> tuple[tuple[str, int], ...]:
    return tuple({**dict(failed.sizes), name: value}.items())


def describe_sizes(
    name: str, states: Mapping[int, bool], failed: int, step: int = 1, *, by_rule: bool = False
) -> str | None:
    """``states``: whether the answer was wrong, by size. In words those nearest to the failing size, and a rule where
    only one fits; None where all fail, and where sizes that fail and that pass take turns by no rule, or ``by_rule``
    where none fits."""
    wrong = sorted(size for size, is_wrong in states.items() if is_wrong)
    right = sorted(size for size, is_wrong in states.items() if not is_wrong)
    if not right or not wrong:
        return None
    words = f"wrong: {name} = {_listed(wrong, failed)}; right: {_listed(right, failed)}"
    rules = [text for text, fits in _rules(wrong, right, step) if fits]
    if not rules and (by_rule or ((len(right) == 1 or len(wrong) > 1) and _turns(states) > 1)):
        return None
    return f"{words} ({rules[0]})" if len(rules) == 1 else words


def _turns(states: Mapping[int, bool]) -> int:
    """How often sizes, in order, go from wrong to right or from right to wrong."""
    in_order = [states[size] for size in sorted(states)]
    return sum(one != other for one, other in pairwise(in_order))


def _listed(sizes: list[int], failed: int) -> str:
    return ", ".join(map(str, sorted(sorted(sizes, key=lambda size: abs(size - failed))[:SHOWN])))


def _rules(wrong: list[int], right: list[int], step: int) -> Iterator[tuple[str, bool]]:
    """Rules that could tell wrong sizes from right ones, and whether they do. Two cases of either kind support one."""
    if min(len(wrong), len(right)) < 2:
        return
    yield f"wrong from {wrong[0]} on", right[-1] == wrong[0] - step
    yield f"right from {right[0]} on", wrong[-1] == right[0] - step
    for each in STEPS:
        yield (
            f"right only at multiples of {each}",
            all(size % each == 0 for size in right) and all(size % each for size in wrong),
        )
        yield (
            f"wrong only at multiples of {each}",
            all(size % each == 0 for size in wrong) and all(size % each for size in right),
        )
