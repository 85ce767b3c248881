"""Early: a sandbox's child comes meanwhile, gets its program once, and does not outlive its grade."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from patience import PATIENCE_S

from grader.sandbox.child import SandboxError
from grader.sandbox.early import Early
from grader.sandbox.parent import Program, Sandbox

PROGRAM = Program("gpu", "sm_90a", Path("a.so"), Path("a.ptx"), Path("a.cu"))


class Slow(Sandbox):
    """Its child comes when it is let; what happens is noted."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__("gpu", torch=True)
        self.happened: list[str] = []
        self.fails, self.let = fails, threading.Event()

    def start(self) -> None:  # type: ignore[override]
        assert self.let.wait(PATIENCE_S)
        if self.fails:
            raise SandboxError("no GPU was found")
        self.happened.append("start")

    def load(self, program: Program) -> None:
        assert program is PROGRAM
        self.happened.append("load")

    def close(self) -> None:
        self.happened.append("close")


def test_a_child_comes_meanwhile_and_gets_its_program_once() -> None:
    for early_program in (True, False):
        slow = Slow()
        early = Early(slow)
        early.begin()
        if early_program:
            early.load(PROGRAM)
        assert not slow.happened
        slow.let.set()
        assert early.sandbox() is slow
        if not early_program:
            early.load(PROGRAM)
        assert slow.happened == ["start", "load"]
        early.close()
        assert slow.happened == ["start", "load", "close"]


def test_who_asks_for_the_sandbox_waits_for_its_child() -> None:
    slow = Slow()
    early = Early(slow)
    early.begin()
    got = threading.Event()

    def ask() -> None:
        early.sandbox()
        got.set()

    threading.Thread(target=ask, daemon=True).start()
    assert not got.wait(0.2)
    slow.let.set()
    assert got.wait(PATIENCE_S) and slow.happened == ["start"]


def test_a_child_that_nobody_wants_any_more_ends_as_soon_as_it_is_there() -> None:
    slow = Slow()
    early = Early(slow)
    early.begin()
    early.close()
    assert not slow.happened, "no caller waits for it"
    slow.let.set()
    early.sandbox()
    assert slow.happened == ["start", "close"]


def test_what_did_not_start_is_started_by_who_uses_it() -> None:
    slow = Slow(fails=True)
    early = Early(slow)
    early.begin()
    slow.let.set()
    with pytest.raises(SandboxError):
        early.sandbox().start()


def test_without_a_beginning_it_is_a_sandbox_as_any() -> None:
    slow = Slow()
    early = Early(slow)
    early.load(PROGRAM)
    assert early.sandbox() is slow
    early.close()
    assert slow.happened == ["load", "close"]
