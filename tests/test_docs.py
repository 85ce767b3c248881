"""docs/: what its pages name is there, and the driver for profilers calls a kata."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from grader.catalog import load_catalog
from grader.spec import load_spec

ROOT = Path(__file__).resolve().parent.parent
DRIVER = ROOT / "docs" / "profile_kata.py"
KATAS = load_catalog(ROOT).katas
PAGES = sorted((ROOT / "docs").glob("*.md"))
# What is spoken of as a kata: a word in backticks that begins as a family's katas do and has their dtype in it.
KATA_NAME = re.compile(r"`((?:[a-z]+_)+(?:f16|f32|bf16)\w*)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_katas_and_files_that_there_are(page: Path) -> None:
    text = page.read_text()
    assert set(KATA_NAME.findall(text)) <= set(KATAS)
    for name in re.findall(r"(?:docs|solutions|exercises|grader)/[\w/.]*\w", text):
        assert (ROOT / name).exists(), name
    for name, sizes in re.findall(r"(?:profile_kata\.py|kata grade) (\w+) ((?:\w+=\d+ ?)*)", text):
        assert name in KATAS
        assert {pair.split("=")[0] for pair in sizes.split()} in (set(load_spec(KATAS[name]).sizes), set()), name


@pytest.mark.parametrize(
    "arguments",
    [
        ("elementwise_f16x8_pack", "n=1001"),
        ("sgemm_naive_f32", "K=5", "M=33", "N=32", "--calls", "2"),
        ("histogram_i32", "n=100", "bins=7"),  # a size that no input's shape tells
    ],
)
def test_the_driver_calls_a_kata(arguments: tuple[str, ...]) -> None:
    runpy.run_path(str(DRIVER))["main"]([*arguments, "--solution"], device="cpu")
