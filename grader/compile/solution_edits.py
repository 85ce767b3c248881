"""A learner's file and the kata's solution -> the file with edits, each of which puts what the solution has in the
place of what the learner wrote.

Of a file whose functions, variables and statements can be told to stand for the solution's, what is at fault is among
the differences. Each alone is an edit, and so are two together, all of a function, the answer to a TODO, and a
function's whole body. Whether one of them makes all right is for the simulator to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations, takewhile

from grader.compile.counterparts import Side, Unspoken, constants_between, made_by, pair_variables, paired
from grader.compile.differences import AS_SOLVED, NAME, Comparison, Difference
from grader.compile.edit_writer import NOTHING_REFUSED, VARIABLE, Edited, Refused, Writer, blanked
from grader.compile.source_tree import trees_of
from grader.content.functions import Code, Function, constants_of
from grader.content.skeleton import todos

WHOLES = 0  # in the place of a line: no answer to a TODO and no body as a whole
MOST = 80  # differences of a file
MOST_PAIRED = 8  # of a function, of which any two are edits, too
OF_PAIR, OF_ANSWER, OF_BODY, OF_ALL = 4, 5, 6, 7  # ranks


def towards(text: str, solution: str, without: Refused = NOTHING_REFUSED) -> Edited:
    """``without`` edits that nvcc did not accept."""
    writer = Writer(text, frozenset(), {})
    chosen: list[tuple[Sequence[Difference], str, int]] = []
    equal = list[Function]()
    for comparison in comparisons(text, solution)[0]:
        if comparison.is_equal:
            equal.append(comparison.own.tree.function)
            continue
        found = [each for each in comparison.differences() if not _is_refused(writer, each, without)]
        chosen += _of_function(writer, [*dict.fromkeys(found)])
        body = _body(comparison) if sum(each.outer for each in found) > 1 and WHOLES not in without.lines else None
        if body is not None and not _is_refused(writer, body, without):
            chosen.append(([body], body.words, OF_BODY))
    for each in _answers(writer, solution) if WHOLES not in without.lines else ():
        if any(function.begin <= each.begin < function.end for function in equal):
            continue
        if not _is_refused(writer, each, without):
            chosen.append(([each], each.words, OF_ANSWER))
    return _written(writer, chosen)


def _is_refused(writer: Writer, one: Difference, without: Refused) -> bool:
    return without.has(writer.line_at(one.begin), one.text, writer.plain[one.begin : one.end])


def _whole(what: str, first: int, last: int) -> str:
    lines = f"line {first}, {what}, is" if first == last else f"lines {first} to {last}, {what}, are"
    return f"{lines} {AS_SOLVED}"


def _answers(writer: Writer, solution: str) -> Iterator[Difference]:
    """The solution's answers to TODOs of device functions that are answered otherwise."""
    known, code = {each.number: each for each in todos(solution)}, Code(writer.text)
    theirs = blanked(solution).split("\n")
    for own in todos(writer.text):
        function, other = code.function_at(own.line), known.get(own.number)
        if function is None or other is None or not re.search(r"__global__|__device__", function.head):
            continue
        begin, end = writer.starts[own.line], writer.starts[own.end - 1]
        text = " ".join(" ".join(theirs[other.line : other.end - 1]).split())
        mine = " ".join(writer.plain[begin:end].split())
        is_known = _declares(mine, writer.plain[end : function.end])
        if text != mine and text.endswith((";", "}")) and mine.endswith((";", "}")) and not is_known:
            begin += len(writer.plain[begin:end]) - len(writer.plain[begin:end].lstrip())
            last = begin + len(writer.plain[begin:end].rstrip())
            words = _whole(f"the answer to TODO({own.number})", writer.line_at(begin), writer.line_at(last - 1))
            yield Difference("statement", begin, last, text, words, OF_ANSWER, to=last - 1)


def comparisons(text: str, solution: str) -> tuple[list[Comparison], list[Comparison]]:
    """One for each device function that stands for one of the solution; and for each other function."""
    names = constants_between(text, solution)
    device, host = (paired(*_sides(text, solution, others=each)) for each in (False, True))
    names |= {two.tree.function.name: one.tree.function.name for one, two in (*device, *host)}
    common = {*constants_of(text), *(each.name for each in Code(text).functions), *made_by(text)}
    foreign = {*constants_of(solution), *(each.name for each in Code(solution).functions), *made_by(solution)} - common
    for one, two in (*device, *host):
        two.names |= names
        pair_variables(one, two)
    of_device, others = ([Comparison(*pair, common, foreign) for pair in pairs] for pairs in (device, host))
    return of_device, others


def _sides(*texts: str, others: bool) -> list[list[Side]]:
    return [
        [Side(tree, blanked(text), code, is_first) for tree in trees_of(text, others=others)]
        for text, code, is_first in zip(texts, map(Code, texts), (True, False), strict=True)
    ]


def _declares(text: str, after: str) -> bool:
    """Whether statements declare a variable that what comes after them uses."""
    depth, used = 0, {*NAME.findall(after)}
    for found in re.finditer(r"[{}]|\b[\w:]+(?:<[^<>;]*>)?[&*\s]+(\w+)\s*(?:=(?!=)|\[|;|\{)", text):
        depth += (found[0] == "{") - (found[0] == "}")
        if depth == 0 and found[1] in used and not found[0].startswith("return"):
            return True
    return False


def _of_function(writer: Writer, found: Sequence[Difference]) -> list[tuple[Sequence[Difference], str, int]]:
    edits: list[tuple[Sequence[Difference], str, int]] = [([each], each.words, each.rank) for each in found[:MOST]]
    same: dict[str, list[Difference]] = {}
    for each in found[:MOST]:
        if each.kind == "expression":
            same.setdefault(each.words, []).append(each)
    for words, places in same.items():
        lines = [*dict.fromkeys(writer.line_at(each.place) for each in places)]
        others = ", ".join(map(str, lines[1:]))
        there = (
            f"here and on line{'s' * (len(lines) > 2)} {others}" if others else f"in {len(places)} places of the line"
        )
        if len(places) > 1:  # a name says little by itself
            rank = places[0].rank + 1 + (re.match(r"`\w+` is", words) is not None)
            edits.append((places, f"{words} {there}", rank))
    outer = [_least(each, found) for each in found if each.outer and _is_apart(each, found)]
    for one, two in combinations(outer, 2) if len(outer) <= MOST_PAIRED else ():
        lines = [writer.line_at(each.place) for each in (one, two)]
        there = f"on line {lines[1]} " if lines[0] != lines[1] else ""
        edits.append(([one, two], f"{one.words}, and {there}{two.words}", OF_PAIR))
    if len(outer) > 2:
        edits.append((outer, f"it and {len(outer) - 1} more places of the function are {AS_SOLVED}", OF_ALL))
    return edits


def _least(outer: Difference, found: Sequence[Difference]) -> Difference:
    """The one place within a difference that is other, if it is one. What is within it comes after it."""
    within = [outer, *takewhile(lambda each: not each.outer, found[found.index(outer) + 1 :])]
    leaves = [each for each in within if each.rank == 0]
    return leaves[0] if len(leaves) == 1 else outer


def _is_apart(one: Difference, found: Sequence[Difference]) -> bool:
    """Whether no other outer one has it in it."""
    return not any(
        each.outer
        and each is not one
        and each.begin <= one.begin
        and one.end <= each.end
        and (each.begin, each.end) != (one.begin, one.end)
        for each in found
    )


def _body(comparison: Comparison) -> Difference | None:
    """The whole body of the solution's function."""
    own, other = comparison.own.tree, comparison.other.tree
    scope = own.body.scope
    try:
        text = comparison.spoken(other.body, scope)
    except Unspoken:
        return None
    first = own.body.parts[0] if own.body.parts else None
    if first is None:
        return None
    ends = " return;" if own.function.is_kernel or "void " in own.function.head else ""
    place = own.body.begin + 1
    lines = [comparison.own.plain.count("\n", 0, each) + 1 for each in (place, own.body.end)]
    words = _whole(f"the body of `{own.function.name}`", *lines)
    return Difference("before", place, place, f"{{{text}{ends}}}", words, OF_BODY, to=own.body.end)


def _written(writer: Writer, chosen: Sequence[tuple[Sequence[Difference], str, int]]) -> Edited:
    numbers: dict[Difference, list[int]] = {}
    for differences, words, rank in chosen:
        first = differences[0]
        last = writer.line_at(first.to) if rank in (OF_ANSWER, OF_BODY) else 0
        number = writer.edit(first.place, words, rank, last)
        for each in differences:
            numbers.setdefault(each, []).append(number)
    for each, known in numbers.items():
        _write(writer, each, "||".join(f"{VARIABLE}=={number}u" for number in known))
    return writer.edited()


def _write(writer: Writer, one: Difference, asked: str) -> None:
    own = " ".join(writer.plain[one.begin : one.end].split())
    if one.kind in ("expression", "place"):
        kind = "" if one.kind == "place" else f"(kata_t<decltype({own})>)"
        writer.add(one.begin, f"(({asked})?{kind}({one.text}):", closes=False, other=one.end)
        writer.add(one.end, ")", closes=True, other=one.begin)
    elif one.kind == "statement":
        writer.add(one.begin, f"{{if({asked}){{{one.text}}}else {{", closes=False)
        writer.add(one.end, "}}", closes=True)
    elif one.kind == "before":
        writer.add(one.begin, f"if({asked}){one.text}", closes=False)
    elif one.kind == "behind":
        writer.add(one.end, f"if({asked}){one.text}", closes=False)
    else:
        writer.add(one.to, f"if({asked}){one.text}", closes=False)
        writer.add(one.begin, f"{{if(!({asked}))", closes=False)
        writer.add(one.end, "}", closes=True)
