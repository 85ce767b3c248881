"""An nvcc that a test can hold: nothing is faster than it, so whatever is to happen meanwhile does. And one that
remembers, for tests that compile the same again and again."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from grader.compile import halves
from grader.compile.toolchain import find_toolchain
from grader.storage.cache import cache_folder

PROGRAMS = [Path(__file__).with_name(name) for name in ("read_before.py", "remembered.py")]
STORE = cache_folder() / "remembered"  # of the whole run: a test may have a cache of its own


class HeldCompiler:
    """An nvcc that does not begin with a file that has these words in it before it is let go. For KATA_NVCC."""

    def __init__(self, folder: Path, words: str) -> None:
        self._hold, self._begun = folder / "nvcc_is_held", folder / "nvcc_has_begun"
        self._hold.touch()
        program = folder / "held_nvcc"
        program.write_text(
            f"#!/bin/sh\nif [ -e {self._hold} ] && grep -qs '{words}' kata.cu; then\n    touch {self._begun}\n"
            f'    while [ -e {self._hold} ]; do sleep 0.05; done\nfi\nexec {find_toolchain().nvcc} "$@"\n'
        )
        program.chmod(0o755)
        self.path = str(program)

    def has_begun(self) -> bool:
        """Whether such a file has come to be compiled."""
        return self._begun.exists()

    def let_go(self) -> None:
        self._hold.unlink()


def remembering_nvcc(folder: Path) -> Path:
    """One that compiles the same text with the same command once: see remembered.py and read_before.py.

    The same program stays in the folder: builds that were made with it are found in the cache by the next run.
    """
    real = find_toolchain()
    known = [sys.executable, "-I", "-S", PROGRAMS[0], STORE, real.identity, real.nvcc]
    text = (
        '#!/bin/sh\ncase "$*" in\n'
        '*" kata.cu --dryrun") exit 1 ;;\n'  # so that all of the work is its own
        f'*" kata.cu") exec {shlex.join(map(str, known))} "$@" ;;\n'
        f'*) exec {real.nvcc} "$@" ;;\nesac\n'
    )
    parts = [text.encode(), *(Path(file).read_bytes() for file in (*PROGRAMS, halves.__file__))]
    name = hashlib.sha256(b"".join(parts)).hexdigest()
    program = folder / f"remembering_nvcc_{name[:16]}"
    if not program.exists():
        staged = program.with_name(f"{program.name}.{os.getpid()}")
        staged.write_text(text)
        staged.chmod(0o755)
        with suppress(FileExistsError):  # another process has been quicker
            os.link(staged, program)
        staged.unlink()
    return program


@contextmanager
def using(nvcc: Path) -> Iterator[None]:
    """Meanwhile it is the machine's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KATA_NVCC", str(nvcc))
        find_toolchain.cache_clear()
        yield
    find_toolchain.cache_clear()
