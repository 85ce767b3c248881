"""A kata on the GPU: its launcher, called through ctypes on torch tensors.

Every buffer lies between two guard bands. A guard byte that changed is a write out of bounds; its 0xFF bytes are a NaN
to every float format and -1 to every integer, so that a value read from there shows in the answer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from grader.devices import Buffer, Call, Finding, LoadError, Outcome

GUARD_BYTES = 1 << 16
GUARD_BYTE = 0xFF

CTYPES: dict[str, Any] = {
    "int": ctypes.c_int,
    "int64_t": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}

# What the CUDA runtime says of a kernel that broke the context, and the verdict that it means.
_ERRORS = (
    ("illegal memory access", "out of bounds", "the kernel read or wrote memory that is not there"),
    ("out of range address", "out of bounds", "the kernel accessed shared or local memory out of its bounds"),
    ("misaligned address", "misaligned", "the kernel accessed an address that is no multiple of the access's size"),
    ("device-side assert", "crash", "an assert in the kernel failed"),
    ("illegal instruction", "crash", "the kernel executed an illegal instruction"),
    ("unspecified launch failure", "crash", "the kernel stopped with a trap or a fault"),
    ("launch timed out", "time-out", "the kernel ran longer than the driver allows"),
)


class GpuDevice:
    """The current CUDA device with one kata's library loaded."""

    def __init__(self, *, library: Path, source: Path) -> None:
        wake()
        try:
            self._library = ctypes.CDLL(str(library))
        except OSError as error:
            raise LoadError("does not compile", f"{source.name}: the library cannot be loaded: {error}") from error
        self._take_error = self._library.kata_take_error
        self._take_error.restype = ctypes.c_char_p
        self.spent = False

    def call(self, call: Call) -> Outcome:
        placed = [_Placed(buffer) for buffer in call.buffers]
        arguments: list[Any] = [ctypes.c_void_p(item.pointer) for item in placed]
        arguments += [CTYPES[scalar.ctype](scalar.value) for scalar in call.scalars]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        torch.cuda.synchronize()
        getattr(self._library, call.launcher)(*arguments, stream)
        refused = self._take_error()
        findings: list[Finding] = []
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            self.spent = True
            return Outcome(findings=(_explain(str(error)),))
        if refused is not None:
            findings.append(Finding("launch failed", f"the CUDA runtime refused a call: {refused.decode()}"))
        findings += [finding for item in placed for finding in item.damage()]
        outputs = {item.buffer.name: item.bytes() for item in placed if item.buffer.role == "out"}
        return Outcome(outputs=outputs, findings=tuple(findings))


def wake() -> None:
    """Create the CUDA context and run something in it: seconds of work that the first call need not wait for."""
    torch.zeros(1, device="cuda").cpu()


class _Placed:
    """A buffer on the GPU: guard, offset, contents, guard."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.start = GUARD_BYTES + buffer.offset_bytes
        self.end = self.start + len(buffer.data)
        host = torch.full((self.end + GUARD_BYTES,), GUARD_BYTE, dtype=torch.uint8)
        if buffer.data:
            host[self.start : self.end] = torch.frombuffer(bytearray(buffer.data), dtype=torch.uint8)
        self._before = host
        self._memory = host.cuda()
        self.pointer = self._memory.data_ptr() + self.start

    def bytes(self) -> bytes:
        return self._memory[self.start : self.end].cpu().numpy().tobytes()

    def damage(self) -> list[Finding]:
        """Guard bytes that changed, and for an input its own bytes."""
        found = [
            self._changed(range(0, self.start), "out of bounds", "wrote"),
            self._changed(range(self.end, self._memory.numel()), "out of bounds", "wrote"),
        ]
        if self.buffer.role == "in":
            found.append(self._changed(range(self.start, self.end), "modified its input", "wrote to the input"))
        return [finding for finding in found if finding is not None]

    def _changed(self, region: range, kind: str, did: str) -> Finding | None:
        part = slice(region.start, region.stop)
        after = self._memory[part].cpu()
        wrong = (after != self._before[part]).nonzero()
        if wrong.numel() == 0:
            return None
        # The changed byte nearest to the buffer names the element.
        byte = int(wrong[-1 if region.stop == self.start else 0]) + region.start
        index = (byte - self.start) // self.buffer.itemsize
        count = len(self.buffer.data) // self.buffer.itemsize
        place = f"{self.buffer.name}[{index}]" + ("" if 0 <= index < count else f"; {_extent(self.buffer.name, count)}")
        return Finding(kind, f"the kernel {did} {place}", buffer=self.buffer.name, index=index)


def _extent(name: str, count: int) -> str:
    return f"{name} has {count} element{'' if count == 1 else 's'}"


def _explain(message: str) -> Finding:
    for words, kind, meaning in _ERRORS:
        if words in message:
            return Finding(kind, f"{meaning} (CUDA: {words})")
    first: Sequence[str] = message.strip().splitlines() or ["unknown error"]
    return Finding("crash", f"the kernel broke the CUDA context: {first[0]}")
