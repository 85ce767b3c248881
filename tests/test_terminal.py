"""Colour, and lines that fit: on a terminal, and nowhere else."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from patience import PATIENCE_S
from test_faces import ROOT, make_clone, run, solve

from grader.commands.course import table
from grader.commands.watch import KEYS, _foot
from grader.content.catalog import Kata
from grader.learner.state import State
from grader.output.terminal import wrapped

pexpect = pytest.importorskip("pexpect", reason="pexpect is a terminal; `pip install -e .[dev]`")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = make_clone(tmp_path_factory.mktemp("clone"))
    solve(place, "elementwise_f32")
    return place


def said(clone: Path, *arguments: str, columns: int = 80, **environment: str) -> str:
    """By `kata` in a terminal."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environment}
    command = f"{sys.executable} -m grader {' '.join(arguments)}"
    env.pop("COLUMNS", None)
    text = pexpect.run(command, cwd=str(clone), env=env, encoding="utf-8", timeout=PATIENCE_S, dimensions=(24, columns))
    return str(text)


def test_a_terminal_gets_colour_and_a_pipe_none(clone: Path) -> None:
    assert "\x1b[1melementwise_f32 " in said(clone, "list", "elementwise")
    grade = ("grade", "elementwise_f32x4")
    assert "\x1b[31melementwise_f32x4: not started: 4 TODOs\x1b[0m" in said(clone, *grade)
    passing = ("grade", "elementwise_f32", "--device", "sim")
    assert "\x1b[32mpass on sim sm_90a" in said(clone, *passing)
    assert "\x1b[32melementwise_f32 " in said(clone, "list", "elementwise")
    for arguments in (("list", "elementwise"), grade, passing, ("doctor",)):
        assert "\x1b" not in run(clone, "-m", "grader", *arguments, TERM="xterm").stdout


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_who_wants_none_gets_none(clone: Path, environment: dict[str, str]) -> None:
    assert "\x1b" not in said(clone, "list", "elementwise", **environment)


@pytest.mark.parametrize(
    "arguments", [("list",), ("list", "elementwise"), ("show", "mat_trans_f32x4_tiled_swizzled"), ("hint", "nms_f32")]
)
@pytest.mark.parametrize("columns", [60, 80, 100])
def test_lines_fit_the_terminal(clone: Path, arguments: tuple[str, ...], columns: int) -> None:
    piped = run(clone, "-m", "grader", *arguments).stdout
    shown = said(clone, *arguments, columns=columns, TERM="dumb").replace("\r", "")
    assert max(map(len, piped.splitlines())) > columns or arguments[-1] == "elementwise"
    if arguments[0] == "list":  # names are never cut
        rows = [line for line in shown.splitlines() if " " in line]
        assert len(rows) == len(piped.splitlines()) and max(map(len, rows)) <= columns
        assert [line.split()[-1] for line in rows] == [line.split()[-1] for line in piped.splitlines()]
        assert set(re.findall(r"^\w+", shown, re.MULTILINE)) == set(re.findall(r"^\w+", piped, re.MULTILINE))
    else:
        assert max(len(line) for line in shown.splitlines() if "exercises/" not in line) <= columns  # nor are paths
        assert shown.split() == piped.split()


def state(name: str, text: str) -> State:
    kata = Kata(name=name, family="a", level="easy", elem="f16", acc="f32", root=ROOT)
    return SimpleNamespace(kata=kata, unlocked=True, text=text)  # type: ignore[return-value]


def test_a_list_drops_what_says_least() -> None:
    found = [state("a_f32", "not started"), state("longer_f32", "passed, 2026-11-22")]
    whole = "longer_f32  easy    f16/f32  core   yes   passed, 2026-11-22"
    assert list(table(found, len(whole)))[2] == whole
    assert list(table(found, len(whole) - 1))[2] == "longer_f32  easy    f16/f32  yes   passed, 2026-11-22"
    assert list(table(found, 30)) == ["kata        state", "a_f32       not started", whole[:12] + "passed, 2026-11-22"]
    assert list(table(found, 25))[1:] == ["a_f32  not started", "longer_f32\n       passed, 2026-11-22"]
    assert list(table(found, 20))[2] == "longer_f32\n      passed, 202..."


def test_the_keys_that_fit_end_with_the_two_that_matter() -> None:
    names = [f"{key} {word}" for key, word, _ in KEYS]
    whole = "  ".join(names)
    assert _foot(len(whole)) == whole and {key for key, *_ in KEYS[-2:]} == {"q", "?"}
    for columns, left_out in ((len(whole) - 1, 1), (60, 1), (20, len(names) - 2)):
        assert _foot(columns) == "  ".join([*names[: -2 - left_out], *names[-2:]])


def test_what_a_terminal_would_obey_is_not_shown() -> None:
    assert wrapped("a\x1b[2Jb\x07\tc\x9b", 80) == ["a\\x1b[2Jb\\x07 c\\x9b"]
    assert wrapped("", 80) == [""] and wrapped("    indented", 80) == ["    indented"]
    assert all(len(line) <= 10 for line in wrapped("one two three " + "x" * 25, 10))
