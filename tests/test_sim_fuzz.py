"""The simulator against broken PTX: whatever is done to it, the answer is an outcome or a finding that names something.

KATA_FUZZ_EXAMPLES=20000 KATA_FUZZ_SEED=7 pytest tests/test_sim_fuzz.py    more of it, and other mutations
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from patience import PATIENCE_S
from sim_kernels.harness import HERE, engine
from sim_kernels.victim import Attempt, Died, Victim

from grader.compile.build import Build
from grader.compile.unit import launcher_in
from grader.content.catalog import load_catalog
from grader.devices import Finding, Limits
from grader.grade import prepare
from grader.judge.case import Case, CaseKey, allowed
from grader.maintain.kata_builds import as_solution
from grader.verdict import Kind

# The furthest kata of each family that needs no library of its own, where there is one.
KATAS = tuple(
    alone[-1]
    for katas in load_catalog(HERE.parent.parent).by_family.values()
    if (alone := [kata for kata in katas if not kata.libraries])
)
EXAMPLES = int(os.environ.get("KATA_FUZZ_EXAMPLES", "700"))
SEED = int(os.environ.get("KATA_FUZZ_SEED", "0"))
CALL_LIMITS = Limits(instructions=2_000_000)  # broken PTX may well run for ever; a right one needs far fewer
ANSWER_LIMIT_S = PATIENCE_S
WORK = 1 << 14

TOKEN = re.compile(r'"[^"\n]*"|[\w.$%:]+|\S')
NUMBER = re.compile(r"(?<![\w.%$])\d\w*")
REGISTER = re.compile(r"%\w+")
HUGE = (
    "0", "-1", "1", "3", "255", "65536", "2147483648", "4294967296", "9223372036854775808", "18446744073709551615",
    "99999999999999999999999", "0x", "0xffffffffffffffff", "0f7f800000", "0d7ff0000000000000", "1e999", "0b2",
)  # fmt: skip
HEADERS = (
    ".version 1.0\n.target sm_10\n", ".version 99.9\n.target sm_999z\n.address_size 32\n", ".target sm_90a, debug\n",
    ".version 3.1\n.target sm_20, texmode_independent\n.address_size 64\n", "", ".version\n", ".address_size 7\n",
)  # fmt: skip
JUNK = ("{", "}", "(", ")", "[", "]", ";", ",", "/*", '"', "@", "!", "|", "<", ">", "=", "\0", "\xff", "%", "{" * 5000)


class Choices:
    """The places that a mutation picks, evenly over the text."""

    def __init__(self, places: int) -> None:
        self._random = Random(places)

    def below(self, count: int) -> int:
        return self._random.randrange(max(count, 1))

    def match(self, pattern: re.Pattern[str], text: str) -> tuple[int, int]:
        """Where one of the pattern's matches stands, on the line of a place that is chosen or behind it; the text's end
        where there is none. A match of all of the text's, each time, takes longer than the simulator does."""
        line = text.rfind("\n", 0, self.below(len(text))) + 1
        end = text.find("\n", line)
        found = [match.span() for match in pattern.finditer(text, line, len(text) if end < 0 else end)]
        if found:
            return found[self.below(len(found))]
        behind = pattern.search(text, line)
        return behind.span() if behind else (len(text), len(text))

    def line(self, lines: list[str]) -> int:
        return self.below(len(lines))


def delete_token(text: str, choices: Choices) -> str:
    start, end = choices.match(TOKEN, text)
    return text[:start] + text[end:]


def duplicate_token(text: str, choices: Choices) -> str:
    start, end = choices.match(TOKEN, text)
    return f"{text[:end]} {text[start:end]} {text[end:]}"


def swap_tokens(text: str, choices: Choices) -> str:
    (start, end), (other, last) = sorted((choices.match(TOKEN, text), choices.match(TOKEN, text)))
    if end > other:
        return text
    return text[:start] + text[other:last] + text[end:other] + text[start:end] + text[last:]


def delete_lines(text: str, choices: Choices) -> str:
    lines = text.split("\n")
    at = choices.line(lines)
    del lines[at : at + 1 + choices.below(4)]
    return "\n".join(lines)


def duplicate_line(text: str, choices: Choices) -> str:
    lines = text.split("\n")
    lines.insert(choices.line(lines), lines[choices.line(lines)])
    return "\n".join(lines)


def swap_lines(text: str, choices: Choices) -> str:
    lines = text.split("\n")
    a, b = choices.line(lines), choices.line(lines)
    lines[a], lines[b] = lines[b], lines[a]
    return "\n".join(lines)


def huge_number(text: str, choices: Choices) -> str:
    start, end = choices.match(NUMBER, text)
    return text[:start] + HUGE[choices.below(len(HUGE))] + text[end:]


def rename_register(text: str, choices: Choices) -> str:
    (start, end), (other, last) = choices.match(REGISTER, text), choices.match(REGISTER, text)
    names = (text[other:last], "%nowhere", "%tid.x", "_")
    return text[:start] + names[choices.below(len(names))] + text[end:]


def other_header(text: str, choices: Choices) -> str:
    body = re.sub(r"(?m)^\.(version|target|address_size).*\n", "", text)
    return HEADERS[choices.below(len(HEADERS))] + body


def cut(text: str, choices: Choices) -> str:
    return text[: choices.below(len(text))]


def drop_body(text: str, choices: Choices) -> str:
    start = text.find("\n{")
    return text[:start] + "\n;" + text[text.rfind("}") + 1 :] if start >= 0 else text


def insert_junk(text: str, choices: Choices) -> str:
    at = choices.below(len(text))
    return text[:at] + JUNK[choices.below(len(JUNK))] + text[at:]


Mutation = Callable[[str, Choices], str]
MUTATIONS: tuple[Mutation, ...] = (
    delete_token, duplicate_token, swap_tokens, delete_lines, duplicate_line, swap_lines, huge_number, rename_register,
    other_header, cut, drop_body, insert_junk,
)  # fmt: skip


def attempt_of(built: Build) -> Attempt:
    """The solution, called on the largest of its named shapes that is little work."""
    kata, spec = built.request.kata, built.request.spec
    edges = sorted((sizes for sizes in spec.named_sizes if allowed(kata, sizes)), key=spec.work)
    sizes = max((edge for edge in edges if spec.work(edge) <= WORK), key=spec.work, default=edges[0])
    shape = CaseKey.of(spec, sizes, spec.values[0].name, 0)
    call = Case(kata, spec, shape).call(nth=0, limits=CALL_LIMITS)
    buffers = tuple(replace(item, data=bytes(item.data)) for item in call.buffers)  # for pickle
    call = replace(call, buffers=buffers, launcher=launcher_in(built.tag, call.launcher))
    return Attempt(engine(), built.library, kata.solution_path, built.ptx.read_bytes(), call)


@pytest.fixture(scope="module")
def attempts() -> list[Attempt]:
    """Of the builds that `kata dev check` makes."""
    built = prepare([(kata, kata.solution_path) for kata in KATAS], as_solution("sim"))
    return [attempt_of(one) for one in built if isinstance(one, Build)]


@pytest.fixture(scope="module")
def victim() -> Iterator[Victim]:
    child = Victim()
    yield child
    child.close()


def test_the_ptx_itself_is_right(attempts: list[Attempt], victim: Victim) -> None:
    for attempt in attempts:
        # A block that polls executes the more, the longer the system lets the other block's thread wait.
        usual = replace(attempt, call=replace(attempt.call, limits=Limits()))
        assert victim.ask(usual, limit_s=ANSWER_LIMIT_S) == []


def test_a_child_that_dies_is_noticed(attempts: list[Attempt], victim: Victim) -> None:
    with pytest.raises(Died, match="OSError"):
        victim.ask(replace(attempts[0], engine=Path("/nowhere.so")), limit_s=ANSWER_LIMIT_S)


def names_something(found: Finding) -> bool:
    """Where it is: a line, a kernel, or a line of the PTX with what was expected there."""
    return bool(
        found.line is not None
        or found.kernel is not None
        or re.search(r"PTX line \d+: \w|kernel \S+ .*\bPTX|memory", found.message)
    )


@seed(SEED)
@settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(
    kata=st.integers(0, len(KATAS) - 1),
    mutations=st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=4),
    places=st.integers(0, 2**32 - 1),
)
def test_mutated_ptx_never_breaks_the_simulator(
    attempts: list[Attempt], victim: Victim, kata: int, mutations: list[Mutation], places: int
) -> None:
    attempt, choices = attempts[kata], Choices(places)
    text = attempt.ptx.decode()
    for mutation in mutations:
        text = mutation(text, choices)
    found = victim.ask(replace(attempt, ptx=text.encode("latin-1", "replace")), limit_s=ANSWER_LIMIT_S)
    for item in found:
        assert item.kind in {str(kind) for kind in Kind} and item.message
        assert names_something(item), item
