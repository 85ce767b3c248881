"""Right files that solve katas in other ways than the solutions -> each passes on the simulator.

tests/right/<kata>/<name>.cu says in its first line what is different: other structures, other parts of the CUDA runtime
and of libcu++, other tilings. A verdict against one of them is a defect of the grader.

pytest tests/test_right_kernels.py --all-cases    all cases of a default grade: here the smallest sizes and a few drawn
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import passed_before
import pytest

from grader.content.catalog import Kata, load_catalog
from grader.grade import Options, grade, prepare
from grader.maintain.kata_builds import RIGHT
from grader.output.verdict_text import explanation

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / RIGHT).glob("*/*.cu"))
KATAS = load_catalog(ROOT).katas
OPTIONS = Options(device="sim", speed=False, last_failure=False, together=True)
FEWEST = 100

# The first test waits until all files are compiled. That time has no limit here: each run of nvcc has one.
pytestmark = pytest.mark.timeout(func_only=True)


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def kata_of(path: Path) -> Kata:
    return KATAS[path.parent.name]


@pytest.fixture(scope="module", autouse=True)
def built(request: pytest.FixtureRequest, forked_children: None) -> None:
    """The files of the chosen tests, many in one run of nvcc."""
    to_run = [item for item in request.session.items if of_a_file(item) and passed_before.kept(item) is None]
    chosen = {item.callspec.params["path"] for item in to_run}
    prepare([(kata_of(path), path) for path in sorted(chosen)], OPTIONS)


def of_a_file(item: pytest.Item) -> bool:
    return item.path == Path(__file__) and "path" in getattr(getattr(item, "callspec", None), "params", {})


def what_it_reads(item: Any) -> list[str | Path] | None:
    if item.config.getoption("--all-cases"):
        return None
    path = item.callspec.params["path"]
    return [path, *passed_before.of_kata(kata_of(path))]


@pytest.mark.reads(by=what_it_reads)
@pytest.mark.parametrize("path", FILES, ids=name_of)
@pytest.mark.usefixtures("few_cases")
def test_right_file_passes(path: Path) -> None:
    result = grade(kata_of(path), OPTIONS, source=path)
    assert result.passed, explanation(result)


def test_there_are_files_of_every_level() -> None:
    levels = [kata_of(path).level for path in FILES]
    assert len(FILES) >= FEWEST and set(levels) == {kata.level for kata in KATAS.values()}
    assert sum(level.startswith("hard") for level in levels) >= FEWEST // 5
    assert sum(level in ("hard+", "hard++") for level in levels) >= FEWEST // 10


def test_each_says_what_is_different() -> None:
    first = [path.read_text().splitlines()[0] for path in FILES]
    assert [line for line in first if not line.startswith("// ")] == []
