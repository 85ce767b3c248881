"""An nvcc that a test can hold: nothing is faster than it, so whatever is to happen meanwhile does."""

from __future__ import annotations

from pathlib import Path

from grader.compile.toolchain import find_toolchain


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
