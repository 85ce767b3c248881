"""Measurements -> thresholds in difficulty.yaml, and nothing else in it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from grader.content.catalog import CatalogError, Threshold, load_catalog
from grader.maintain.thresholds import thresholds, write

ROOT = Path(__file__).resolve().parent.parent


def record(kata: str, *low: float, graded: bool = True) -> dict[str, object]:
    return {"kata": kata, "device": "gpu sm_90a", "measurements": [{"low": item, "graded": graded} for item in low]}


def test_a_share_of_the_lower_ends_in_the_geometric_mean() -> None:
    found = thresholds(
        [record("a", 0.9, 0.9), record("b", 0.4, 0.9), record("c", 0.0071), record("d"), record("e", 1.2)]
    )
    assert found == {
        "a": ("sm_90", Threshold(73, True)),
        "b": ("sm_90", Threshold(42, True)),  # 0.82 of 40, and 10 points
        "c": ("sm_90", Threshold(0.58, True)),
        "e": ("sm_90", Threshold(98, True)),
    }
    assert thresholds([record("a", 0.9, graded=False)]) == {}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("exercises", "solutions", "difficulty.yaml"):
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / name)
    (tmp_path / "grader").symlink_to(ROOT / "grader")
    return tmp_path


def test_only_the_speeds_named_change(root: Path, tmp_path: Path) -> None:
    before = load_catalog(root)
    file = tmp_path / "speeds.json"
    expected = {"sgemm_naive_f32": 7.3, "elementwise_f32x4": 82, "wgmma_gelu_aux_f16": 98}  # commas in its names
    low = {"sgemm_naive_f32": 0.09, "elementwise_f32x4": 1.0, "wgmma_gelu_aux_f16": 1.2}
    file.write_text(json.dumps({"katas": [record(name, share) for name, share in low.items()]}))
    assert write(before, file) == list(expected)
    after = load_catalog(root)
    for name, kata in before.katas.items():
        speed = after.katas[name].speed
        if name in expected:
            assert speed is not None and kata.speed is not None
            assert replace(speed, percent={}) == replace(kata.speed, percent={})
            assert speed.percent["sm_90"] == Threshold(expected[name], True)
        else:
            assert speed == kata.speed
    text = (root / "difficulty.yaml").read_text()
    write(after, file)
    assert (root / "difficulty.yaml").read_text() == text, "again the same"


def test_a_file_of_something_else_is_refused(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "speeds.json"
    before = (root / "difficulty.yaml").read_text()
    for content in ("", "[1]", "{}", json.dumps({"katas": [record("no_such_kata", 0.5)]})):
        file.write_text(content)
        with pytest.raises(CatalogError, match=r"speeds\.json"):
            write(load_catalog(root), file)
    assert (root / "difficulty.yaml").read_text() == before
