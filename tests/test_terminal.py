"""Colour: on a terminal, and nowhere else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from test_faces import ROOT, make_clone, run, solve

from grader.terminal import wrapped

pexpect = pytest.importorskip("pexpect", reason="pexpect is a terminal; `pip install -e .[dev]`")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = make_clone(tmp_path_factory.mktemp("clone"))
    solve(place, "elementwise_f32")
    return place


def said(clone: Path, *arguments: str, **environment: str) -> str:
    """By `kata` in a terminal."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environment}
    command = f"{sys.executable} -m grader {' '.join(arguments)}"
    text = pexpect.run(command, cwd=str(clone), env=env, encoding="utf-8", timeout=120)
    return str(text)


def test_a_terminal_gets_colour_and_a_pipe_none(clone: Path) -> None:
    assert "\x1b[1melementwise_f32 " in said(clone, "list", "elementwise")
    grade = ("grade", "elementwise_f32x4")
    assert "\x1b[31melementwise_f32x4: not started: 2 TODOs\x1b[0m" in said(clone, *grade)
    passing = ("grade", "elementwise_f32", "--device", "sim")
    assert "\x1b[32mpass on sim sm_90a" in said(clone, *passing)
    assert "\x1b[32melementwise_f32 " in said(clone, "list", "elementwise")
    for arguments in (("list", "elementwise"), grade, passing, ("doctor",)):
        assert "\x1b" not in run(clone, "-m", "grader", *arguments, TERM="xterm").stdout


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_who_wants_none_gets_none(clone: Path, environment: dict[str, str]) -> None:
    assert "\x1b" not in said(clone, "list", "elementwise", **environment)


def test_what_a_terminal_would_obey_is_not_shown() -> None:
    assert wrapped("a\x1b[2Jb\x07\tc\x9b", 80) == ["a?[2Jb? c?"]
    assert wrapped("", 80) == [""] and wrapped("    indented", 80) == ["    indented"]
    assert all(len(line) <= 10 for line in wrapped("one two three " + "x" * 25, 10))
