"""The engine's build: which sources it is made of, and what is left without the stand-in for a library."""

from __future__ import annotations

import shutil
from pathlib import Path

import passed_before
import pytest
from facts import has

from grader.compile import libraries
from grader.content.catalog import load_catalog
from grader.devices.sim import engine
from grader.grade import Options, grade
from grader.output.verdict_text import explanation
from grader.storage.cache import cache_folder
from grader.verdict import Kind

pytestmark = passed_before.REPOSITORY

CATALOG = load_catalog(Path(__file__).resolve().parent.parent)


def test_each_source_of_a_group_is_there_and_in_no_other() -> None:
    named = [name for groups in engine.GROUPS.values() for names in groups for name in names]
    assert len(named) == len(set(named))
    assert set(named) <= {source.stem for source in engine.engine_sources()}


@pytest.fixture
def without_cublas(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A copy of the engine's folder with no stand-in beside it. Its sources are compiled already: it is only linked."""
    copy = tmp_path / "engine"
    shutil.copytree(engine.SOURCES, copy)
    monkeypatch.setattr(engine, "SOURCES", copy)
    monkeypatch.setattr(libraries, "CUBLAS_STAND_IN", tmp_path / "cublas")
    return engine.engine_library(cache_folder())


def test_the_simulator_needs_no_cublas(without_cublas: Path) -> None:
    symbols = without_cublas.read_bytes()
    assert b"cudaMalloc" in symbols and b"cublasCreate" not in symbols
    kata = CATALOG.katas["relu_f32"]
    result = grade(kata, Options(device="sim"), source=kata.solution_path)
    assert result.passed, explanation(result)


def test_a_kata_that_calls_cublas_is_refused_without_it(without_cublas: Path) -> None:
    kata = CATALOG.katas["hgemm_mma_cublas_nn"]
    result = grade(kata, Options(device="sim"), source=kata.solution_path)
    assert result.verdict.kind is Kind.UNSUPPORTED
    has(explanation(result), "simulator's cuBLAS", "cublas_v2.h", "--device gpu")
