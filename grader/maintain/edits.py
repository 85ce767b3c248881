"""A solution and a changed copy of it -> the edits between the two, as YAML for tests/wrong_kernels.

Each edit replaces text that the solution has exactly once. If the changed lines occur there several times, the edit
includes lines around them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import yaml

from grader.maintain.wrong_kernel import places

WIDTH = 120
REACH = 8  # lines above and below that come along to make a text unique

_REMARK = re.compile(r"\s+//.*$")
_POOR = re.compile(r"\s*(//.*|[{}]*)$")  # a line that says little of where it stands

Pair = tuple[str, str]


def between(solution: str, changed: str) -> list[Pair]:
    """(what to replace, by what) wherever the two differ, in order."""
    old, new = solution.split("\n"), changed.split("\n")
    blocks = [_anchored(block, old) for block in _blocks(old, new)]
    spans: list[range] = []
    for span in [_unique(block.lines, old, solution) for block in blocks]:
        if spans and span.start < spans[-1].stop:
            span = range(min(span.start, spans.pop().start), span.stop)
        spans.append(span)

    def moved(line: int) -> int:
        """Where a line that is in no block stands in the new text."""
        return line + sum(block.growth for block in blocks if block.lines.stop <= line)

    return [_pair(old[span.start : span.stop], new[moved(span.start) : moved(span.stop)], solution) for span in spans]


@dataclass(frozen=True)
class _Block:
    """Lines of the old text, counted from 0, that the new one has otherwise; ``growth`` more of them."""

    lines: range
    growth: int


def _blocks(old: Sequence[str], new: Sequence[str]) -> Iterator[_Block]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, begin, end, new_begin, new_end in matcher.get_opcodes():
        by = _slide(old, begin, end) if tag == "delete" else _slide(new, new_begin, new_end) if tag == "insert" else 0
        if tag != "equal":
            yield _Block(range(begin + by, end + by), new_end - new_begin - (end - begin))


def _slide(lines: Sequence[str], begin: int, end: int) -> int:
    """How far up (less than 0) lines that only one text has can be moved for their braces to match."""
    for by in range(0, begin - end - 1, -1):
        if begin + by < 0 or lines[begin + by : begin] != lines[end + by : end]:
            break
        if _matched("".join(lines[begin + by : end + by])):
            return by
    return 0


def _matched(text: str) -> bool:
    depth = 0
    for brace in re.findall("[{}]", text):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def _anchored(block: _Block, old: Sequence[str]) -> _Block:
    """With a line that stays, where lines are only added: that before or that after them."""
    begin, end = block.lines.start, block.lines.stop
    if begin < end:
        return block

    def cost(line: int) -> tuple[bool, bool]:
        return bool(_POOR.match(old[line])), line < begin and "//" in old[line]

    line = min((line for line in (begin - 1, begin) if 0 <= line < len(old)), key=cost)
    return _Block(range(line, line + 1), block.growth)


def _unique(block: range, old: Sequence[str], solution: str) -> range:
    """The block with as few lines around it as make its text unique, and rather lines of code than others."""

    def cost(span: range) -> float:
        added = [*old[span.start : block.start], *old[block.stop : span.stop]]
        inner = [_indentation(line) for line in old[span.start : span.stop] if _indented(line)]
        poor = sum(2 for line in added if _POOR.match(line)) + 3 * (inner[:1] > [min(inner, default=0)])
        return len(added) + poor + 0.1 * (span.stop - block.stop)

    spans = [
        range(begin, end)
        for begin in range(max(block.start - REACH, 0), block.start + 1)
        for end in range(block.stop, min(block.stop + REACH, len(old)) + 1)
    ]
    for span in sorted(spans, key=cost):
        text = _pair(old[span.start : span.stop], [], solution)[0]
        if text and len(places(text, solution)) == 1:
            return span
    return range(len(old))


def _pair(old: Sequence[str], new: Sequence[str], solution: str) -> Pair:
    """Lines and what they become as a pair: without their indentation, and without a remark that stays behind them."""
    margin = min((_indentation(line) for line in [*old, *(new if len(old) > 1 else [])] if _indented(line)), default=0)
    replace, by = (
        "\n".join(line[min(margin, _indentation(line)) :].rstrip() for line in lines) for lines in (old, new)
    )
    remark = _REMARK.search(replace)
    if len(old) == 1 and remark and by.endswith(remark[0]):
        shorter = replace[: remark.start()]
        if shorter and len(places(shorter, solution)) == 1:
            return shorter, by.removesuffix(remark[0])
    return replace, by


def _indented(line: str) -> bool:
    """Whether a line has a say in the indentation of the lines around it."""
    return bool(line.strip()) and not line.startswith("#")


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def entry(kata: str, bug: str, pairs: Sequence[Pair]) -> str:
    """The YAML for a new bug. Its other fields are left to be written: no verdict is called TODO."""
    lines = [f"{kata}:", f"  {bug}:", "    wrong: TODO", "    verdict: TODO"]
    first, others = ("    replace: ", "    by: ") if len(pairs) == 1 else ("      - replace: ", "        by: ")
    lines += ["    edits:"] if len(pairs) > 1 else []
    for replace, by in pairs:
        lines += [*_field(first, replace), *_field(others, by)]
    return "\n".join(lines) + "\n"


def _field(begin: str, code: str) -> list[str]:
    """The lines of one field: plain if YAML takes the code so, and in a block of its own if it is long."""
    indent = " " * (len(begin) - len(begin.lstrip(" -")) + 2)
    if "\n" in code or len(begin + code) > WIDTH - 2:  # 2 for the quotes
        indicator = "|2-" if code.startswith(" ") else "|-"
        return [begin + indicator, *(f"{indent}{line}".rstrip() for line in code.split("\n"))]
    try:
        plain = bool(code) and yaml.safe_load(f"- {code}") == [code]
    except yaml.YAMLError:
        plain = False
    return [begin + (code if plain else "'" + code.replace("'", "''") + "'")]
