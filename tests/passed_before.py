"""Tests that passed and that nothing has touched since -> they pass again without a call.

A grade on the simulator draws its shapes and values from fixed seeds, so it follows from what it reads. A test that is
marked ``reads(by=function)`` names that: ``function(item)`` gives texts and folders. Its key covers these, all of
grader/, the tests' own code, the GPU, and the versions of Python, of nvcc, of the host's compiler and of every package.
Only a pass is kept, in the cache folder, for a month after its last use.

A test of processes, signals, editors or time has no such mark: it may fail on a busy machine, so it always runs.

One in SAMPLE is graded again all the same, others in each run: if its verdict were another one, the key would miss
something, and the test fails as any other. ``--fresh`` grades all.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from grader.compile.toolchain import find_gpu, find_toolchain
from grader.content.catalog import Kata
from grader.storage.cache import cache_folder
from grader.storage.whole_file import write_whole

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = 8
KEPT_S = 30 * 24 * 3600  # since it was last used
CODE = (ROOT / "grader", ROOT / "conftest.py", *sorted((ROOT / "tests").glob("*.py")))
NOT_READ = {"__pycache__", ".mypy_cache", ".ruff_cache"}
NOT_OURS = re.compile(r"\..*|build|.*\.egg-info|compile_commands\.json")  # at the top: settings, and what was made here

# Other in each run, the same in all of its processes.
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
KNOWN = "passed before"  # the property of a report that says so

Reads = Callable[[pytest.Item], "Iterable[str | Path] | None"]


_KEY = pytest.StashKey["str | None"]()
_KEPT = pytest.StashKey["str | None"]()


def key_of(item: pytest.Item) -> str | None:
    """None for a test that does not say what it reads, or that reads more than can be named."""
    if _KEY not in item.stash:
        item.stash[_KEY] = _key(item)
    return item.stash[_KEY]


def _key(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("reads")
    if marker is None:
        return None
    reads: Reads = marker.kwargs["by"]
    parts = reads(item)
    if parts is None:
        return None
    digest = hashlib.sha256(_code().encode())
    for part in (item.nodeid, *parts):
        digest.update((_folder(part) if isinstance(part, Path) else part).encode() + b"\0")
    return digest.hexdigest()


@functools.cache
def _code() -> str:
    """What no kata's test does without."""
    toolchain = find_toolchain()
    packages = sorted(f"{each.name} {each.version}" for each in importlib.metadata.distributions())
    return "\n".join([sys.version, toolchain.identity, repr(find_gpu()), *packages, *map(_folder, CODE)])


@functools.cache
def _folder(path: Path) -> str:
    """A digest of a file, or of all files below a folder with their names."""
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    digest = hashlib.sha256()
    for file in files:
        if NOT_READ.isdisjoint(file.parts) and file.suffix != ".pyc":
            digest.update(str(file.relative_to(path)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def of_kata(kata: Kata) -> list[str | Path]:
    """What the grade of any file for a kata reads: its row, its solution, and its family's spec, lesson and hints."""
    folder = kata.root / "exercises" / kata.family
    texts = sorted(file for file in folder.iterdir() if file.is_file() and file.suffix != ".cu")
    return [repr(replace(kata, root=Path())), kata.solution_path.read_text(), *texts]


def _of_the_grader(item: pytest.Item) -> list[str | Path] | None:
    return None if asks_more(item) else [ROOT / "tests"]


def _of_the_repository(item: pytest.Item) -> list[str | Path] | None:
    if asks_more(item):
        return None
    return [each for each in sorted(ROOT.iterdir()) if not NOT_OURS.fullmatch(each.name)]


def asks_more(item: pytest.Item) -> bool:
    """Whether more than usual is asked of tests."""
    return any(item.config.getoption(name) for name in ("--all-seeds", "--all-cases", "--all-causes"))


# Marks for a module of tests. The first kind reads no kata, the second may read any file of the repository.
GRADER = pytest.mark.reads(by=_of_the_grader)
REPOSITORY = pytest.mark.reads(by=_of_the_repository)


def place_of(key: str) -> Path:
    return cache_folder() / "passed" / key[:2] / key[2:]


def kept(item: pytest.Item) -> str | None:
    """What was kept with the test's pass, if it is not to be graded again in this run."""
    if _KEPT not in item.stash:
        item.stash[_KEPT] = _found(item)
    return item.stash[_KEPT]


def _found(item: pytest.Item) -> str | None:
    if item.config.getoption("--fresh") or crc32(f"{RUN} {item.nodeid}".encode()) % SAMPLE == 0:
        return None
    key = key_of(item)
    if key is None:
        return None
    with suppress(OSError):
        text = place_of(key).read_text()
        os.utime(place_of(key))
        return text
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Pass without a call what is known, with the properties that it had."""
    if (text := kept(pyfuncitem)) is None:
        return None
    properties = [(str(name), value) for name, value in json.loads(text)]
    pyfuncitem.user_properties += [*properties, (KNOWN, True)]
    return True


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Keep a pass. It is a convenience: where it cannot be written, nothing is lost."""
    if call.when != "call" or call.excinfo is not None or (KNOWN, True) in item.user_properties:
        return
    if (key := key_of(item)) is not None:
        with suppress(OSError):
            place_of(key).parent.mkdir(parents=True, exist_ok=True)
            write_whole(place_of(key), json.dumps(item.user_properties))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    passed = [report for report in terminalreporter.stats.get("passed", []) if report.when == "call"]
    known = sum(name == KNOWN for report in passed for name, _ in report.user_properties)
    if known:
        terminalreporter.section("passed before")
        terminalreporter.write_line(
            f"{known} of {len(passed)} tests passed in an earlier run, and nothing that they read has changed since. "
            "--fresh grades them again."
        )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove what no run has used for long; once, not in each of several processes."""
    if not hasattr(session.config, "workerinput"):
        sweep()


def sweep() -> None:
    """Remove what no run has used for long."""
    oldest = time.time() - KEPT_S
    for file in (cache_folder() / "passed").glob("*/*"):
        with suppress(OSError):
            if file.stat().st_mtime < oldest:
                file.unlink()
