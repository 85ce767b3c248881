"""For all tests: progress of their own. Prints, after a run that graded them, how far right and wrong answers are apart
in each family, also where pytest-xdist spread the files over processes."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest
from browser import browser  # noqa: F401  a fixture, for whoever looks at pages


@pytest.fixture(autouse=True, scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing that a test grades is the progress of whoever runs it."""
    os.environ["KATA_DATA"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> None:
    """What a test starts is ended by Ctrl-C, also where a script put the tests in the background: `make test &`."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass
class Gap:
    """Errors as a share of what the tolerance allows: those of solutions, and those of wrong kernels' answers."""

    right: list[float] = field(default_factory=list)
    wrong: list[float] = field(default_factory=list)


_GAPS = pytest.StashKey[dict[str, Gap]]()


@pytest.fixture
def gaps(request: pytest.FixtureRequest) -> dict[str, Gap]:
    """Family -> its gap, filled by the tests that grade."""
    return request.config.stash.setdefault(_GAPS, defaultdict(Gap))


LONGEST = "test_wrong_kernels.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The file that takes longest comes first, so that one process has it while others do the rest."""
    items.sort(key=lambda item: item.path.name != LONGEST)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of pytest-xdist hands its gaps to the one that prints."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["gaps"] = {family: asdict(gap) for family, gap in session.config.stash.get(_GAPS, {}).items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    gaps = node.config.stash.setdefault(_GAPS, defaultdict(Gap))
    for family, gap in getattr(node, "workeroutput", {}).get("gaps", {}).items():
        gaps[family].right += gap["right"]
        gaps[family].wrong += gap["wrong"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    gaps = terminalreporter.config.stash.get(_GAPS, {})
    measured = {family: gap for family, gap in sorted(gaps.items()) if gap.right and gap.wrong}
    if not measured:
        return
    terminalreporter.section("tolerance gaps")
    for family, gap in measured.items():
        right, wrong = max(gap.right), min(gap.wrong)
        words = "where only the right bits pass" if wrong == float("inf") else f"{wrong:.3g} times as much"
        terminalreporter.write_line(f"{family:<18} solutions use {right:4.0%} of the tolerance, wrong answers {words}")
