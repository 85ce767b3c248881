"""nvcc with a memory, where it reads what it has read before: python read_before.py STORE KEY nvcc ... kata.cu

What the preprocessor makes of a file follows from what it reads. Where each file is what it was, and the folders have
the same names in them, so that every name is found in the same place, it does not run: what it would lead to is copied
from the store. Of the preprocessed texts there are then only the lines that say which files were entered. Everything
else is for remembered.py.

It starts some hundred times in a run of the tests: it imports no more than it needs.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterator

SYSTEM = (b"/usr/", b"/opt/")  # whose headers are known by size and time
HERE = b"@HERE@"  # stands for the folder in which nvcc runs
BESIDE = b"beside/"  # where the source came from
LARGEST = 1 << 20  # bytes of a header that is looked at
MOST = 8  # that are kept for one text: headers of it that differ
# By which compilers find other headers, or take other flags. What then depends on them is not known here.
VARIABLES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
OF_TEXTS = ("cpp1.ii", "cpp4.ii", "d")  # what the preprocessor writes
COARSE_NS = 10_000_000  # by how much the time of a file may be behind the clock


def place_of(store: str, about: str, command: list[str]) -> str | None:
    """The folder for what this text has read, each time that it was compiled with this command."""
    if any(os.environ.get(name) for name in VARIABLES):
        return None
    here, digest = os.fsencode(os.getcwd()), hashlib.sha256(about.encode())
    for word in command:
        digest.update(os.fsencode(word).replace(here, HERE) + b"\0")
    with open(command[-1], "rb") as file:
        digest.update(b"\n".join(_lines(file.read())))
    return os.path.join(store, "read", digest.hexdigest())


def _lines(text: bytes) -> list[bytes]:
    """Without plain remarks in its last lines, which end nothing that is open there."""
    lines = text.split(b"\n")
    plain = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_ "
    while lines and (not lines[-1] or (lines[-1].startswith(b"//") and not lines[-1].strip(plain + b"/"))):
        lines.pop()
    return lines


def found(place: str, name: str) -> str | None:
    """The folder of what was made of the same; the texts' own files are then written."""
    try:
        known = sorted(os.listdir(place))
    except OSError:
        return None
    here = os.fsencode(os.getcwd())
    for each in known:
        with open(os.path.join(place, each), "rb") as file:
            made, state, *texts = file.read().replace(HERE, here).split(b"\n\n")
        folder = os.fsdecode(made)
        if os.path.isdir(folder) and all(_state(path) == was for path, was in _pairs(state)):
            for kind, text in zip(OF_TEXTS, texts, strict=True):
                with open(f"{name}.{kind}", "wb") as out:
                    out.write(b"\n" * (kind != "d") + text + b"\n")
            return folder
    return None


def _pairs(state: bytes) -> Iterator[tuple[bytes, bytes]]:
    for line in state.split(b"\n"):
        path, _, was = line.rpartition(b"\t")
        yield path, was


def _state(path: bytes) -> bytes:
    """What a file is, or which names a folder has; nothing where that cannot be said."""
    try:
        if path.startswith(SYSTEM):
            about = os.stat(path)
            return b"%d %d" % (about.st_size, about.st_mtime_ns)
        if path.endswith(b"/"):
            return hashlib.sha256(b"\0".join(sorted(os.listdir(path)))).hexdigest().encode()
        if os.stat(path).st_size > LARGEST:
            return b""
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest().encode()
    except OSError:
        return b""


def note(place: str, made: str, name: str, source: str, began_ns: int) -> None:
    """Keep what nvcc has read since then, and where that is which was made of it."""
    texts = [_entered(f"{name}.{kind}") for kind in OF_TEXTS[:2]]
    with open(f"{name}.d", "rb") as file:
        texts.append(file.read())
    paths = {word for word in texts[-1].partition(b" : ")[2].split() if word != b"\\"} - {os.fsencode(source)}
    theirs = [path for path in paths if not path.startswith(SYSTEM)]
    folders = {BESIDE, *(os.path.dirname(path) + b"/" for path in theirs if b"/" in path)}
    if any(b"\\" in path for path in paths) or any(_is_new(path, began_ns) for path in (*theirs, *folders)):
        return
    states = {path: _state(path) for path in sorted({*paths, *folders})}
    parts = [os.fsencode(made), b"\n".join(b"%s\t%s" % item for item in states.items())]
    parts += [text.strip(b"\n") for text in texts]
    if not all(states.values()) or any(b"\n\n" in part for part in parts):
        return
    whole = b"\n\n".join(parts).replace(os.fsencode(os.getcwd()), HERE)
    os.makedirs(place, exist_ok=True)
    if len(os.listdir(place)) < MOST:
        staged = f"{place}.{os.getpid()}"
        with open(staged, "wb") as out:
            out.write(whole)
        os.replace(staged, os.path.join(place, hashlib.sha256(whole).hexdigest()))


def _is_new(path: bytes, began_ns: int) -> bool:
    """Whether it may have changed since then. What stands beside the source nvcc alone was given."""
    if b"/" not in path:
        return False
    try:
        about = os.stat(path)
    except OSError:
        return True
    return max(about.st_mtime_ns, about.st_ctime_ns) > began_ns - COARSE_NS


def _entered(file: str) -> bytes:
    """The lines of a preprocessed text that say which file is entered."""
    with open(file, "rb") as text:
        return b"".join(line for line in text if line.startswith(b"# ") and b'" 1' in line)


def main(store: str, about: str, command: list[str]) -> bytes | None:
    """What nvcc prints, with its files made in this folder; None where nvcc is to do it."""
    began_ns, source = time.time_ns(), command[-1]
    name, place = os.path.splitext(source)[0], place_of(store, about, command)
    if place is not None and (folder := found(place, name)) is not None:
        for file in os.listdir(folder):
            with open(os.path.join(folder, file), "rb") as kept, open(file, "wb") as out:
                out.write(kept.read())
        return b""
    import remembered

    answer = remembered.main(store, about, command)
    if answer is None:
        return None
    said, made = answer
    if place is not None and made is not None:
        note(place, made, name, source, began_ns)
    return said


if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    printed = main(sys.argv[1], sys.argv[2], sys.argv[3:])
    if printed is None:
        os.execv(sys.argv[3], sys.argv[3:])
    sys.stdout.buffer.write(printed)
