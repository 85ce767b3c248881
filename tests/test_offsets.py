"""PTX -> lines whose offsets are products of sizes in 32 bits; no other lines, however much they multiply."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import passed_before
import pytest
from facts import has
from sim_kernels.harness import HERE, build, line_of

from grader.compile.offsets import narrow_lines
from grader.content.catalog import load_catalog
from grader.content.source_file import Source
from grader.output.verdict_text import printed
from grader.verdict import Grade, Kind, Verdict

pytestmark = passed_before.REPOSITORY

ROOT = Path(__file__).resolve().parent.parent

SOURCE = HERE / "offsets.cu"
NARROW = ("in a function", "direct", "kept in a variable", "where nvcc computes it", "of the access")


def test_products_of_sizes_are_found_and_nothing_else() -> None:
    ptx = (build(SOURCE) / "kata.ptx").read_text()
    assert {*narrow_lines(ptx, SOURCE.name, SOURCE.read_text())} == {line_of(SOURCE, mark) for mark in NARROW}


@pytest.mark.parametrize("text", ["", "no PTX at all", ".visible .entry k(\n)\n{\n\tret;\n}\n"])
def test_without_products_there_is_nothing(text: str) -> None:
    assert narrow_lines(text, "kata.cu", text) == ()


def test_pass_names_the_learners_own_lines() -> None:
    kata = load_catalog(ROOT).katas["relu_f32"]
    source = Source(kata.solution_path, kata.solution_path.read_bytes())
    lines = source.text.splitlines()
    own = lines.index("    const int idx = blockIdx.x * THREADS + threadIdx.x;") + 1
    given = next(at for at, line in enumerate(lines, 1) if line.startswith("KATA_EXPORT"))
    verdict = Verdict(Kind.PASS, "right", narrow_offsets=(own, given))
    (row,) = printed(Grade(kata, source, (verdict,)))
    assert has(row, f"line {own}:", "2^31") and str(given) not in row
    assert printed(Grade(kata, source, (replace(verdict, narrow_offsets=(given,)),))) == []
