"""Call and Outcome <-> frames on a socket: a length, a JSON header, contents. Large contents lie in shared memory.

A socket costs several times what a copy does, and 8192 x 8192 halves are 134 MB. So the parent has a
SharedBuffer: memory without a name that holds a call's large contents and, behind them, room for the answer's. It is
kept from call to call: memory that was used before is several times as fast as new. The parent writes it again for each
call, so that it does not matter what the child, which maps it, did to the contents before.

The learner's code runs in the child. So the parent takes no descriptor from there, holds every size and place against
what the call allows, and copies the room into its own memory before it judges the contents.

While a child times, it asks for what it must not know sooner, and the parent answers as long as the questions are those
of a timing run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import socket
import struct
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from grader.devices import (
    Buffer,
    Call,
    Card,
    Contents,
    DeviceError,
    Finding,
    HostChange,
    Judged,
    Limits,
    Outcome,
    Outputs,
    Pairs,
    Poison,
    Rows,
    Scalar,
    TimingRequest,
    TimingResult,
    Undisclosed,
)
from grader.devices.contents import DIFFERENT, JUDGED
from grader.devices.counters import Birth, CallCounters, KernelCoverage, Launch, Launched, Trail, Writer
from grader.devices.report_json import decode, encode

SHARED_BYTES = 1 << 18  # from here on contents are shared: twice as fast as the socket; of half as much, no faster
ROOM_BYTES = 64 << 20  # most that is kept ready for an answer
ANSWER_BYTES = 1 << 30  # most that an answer may be beside large outputs: a timing run sends small ones every time
AGAIN_BYTES = 1 << 30  # most that is kept ready for what two calls gave with other bits
ANSWERS = JUDGED + 2 * DIFFERENT  # of each output, most that a timing run sends back where it is large
MOST_QUESTIONS = 6  # of a timing run, for each of its pairs: it may begin again, and keep no more than one answer
_PIECE_BYTES = 4 << 20  # most that is read from a socket at a time
_WRITTEN_BYTES, _WRITERS = 16 << 20, 4  # that a thread writes at a time, and how many threads there are


class FrameError(Exception):
    """What came through the socket is nothing that the other end sends."""


def write_header(connection: socket.socket, header: Mapping[str, Any]) -> None:
    """A frame without contents."""
    _write(connection, header, [], [])


def read_header(connection: socket.socket, limit_s: float | None = None) -> dict[str, Any]:
    """The header of a frame without contents. Raises EOFError, TimeoutError, FrameError."""
    return _Reader(connection, limit_s).head()[0]


# -- the parent: it sends calls and believes nothing of what comes back -----------------------------------------------


class Parent:
    """The end that asks. The caller has set the socket's time-out before a call is written."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._shared = connection, SharedBuffer()
        self._undisclosed: Undisclosed | None = None
        self._told: list[Judged] = []  # the answers that the child was told to send
        self._questions = 0

    def close(self) -> None:
        self._shared.close()

    def reserve(self, size: int) -> None:
        """Have memory for calls with so many bytes of contents."""
        self._shared.reserve(size + ROOM_BYTES)

    def write_call(self, call: Call, undisclosed: Undisclosed | None = None) -> None:
        """``undisclosed`` answers what the child asks while it times."""
        self._undisclosed, self._told, self._questions = undisclosed, [], 0
        buffers = [{**vars(item), "data": _poison(item)} for item in call.buffers]
        header = {**vars(call), "buffers": buffers}
        blobs = [buffer.data for buffer in call.buffers if not isinstance(buffer.data, Poison)]
        places, new = self._shared.write_inputs(blobs, _reply_bytes(call, undisclosed))
        header["area"] = (self._shared.begin, self._shared.end)
        _write(self._connection, header, blobs, places, new)

    def read_outcome(self, call: Call, limit_s: float) -> tuple[Outcome, bool] | None:
        """What became of ``call``, and whether the device is spent; None where it was a question, which is answered.

        Raises EOFError, TimeoutError, FrameError, and DeviceError where the child says that the device is broken.
        """
        most = ANSWER_BYTES + ANSWERS * sum(_output_sizes(call, None).values())
        reader = _Reader(self._connection, limit_s, most_bytes=most)
        header, listed = reader.head()
        if "broken" in header:
            raise DeviceError(str(header["broken"]))
        if "question" in header:
            write_header(self._connection, {"answer": self._answer_to(call, header)})
            return None
        try:
            there = iter(self._shared.read_outputs([(place, size) for size, place in listed if place is not None]))
            blobs = [reader.read(size) if place is None else next(there) for size, place in listed]
            outcome, spent = _decode_outcome(header, blobs), bool(header["spent"])
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, StopIteration) as error:
            raise FrameError(f"no outcome: {error!r}") from None
        if not _answers(call, outcome, self._told):
            raise FrameError("the outputs are not those of the call")
        return outcome, spent

    def _answer_to(self, call: Call, header: Mapping[str, Any]) -> object:
        self._questions += 1
        if call.timing is None or self._undisclosed is None or self._questions > MOST_QUESTIONS * call.timing.pairs:
            raise FrameError("a question out of place")
        try:
            calls = [_count(number) for number in header["calls"]]
            if header["question"] == "seed":
                (number,) = calls
                return self._undisclosed.seed(number)
            told = self._undisclosed.judged(calls)
        except (LookupError, TypeError, ValueError) as error:
            raise FrameError(f"no question: {error!r}") from None
        self._told += told
        return told


class SharedBuffer:
    """What is lent to the child: contents from 0, room for the answer from ``begin`` to ``end``."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self._size = self.begin = self.end = self._unread = 0
        self._is_lent = self._is_closed = False
        self._lock = threading.RLock()

    def close(self) -> None:
        with self._lock:
            self._drop()
            self._is_closed = True

    def _drop(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._size = None, 0

    def reserve(self, size: int) -> None:
        """Have so much memory, with all of its pages: a write to new ones takes three times as long."""
        with self._lock, contextlib.suppress(AttributeError, OSError):
            if size > self._size and not self._is_closed:
                self._renew(size)
                assert self._fd is not None
                os.posix_fallocate(self._fd, 0, size)

    def _renew(self, size: int) -> None:
        self._drop()
        self._fd, self._size, self._is_lent = _memory(size), size, False

    def write_inputs(self, blobs: Sequence[Contents], reply_bytes: int) -> tuple[list[int | None], int | None]:
        """Lay out one call. Returns the place of each blob, None for one that must take the socket; and the descriptor,
        if the memory is new to the child. It is None if no blob is large or the system cannot share memory.
        """
        places, self.begin = _laid_out(blobs)
        self.end, new = self.begin + reply_bytes, None
        with self._lock:
            try:
                if self.end > self._size:
                    self._renew(self.end)
                if self._fd is not None:
                    _write_all(self._fd, [(p, blob) for p, blob in zip(places, blobs, strict=True) if p is not None])
                if not self._is_lent and self.end:
                    new, self._is_lent = self._fd, True
            except (AttributeError, OSError):  # another system, or no memory left
                self._drop()
                places, self.begin, self.end, new = [None] * len(blobs), 0, 0, None
        self._unread = self.end - self.begin
        return places, new

    def read_outputs(self, parts: Sequence[tuple[int, int]]) -> list[bytes]:
        """Copies of what the child put into the room, by places and sizes; large ones are read by several threads. All
        that is taken is no more than the room holds."""
        for place, size in parts:
            inside = self.begin <= place and place + size <= self.end
            if self._fd is None or not inside or size > self._unread:
                raise FrameError(f"{size} bytes at {place} are not in the room for answers")
            self._unread -= size
        if len(parts) < 2 or sum(size for _, size in parts) < _WRITTEN_BYTES:
            return [self._read(place, size) for place, size in parts]
        from concurrent.futures import ThreadPoolExecutor  # which a child, that only writes, need not import

        with ThreadPoolExecutor(min(_WRITERS, len(parts))) as pool:
            return list(pool.map(self._read, *zip(*parts, strict=True)))

    def _read(self, place: int, size: int) -> bytes:
        assert self._fd is not None
        data = os.pread(self._fd, size, place)
        while len(data) < size:  # one call of pread ends before 2 GiB
            more = os.pread(self._fd, size - len(data), place + len(data))
            if not more:
                raise FrameError("the room for answers is shorter than it was made")
            data += more
        return data


def _answers(call: Call, outcome: Outcome, told: Sequence[Judged]) -> bool:
    """Whether an outcome has the outputs that the call asked for, each as long as it must be. ``told`` are those of
    timed calls: the last ones count, of a timing run that began again."""
    if outcome.findings:
        return True
    if call.timing is None:
        rows = call.rows
        return outcome.timing is None and _fit(call, rows, outcome.outputs) and _counts(call, rows, outcome.unwritten)
    if (result := outcome.timing) is None:
        return False
    known = all(isinstance(number, int) and number >= 0 for number, *_ in result.again)
    asked = told[-call.timing.expected :] if call.timing.expected else []
    counted: Sequence[Mapping[str, int]] = result.unwritten or [{}] * len(result.answers)
    return (
        known
        and [number for number, _ in asked] == [number for number, _ in result.answers]
        and len(asked) == call.timing.expected == len(counted)
        and all(_fit(call, rows, outputs) for (_, rows), (_, outputs) in zip(asked, result.answers, strict=True))
        and all(_counts(call, rows, unwritten) for (_, rows), unwritten in zip(asked, counted, strict=True))
        and all(_fit(call, None, outputs) for _, *both in result.again for outputs in both)
    )


def _fit(call: Call, rows: Rows | None, outputs: Outputs) -> bool:
    return {name: len(data) for name, data in outputs.items()} == _output_sizes(call, rows)


def _counts(call: Call, rows: Rows | None, unwritten: Mapping[str, int]) -> bool:
    """Whether it says of each output how many elements were not written, where only some rows come back."""
    numbers = all(type(count) is int and count >= 0 for count in unwritten.values())
    return numbers and set(unwritten) == (set() if rows is None else set(_output_sizes(call, None)))


def _timed_outputs(outcome: Outcome) -> list[tuple[int, Outputs]]:
    """All outputs of a timing run with the numbers of their calls: answers, then of each pair both."""
    if outcome.timing is None:
        return []
    pairs = [(number, outputs) for number, *both in outcome.timing.again for outputs in both]
    return [*outcome.timing.answers, *pairs]


def _poison(buffer: Buffer) -> tuple[int, int] | None:
    return (buffer.data.byte, buffer.data.size) if isinstance(buffer.data, Poison) else None


def _output_sizes(call: Call, rows: Rows | None) -> dict[str, int]:
    """The bytes of each output, or of these rows of it."""
    outputs = [buffer for buffer in call.buffers if buffer.role != "in"]
    return {buffer.name: rows.bytes_of(buffer) if rows else len(buffer.data) for buffer in outputs}


def _reply_bytes(call: Call, undisclosed: Undisclosed | None) -> int:
    """What the large outputs take: in a timing run, the judged answers, and those that two calls may have given with
    other bits. Where the latter would be very large, they take the socket. Memory that nothing writes to costs nothing.
    """
    parts = [call.rows]
    if call.timing is not None:
        parts = [rows for _, rows in undisclosed.judged(range(call.timing.pairs))] if undisclosed else []
        if sum(_output_sizes(call, None).values()) * 2 * DIFFERENT <= AGAIN_BYTES:
            parts += [None] * 2 * DIFFERENT
    sizes = (size for rows in parts for size in _output_sizes(call, rows).values())
    return sum(_whole_pages(size) for size in sizes if size >= SHARED_BYTES)


def _laid_out(blobs: Iterable[Contents]) -> tuple[list[int | None], int]:
    """The place of each blob, None for a small one; and the end of the last."""
    places: list[int | None] = []
    end = 0
    for blob in blobs:
        large = len(blob) >= SHARED_BYTES
        places.append(end if large else None)
        end += _whole_pages(len(blob)) if large else 0
    return places, end


def _whole_pages(size: int) -> int:
    return -(-size // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY


def _memory(size: int) -> int:
    """A descriptor of memory that can become neither shorter nor longer.

    The child holds it, too: the parent must find all of it there, and the child can take no more than it was given.
    """
    fd = os.memfd_create("kata", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _write_all(fd: int, parts: Sequence[tuple[int, Contents]]) -> None:
    """Contents to their places. Large ones are written by several threads: the system copies 3 GB/s for each."""
    pieces = [
        (place + first, memoryview(data)[first : first + _WRITTEN_BYTES])
        for place, data in parts
        for first in range(0, len(data), _WRITTEN_BYTES)
    ]
    if len(pieces) < 2:
        for place, piece in pieces:
            _write_at(fd, place, piece)
        return
    from concurrent.futures import ThreadPoolExecutor  # which a child, that only reads, need not import

    with ThreadPoolExecutor(min(_WRITERS, len(pieces))) as pool:
        list(pool.map(partial(_write_at, fd), *zip(*pieces, strict=True)))


def _write_at(fd: int, place: int, view: memoryview) -> None:
    written = 0
    while written < len(view):
        written += os.pwrite(fd, view[written:], place + written)


# -- the child -------------------------------------------------------------------------------------------------------


class Child:
    """The end that answers."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._memory: mmap.mmap | None = None  # the SharedBuffer
        self._begin = self._free = self._end = 0  # of the room
        self._lent_out: dict[int, tuple[int, memoryview]] = {}  # id of a part of it -> place, and the part itself

    def read_call(self) -> Call:
        """The next call. Its large contents are there until the one after is read. Raises EOFError, OSError."""
        first, descriptors, _, _ = socket.recv_fds(self._connection, 8, 1, socket.MSG_CMSG_CLOEXEC)
        for fd in descriptors:
            self._map(fd)
        reader = _Reader(self._connection)
        header, listed = reader.head(first)
        self._begin, self._end = header.pop("area")
        self.take_back()
        if self._end > (0 if self._memory is None else len(self._memory)):
            raise OSError("the shared memory did not come: has the launcher left no descriptor free?")
        blobs = [reader.read(size) if place is None else self._lent(place, size) for size, place in listed]
        return _decode_call(header, blobs)

    def write_outcome(self, outcome: Outcome, *, spent: bool) -> None:
        """The header has the names of outputs and answers in the order of their contents."""
        timing = replace(outcome.timing, answers=(), again=()) if outcome.timing else None
        reports = ("counters", "writers", "launches", "order", "coverage", "launched", "births", "trail")
        said = Outcome(
            findings=outcome.findings, timing=timing, asked_card=outcome.asked_card, unwritten=outcome.unwritten
        )
        header = {**vars(said)}
        header.update({name: encode(getattr(outcome, name)) for name in reports})
        header["outputs"] = list(outcome.outputs)
        header["timed_outputs"] = [(number, list(outputs)) for number, outputs in _timed_outputs(outcome)]
        header["answers"] = len(outcome.timing.answers) if outcome.timing else 0
        blobs = [
            *outcome.outputs.values(),
            *(data for _, outputs in _timed_outputs(outcome) for data in outputs.values()),
        ]
        _write(self._connection, {**header, "spent": spent}, blobs, [self._put(blob) for blob in blobs])

    def seed(self, call: int) -> int:
        """As Undisclosed, of which this is the child's end."""
        return int(self._answer("seed", [call]))

    def judged(self, calls: Sequence[int]) -> list[Judged]:
        """The same."""
        return [(call, _decode_rows(rows) if rows else None) for call, rows in self._answer("judged", calls)]

    def _answer(self, question: str, calls: Sequence[int]) -> Any:
        write_header(self._connection, {"question": question, "calls": [*calls]})
        return read_header(self._connection)["answer"]

    def write_broken(self, problem: str) -> None:
        """In place of an outcome: the device is broken."""
        write_header(self._connection, {"broken": problem})

    def _map(self, fd: int) -> None:
        try:
            self._memory = mmap.mmap(fd, 0)
        finally:
            os.close(fd)

    def _lent(self, place: int, size: int) -> memoryview:
        assert self._memory is not None
        return memoryview(self._memory)[place : place + size]

    def lend(self, size: int) -> memoryview | None:
        """A part of the room for a large blob; None where it must take the socket."""
        start, end = self._free, self._free + size
        if self._memory is None or size < SHARED_BYTES or end > self._end:
            return None
        self._free, part = _whole_pages(end), memoryview(self._memory)[start:end]
        self._lent_out[id(part)] = start, part
        return part

    def take_back(self) -> None:
        """As Timed, of which this is the child's end, too."""
        self._lent_out.clear()
        self._free = self._begin

    def _put(self, blob: Contents) -> int | None:
        """The place where a large blob now lies, as far as the room goes; None where it must take the socket.

        One that does not lie there is copied through the mapping: writing would meet the limit on the size of files.
        """
        if id(blob) not in self._lent_out:
            if (part := self.lend(len(blob))) is None:
                return None
            part[:] = blob
            blob = part
        return self._lent_out[id(blob)][0]


# -- frames ----------------------------------------------------------------------------------------------------------


def _write(
    connection: socket.socket,
    header: Mapping[str, Any],
    blobs: Sequence[Contents],
    places: Sequence[int | None],
    fd: int | None = None,
) -> None:
    """A blob that has a place is already there. The descriptor travels with the first bytes."""
    listed = [(len(blob), place) for blob, place in zip(blobs, places, strict=True)]
    text = json.dumps({"blobs": listed, "header": header}, default=vars).encode()  # a dataclass as its fields
    sent = socket.send_fds(connection, [struct.pack("<Q", len(text))], [] if fd is None else [fd])
    assert sent == 8, sent  # a socket with room for a byte has room for eight
    connection.sendall(text)
    for blob, place in zip(blobs, places, strict=True):
        if place is None:
            connection.sendall(blob)


class _Reader:
    """Reads one frame, until a deadline and no more than ``most_bytes``."""

    def __init__(self, connection: socket.socket, limit_s: float | None = None, *, most_bytes: int = 1 << 62) -> None:
        self._connection, self._unread = connection, most_bytes
        self._deadline = None if limit_s is None else time.monotonic() + limit_s

    def head(self, first: bytes = b"") -> tuple[dict[str, Any], list[tuple[int, int | None]]]:
        """The header, and each blob's size and place. ``first`` is what was read before."""
        (length,) = struct.unpack("<Q", first + self.read(8 - len(first)))
        try:
            frame = json.loads(self.read(length))
            listed = [(_count(size), None if place is None else _count(place)) for size, place in frame["blobs"]]
            header = dict(frame["header"])
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise FrameError(f"no header: {error!r}") from None
        return header, listed

    def read(self, size: int) -> bytearray:
        if size > self._unread:
            raise FrameError(f"{size} bytes more are too many")
        self._unread -= size
        data = bytearray(size)
        view = memoryview(data)
        while view:
            if self._deadline is not None:
                self._connection.settimeout(_left_s(self._deadline))
            count = self._connection.recv_into(view, min(len(view), _PIECE_BYTES))
            if count == 0:
                raise EOFError
            view = view[count:]
        return data


def _left_s(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} counts nothing")
    return value


# -- headers ---------------------------------------------------------------------------------------------------------


def _decode_call(header: dict[str, Any], blobs: Iterable[Contents]) -> Call:
    remaining = iter(blobs)
    buffers = tuple(
        Buffer(
            **{
                **item,
                "shape": tuple(item["shape"]),
                "data": next(remaining) if item["data"] is None else Poison(*item["data"]),
            }
        )
        for item in header["buffers"]
    )
    scalars = tuple(Scalar(**item) for item in header["scalars"])
    watch = tuple((name, index) for name, index in header["watch"])
    timing = header["timing"]
    if timing is not None:
        names = {name: tuple(timing[name]) for name in ("replaced", "negated", "beside")}
        timing = TimingRequest(**{**timing, **names})
    rows = _decode_rows(header["rows"]) if header["rows"] else None
    limits = Limits(**header["limits"])
    card = Card(**header["card"]) if header["card"] else None
    parts = {"buffers": buffers, "scalars": scalars, "limits": limits, "watch": watch, "timing": timing, "card": card}
    host = tuple(HostChange(**item) for item in header["host"])
    return Call(**{**header, **parts, "rows": rows, "host": host})


def _decode_rows(found: Mapping[str, Any]) -> Rows:
    return Rows(tuple((first, last) for first, last in found["runs"]), found["axes"])


def _decode_pairs(found: Iterable[tuple[float, float]]) -> Pairs:
    return tuple((float(one), float(other)) for one, other in found)


def _decode_timing(
    timing: Mapping[str, Any] | None,
    answers: tuple[tuple[int, Outputs], ...],
    again: tuple[tuple[int, Outputs, Outputs], ...],
) -> TimingResult | None:
    if timing is None:
        return None
    finding = decode(Finding, timing["finding"], "the finding of a timing run") if timing["finding"] else None
    pairs = {name: _decode_pairs(timing[name]) for name in ("times", "noise")}
    beside = {name: (_decode_pairs(times), _decode_pairs(noise)) for name, (times, noise) in timing["beside"].items()}
    clocks = tuple(timing["clocks_mhz"])
    outputs_of = {
        "answers": answers,
        "again": again,
        "unwritten": tuple(map(dict, timing["unwritten"])),
        "beside": beside,
    }
    return TimingResult(**{**timing, **pairs, **outputs_of, "finding": finding, "clocks_mhz": clocks})


def _decode_outcome(header: Mapping[str, Any], blobs: Iterable[Contents]) -> Outcome:
    remaining = iter(blobs)
    outputs = {name: next(remaining) for name in header["outputs"]}
    result = [(number, {name: next(remaining) for name in names}) for number, names in header["timed_outputs"]]
    answers, rest = tuple(result[: header["answers"]]), iter(result[header["answers"] :])
    again = tuple((number, timed, untimed) for (number, timed), (_, untimed) in zip(rest, rest, strict=True))
    timing = _decode_timing(header["timing"], answers, again)
    findings = tuple(decode(Finding, item, "a finding") for item in header["findings"])
    counters = None if header["counters"] is None else decode(CallCounters, header["counters"], "the counters")
    writers = {place: decode(Writer, item, f"the writer of {place}") for place, item in header["writers"].items()}
    launches = tuple(decode(Launch, item, "a launch") for item in header["launches"])
    order = None if header["order"] is None else decode(Writer, header["order"], "the order")
    coverage = tuple(decode(KernelCoverage, item, "a kernel's coverage") for item in header["coverage"])
    launched = tuple(decode(Launched, item, "a launch") for item in header["launched"])
    births = tuple(decode(Birth, item, "a birth") for item in header["births"])
    trail = None if header["trail"] is None else decode(Trail, header["trail"], "the trail")
    asked, unwritten = bool(header["asked_card"]), dict(header["unwritten"])
    return Outcome(
        outputs,
        findings,
        counters,
        writers,
        launches,
        timing,
        order,
        asked,
        coverage,
        launched,
        births,
        trail,
        unwritten,
    )
