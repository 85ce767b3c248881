"""Grades in pytest: every .cu file under exercises/ is a test with the file's name, and grades the learner's file.

Collecting reads difficulty.yaml and nothing else; torch, specs and compilers are touched when a kata is graded.
With pytest-xdist (-n) every worker compiles its share of the run, and then grades what it is given, on its own GPU
where there are several.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from grader.compile.toolchain import gpu_of_worker
from grader.content.catalog import LEVELS, WORK, Catalog, CatalogError, Kata, load_catalog
from grader.devices import SIM_ARCH, SIM_ARCH_HELP, SIM_ARCHITECTURES
from grader.fault import Fault
from grader.grade import in_order, prepare
from grader.learner import progress
from grader.options import Options
from grader.output import verdict_text
from grader.system.processes import guard
from grader.verdict import Grade, Kind

BELT_S = 900  # pytest-timeout's limit for one kata, far above the sandbox's own
_CATALOG = pytest.StashKey[Catalog]()
_GRADE = pytest.StashKey[Grade]()
_GRADES = pytest.StashKey["dict[KataItem, partial[Grade]]"]()  # of a run of several
_WARNING = pytest.StashKey["str | None"]()  # that progress was not kept


class NotPassed(Exception):
    """Carries the grade of a kata that did not pass to pytest's report."""

    def __init__(self, grade: Grade) -> None:
        super().__init__(verdict_text.headline(grade))
        self.grade = grade


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kata", "grading katas")
    group.addoption("--solutions", action="store_true", help="grade the reference solutions, not the learner's files")
    group.addoption(
        "--device",
        choices=("auto", "gpu", "sim"),
        default="auto",
        help="auto: the GPU, then a few shapes on the simulator; without a GPU the simulator",
    )
    group.addoption("--thorough", action="store_true", help="many more shapes and values")
    group.addoption("--kata-seed", type=int, default=0, metavar="N", help="draw other shapes and values (default 0)")
    group.addoption("--no-speed", action="store_true", help="on a GPU: check the answers, time nothing")
    group.addoption("--counters", action="store_true", help="of what passes on the simulator, show what costs most")
    group.addoption("--sim-arch", default=SIM_ARCH, choices=SIM_ARCHITECTURES, metavar="ARCH", help=SIM_ARCH_HELP)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(NotStarted())
    for level in LEVELS:
        config.addinivalue_line("markers", f"{level}: katas of this level")
    if _is_worker(config):
        os.environ.update(gpu_of_worker(_share(config)[0]))


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _share(config: pytest.Config) -> tuple[int, int]:
    """Which of how many processes this is, from 0."""
    given = getattr(config, "workerinput", {"workerid": "gw0", "workercount": 1})
    return int(given["workerid"].removeprefix("gw")), int(given["workercount"])


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".cu" and _holds_katas(parent.config, file_path):
        return KataFile.from_parent(parent, path=file_path)
    if file_path.match("exercises/*/test_*.py") and parent.session.isinitpath(file_path):
        return SpecFile.from_parent(parent, path=file_path)
    return None


def _exercises(config: pytest.Config) -> Path:
    return config.rootpath / "exercises"


def _holds_katas(config: pytest.Config, file: Path) -> bool:
    """Whether the file is of a kata. One in the folder of the learner's work counts where that folder was named: the
    test of its kata in exercises/ grades it, too."""
    work = config.rootpath / WORK
    if work in file.parents:
        return file.stem in config.stash[_CATALOG].katas and any(work in (at, *at.parents) for at in _named(config))
    return _exercises(config) in file.parents


def _named(config: pytest.Config) -> list[Path]:
    """What the command line names."""
    return [Path(config.invocation_params.dir, argument.split("::")[0]) for argument in config.args]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Read the catalogue where katas are about to be collected: a bad one is a single error, not one for each file."""
    folders = _exercises(session.config), session.config.rootpath / WORK
    places = _named(session.config)
    if any(at == place or at in place.parents or place in at.parents for place in places for at in folders):
        try:
            session.config.stash[_CATALOG] = load_catalog(session.config.rootpath)
        except CatalogError as error:
            raise pytest.UsageError(str(error)) from None


class KataFile(pytest.File):
    """A .cu file: the one kata of its name."""

    def collect(self) -> Iterator[pytest.Item]:
        kata = self.config.stash[_CATALOG].katas[self.path.stem]
        yield KataItem.from_parent(self, name=kata.name, kata=kata)


class SpecFile(pytest.File):
    """A family's spec, named on the command line: the whole family."""

    def collect(self) -> Iterator[pytest.Item]:
        for kata in self.config.stash[_CATALOG].by_family.get(self.path.parent.name, ()):
            yield KataItem.from_parent(self, name=kata.name, kata=kata)


class KataItem(pytest.Item):
    """Grades one kata. Nothing of pytest's traceback is shown: a verdict explains itself."""

    def __init__(self, *, kata: Kata, **fields: Any) -> None:
        super().__init__(**fields)
        self.kata = kata
        self.add_marker(kata.level)
        if self.config.pluginmanager.has_plugin("timeout"):
            self.add_marker(pytest.mark.timeout(BELT_S * _share(self.config)[1]))  # one waits for others' GPU

    @property
    def source(self) -> Path:
        return self.kata.solution_path if self.config.getoption("--solutions") else self.kata.own_path

    def runtest(self) -> None:
        progress.expect()
        grades = self.config.stash.get(_GRADES, {})
        graded = grades[self]() if self in grades else self.grade()
        self.stash[_GRADE] = graded
        self.stash[_WARNING] = progress.keep_grade(graded)
        if not graded.passed:
            raise NotPassed(graded)

    def grade(self) -> Grade:
        return in_order([(self.kata, self.source)], _options(self.config), _progress(self.config))[0]

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, NotPassed):
            return verdict_text.explanation(excinfo.value.grade)
        if isinstance(excinfo.value, Fault):
            return f"{self.kata.name} cannot be graded: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.source, None, self.kata.name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Katas in the order to solve them, which is not that of their names. What else there is keeps its place."""
    katas = [item for item in items if isinstance(item, KataItem)]
    if katas:
        order = {name: place for place, name in enumerate(katas[0].config.stash[_CATALOG].katas)}
        ordered = iter(sorted(katas, key=lambda item: order[item.kata.name]))
        items[:] = [next(ordered) if isinstance(item, KataItem) else item for item in items]


def _options(config: pytest.Config) -> Options:
    options = Options(
        device=config.getoption("--device"),
        thorough=config.getoption("--thorough"),
        seed=config.getoption("--kata-seed"),
        sim_arch=config.getoption("--sim-arch"),
        speed=not config.getoption("--no-speed"),
        warnings_are_errors=config.getoption("--solutions"),
        counters=config.getoption("--counters"),
    )
    return replace(options, jobs=max(1, options.jobs // _share(config)[1]))


def _progress(config: pytest.Config) -> Any:
    """Prints one line; None without a terminal reporter."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return reporter.write_line if reporter is not None and config.getoption("verbose") >= 0 else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Compile all files of the run in parallel before the first is graded; of several processes, each its share."""
    items = [item for item in session.items if isinstance(item, KataItem)]
    if items and not session.config.option.collectonly:
        guard()
    if len(items) < 2 or session.config.option.collectonly or session.testsfailed:
        return
    index, count = _share(session.config)
    work = [(item.kata, item.source) for item in items][index::count]
    try:
        prepare(work, _options(session.config), _progress(session.config))
        if count == 1:
            grades = in_order(work, _options(session.config), _progress(session.config))
            session.config.stash[_GRADES] = {item: partial(grades.__getitem__, n) for n, item in enumerate(items)}
    except Fault as error:
        if _is_worker(session.config):
            return  # every grade will say so
        pytest.exit(f"cannot grade: {error}", returncode=pytest.ExitCode.USAGE_ERROR)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    result = yield
    if isinstance(item, KataItem) and _GRADE in item.stash and call.when == "call":
        graded = item.stash[_GRADE]
        result.kata_outcome = f"{graded.kata.name}: {verdict_text.outcome(graded)}"
        result.kata_started = graded.verdict.kind is not Kind.NOT_STARTED
        file, _, name = item.location
        result.location = (file, graded.verdict.line, name)  # from 1: a junit file has it as it is
        if not result.kata_started:  # junit, --lf and -x skip it; the exit code says that it is open
            result.outcome = "skipped"
            result.longrepr = (file, graded.verdict.line or 1, f"not started: {graded.verdict.summary}")
        result.kata_printed = [graded.kata.name, *printed] if (printed := verdict_text.printed(graded)) else []
        result.kata_costs = verdict_text.costs(graded)
        result.kata_warning = item.stash[_WARNING]
    return result


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """A kata that is not started is a line of its own, not a failure to read."""
    if not getattr(report, "kata_started", True):
        return "not started", "n", "NOT STARTED"
    return None


class NotStarted:
    """A run with a kata that is not started has not passed: exit code 1, also where no test failed."""

    def __init__(self) -> None:
        self._any = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._any |= not getattr(report, "kata_started", True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._any and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = (result for results in terminalreporter.stats.values() for result in results)
    for warning in dict.fromkeys(filter(None, (getattr(result, "kata_warning", None) for result in reports))):
        terminalreporter.write_line(f"kata: {warning}")
    waiting = terminalreporter.stats.get("not started", [])
    if waiting:
        terminalreporter.section("not started")
        for result in waiting:
            terminalreporter.write_line(result.kata_outcome)
    passed = terminalreporter.stats.get("passed", [])
    for title, name in (("printed", "kata_printed"), ("counters", "kata_costs")):
        if lines := [line for result in passed for line in getattr(result, name, [])]:
            terminalreporter.section(title)
            for line in lines:
                terminalreporter.write_line(line)
