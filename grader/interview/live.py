"""The clock on screen: one line that counts down, and keys. At any end it restores the terminal.

A grade runs in its own process, so that the clock continues. It ends with the clock. But if this process is killed,
that one still writes its verdict.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

from grader.content.catalog import Catalog
from grader.interview import clock, run, session
from grader.interview.plan import InterviewError
from grader.interview.session import Session
from grader.options import Options
from grader.output.terminal import Terminal
from grader.service.client import Service, ServiceError
from grader.service.task import Task

BEAT_S = 10.0  # how often the log hears that the clock is on screen
TICK_S = 1.0
KEYS = "g grade · c end the first minutes · n hint · f finish this part · t task · q leave (the time runs on) · ? keys"


@dataclass
class _Clock:
    """The state of one clock on screen."""

    on: Session
    catalog: Catalog
    show_task: Callable[[Session], None]
    terminal: Terminal
    service: Service
    grade: int | None = None  # the number of the grade that is under way
    asked: bool = False  # whether to finish
    nudging: bool = False  # whether to take a hint
    left: bool = False
    beat: clock.Moment | None = None

    def say(self, text: str) -> None:
        """Text above the clock's line."""
        _write(f"\r\033[K{text.rstrip()}\n")

    def draw(self) -> None:
        columns, _ = self.terminal.size()
        _write(f"\r\033[K{_line(self, columns - 1)}")


def _write(text: str) -> None:
    with contextlib.suppress(OSError):  # a terminal that is gone is noticed when a key is read
        print(text, end="", flush=True)


def show_clock(on: Session, catalog: Catalog, show_task: Callable[[Session], None]) -> Session:
    """Show the clock until the interview is over or the learner leaves. Raises InterviewError where there is one."""
    refusal = "its clock is on screen in another terminal. Close it there with q, or use `kata interview status`."
    with session.held(on.folder / ".clock", refusal), _noted_signals() as came, Terminal() as terminal:
        opened = session.append(on, session.OPEN, pid=os.getpid())
        shown = _Clock(opened, catalog, show_task, terminal, Service(catalog.root))
        shown.say(KEYS)
        try:
            while not (came or shown.left or shown.on.over):
                _step(shown)
        finally:
            shown.service.close()
            with contextlib.suppress(InterviewError):
                session.append(shown.on, session.CLOSE, pid=os.getpid())
            _write("\r\033[K")
    return session.load(on.folder)


def _step(shown: _Clock) -> None:
    """One tick: what the log says now, the keys since the last, what the grade says."""
    shown.on = session.load(shown.on.folder)
    _end_first_minutes(shown)
    _keep_beat(shown)
    _say_when_up(shown)
    shown.draw()
    sources: list[Terminal | Service] = [shown.terminal, shown.service]
    ready, _, _ = select.select(sources, [], [], TICK_S)
    if shown.service in ready:
        _take_answers(shown)
    for key in shown.terminal.pressed() if shown.terminal in ready else ():
        _press(shown, key)


def _end_first_minutes(shown: _Clock) -> None:
    before = shown.on
    shown.on = run.catch_up(before, shown.catalog)
    if shown.on is not before:
        shown.say("\aThe first minutes are over: here is the file.")
        _tell_task(shown)


def _keep_beat(shown: _Clock) -> None:
    now = clock.now()
    if shown.beat is None or clock.elapsed_s(shown.beat, now) >= BEAT_S:
        shown.on, shown.beat = session.append(shown.on, session.BEAT, pid=os.getpid()), now


def _say_when_up(shown: _Clock) -> None:
    on = shown.on
    known = any(event["what"] == session.TIME_UP and event["part"] == on.part for event in on.events)
    if not known and not on.over and on.left_s(on.part) < 0:
        shown.on = session.append(on, session.TIME_UP, part=on.part)
        shown.say("\aThe time is up. f finishes; a grade from now on counts as over time.")


def _line(shown: _Clock, columns: int) -> str:
    """The clock's line: where it would be too long, the time and the keys stay."""
    time, *words, keys = _words(shown)
    while words and len(" | ".join([time, *words, keys])) > columns:
        words.pop()
    return " | ".join([time, *words, keys])[:columns]


def _words(shown: _Clock) -> list[str]:
    """The time, then what is the less missed the later it comes, and last what may be pressed."""
    on = shown.on
    left = on.left_s(on.part)
    time = f"{clock.format_duration(left)} left" if left >= 0 else f"{clock.format_duration(-left)} OVER TIME"
    tried = [attempt for attempt in on.attempts(on.part) if not attempt.final]
    words = [time, on.name_of(on.part)]
    words += [f"part {on.part + 1} of {len(on.parts)}"] if len(on.parts) > 1 else []
    if shown.asked:
        return [time, "finish this part with the file as it is? y/n"]
    if shown.nudging:
        return [time, "take the hint at this cost? y/n"]
    if shown.grade is not None:
        return [*words, "grading ..."]
    if on.in_opening(on.part):
        first = clock.format_duration(max(0.0, on.opening_left_s(on.part)))
        return [*words, f"first minutes: {first}", "c code, f finish, q leave"]
    if on.parts[on.part].on_paper:
        return [*words, "on paper", "f finish, q leave"]
    words += [f"{len(tried)} tried, last: {tried[-1].kind}"] if tried else []
    return [*words, "g grade, f finish, q leave"]


def _press(shown: _Clock, key: str) -> None:
    if shown.asked:
        shown.asked = False
        if key in "yY":
            _finish_part(shown)
        return
    if shown.nudging:
        shown.nudging = False
        if key in "yY":
            shown.on, hint = run.nudge(shown.on, shown.catalog)
            shown.say(hint)
        return
    action = _ACTIONS.get(key.lower())
    if action is not None:
        action(shown)


def _ask_for_grade(shown: _Clock) -> None:
    on = shown.on
    if on.in_opening(on.part):
        shown.say("The file is not handed out yet: c ends the first minutes.")
    elif on.parts[on.part].on_paper:
        shown.say("This part is on paper: f finishes it.")
    elif shown.grade is None:
        kata, options = on.parts[on.part].kata, Options(on.begin["device"])
        shown.grade = shown.service.ask(Task(kata, options, on.handout(on.part), work=run.STEP, lasting=True))


def _take_answers(shown: _Clock) -> None:
    """What the grade says, but for how far its compilers are. Where its process is gone, the next grade has another."""
    try:
        answers = shown.service.answers()
    except ServiceError as error:
        shown.service.close()
        shown.service, answers = Service(shown.catalog.root), [{"fault": str(error)}]
    for answer in answers:
        if "tell" in answer:
            if not answer["tell"].startswith("["):
                shown.say(answer["tell"])
            continue
        shown.grade, shown.on = None, session.load(shown.on.folder)
        fault = answer.get("fault", "the grade ended without a verdict; was its process killed?")
        shown.say(answer["done"]["words"] if "done" in answer else f"kata: {fault}")


def _ask_to_finish(shown: _Clock) -> None:
    if shown.grade is None:
        shown.asked = True
    else:
        shown.say("Wait for the verdict first.")


def _ask_to_nudge(shown: _Clock) -> None:
    try:
        number, minutes = run.nudge_cost(shown.on, shown.catalog)
    except InterviewError as error:
        shown.say(str(error))
        return
    shown.say(f"Hint {number} costs {minutes:g} minutes of your time.")
    shown.nudging = True


def _start_code(shown: _Clock) -> None:
    try:
        shown.on = run.start_code(shown.on, shown.catalog)
    except InterviewError as error:
        shown.say(str(error))
        return
    _tell_task(shown)


def _finish_part(shown: _Clock) -> None:
    shown.on = run.end_part(shown.on, shown.catalog)
    if not shown.on.over:
        _tell_task(shown)


def _tell_task(shown: _Clock) -> None:
    shown.say("")
    shown.show_task(shown.on)


def _tell_keys(shown: _Clock) -> None:
    shown.say(KEYS)


def _leave(shown: _Clock) -> None:
    shown.left = True


_ACTIONS: dict[str, Callable[[_Clock], None]] = {
    "g": _ask_for_grade,
    "c": _start_code,
    "n": _ask_to_nudge,
    "f": _ask_to_finish,
    "t": _tell_task,
    "q": _leave,
    "?": _tell_keys,
}


@contextlib.contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """The numbers of the signals that came and ask for an end. They are noted, not raised: no step is left half done,
    and none is lost where Python swallows an exception."""
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt if came[0] == signal.SIGINT else SystemExit(128 + came[0])
