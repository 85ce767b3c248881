"""`kata watch`: grades a kata whenever its file is saved; on a terminal a key does what the other commands do."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NoReturn

from grader.commands import lookups
from grader.commands.course import table, why_none
from grader.commands.kata import difference, reset, said_symptom, task
from grader.content import rung
from grader.content.hints import COUNT, load_hints
from grader.fault import Fault
from grader.learner import progress
from grader.learner.state import State
from grader.learner.way import candidates, upcoming
from grader.options import Options
from grader.output.console import (
    Commands,
    add_sim_arch,
    examples,
    one_kata,
    open_catalog,
    open_progress,
    open_states,
    tell,
    warn,
)
from grader.output.terminal import Line, Terminal, is_usable, wrapped
from grader.output.verdict_text import display_path
from grader.service.saves import LOOK_S
from grader.service.task import Answer
from grader.service.watch import Watch

KEYS = (
    ("n", "next", "continue with the next kata that is open and not passed"),
    ("h", "hint", f"the first of {COUNT} hints; again: one that says more. Your progress records it"),
    ("l", "list", "this family's katas with their states"),
    ("d", "diff", "what is new since the rung before: the solutions once you passed both, until then your own files"),
    ("s", "show", "the task, the TODOs, your state"),
    ("r", "reset", "write the skeleton again, after a question; your file is kept as a .bak"),
    ("q", "quit", "end; so does Ctrl-C"),
    ("?", "keys", "this page; space shows more of a long page, Enter goes back to the verdict"),
)


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "watch",
        help="grade a kata whenever its file is saved; one key for hints, diff, next, ...",
        description="Grade a kata now and whenever you save its file. If you save during a grade, it starts again "
        "with the new content. Without KATA it starts with the kata that `kata next` names, and changes to any other "
        "whose file you save. On a terminal, keys run the other commands: ? lists them. If input or output is not a "
        "terminal, it prints verdicts one after the other until the input ends. Exit code 0: ended by q or the end of "
        "the input, 1: nothing to watch, 2: the command is at fault, 130: Ctrl-C, 143: ended by a signal.",
        epilog=examples("kata watch", "kata watch sgemm_naive_f32", "kata watch relu_f32 --json > verdicts.jsonl"),
    )
    parser.add_argument("name", nargs="?", metavar="KATA", help="stay with this one (default: that of `kata next`)")
    parser.add_argument("--device", choices=("auto", "gpu", "sim"), default="auto", help="default: auto")
    parser.add_argument("--no-speed", action="store_true", help="on a GPU: check the answers, do not time")
    add_sim_arch(parser)
    parser.add_argument("--json", action="store_true", help="print each grade as a JSON line, as `kata grade --json`")
    parser.set_defaults(command=_watch)


def _watch(options: argparse.Namespace) -> int:
    catalog, known, states = open_states()
    if options.name is not None:
        kata = one_kata(catalog, options.name, "`kata watch`")
    elif (first := upcoming(catalog, states, known)) is not None:
        kata = first.kata
    else:
        print(f"{why_none(states.values(), states)} `kata watch KATA` watches any.", file=sys.stderr)
        return 1
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    wanted = Options(options.device, sim_arch=options.sim_arch, speed=not options.no_speed)
    watch = Watch(catalog, kata, wanted, follows=options.name is None)
    try:
        if is_usable() and not options.json:
            with Terminal() as terminal:
                _on_terminal(watch, terminal)
        else:
            _on_pipe(watch, as_json=options.json)
    finally:
        watch.close()
    return 0


def _end(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _on_pipe(watch: Watch, *, as_json: bool) -> None:
    """Print verdicts until the input ends, and then the verdict of a grade that is still running."""
    ends = [] if sys.stdin.isatty() else [sys.stdin.fileno()]
    until = "until its input ends" if ends else "until Ctrl-C"
    tell(f"watching {display_path(watch.kata.own_path)} {until}")
    while ends or watch.since is not None or sys.stdin.isatty():
        if watch.wait(ends, LOOK_S) and not os.read(ends[0], 4096):
            ends = []
        for answer in watch.answers():
            _print(answer, as_json)
        if (saved := watch.saved()) is not None:
            tell(watch.fault or f"grading {display_path(saved.path)}")


def _print(answer: Answer, as_json: bool) -> None:
    if "grade" in answer:
        print(json.dumps(answer["grade"]) if as_json else "\n".join(answer["lines"]), flush=True)
        warn(answer["warning"])
    elif "fault" in answer:
        tell(f"kata: {answer['fault']}")
    elif "tell" in answer:
        tell(answer["tell"])


# -- on a terminal ---------------------------------------------------------------------------------------------------


def _on_terminal(watch: Watch, terminal: Terminal) -> None:
    screen = _Screen(watch)
    while not screen.ended:
        terminal.draw(screen.lines(*terminal.size()))
        if terminal in watch.wait([terminal], LOOK_S):
            for key in terminal.pressed():
                screen.press(key)
        for answer in watch.answers():
            screen.answered(answer)
        watch.saved()


@dataclass
class _Screen:
    """The screen: a page that a key asked for, or the last verdict."""

    watch: Watch
    page: list[str] = field(default_factory=list)
    top: int = 0  # the first line of the page or verdict that is shown
    hints: int = 0  # how many of the kata's hints the page has
    question: str = ""
    note: str = ""
    next_name: str = ""  # after a pass, what `n` goes on to
    ended: bool = False

    def press(self, key: str) -> None:
        if self.question:
            self.question, self.note = "", ""
            if key in ("y", "Y"):
                self._try(self._reset)
            return
        turn = {"up": -1, "down": 1, "k": -1, "j": 1}
        actions = {"n": self._next, "h": self._hint, "l": self._list, "d": self._diff, "s": self._show, "r": self._ask}
        if key in turn:
            self.top = max(0, self.top + turn[key])
        elif key == " ":
            self.top = -1  # lines() turns the page: it knows the screen's height
        elif key == "escape":
            self._turn_to([])
        elif key == "?":
            self._turn_to([f"{name}  {word:<6} {text}" for name, word, text in KEYS])
        elif key == "q":
            self.ended = True
        elif key in actions:
            self._try(actions[key])

    def answered(self, answer: Answer) -> None:
        if "grade" not in answer:
            return
        self._turn_to([])
        self.note, self.next_name = answer["warning"] or "", ""
        if answer["grade"]["passed"]:
            self._try(self._find_next)

    def _try(self, action: Any) -> None:
        """Run an action. What a command would refuse is shown in a line."""
        self.note = ""
        try:
            action()
        except (Fault, OSError) as error:
            self.note = str(error)

    def _turn_to(self, page: Sequence[str]) -> None:
        self.page, self.top, self.hints = list(page), 0, 0

    def _following(self) -> tuple[State | None, Mapping[str, State]]:
        """The kata that is next, or the one after it where that is the one that is watched."""
        catalog, known, states = open_states()
        opened = candidates(catalog, states, known)
        names = [state.kata.name for state in opened]
        if self.watch.kata.name in names:
            opened = opened[names.index(self.watch.kata.name) + 1 :] + opened[: names.index(self.watch.kata.name)]
        return (opened[0] if opened else None), states

    def _find_next(self) -> None:
        found, _ = self._following()
        self.next_name = found.kata.name if found is not None else ""

    def _next(self) -> None:
        found, states = self._following()
        if found is None:
            name = self.watch.kata.name
            other = f"no other kata is open before {name} is passed"
            self.note = why_none(states.values(), states) if states[name].passed is not None else other
            return
        self._turn_to([])
        self.watch.open(found.kata)

    def _hint(self) -> None:
        kata, strength = self.watch.kata, min(self.hints + 1, COUNT)
        if refusal := lookups.refusal([kata], f"hint {strength}"):
            self.note = refusal
            return
        shown = load_hints(kata)[:strength]
        more = ["h: one that says more"] if strength < COUNT else []
        hints = [line for number, hint in enumerate(shown, 1) for line in (f"hint {number}: {hint}", "")]
        symptom = [*said_symptom(kata, open_progress(open_catalog()))]
        self._turn_to([*symptom, *[""] * bool(symptom), *hints, *more])
        self.hints = strength
        self.note = progress.keep_hint(kata, strength) or ""

    def _list(self) -> None:
        _, _, states = open_states()
        family = [state for state in states.values() if state.kata.family == self.watch.kata.family]
        passed = sum(state.passed is not None for state in states.values())
        total = f"{passed} of {len(states)} katas are passed; `kata list` shows them all"
        self._turn_to([*"\n".join(table(family, self._columns)).split("\n"), "", total])

    def _show(self) -> None:
        _, _, states = open_states()
        lookups.refusal([self.watch.kata], "show")  # which is never refused, but noted
        self._turn_to(list(task(states[self.watch.kata.name], states, self._columns)))

    def _diff(self) -> None:
        catalog, kata = open_catalog(), self.watch.kata
        old = rung.before(kata, catalog)
        if old is None:
            self.note = f"{kata.name} is the first: there is no rung before it"
            return
        known = open_progress(catalog)
        mine = any(known.passed(item.name) is None for item in (old, kata))
        if not mine and (refusal := lookups.refusal([old, kata], "diff")):
            self.note = refusal
            return
        whose = "your two files; the solutions' once you passed both" if mine else "the solutions"
        self._turn_to([f"{old.name} -> {kata.name}, {whose}", "", *difference(old, kata, mine=mine)])

    def _ask(self) -> None:
        name = self.watch.kata.own_path.name
        self.question = f"Write the skeleton of {name} again? Your file is kept as a .bak. y: yes, any other key: no"

    def _reset(self) -> None:
        kept = reset(self.watch.kata)
        self.note = f"skeleton written{f'; your file is kept as {kept.name}' if kept is not None else ''}"

    # -- drawing

    def lines(self, columns: int, rows: int) -> list[Line]:
        """All of the screen, from top to bottom."""
        watch = self.watch
        place = f"{watch.kata.name}  {watch.kata.level}, {watch.kata.role}  {display_path(watch.kata.own_path)}"
        head: list[Line] = [
            (place[:columns], "bold"),
            *((text, style) for text, style in self._status(columns)),
            ("", ""),
        ]
        self._columns = columns
        foot = _foot(columns)
        body = [line for text, style in self._body() for line in _cut(text, style, columns)]
        room = max(1, rows - len(head) - 2)
        return [*head, *self._window(body, room), ("", ""), (foot, "dim")]

    def _window(self, body: list[Line], room: int) -> list[Line]:
        if len(body) <= room:
            self.top = 0
            return body
        room -= 1  # for the line that says that there is more
        if self.top < 0:
            self.top = self._turned + room if self._turned + room < len(body) else 0
        self.top = min(self.top, len(body) - 1)
        self._turned = self.top
        last = min(self.top + room, len(body))
        return [*body[self.top : last], (f"(lines {self.top + 1} to {last} of {len(body)}; space: more)", "dim")]

    _turned = 0  # where the page stood when it was last drawn
    _columns = 80  # of the screen, then

    def _status(self, columns: int) -> Iterator[Line]:
        watch = self.watch
        if watch.since is not None:
            told = f": {watch.told}" if watch.told else ""
            old = "; below is the previous verdict" if watch.last is not None and not self.page else ""
            text, style = f"grading, {time.monotonic() - watch.since:.1f} s{told}{old}", ""
        elif watch.fault:
            text, style = f"no verdict: {watch.fault}", "red"
        elif watch.last is not None and watch.last["grade"]["passed"]:
            more = f"; n: continue with {self.next_name}" if self.next_name else ""
            text, style = f"PASSED at {watch.last_at}, in {watch.seconds:.1f} s{more}", "green"
        elif watch.last is not None:
            text, style = f"verdict of {watch.last_at}, in {watch.seconds:.1f} s; waiting for you to save", ""
        else:
            text, style = "waiting for you to save", ""
        for line, mark in ((text, style), (self.note, ""), (self.question, "bold")):
            if line:
                yield from _cut(line, mark, columns)

    def _body(self) -> Iterator[Line]:
        if self.page or self.watch.last is None:
            yield from ((line, "") for line in self.page)
            return
        old = self.watch.since is not None
        if old:
            yield f"old verdict, of {self.watch.last_at}:", "dim"
        style = "green" if self.watch.last["grade"]["passed"] else "red"
        for place, line in enumerate(self.watch.last["lines"]):
            yield line, "dim" if old else style if place == 0 else ""


def _foot(columns: int) -> str:
    """As many keys as fit. The last two are always shown: one ends, one lists the others."""
    keys = [f"{key} {word}" for key, word, _ in KEYS]
    while len("  ".join(keys)) > columns and len(keys) > 2:
        del keys[-3]
    return "  ".join(keys)[:columns]


def _cut(text: str, style: str, columns: int) -> Iterator[Line]:
    return ((part, style) for part in wrapped(text, columns))
