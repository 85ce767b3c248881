"""A command line of nvcc -> what nvcc makes of it, with the PTX half and the host half made side by side.

A program of its own: ``python halves.py STORE nvcc ... kata.cu``, run in the folder of the file. nvcc works one command
after another: it preprocesses and compiles the device's code, then does the same for the host's. The two need nothing
from each other but the module's id, which is written before both, and the device's machine code, which becomes data of
the host's object. The host's compiler gets a line there by which the assembler, that runs after both halves, reads it
from its file. nvcc itself names its commands (--dryrun). Where they are not those that are known here, nvcc does all of
it. Where one that reads the file fails, its words are nvcc's; what else fails, nvcc does again, and says why.

It is for one file and one architecture. STORE is a folder in which is kept what the host's compiler made: it does not
read bodies of kernels, and these are what changes most.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

POLL_S = 0.002

_SETTING = re.compile(r"(\w+)=(.*)")
_ID = "--gen_module_id_file"
_LOG_ERRORS = "surrogateescape"
# What fatbinary writes for the host's compiler, but for the data itself, in whose place the assembler reads a file.
_EMBEDDED = """\
#ifndef __SKIP_INTERNAL_FATBINARY_HEADERS
#include "fatbinary_section.h"
#endif
#define __CUDAFATBINSECTION  ".nvFatBinSegment"
#define __CUDAFATBINDATASECTION  ".nv_fatbin"
asm(
".section .nv_fatbin, \\"a\\"\\n"
".align 8\\n"
"fatbinData:\\n"
".incbin \\"NAME.fatbin\\"\\n"
".text\\n");
#ifdef __cplusplus
extern "C" {
#endif
extern const unsigned long long fatbinData[1];
#ifdef __cplusplus
}
#endif
#ifdef __cplusplus
extern "C" {
#endif
static const __fatBinC_Wrapper_t __fatDeviceText __attribute__ ((aligned (8))) \
__attribute__ ((section (__CUDAFATBINSECTION)))=\x20
	{ 0x466243b1, 1, fatbinData, 0 };
#ifdef __cplusplus
}
#endif
"""
_DATA = re.compile(r'(?:"\.quad [^"\n]*"\n)+')
# Which file and line the next one is of; and a body for the device, in which g++ looks for its end alone.
_UNREAD = re.compile(rb"^#(?:line)? \d+[^\n]*\n|^#if 0\n.*?^#endif\n", re.MULTILINE | re.DOTALL)
_ASKS_LINE = b"__builtin_LINE"  # what is made of it depends on these, too
_KEPT = 64  # texts of assemblers in the store; each takes up to a megabyte
_WORD = "0x"  # with which each word begins: what stands between two words is not always the same


@dataclass(frozen=True)
class Plan:
    """Commands of nvcc, each for a shell: two lists that may run side by side, the compiler of the host's object, which
    is the last of the second list, and what comes after all of these."""

    device: tuple[str, ...]
    host: tuple[str, ...]
    compiler: str
    join: tuple[str, ...]
    settings: Mapping[str, str]


def plan(listed: str, name: str) -> Plan | None:
    """The commands that ``nvcc --dryrun --keep`` lists for NAME.cu; None where they are not those that are known."""
    lines = [line.removeprefix("#$ ").strip() for line in listed.splitlines() if line.startswith("#$ ")]
    settings = {match[1]: match[2].strip().strip('"') for line in lines if (match := _SETTING.fullmatch(line))}
    commands = [line for line in lines if not _SETTING.fullmatch(line) and not line.startswith(("rm ", "-- "))]
    known = (
        f' -E .*-o "{name}.cpp1.ii"', f' -E .*-o "{name}.cpp4.ii"', f"^cudafe\\+\\+ .*{_ID} ",
        f'/cicc" .*--module_id_file_name .*-o "{name}.ptx"', "^ptxas ", f'^fatbinary --create="{name}.fatbin" ',
        f' -c -x c\\+\\+ .*"{name}.cudafe1.cpp" -o "{name}.o"$',
    )  # fmt: skip
    if len(commands) <= len(known) or not all(map(re.search, known, commands)) or f'"{name}.so"' not in commands[-1]:
        return None
    on_device, on_host, frontend, ptx, assembled, embedded, compiler, *rest = commands
    embedded = embedded.replace(f'--embedded-fatbin="{name}.fatbin.c"', f'--embedded-fatbin="{name}.embedded.c"')
    return Plan(
        (_with_dependencies(on_device, name, 1), ptx, assembled, embedded),
        (_with_dependencies(on_host, name, 4), frontend.replace(f"{_ID} ", "")),
        compiler,
        tuple(rest),
        settings,
    )


def _with_dependencies(command: str, name: str, number: int) -> str:
    return f"{command} -MD -MT {name}.so -MF {name}.{number}.d"


@dataclass(frozen=True)
class Done:
    """What commands print, and the exit status of the one that failed, the last that ran; 0: none did."""

    printed: bytes = b""
    status: int = 0


def side_by_side(work: Plan, name: str, store: Path | None = None) -> Done | None:
    """Run the commands. Where one that reads the file fails, the words of the first of these in nvcc's order, and of
    those before. None where nvcc is to say what is wrong: where one was killed, or the host's compiler fails."""
    environment = {**os.environ, **work.settings}
    text, place = Path(f"{name}.cu").read_bytes(), os.fsencode(os.getcwd())
    module_id = f"_{zlib.crc32(place):08x}_{len(name) + 3}_{name}_cu_{zlib.crc32(text):08x}"
    Path(f"{name}.module_id").write_text(module_id)
    try:
        compiler = _Compiler(work.compiler, name, _Memory(store, work, name, module_id))
    except OSError:  # a system without pipes in its folders
        return None
    device = _Device(work.device, environment)
    device.start()
    host, compiled = _run(work.host, environment), None
    if host.status == 0:
        compiler.begin(environment)
    else:
        device.running.stop()
    if device.has_stub() and host.status == 0:
        compiled = compiler.given_stub()
    compiler.close()
    device.join()
    in_order = [*device.done[:1], host, *device.done[1:]]
    if failure := _first_failure(in_order):
        return failure if failure.status > 0 else None
    if len(in_order) < 4 or compiled is None:
        return None
    if _is_as_expected(name):
        made = _run([_assembler(work.compiler, name)], environment)
    else:  # another version's: the host's compiler gets what it wrote
        Path(f"{name}.embedded.c").replace(f"{name}.fatbin.c")
        compiled, made = b"", _run([work.compiler], environment)
    joined = made if made.status != 0 else _run(work.join, environment)
    if joined.status != 0:
        return None
    return Done(b"".join(one.printed for one in in_order) + compiled + made.printed + joined.printed)


class _Device(threading.Thread):
    """The device's commands. ``done``: of its parts, as far as they ran: preprocessed, PTX, machine code."""

    def __init__(self, commands: Sequence[str], environment: Mapping[str, str]) -> None:
        super().__init__()
        self.done: list[Done] = []
        self.running = _Running()
        self._parts, self._environment = (commands[:1], commands[1:-2], commands[-2:]), environment
        self._wrote_stub = threading.Event()

    def run(self) -> None:
        try:
            for commands in self._parts:
                self.done.append(_run(commands, self._environment, self.running))
                if self.done[-1].status != 0:
                    break
                if len(self.done) == 2:
                    self._wrote_stub.set()
        finally:
            self._wrote_stub.set()

    def has_stub(self) -> bool:
        """Whether there is what the host's compiler needs of the PTX; waits until that is known."""
        self._wrote_stub.wait()
        return len(self.done) > 1 and self.done[1].status == 0


def _first_failure(in_order: Sequence[Done]) -> Done | None:
    """With what those before it print."""
    for nth, one in enumerate(in_order):
        if one.status != 0:
            return Done(b"".join(each.printed for each in in_order[: nth + 1]), one.status)
    return None


class _Compiler:
    """The host's compiler, up to its assembly. Last of all it reads what the device's frontend has written of kernels:
    it is begun before that is there, and waits for it at a pipe of the same name."""

    def __init__(self, command: str, name: str, memory: _Memory) -> None:
        text, self._stub, self._place = f"{name}.cudafe1.cpp", f"{name}.cudafe1.stub.c", Path("host")
        self._memory = memory
        command = command.replace(" -c -x c++ ", " -S -x c++ ")
        command = command.replace(f'"{text}" -o "{name}.o"', f'"{self._place}/{text}" -o "{name}.s"')
        self._command = f"{command} -MD -MF {memory.read}"
        self._said = Path(f"{name}.said")
        self._process: subprocess.Popen[bytes] | None = None
        self._place.mkdir()
        (self._place / text).symlink_to(f"../{text}")
        (self._place / f"{name}.fatbin.c").write_text(_EMBEDDED.replace("NAME", name))
        os.mkfifo(self._place / self._stub)

    def begin(self, environment: Mapping[str, str]) -> None:
        """Unless the store has what it made of this text before."""
        self._environment = environment
        if not self._memory.has_text():
            self._start()

    def _start(self) -> None:
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                ["sh", "-c", f"exec {self._command}"], env=self._environment, stdout=said, stderr=subprocess.STDOUT
            )
        _WAITING.append(self)

    def given_stub(self) -> bytes | None:
        """What it prints, once it has what it waits for; None where it fails."""
        if self._process is None:
            if self._memory.restore():
                return b""
            self._start()
        assert self._process is not None
        while self._process.poll() is None:
            try:
                pipe = os.open(self._place / self._stub, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # it does not read there yet
                time.sleep(POLL_S)
                continue
            os.set_blocking(pipe, True)
            with contextlib.suppress(BrokenPipeError), open(pipe, "wb") as opened:
                opened.write(Path(self._stub).read_bytes())
            break
        if self._process.wait() == -signal.SIGXCPU:
            _out_of_time()
        if self._process.returncode != 0:
            return None
        if not (said := self._said.read_bytes()):
            self._memory.keep()
        return said

    def end(self) -> None:
        """End it where it still waits: the driver by a signal, what that has begun by an empty pipe."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(FileNotFoundError):  # it has ended
            pipe = os.open(self._place / self._stub, os.O_RDWR)
            (self._place / self._stub).unlink()
            os.close(pipe)

    def close(self) -> None:
        """End it, and remove its folder."""
        self.end()
        for path in self._place.iterdir():
            path.unlink()
        self._place.rmdir()


class _Memory:
    """The store, for one text: what the host's compiler made of the same text and the same kernels' names before.

    The same are texts that differ in device bodies, or in where lines stand; what depends on that is not kept. Size and
    time of other files that it read are kept with it. In what is kept, a word stands for the module's id.
    """

    def __init__(self, store: Path | None, work: Plan, name: str, module_id: str) -> None:
        self._store, self._work, self._name, self._id = store, work, name, module_id.encode()
        self.read = f"{name}.host.d"
        self._place: Path | None = None
        self._known: tuple[str, bytes] | None = None  # the stub's digest, and what was made

    def has_text(self) -> bool:
        """Whether the store has the text. Which kernels' names belong to it shows later."""
        if self._store is None:
            return False
        text = _UNREAD.sub(b"", self._plain(Path(f"{self._name}.cudafe1.cpp").read_bytes()))
        if _ASKS_LINE in text:
            return False
        here, command = os.fsencode(os.getcwd()), os.fsencode(self._work.compiler)
        parts = [text, command.replace(here, b""), _EMBEDDED.encode(), self._compiler().encode()]
        self._place = self._store / _digest("\n".join(map(_digest, parts)).encode())
        with contextlib.suppress(OSError, ValueError):
            facts, rest = self._place.read_bytes().split(b"\n\n", 1)
            stub, made, *read = facts.decode(errors=_LOG_ERRORS).split("\n")
            if made == _digest(rest) and all(_about(each.rsplit(" ", 2)[0]) == each for each in read):
                self._known = stub, rest
        return self._known is not None

    def _compiler(self) -> str:
        """Which program it is."""
        word = self._work.compiler.split()[0].strip('"')
        folders = self._work.settings.get("PATH", os.environ.get("PATH", "")).split(":")
        return next((about for folder in folders if (about := _about(os.path.join(folder, word)))), "")

    def restore(self) -> bool:
        """Write what was made, if it was made with these names of kernels."""
        assert self._known is not None and self._place is not None
        stub, made = self._known
        if stub != _digest(self._stub):
            return False
        Path(f"{self._name}.s").write_bytes(made.replace(_ID_IS_HERE, self._id))
        with contextlib.suppress(OSError):
            os.utime(self._place)
        return True

    def keep(self) -> None:
        """What was made now. It is a convenience: where it cannot be written, nothing is lost."""
        if self._place is None or self._store is None:
            return
        with contextlib.suppress(OSError):
            made = self._plain(Path(f"{self._name}.s").read_bytes())
            words = Path(self.read).read_text(errors=_LOG_ERRORS).partition(":")[2].replace("\\\n", " ").split()
            facts = [_digest(self._stub), _digest(made), *(_about(path) for path in words if os.path.isabs(path))]
            self._store.mkdir(parents=True, exist_ok=True)
            staged = self._place.with_name(f"staged-{os.getpid()}")
            staged.write_bytes("\n".join(facts).encode(errors=_LOG_ERRORS) + b"\n\n" + made)
            staged.replace(self._place)
            kept = sorted(self._store.iterdir(), key=lambda path: path.stat().st_mtime_ns)
            for path in kept[:-_KEPT]:
                path.unlink()

    @property
    def _stub(self) -> bytes:
        return self._plain(Path(f"{self._name}.cudafe1.stub.c").read_bytes())

    def _plain(self, text: bytes) -> bytes:
        return text.replace(self._id, _ID_IS_HERE)


_ID_IS_HERE = b"@MODULE_ID@"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _about(path: str) -> str:
    """By what a file of the system is known; nothing where it is not there."""
    try:
        state = os.stat(path)
    except OSError:
        return ""
    return f"{path} {state.st_size} {state.st_mtime_ns}"


_WAITING: list[_Compiler] = []


def _out_of_time() -> NoReturn:
    """One of the commands has used up its time: with it ends what waits for it."""
    for compiler in _WAITING:
        compiler.end()
    os._exit(128 + signal.SIGXCPU)


def _assembler(compiler: str, name: str) -> str:
    width = "-m64 " if " -m64 " in compiler else ""
    return f'{compiler.partition(" -")[0]} -c {width}"{name}.s" -o "{name}.o"'


def _is_as_expected(name: str) -> bool:
    """Whether fatbinary wrote what the host's compiler got in its place, and its data is the file's."""
    written = Path(f"{name}.embedded.c").read_text()
    if (data := _DATA.search(written)) is None:
        return False
    text = written.replace(data[0], f'".incbin \\"{name}.fatbin\\"\\n"\n', 1)
    words = data[0].count(_WORD)
    text = text.replace(f"fatbinData[{words}]", "fatbinData[1]")
    return text == _EMBEDDED.replace("NAME", name) and 8 * words == Path(f"{name}.fatbin").stat().st_size


class _Running:
    """The command that a thread runs, for another that has no use for it any more."""

    def __init__(self) -> None:
        self._lock, self._is_over = threading.Lock(), False
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, command: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
        """None where no one has use for it."""
        with self._lock:
            if self._is_over:
                return None
            self._process = subprocess.Popen(
                ["sh", "-c", f"exec {command}"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            return self._process

    def stop(self) -> None:
        """The preprocessor ends by itself: what it has started would outlive it."""
        with self._lock:
            self._is_over = True
            if self._process is not None and "-E" not in str(self._process.args):
                self._process.kill()


def _run(commands: Sequence[str], environment: Mapping[str, str], running: _Running | None = None) -> Done:
    """One after another, up to one that fails. One that has used up its time ends this process, too."""
    printed, running = b"", running or _Running()
    for command in commands:
        process = running.start(command, environment)
        if process is None:
            return Done(printed, -signal.SIGKILL)
        printed += process.communicate()[0]
        if process.returncode == -signal.SIGXCPU:
            _out_of_time()
        if process.returncode != 0:
            return Done(printed, process.returncode)
    return Done(printed)


def _join_dependencies(name: str) -> None:
    """What either half has read, as one rule: nvcc lists it under the same name."""
    own = f"{name}.so : "
    rules = [Path(f"{name}.{number}.d").read_text(errors=_LOG_ERRORS).partition(":")[2].strip() for number in (1, 4)]
    Path(f"{name}.d").write_text(own + " \\\n ".join(rules) + "\n", errors=_LOG_ERRORS)


def main(store: Path, command: Sequence[str]) -> int:
    """Do what the command says. Returns its exit status."""
    name = Path(command[-1]).stem
    listed = subprocess.run([*command, "--dryrun"], capture_output=True, text=True, errors=_LOG_ERRORS)
    work = plan(listed.stderr, name) if listed.returncode == 0 else None
    done = side_by_side(work, name, store) if work else None
    if done is None:
        return subprocess.run(command).returncode
    if done.status == 0:
        _join_dependencies(name)
    sys.stdout.buffer.write(done.printed)
    return done.status


if __name__ == "__main__":
    status = main(Path(sys.argv[1]), sys.argv[2:])
    sys.exit(status if status >= 0 else 128 - status)
