"""For all tests: progress of their own. Prints, after a run that graded them, how far right and wrong answers are apart
in each family, also where pytest-xdist spread the files over processes."""

from __future__ import annotations

import functools
import gc
import importlib
import os
import re
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import passed_before
import pytest
from browser import browser  # noqa: F401  a fixture, for whoever looks at pages

from grader.__main__ import NEW_OBJECTS
from grader.content.catalog import LEVELS, Kata, load_catalog

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


@pytest.fixture(autouse=True, scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing that a test grades is the progress of whoever runs it."""
    os.environ["KATA_DATA"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def wrong_seeds(request: pytest.FixtureRequest) -> range:
    """The schedules on which a planted bug must be found."""
    return range(30 if request.config.getoption("--all-seeds") else 3)


@pytest.fixture(scope="session")
def right_seeds(request: pytest.FixtureRequest) -> range:
    """The schedules on which a right kernel must pass."""
    return range(100 if request.config.getoption("--all-seeds") else 3)


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> None:
    """What a test starts is ended by Ctrl-C, also where a script put the tests in the background: `make test &`."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def memory() -> Path:
    """An nvcc with a memory: see compiler.py."""
    from compiler import STORE, remembering_nvcc

    return remembering_nvcc(STORE.parent)


@pytest.fixture(scope="module")
def module_remembers(memory: Path) -> Iterator[None]:
    """For tests of what becomes of builds, not of what nvcc makes: the compilers run once for each text."""
    from compiler import using

    with using(memory):
        yield


@pytest.fixture
def nvcc_remembers(memory: Path) -> Iterator[None]:
    """The same for one test."""
    from compiler import using

    with using(memory):
        yield


@pytest.fixture(scope="module")
def one_clone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A learner's clone for all tests of a module."""
    from test_faces import Clone, make_clone

    return Clone(make_clone(tmp_path_factory.mktemp("one")))


@pytest.fixture(scope="module")
def pristine(one_clone: Any) -> Path:
    """The clone for tests that only read it."""
    place: Path = one_clone.place
    return place


@pytest.fixture
def clone(one_clone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """With pristine skeletons and no progress; a test may edit its files."""
    monkeypatch.setenv("KATA_DATA", str(tmp_path / "data"))
    yield one_clone.place
    one_clone.restore()


@pytest.fixture(scope="module")
def forked_children() -> Iterator[None]:
    """Sandboxes of a module's tests are forks of a clean process, as they are where a service grades."""
    from grader.sandbox.parent import forked_sandboxes

    with forked_sandboxes():
        yield


@pytest.fixture
def few_cases(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For files that prove something beside the cases: the spec's smallest sizes and a few drawn ones.

    As many as a grade on the simulator tries after one on a GPU.
    """
    if not request.config.getoption("--all-cases"):
        from grader import grade as pipeline

        few = {"examples": pipeline.EXAMPLES_AFTER_GPU, "named_sizes": pipeline.SIZES_AFTER_GPU}
        budget_for = pipeline.budget_for
        monkeypatch.setattr(pipeline, "budget_for", lambda device: replace(budget_for(device), **few))


@dataclass
class Gap:
    """Errors as a share of what the tolerance allows: those of solutions, and those of wrong kernels' answers."""

    right: list[float] = field(default_factory=list)
    wrong: list[float] = field(default_factory=list)


_GAP = "gap"  # the property of a test's report: (family, right or wrong, the share)


@pytest.fixture
def gap(request: pytest.FixtureRequest) -> Callable[[str, str, float], None]:
    """Notes how far an answer is from the right one, for the table after the run."""
    return lambda family, side, share: request.node.user_properties.append((_GAP, (family, side, share)))


OF_KATAS = "test_wrong_kernels.py"  # its tests are one for each kata and each wrong kernel
SLICE = 6  # katas of a family that one process compiles and grades


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-seeds", action="store_true", help="try tests of races on many more schedules")
    parser.addoption("--all-cases", action="store_true", help="all cases of a grade where a few are tried by default")
    parser.addoption("--all-causes", action="store_true", help="the cause of every wrong kernel, not of one in 32")
    parser.addoption("--fresh", action="store_true", help="also what passed before, and nothing has touched since")
    parser.addoption("--katas", metavar="A,B", help=f"of {OF_KATAS}, only the tests of these katas")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(passed_before)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Each of several processes imports another part of the files first. So a file's asserts are rewritten once, and
    not in every process that comes to it in the same moment. What is wrong with a file, its collection says."""
    place = getattr(session.config, "workerinput", None)
    if place is None or not any(Path(session.config.rootpath, each) == HERE for each in session.config.args):
        return
    files = sorted(HERE.glob("test_*.py"))
    begin = len(files) * int(place["workerid"].removeprefix("gw")) // place["workercount"]
    for file in (*files[begin:], *files[:begin]):
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(file.stem)


def kata_of(item: pytest.Item) -> Kata | None:
    """The kata that a test of OF_KATAS grades a file of; None for every other test."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if item.path.name != OF_KATAS:
        return None
    return parameters.get("kata") or getattr(parameters.get("wrong"), "kata", None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose by kata. Files of tests come first, then katas, the hardest first: what is left at the end is short, so
    that processes which run tests side by side end at about the same time."""
    if wanted := config.getoption("--katas"):
        names = wanted.split(",")
        left_out = [item for item in items if (kata := kata_of(item)) is not None and kata.name not in names]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    order = {group: place for place, group in enumerate(_kata_groups())}
    items.sort(key=lambda item: order.get(group_of(item.nodeid), -1))


def pytest_collection_finish() -> None:
    """Thousands of tests, and torch, stay until the end: none of it is looked through for garbage meanwhile. What a
    grade makes is looked through seldom, as in the command line: nearly all of it is freed without that."""
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)


@functools.cache
def _groups() -> dict[str, str]:
    """Each kata with its group: a few of its family."""
    families = load_catalog(ROOT).by_family
    return {
        kata.name: f"{family}-{place // SLICE}" for family in families for place, kata in enumerate(families[family])
    }


@functools.cache
def _kata_groups() -> list[str]:
    """The hardest first."""
    katas = sorted(load_catalog(ROOT).katas.values(), key=lambda kata: -LEVELS.index(kata.level))
    return list(dict.fromkeys(_groups()[kata.name] for kata in katas))


_GRADED = re.compile(rf"{re.escape(OF_KATAS)}::\w+\[(?:(?:sim|gpu)-)?(\w+)(?:/[\w-]+)?\]")


def group_of(nodeid: str) -> str:
    """What one of several processes does: the tests of a few katas, or a file of tests."""
    graded = _GRADED.search(nodeid)
    return _groups()[graded[1]] if graded and graded[1] in _groups() else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests go to the processes of pytest-xdist group by group, in their order."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False
    return ByGroup(config, log)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, [])]
    gaps: dict[str, Gap] = defaultdict(Gap)
    for name, value in (each for report in reports for each in report.user_properties):
        if name == _GAP:
            family, side, share = value
            getattr(gaps[family], side).append(share)
    measured = {family: gap for family, gap in sorted(gaps.items()) if gap.right and gap.wrong}
    if not measured:
        return
    terminalreporter.section("tolerance gaps")
    for family, gap in measured.items():
        right, wrong = max(gap.right), min(gap.wrong)
        words = "where only the right bits pass" if wrong == float("inf") else f"{wrong:.3g} times as much"
        terminalreporter.write_line(f"{family:<18} solutions use {right:4.0%} of the tolerance, wrong answers {words}")
