"""An index or a size of a function -> others for it, where the elements of a thread are numbered in the wrong way: one
after the other in the place of a stride apart, otherwise than on another line, or without where they begin.

Each is words, text and rank, as the edits of expressions are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from grader.compile.source_tree import STEPS, Node, Statement

Way = tuple[str, str, int]
Counters = tuple[tuple[str, str], ...]  # of the loops around: variable, and what is added to it each round
NAME = re.compile(r"(?<![\w.>])[A-Za-z_]\w*(?:\.[xyz])?")
MOST_FORMULAS = 3  # of other lines, in the place of one
MOST_STRIDES = 4
MOST_NEAR = 4  # statements that a size goes on to


@dataclass(frozen=True)
class Formula:
    """A sum that the function computes with the variable of the loop around it."""

    text: str
    counter: str
    step: str  # what is added to the variable each round; empty: 1

    @property
    def names(self) -> set[str]:
        return {*NAME.findall(re.sub(r"\w+<[\w, ]*>", "", self.text))}  # constants of a template are visible

    def of(self, counter: str, step: str) -> str:
        """The same of another loop. A loop over elements has one of each vector that this one goes over."""
        if self.step == step:
            return _with(self.text, self.counter, counter)
        if step in ("", "1"):
            first = _with(self.text, self.counter, f"({counter} / {self.step} * {self.step})")
            return f"{first} + {counter} % {self.step}"
        return ""


def formulas_of(one: Statement, text: str, counters: Counters = ()) -> Iterator[Formula]:
    """The sums of a statement and of all in it that have the variable of the innermost loop around."""
    if one.kind == "loop" and one.parts:
        head = STEPS.match(f"{_of(one, text)} ")
        counters = (*counters, (head[1], (head[2] or "").strip())) if head is not None else counters
    elif counters:
        counter, step = counters[-1]
        for node in one.nodes:
            for each in _sums(node):
                formula = Formula(_of(each, text), counter, step)
                if counter in formula.names and not re.search(r"[(\[]", formula.text):
                    yield formula
    for part in one.parts:
        yield from formulas_of(part, text, counters)


def of_other_lines(
    own: str, formulas: Collection[Formula], counters: Counters, known: Collection[str], variables: Collection[str]
) -> list[Way]:
    """What another line computes with the variable of its loop, where this one computes something else with it.

    ``known``: what is visible; ``variables``: of it. The other line has all those that this one has.
    """
    names, found = {*NAME.findall(own)}, list[Way]()
    for counter, step in counters[-1:]:
        for each in formulas if counter in names else ():
            text = each.of(counter, step)
            others = each.names - {each.counter}
            is_like = others & names and counter not in others and names & {*variables} <= {*others, counter}
            if text and text != own and is_like and _plain(others) <= {*known}:
                found.append((f"`{own}` is `{text}`", text, 1))
    return [*dict.fromkeys(found)][:MOST_FORMULAS]


def of_strides(
    node: Node, text: str, counters: Counters, bounds: Mapping[str, str], strides: Sequence[str]
) -> list[Way]:
    """``v * LOADS + i`` is ``v + i * stride``, and the reverse: elements of a thread that follow each other, or are a
    stride apart."""
    own, left, right = (_of(each, text) for each in (node, *node.parts))
    counter = counters[-1][0] if counters else ""
    product = re.fullmatch(r"([\w.]+) \* ([\w.<>]+)", left)
    if product is not None and right == counter != product[1] and product[2] == bounds.get(counter):
        chosen = [each for each in strides if each not in product.groups()][:MOST_STRIDES]
        ways = [f"{product[1]} + {counter} * {stride}" for stride in chosen]
        return [(f"`{own}` is `{way}`", way, 1) for way in ways]
    product = re.fullmatch(r"([\w.]+) \* ([\w.<>]+)", right)
    many = bounds.get(counter, "")
    if product is not None and counter in product.groups() and many not in ("", *product.groups()) and left != counter:
        way = f"{left} * {many} + {counter}"
        return [(f"`{own}` is `{way}`", f"({left}) * {many} + {counter}", 2)]
    return []


def strides_of(text: str) -> list[str]:
    """What the variables of a function's loops are multiplied by, or stepped by beside a constant."""
    found = [part for step in re.findall(r"\+=\s*(\w+(?:\s*\*\s*\w+)+)\s*\)", text) for part in NAME.findall(step)]
    found += re.findall(r"\b(\w+)\s*=\s*(?:gridDim|blockDim)\.\w\b", text)
    found += re.findall(r"\b(?:gridDim|blockDim)\.x\b", text)
    return [*dict.fromkeys(found)]


def offsets_of(text: str) -> list[str]:
    """Whole numbers that a function adds to a pointer to get another one: ``x_row + head``."""
    found = re.findall(r"\*\s*(?:const\s+|__restrict__\s+)*\w+\s*=[^;]*?\b\w+\s*\+\s*([a-z]\w*)\s*\)?;", text)
    return [*dict.fromkeys(found)]


def _sums(node: Node) -> Iterator[Node]:
    if node.kind == "binary" and node.sign == "+":
        yield node
        return
    for part in node.parts:
        yield from _sums(part)


def _of(node: Node | Statement, text: str) -> str:
    return " ".join(text[node.begin : node.end].split())


def _with(text: str, name: str, other: str) -> str:
    return re.sub(rf"(?<![\w.]){re.escape(name)}\b", other, text)


def _plain(names: Collection[str]) -> set[str]:
    """Without those that every function has."""
    return {name for name in names if "." not in name}
