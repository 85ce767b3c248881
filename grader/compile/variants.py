"""A learner's file and the kata's solution -> the file with a launcher, a constant or a type as in the solution.

These are what no condition in a kernel can choose between: each is a file of its own, to be compiled again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grader.compile.differences import LONGEST, Comparison, Difference
from grader.compile.edit_writer import blanked
from grader.compile.expression_edits import changed_words
from grader.compile.solution_edits import comparisons
from grader.content.functions import CONSTANT

MOST = 4  # files that are compiled, besides the one with all


@dataclass(frozen=True)
class Variant:
    """``line`` and ``words`` as those of an `Edit`."""

    text: str
    line: int
    words: str


def variants(text: str, solution: str) -> tuple[str, list[Variant]]:
    """The file with all that is other in these ways, and one with each; of one difference these are the same."""
    found = sorted(_differences(text, solution), key=lambda each: (each.begin, -each.end))
    outer = [each for each in found if not any(_is_in(each, other) for other in found)]
    chosen = [each for each in found if each.rank == 0][:MOST] + [each for each in outer if each.rank][:MOST]
    ones = [
        Variant(_with(text, [each]), text.count("\n", 0, each.place) + 1, each.words)
        for each in sorted(dict.fromkeys(chosen), key=lambda each: (each.rank, each.begin))
    ]
    return _with(text, outer) if outer else "", ones


def _is_in(one: Difference, other: Difference) -> bool:
    return (
        one is not other
        and other.begin <= one.begin
        and one.end <= other.end
        and ((one.begin, one.end) != (other.begin, other.end) or (other.rank, other.words) > (one.rank, one.words))
    )


def _differences(text: str, solution: str) -> Iterator[Difference]:
    values = {found[1]: " ".join(found[2].split()) for found in CONSTANT.finditer(blanked(solution))}
    for found in CONSTANT.finditer(blanked(text)):
        own = " ".join(found[2].split())
        if (value := values.get(found[1])) is not None and value != own:
            yield Difference("text", found.start(2), found.end(2), value, f"`{found[1]}` is `{value}`, not `{own}`", 0)
    of_device, others = comparisons(text, solution)
    for comparison in of_device:
        comparison.differences()
        yield from (*_of_head(comparison), *comparison.changed)
    for comparison in others:
        yield from _of_launcher(comparison)


def _of_head(comparison: Comparison) -> Iterator[Difference]:
    """The types of a function and of its parameters, if these have the same names."""
    own, other = comparison.own.tree, comparison.other.tree
    first, second = (" ".join(each.function.head.split()) for each in (own, other))
    names = [[each.name for each in tree.parameters] for tree in (own, other)]
    if first != second and own.function.name == other.function.name and names[0] == names[1]:
        begin = own.function.begin - len(own.function.head.lstrip())
        words = changed_words(first, second, LONGEST)
        yield Difference("text", begin, own.function.begin, f"{second} ", words, 0)


def _of_launcher(comparison: Comparison) -> Iterator[Difference]:
    for each in comparison.differences():
        if each.kind in ("expression", "place", "statement"):
            yield each
        elif each.kind in ("before", "behind"):
            place = each.begin if each.kind == "before" else each.end
            yield Difference("text", place, place, f" {each.text[1:-1]} ", each.words, each.rank)
    yield from comparison.changed


def _with(text: str, differences: Sequence[Difference]) -> str:
    """The file with what other texts stand in; its lines stay where they are."""
    for each in sorted(differences, key=lambda one: -one.begin):
        own = text[each.begin : each.end]
        text = f"{text[: each.begin]}{each.text}{chr(10) * own.count(chr(10))}{text[each.end :]}"
    return text
