"""Frames: what is sent arrives, by the socket and by shared memory; a child that lies, dies or dawdles does no harm."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import stat
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from facts import all_of
from patience import PATIENCE_S, wait_for

from grader.devices import (
    Buffer,
    Call,
    Contents,
    Finding,
    Judged,
    Outcome,
    Poison,
    Role,
    Rows,
    TimingRequest,
    TimingResult,
    Undisclosed,
)
from grader.devices.gpu.device import COPIED_BYTES, _Placed
from grader.devices.gpu.differ import Differ
from grader.devices.gpu.driver import Driver
from grader.devices.gpu.rows import RowReader
from grader.devices.gpu.timing import _Output
from grader.sandbox import frames, parent
from grader.sandbox.child import SandboxError
from grader.sandbox.frames import MOST_QUESTIONS, SHARED_BYTES, Child, FrameError, Parent, SharedBuffer, write_header
from grader.sandbox.parent import TIMING_BYTES, TIMING_COPIES, Program, Sandbox

SIZES = (0, 1, SHARED_BYTES - 1, SHARED_BYTES, SHARED_BYTES + 1, 3 * SHARED_BYTES + 17)
LARGE = 2 * SHARED_BYTES


def contents(size: int, seed: int = 1) -> bytes:
    """No two pages alike."""
    pages = numpy.arange(-(-size // 16), dtype="<u8")
    return numpy.stack([numpy.full_like(pages, seed), pages], axis=1).tobytes()[:size]


def a_buffer(name: str, role: str, data: Contents | Poison) -> Buffer:
    return Buffer(name, role, "u8", 1, (len(data),), data)  # type: ignore[arg-type]


def a_call(given: Contents, out_bytes: int, launcher: str = "echo", **more: Any) -> Call:
    buffers = (a_buffer("x", "in", given), a_buffer("y", "out", Poison(0xFF, out_bytes)))
    return Call(launcher, buffers, (), **more)


class Told:
    """What is judged, and a seed for each call."""

    def __init__(self, rows: dict[int, Rows | None]) -> None:
        self.rows = rows

    def seed(self, call: int) -> int:
        return (1 << 60) + call

    def judged(self, calls: Sequence[int]) -> list[Judged]:
        return [(call, self.rows[call]) for call in calls if call in self.rows]


TIMING = TimingRequest("k", "copy", 1, pairs=20, judged=2, beside=("read",))


class Ends:
    """Both ends in one process."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.parent, self.child = Parent(self.ours), Child(self.theirs)

    def ask(self, call: Call, undisclosed: Undisclosed | None = None) -> Call:
        """What the child gets of a call."""
        return self._while(lambda: self.parent.write_call(call, undisclosed), self.child.read_call)

    def question(self, call: Call, question: Callable[[], Any]) -> Any:
        """What the child gets of the parent while it times."""
        parent = threading.Thread(target=lambda: self.parent.read_outcome(call, PATIENCE_S))
        parent.start()
        try:
            return question()
        finally:
            parent.join()

    def answer(self, call: Call, outcome: Outcome) -> Outcome:
        """What the parent gets of an outcome."""
        send = lambda: self.child.write_outcome(outcome, spent=False)  # noqa: E731
        return self._while(send, lambda: self.parent.read_outcome(call, PATIENCE_S))[0]  # type: ignore[no-any-return]

    @staticmethod
    def _while(write: Callable[[], None], read: Callable[[], Any]) -> Any:
        writer = threading.Thread(target=write)
        writer.start()
        try:
            return read()
        finally:
            writer.join(PATIENCE_S)

    def close(self) -> None:
        self.parent.close()
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    both = Ends()
    yield both
    both.close()


def descriptors(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


# -- what is sent arrives


@pytest.mark.parametrize("size", SIZES)
def test_contents_arrive_and_large_ones_beside_the_socket(ends: Ends, size: int) -> None:
    given = contents(size)
    call = a_call(memoryview(bytearray(given)), size)
    got = ends.ask(call)
    assert bytes(got.buffers[0].data) == given  # type: ignore[arg-type]
    assert isinstance(got.buffers[0].data, memoryview) == (size >= SHARED_BYTES)
    outcome = ends.answer(call, Outcome({"y": contents(size, 2)}))
    assert outcome.outputs == {"y": contents(size, 2)}
    assert isinstance(outcome.outputs["y"], bytes) == (size >= SHARED_BYTES)  # read from the room in one go


def test_very_large_contents_are_written_in_pieces(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_WRITTEN_BYTES", 100_000)
    given = [contents(size, size) for size in (3 * SHARED_BYTES + 17, 1, SHARED_BYTES)]
    call = Call("f", tuple(a_buffer(f"x{nth}", "in", data) for nth, data in enumerate(given)), ())
    for _ in range(2):
        assert [bytes(item.given) for item in ends.ask(call).buffers] == given


def test_poison_is_not_sent(ends: Ends) -> None:
    call = a_call(b"", LARGE)
    assert ends.ask(call).buffers[1] == call.buffers[1]


def test_several_buffers_keep_to_their_places(ends: Ends) -> None:
    inputs = [a_buffer(f"x{size}", "in", contents(size, size)) for size in SIZES]
    call = Call("f", (*inputs, *(a_buffer(f"y{size}", "out", Poison(0, size)) for size in SIZES)), ())
    got = ends.ask(call)
    assert [bytes(item.data) for item in got.buffers[: len(SIZES)]] == [item.data for item in inputs]  # type: ignore[arg-type]
    outputs = {f"y{size}": contents(size, size + 1) for size in SIZES}
    assert ends.answer(call, Outcome(outputs)).outputs == outputs


@pytest.mark.parametrize("is_in_room", [False, True])
def test_answers_of_a_race_beyond_the_room_take_the_socket(
    ends: Ends, is_in_room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_in_room:
        monkeypatch.setattr(frames, "AGAIN_BYTES", LARGE)
    call = a_call(b"", LARGE, timing=TimingRequest("k", "copy", 1, pairs=4, judged=4))
    ends.ask(call, Told({0: None, 1: None, 2: None}))
    ends.question(call, lambda: ends.child.judged([0, 1, 2]))
    ends.parent._undisclosed = Told({3: None})  # one more than there was room made for
    ends.question(call, lambda: ends.child.judged([3]))
    answers = tuple((number, {"y": contents(LARGE, number)}) for number in range(4))
    again = ((9, {"y": contents(LARGE, 9)}, {"y": contents(LARGE, 10)}),)
    outcome = ends.answer(call, Outcome(timing=TimingResult(times=((1.0, 2.0),), answers=answers, again=again)))
    assert outcome.timing is not None and (outcome.timing.answers, outcome.timing.again) == (answers, again)
    timed = [outputs for _, outputs in outcome.timing.answers]
    kinds = [type(outputs["y"]) for outputs in (*timed, *outcome.timing.again[0][1:])]
    assert kinds == ([bytes] * 6 if is_in_room else [bytes] * 3 + [bytearray] * 3)


def test_an_answer_that_lies_in_the_room_is_not_copied_there(ends: Ends) -> None:
    call = a_call(b"", LARGE, timing=TimingRequest("k", "copy", 1, pairs=2, judged=1))
    ends.ask(call, Told({0: None}))
    ends.question(call, lambda: ends.child.judged([0]))
    assert ends.child.lend(SHARED_BYTES - 1) is None
    given_up, place = ends.child.lend(LARGE), ends.child._begin
    assert given_up is not None
    ends.child.take_back()  # as where a timing run begins again
    part = ends.child.lend(LARGE)
    assert part is not None and ends.child._lent_out[id(part)][0] == place
    part[:] = contents(LARGE)
    answers = ((0, {"y": part}),)
    outcome = ends.answer(call, Outcome(timing=TimingResult(times=((1.0, 2.0),), answers=answers)))
    assert ends.child._free <= place + LARGE + 4096  # no second one
    assert outcome.timing is not None and outcome.timing.answers == ((0, {"y": contents(LARGE)}),)


def no_memory(*_: object) -> int:
    raise OSError("no memory")


@pytest.mark.parametrize("missing", ["memfd_create", "refused", "full"])
def test_without_memory_to_share_all_takes_the_socket(
    ends: Ends, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "memfd_create":
        monkeypatch.delattr(os, "memfd_create")
    else:
        monkeypatch.setattr(os, "memfd_create" if missing == "refused" else "pwrite", no_memory)
    before = descriptors()
    call = a_call(contents(LARGE), LARGE)
    got = ends.ask(call)
    assert isinstance(got.buffers[0].data, bytearray) and got.buffers[0].data == contents(LARGE)
    assert ends.answer(call, Outcome({"y": contents(LARGE, 2)})).outputs == {"y": contents(LARGE, 2)}
    assert descriptors() == before
    monkeypatch.undo()
    assert isinstance(ends.ask(call).buffers[0].data, memoryview)


def test_what_the_child_writes_to_its_inputs_reaches_nobody(ends: Ends) -> None:
    ours = bytearray(contents(LARGE))
    call = a_call(memoryview(ours), LARGE)
    for _ in range(2):
        data = ends.ask(call).buffers[0].data
        assert isinstance(data, memoryview) and data == contents(LARGE)  # also the second time
        data[:] = bytes(LARGE)
        assert ours == contents(LARGE)
        del data


# -- a child that lies


def frame(listed: object, **changed: object) -> bytes:
    """An answer with an output y, but for what is changed."""
    header = {
        "outputs": ["y"],
        "answers": 0,
        "timed_outputs": [],
        "findings": [],
        "counters": None,
        "writers": {},
        "launches": [],
        "order": None,
        "asked_card": False,
        "coverage": [],
        "launched": [],
        "births": [],
        "trail": None,
        "unwritten": {},
    }
    text = json.dumps({"blobs": listed, "header": {**header, "timing": None, "spent": False, **changed}}).encode()
    return struct.pack("<Q", len(text)) + text


BEGIN = LARGE  # of the room, behind as much of contents
LIES = {
    "beyond the room": frame([(LARGE, BEGIN + 1)]),
    "far beyond": frame([(LARGE, 1 << 62)]),
    "the inputs": frame([(LARGE, 0)]),
    "more than there is": frame([(1 << 40, BEGIN)]),
    "negative size": frame([(-1, BEGIN)]),
    "negative place": frame([(LARGE, -1)]),
    "no number": frame([("1", BEGIN)]),
    "no pair": frame([7]),
    "a launch that is none": frame([], outputs=[], launches=[{"kernel": "k"}]),
    "a writer that is none": frame([], outputs=[], writers={"y[0]": {"kernel": "k", "line": "1"}}),
    "counters of another kind": frame([], outputs=[], counters={"launches": 1}),
    "too few": frame([]),
    "too short": frame([(LARGE - 1, BEGIN)]),
    "another name": frame([(LARGE, BEGIN)], outputs=["z"]),
    "none, and nothing found": frame([], outputs=[]),
    "a timing run that was not asked for": frame([(LARGE, BEGIN)], timing={"times": []}),
    "no findings": frame([(LARGE, BEGIN)], findings=7),
    "an endless header": struct.pack("<Q", 1 << 60),
    "endless contents": frame([(1 << 60, None)]),
    "no JSON": struct.pack("<Q", 4) + b"\xff\xfe{}",
    "no frame": struct.pack("<Q", 2) + b"[]",
    "deep": struct.pack("<Q", 1 << 16) + b"[" * (1 << 16),
}


def test_an_answer_made_by_hand_is_understood(ends: Ends) -> None:
    """Or the lies might be refused for another reason than theirs."""
    call = a_call(contents(LARGE), LARGE)
    ends.ask(call)
    ends.theirs.sendall(frame([(LARGE, BEGIN)]))
    assert ends.parent.read_outcome(call, PATIENCE_S)[0].outputs == {"y": bytes(LARGE)}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused(ends: Ends, lie: str) -> None:
    call = a_call(contents(LARGE), LARGE)
    ends.ask(call)
    ends.theirs.sendall(LIES[lie])
    with pytest.raises(FrameError):
        ends.parent.read_outcome(call, PATIENCE_S)


def test_no_more_is_taken_than_the_room_holds() -> None:
    """Or one that names the same place a million times would fill the parent's memory."""
    area = SharedBuffer()
    area.write_inputs([], 2 * LARGE)
    assert [len(area.read_outputs([(0, LARGE)])[0]) for _ in range(2)] == [LARGE, LARGE]
    with pytest.raises(FrameError):
        area.read_outputs([(0, LARGE)])
    area.close()


def test_memory_that_was_reserved_is_lent_with_the_first_contents(ends: Ends) -> None:
    """All of its pages are there; what is larger gets other memory, and a parent that is gone reserves none."""
    ends.parent.reserve(8 * LARGE)
    ends.ask(a_call(b"small", 1))
    ends.parent.write_call(a_call(contents(LARGE), LARGE))
    _, (fd,), _, _ = socket.recv_fds(ends.theirs, 8, 1)
    state = os.fstat(fd)
    assert state.st_size >= 8 * LARGE and state.st_blocks * 512 >= state.st_size
    os.close(fd)
    area = SharedBuffer()
    area.reserve(LARGE)
    area.reserve(LARGE // 2)
    place, lent = area.write_inputs([contents(LARGE)], 0)
    again, nothing = area.write_inputs([contents(LARGE)], 0)
    assert place == again == [0] and lent is not None and nothing is None
    assert area.write_inputs([contents(2 * LARGE)], 0)[1] is not None
    area.close()
    area.reserve(LARGE)
    assert area._fd is None


def test_a_child_without_a_free_descriptor_does_not_go_on(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the last call's memory, which is too short, it would take less for the whole."""
    ends.ask(a_call(contents(LARGE), LARGE))
    monkeypatch.setattr(socket, "recv_fds", lambda connection, size, *_: (connection.recv(size), [], 0, None))
    with pytest.raises(OSError, match="no descriptor free"):
        ends.ask(a_call(contents(2 * LARGE), LARGE))


def test_shared_memory_keeps_its_size(ends: Ends) -> None:
    ends.parent.write_call(a_call(contents(LARGE), LARGE))
    _, (fd,), _, _ = socket.recv_fds(ends.theirs, 8, 1)
    size = os.fstat(fd).st_size
    for other in (0, size - 1, size + 1):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, other)
    os.close(fd)


def test_the_parent_takes_no_descriptors(ends: Ends) -> None:
    call = a_call(contents(LARGE), LARGE)
    ends.ask(call)
    before = descriptors()
    with open(os.devnull) as file:
        answer = frame([(LARGE, BEGIN)])
        socket.send_fds(ends.theirs, [answer[:8]], [file.fileno()] * 200)
        socket.send_fds(ends.theirs, [answer[8:]], [file.fileno()] * 200)
    assert ends.parent.read_outcome(call, PATIENCE_S)[0].outputs
    assert descriptors() == before


def test_an_answer_in_drops_ends_in_time(ends: Ends) -> None:
    """The limit is for all of it: each drop comes long before the limit, the last one minutes after it."""
    call = a_call(b"", LARGE)
    ends.ask(call)
    answer = frame([(LARGE, 0)], padding=" " * 10_000)
    done, dropped = threading.Event(), 0

    def drip() -> None:
        nonlocal dropped
        for dropped in range(len(answer)):
            if done.wait(0.05):
                return
            ends.theirs.sendall(answer[dropped : dropped + 1])

    writer = threading.Thread(target=drip)
    writer.start()
    with pytest.raises(TimeoutError):
        ends.parent.read_outcome(call, 0.5)
    done.set()
    writer.join()
    assert 0 < dropped < len(answer) - 1


def test_the_limit_of_an_answer_is_one_for_all_its_pieces(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is there at once, but each piece takes a second to read."""
    call = a_call(b"", 0)
    clock = SimpleNamespace(now=0.0)

    def monotonic() -> float:
        clock.now += 1.0
        return clock.now

    clock.monotonic = monotonic
    monkeypatch.setattr("grader.sandbox.frames.time", clock)
    monkeypatch.setattr("grader.sandbox.frames._PIECE_BYTES", 1)
    answer = frame([(0, None)])
    for limit_s, ends_in_time in ((len(answer) + 10.0, True), (len(answer) - 10.0, False)):
        ends.ask(call)
        ends.theirs.sendall(answer)
        with contextlib.nullcontext() if ends_in_time else pytest.raises(TimeoutError):
            assert ends.parent.read_outcome(call, limit_s)[0].outputs == {"y": b""}


# -- a child of its own, whose device is written in Python

CHILD = """
import os, resource, sys, threading, time
sys.argv = sys.argv[2:]
sys.path.insert(0, {root!r})
from grader.sandbox import child
from grader.devices import DeviceError, Outcome
from grader.devices.counters import CallCounters

late = []

def write_later():
    fd = next(fd for fd in os.listdir("/proc/self/fd") if "memfd" in os.path.realpath("/proc/self/fd/" + fd))
    fd = os.open("/proc/self/fd/" + fd, os.O_RDWR)
    def write():
        while not os.path.exists({go!r}):
            time.sleep(0.01)
        os.pwrite(fd, bytes(os.fstat(fd).st_size), 0)
        late.append(1)
        open({gone!r}, "w").close()
    threading.Thread(target=write, daemon=True).start()

def lie():
    connection = int(sys.argv[2])
    os.write(connection, bytes([9, 0, 0, 0, 0, 0, 0, 0]) + b"no header")
    time.sleep(1000)

class Device:
    spent = False

    def call(self, call, undisclosed):
        given, wanted = call.buffers
        if call.launcher == "dies":
            os.kill(os.getpid(), 9)
        if call.launcher == "lies":
            lie()
        if call.launcher == "times":
            self.told = undisclosed.judged(range(20))
            self.seed = undisclosed.seed(7)
            undisclosed.judged([])
        if call.launcher == "eats":
            self.eaten = b"x" * (400 << 20)
            time.sleep(1000)
        if call.launcher == "limited":
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        if call.launcher == "breaks":
            raise DeviceError("its counters have no key 'sectors'")
        if call.launcher == "errs":
            len(None)
        if call.launcher == "writes later":
            write_later()
        counters = CallCounters(len(late), len(os.listdir("/proc/self/fd")), 0)  # which stand for what they are not
        return Outcome({{wanted.name: bytes(given.data)[: len(wanted.data)]}}, counters=counters)

child._OPENERS["sim"] = lambda rehearsals: lambda program, paths: Device()
child.run_child(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
"""


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    program = tmp_path / "child"
    root, (go, gone) = Path(__file__).resolve().parent.parent, (str(tmp_path / name) for name in ("go", "gone"))
    program.write_text(f"#!{sys.executable}\n" + CHILD.format(root=str(root), go=go, gone=gone))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(parent.sys, "executable", str(program))
    with Sandbox("sim") as made:
        made.load(Program("sim", "sm_90a", program, program, program, memory_limit_bytes=200 << 20))
        yield made


def test_no_descriptor_stays_after_many_large_calls(box: Sandbox) -> None:
    counts = []
    for nth in range(100):
        size = LARGE + (nth % 10) * SHARED_BYTES  # larger than before ten times, and smaller again
        outcome = box.call(a_call(contents(16) * (size // 16), size))
        assert not outcome.findings and len(outcome.outputs["y"]) == size
        counts.append((descriptors(), outcome.counters.warp_instructions))
    assert set(counts) == {counts[0]}


def test_what_the_child_writes_after_its_answer_changes_nothing(box: Sandbox, tmp_path: Path) -> None:
    given = contents(LARGE)
    outcome = box.call(a_call(given, LARGE, "writes later"))
    (tmp_path / "go").touch()
    wait_for((tmp_path / "gone").exists, "the child to write")
    assert outcome.outputs == {"y": given}
    counters = box.call(a_call(given, LARGE)).counters
    assert counters is not None and counters.launches == 1


@pytest.mark.parametrize(
    ("launcher", "words"), [("breaks", ("no key 'sectors'",)), ("errs", ("TypeError", "NoneType", "line"))]
)
def test_a_device_that_is_broken_is_no_finding(box: Sandbox, launcher: str, words: tuple[str, ...]) -> None:
    with pytest.raises(SandboxError, match=all_of(*words, "bug of the grader")):
        box.call(a_call(contents(LARGE), LARGE, launcher))
    assert not box.call(a_call(contents(LARGE), LARGE)).findings  # by another child


@pytest.mark.parametrize(("launcher", "words"), [("dies", "SIGKILL"), ("lies", "connection")])
def test_a_child_that_dies_or_lies_is_a_finding_and_leaves_nothing(box: Sandbox, launcher: str, words: str) -> None:
    given = contents(LARGE)
    assert box.call(a_call(given, LARGE)).outputs == {"y": given}
    open_now = descriptors()
    outcome = box.call(a_call(given, LARGE, launcher))
    assert outcome.findings[0].kind == "crash" and words in outcome.findings[0].message
    assert descriptors() < open_now  # socket, output and shared memory are closed
    assert box.call(a_call(given, LARGE)).outputs == {"y": given}
    assert descriptors() == open_now


def test_large_outputs_come_in_spite_of_the_limit_on_files(box: Sandbox) -> None:
    given = contents(LARGE)
    assert box.call(a_call(given, LARGE, "limited")).outputs == {"y": given}


def test_shared_memory_is_no_reason_to_stop_an_honest_launcher(box: Sandbox) -> None:
    """The child's limit here is 200 MiB."""
    size = 32 << 20
    for _ in range(3):
        assert not box.call(a_call(bytes(size), size)).findings
    assert "of host memory" in box.call(a_call(bytes(size), size, "eats")).findings[0].message


def test_large_buffers_are_no_reason_to_stop_an_honest_launcher(box: Sandbox) -> None:
    """A child may hold what it was given, a copy of it, and the answer: here more than its limit of 200 MiB."""
    size = 160 << 20
    outcome = box.call(a_call(bytes(size), size))
    assert not outcome.findings and len(outcome.outputs["y"]) == size


def test_a_race_may_take_memory_for_its_outputs_too(box: Sandbox) -> None:
    call = a_call(bytes(LARGE), 3 * LARGE, timing=TimingRequest("k", "copy", 1))
    box.call(call)  # the device here times nothing
    assert box.start()._memory_limit < TIMING_BYTES  # the child that answered otherwise was replaced
    child = box.start()
    with pytest.raises(parent._ChildGone):
        child.ask(call)
    assert child._memory_limit == TIMING_COPIES * 4 * LARGE + TIMING_BYTES


def held(pid: int, number: int) -> bool:
    """Whether a process of Python has a number of 31 to 60 bits anywhere in its memory: as such, or in text."""
    ways = (str(number).encode(), struct.pack("<II", number & ((1 << 30) - 1), number >> 30))
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            place, mode, *_ = line.split()
            first, last = (int(end, 16) for end in place.split("-"))
            if mode.startswith("rw"):
                with contextlib.suppress(OSError, OverflowError):  # what no process can read
                    data = os.pread(memory.fileno(), last - first, first)
                    if any(way in data for way in ways):
                        return True
    return False


def test_the_memory_of_who_times_has_nothing_of_what_it_was_not_told(box: Sandbox) -> None:
    """Learners' code could read it. Neither rows nor a seed are there before they are asked for, and both are then."""
    row, seed, child = (1 << 50) + 12345, (1 << 55) + 54321, box.start()
    found: list[tuple[str, bool, bool]] = []

    class Looks(Told):
        def seed(self, call: int) -> int:
            found.append(("seed", held(child._process.pid, row), held(child._process.pid, seed)))
            return seed

        def judged(self, calls: Sequence[int]) -> list[Judged]:
            if child._frames._questions:  # and not the parent itself, which makes room for the answer
                found.append(("judged", held(child._process.pid, row), held(child._process.pid, seed)))
            return super().judged(calls)

    box.call(a_call(b"", 4, "times", timing=TIMING), Looks({4: Rows(((row, row + 1),), {"y": 0})}))
    assert found == [("judged", False, False), ("seed", True, False), ("judged", True, True)]


# -- what the GPU makes of contents, on memory of the host


class HostDriver(Driver):
    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}

    def allocate(self, size: int) -> int:
        memory = ctypes.create_string_buffer(size)
        self.memory[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    def free(self, address: int) -> None:
        del self.memory[address]

    def copy(self, target: int, source: int, size: int) -> None:
        ctypes.memmove(target, source, size)

    def do(self, name: str, *arguments: Any) -> None:
        if name == "cuMemcpy2DUnaligned_v2":
            strips = arguments[0]._obj
            for nth in range(strips.Height):
                source = strips.srcDevice + nth * strips.srcPitch
                ctypes.memmove(strips.dstHost + nth * strips.dstPitch, source, strips.WidthInBytes)
            return
        target, source, size = arguments
        if name == "cuMemsetD8_v2":
            ctypes.memset(target.value, source, size.value)
        else:
            assert name in ("cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2")
            place = target.value if name == "cuMemcpyHtoD_v2" else target
            ctypes.memmove(place, source.value if name == "cuMemcpyDtoH_v2" else source, size.value)


class HostDiffer(Differ):
    def __init__(self) -> None:
        self.asked = 0

    def differs(self, pairs: Sequence[tuple[int, int, int]]) -> bool:
        self.asked += 1
        return any(
            ctypes.string_at(one, 4 * words) != ctypes.string_at(other, 4 * words) for one, other, words in pairs
        )


def placed_on(driver: HostDriver, buffer: Buffer, differ: Differ | None = None) -> _Placed:
    return _Placed(driver, buffer, differ or HostDiffer())


@pytest.mark.parametrize("byte", [None, 0, COPIED_BYTES - 1, COPIED_BYTES + 2])
def test_a_large_input_is_compared_on_the_card(byte: int | None) -> None:
    """It comes back only where it was changed, and no memory is left of it. Its last three bytes are no whole word."""
    given = contents(COPIED_BYTES + 3)
    driver, differ = HostDriver(), HostDiffer()
    placed = placed_on(driver, a_buffer("x", "in", given), differ)
    if byte is not None:
        ctypes.memset(placed.pointer + byte, given[byte] ^ 1, 1)
    findings = placed.collect()
    assert [(item.kind, item.index) for item in findings] == ([] if byte is None else [("modified its input", byte)])
    assert differ.asked == 1 and not driver.memory and len(placed.contents) == (0 if byte is None else len(given))


@pytest.mark.parametrize("kind", [bytes, bytearray, lambda data: memoryview(bytearray(data))])
def test_contents_of_every_kind_reach_the_card_and_are_compared(kind: Callable[[bytes], Contents]) -> None:
    given = contents(1000)
    placed = placed_on(HostDriver(), a_buffer("x", "in", kind(given)))
    assert ctypes.string_at(placed.pointer, len(given)) == given
    assert placed.collect() == [] and placed.contents == given
    placed = placed_on(HostDriver(), a_buffer("x", "in", kind(given)))
    ctypes.memset(placed.pointer + 999, given[999] ^ 1, 1)
    assert [(item.kind, item.index) for item in placed.collect()] == [("modified its input", 999)]


def test_an_updated_input_may_be_written_and_comes_back() -> None:
    given = contents(1000)
    placed = placed_on(HostDriver(), a_buffer("x", "updated", given))
    assert ctypes.string_at(placed.pointer, len(given)) == given
    ctypes.memset(placed.pointer + 999, given[999] ^ 1, 1)
    assert placed.collect() == [] and placed.contents == given[:999] + bytes([given[999] ^ 1])
    placed = placed_on(HostDriver(), a_buffer("x", "updated", given))
    ctypes.memset(placed.pointer + 1000, 7, 1)
    assert [(item.kind, item.index) for item in placed.collect()] == [("out of bounds", 1000)]


@pytest.mark.parametrize("role", ["in", "out", "updated"])
def test_of_what_was_written_around_a_buffer_the_nearest_byte_is_said(role: Role) -> None:
    data = Poison(0xFF, 1000) if role == "out" else contents(1000)
    for places in ((-1,), (1000,), (-300, -5), (1007, 4000), (-2, 1003)):
        placed = placed_on(HostDriver(), Buffer("x", role, "u8", 1, (1000,), data, 16))
        for place in places:
            ctypes.memset(placed.pointer + place, 7, 1)
        before, after = [place for place in places if place < 0][-1:], [place for place in places if place > 0][:1]
        assert [(item.kind, item.index) for item in placed.collect()] == [
            ("out of bounds", place) for place in (*before, *after)
        ]


class HostStream(HostDriver):
    def fill(self, address: int, byte: int, size: int) -> None:
        ctypes.memset(address, byte, size)


def test_around_the_output_of_a_timed_call_each_byte_is_looked_at() -> None:
    driver, size = HostStream(), 1000
    output = _Output(driver, Buffer("y", "out", "u8", 1, (size,), Poison(0x9D, size)))
    pointer = output.place + 70_000
    for place in (0, 69_999, 70_000 + size, output.room - 1):
        output.prepare()
        ctypes.memset(pointer, 7, size)
        assert output.outside(pointer) is None
        ctypes.memset(output.place + place, 7, 1)
        found = output.outside(pointer)
        assert found is not None and (found.kind, found.buffer) == ("out of bounds", "y")


@pytest.mark.parametrize("size", [0, 1000])
def test_poison_is_made_on_the_card(size: int) -> None:
    placed = placed_on(HostDriver(), a_buffer("y", "out", Poison(0x9D, size)))
    assert ctypes.string_at(placed.pointer, size) == b"\x9d" * size
    assert placed.collect() == [] and placed.contents == b"\x9d" * size


ROWS = Rows(((0, 1), (3, 5), (6, 7)), {"y": 1})


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rows_of_an_output_come_back_along_any_dimension(axis: int) -> None:
    shape = tuple(7 if place == axis else size for place, size in enumerate((2, 3, 4)))
    size = 4 * prod(shape)
    given, rows = contents(size), Rows(ROWS.runs, {"y": axis})
    buffer, driver = Buffer("y", "out", "f32", 4, shape, Poison(0xFF, size)), HostDriver()
    placed = placed_on(driver, buffer)
    ctypes.memmove(placed.pointer, given, size)
    there = RowReader(driver).read(placed.pointer, buffer, rows)
    whole = numpy.frombuffer(given, dtype=numpy.uint32).reshape(shape)
    assert there == whole.take([0, 3, 4, 6], axis=axis).tobytes() and len(there) == rows.bytes_of(buffer)


def test_rows_are_what_a_call_may_ask_for(ends: Ends) -> None:
    """Of a call, and of each answer of a timing run; what an untimed call made comes back whole."""
    large = Buffer("y", "out", "u8", 1, (3, 7, LARGE), Poison(0x9D, 21 * LARGE))
    call = Call("f", (large,), (), rows=ROWS)
    assert ends.ask(call) == call
    outcome = Outcome({"y": contents(12 * LARGE)}, unwritten={"y": 5})
    assert ends.answer(call, outcome) == outcome
    told, call = Told({4: ROWS, 9: replace(ROWS, runs=((2, 4),))}), Call("f", (large,), (), timing=TIMING)
    assert ends.ask(call, told) == call
    assert ends.question(call, lambda: ends.child.judged(range(20))) == told.judged(range(20))
    answers = ((4, {"y": contents(12 * LARGE)}), (9, {"y": contents(6 * LARGE, 2)}))
    again = ((5, {"y": contents(21 * LARGE)}, {"y": contents(21 * LARGE, 3)}),)
    beside = {"read": (((2.0, 3.0), (4.0, 5.0)), ((1.0, 1.0),))}
    result = TimingResult(((1.0, 2.0),), answers=answers, again=again, unwritten=({"y": 0}, {"y": 1}), beside=beside)
    assert ends.answer(call, Outcome(timing=result)).timing == result


def test_what_is_judged_and_what_contents_follow_from_are_told_when_they_are_asked_for(ends: Ends) -> None:
    """Nothing of them is sent with the call. Of a timing run that begins again, the last answers count."""
    told = Told({4: ROWS, 9: None, 24: None, 29: ROWS})
    call = Call("f", (Buffer("y", "out", "u8", 1, (3, 7, 4), Poison(0x9D, 84)),), (), timing=TIMING)
    assert ends.ask(call, told) == call
    sent = json.dumps(vars(call), default=vars)
    assert "runs" not in sent and str(told.seed(7)) not in sent
    assert ends.question(call, lambda: ends.child.seed(7)) == told.seed(7)
    for calls in (range(20), range(20, 27), range(27, 40)):
        assert ends.question(call, lambda calls=calls: ends.child.judged(calls)) == told.judged(calls)
    answers = ((24, {"y": contents(84)}), (29, {"y": contents(48)}))
    result = TimingResult(((1.0, 2.0),), answers=answers, unwritten=({}, {"y": 1}))
    assert ends.answer(call, Outcome(timing=result)).timing == result


@pytest.mark.parametrize(
    "question",
    [
        {"question": "seed", "calls": [1, 2]},
        {"question": "seed", "calls": [-1]},
        {"question": "seed", "calls": ["1"]},
        {"question": "judged", "calls": 3},
        {"question": "judged"},
    ],
)
def test_a_question_that_is_none_is_no_answer(ends: Ends, question: dict[str, Any]) -> None:
    call = Call("f", (), (), timing=TIMING)
    ends.ask(call, Told({}))
    write_header(ends.theirs, question)
    with pytest.raises(FrameError):
        ends.parent.read_outcome(call, PATIENCE_S)


def test_only_a_timing_run_has_questions_and_only_so_many(ends: Ends) -> None:
    call = Call("f", (), ())
    ends.ask(call, Told({}))
    write_header(ends.theirs, {"question": "seed", "calls": [0]})
    with pytest.raises(FrameError):
        ends.parent.read_outcome(call, PATIENCE_S)
    call = Call("f", (), (), timing=TIMING)
    ends.ask(call, Told({}))
    for _ in range(MOST_QUESTIONS * TIMING.pairs):
        ends.question(call, lambda: ends.child.seed(0))
    write_header(ends.theirs, {"question": "seed", "calls": [0]})
    with pytest.raises(FrameError):
        ends.parent.read_outcome(call, PATIENCE_S)


@pytest.mark.parametrize(
    "lie",
    [
        {"answers": ((4, {"y": contents(21 * LARGE)}),)},  # all of it
        {"answers": ((4, {"y": contents(11 * LARGE)}),)},
        {"answers": ()},
        {"answers": ((5, {"y": contents(12 * LARGE)}),)},  # of another call
        {"unwritten": ()},
        {"unwritten": ({},)},
        {"unwritten": ({"z": 0},)},
        {"unwritten": ({"y": -1},)},
        {"unwritten": ({"y": "0"},)},
        {"unwritten": ({"y": 0}, {"y": 0})},
    ],
)
def test_other_rows_than_were_asked_for_are_no_answer(ends: Ends, lie: dict[str, Any]) -> None:
    large = Buffer("y", "out", "u8", 1, (3, 7, LARGE), Poison(0x9D, 21 * LARGE))
    call = Call("f", (large,), (), timing=replace(TIMING, judged=1))
    ends.ask(call, Told({4: ROWS}))
    ends.question(call, lambda: ends.child.judged(range(20)))
    right = {"answers": ((4, {"y": contents(12 * LARGE)}),), "unwritten": ({"y": 0},)}
    with pytest.raises(FrameError):
        ends.answer(call, Outcome(timing=TimingResult(((1.0, 2.0),), **{**right, **lie})))


@pytest.mark.parametrize("lie", [{"outputs": {"y": contents(12)}}, {"unwritten": {}}, {"unwritten": {"y": True}}])
def test_a_call_must_count_what_was_not_written_of_rows(ends: Ends, lie: dict[str, Any]) -> None:
    call = Call("f", (Buffer("y", "out", "u8", 1, (7,), Poison(0x9D, 7)),), (), rows=replace(ROWS, axes={"y": 0}))
    ends.ask(call)
    with pytest.raises(FrameError):
        ends.answer(call, Outcome(**{"outputs": {"y": contents(4)}, "unwritten": {"y": 0}, **lie}))
    ends.ask(call)
    assert ends.answer(call, Outcome({"y": contents(4)}, unwritten={"y": 7})).unwritten == {"y": 7}


def test_a_finding_keeps_its_place(ends: Ends) -> None:
    finding = Finding("race", "so", block=(1, 2, 3), thread=(4, 5, 6))
    assert ends.answer(a_call(b"", 0), Outcome(findings=(finding,))).findings == (finding,)
