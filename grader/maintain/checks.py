"""The repository -> problems: the maintainer's checks. A problem names the file and the fix; none is an empty list.

Nothing here is about one kata; a new kata is checked because it is in the catalog.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from grader.content import rung, skeleton, symptoms, tracks
from grader.content.catalog import Catalog, CatalogError, Kata, load_catalog
from grader.content.hints import load_hints
from grader.content.questions import pool_problems
from grader.content.skeleton import SkeletonError
from grader.content.spec import Spec, SpecError, load_spec
from grader.fault import Fault
from grader.judge.case import allowed
from grader.learner.pointer import KINDS
from grader.maintain import coverage, helpers, levels, mutation, rooms, tables, voice, wrong_kernel
from grader.maintain.changes import KATA_TESTS, Touched
from grader.maintain.kata_builds import compile_all
from grader.maintain.style import check_style
from grader.storage.cache import cache_folder

MOST_PROCESSES = 8  # that the tests are spread over: each has torch in its memory


def check_catalogue(root: Path) -> list[str]:
    """difficulty.yaml is whole, every kata has a spec that loads and its hints, every family a lesson and questions for
    an interview; a header names the rung before its kata as difficulty.yaml does; a level fits its answer; a track
    teaches what its katas need."""
    problems: list[str] = []
    try:
        catalog = load_catalog(root)
        for kata in catalog.katas.values():
            problems += _speed_problems(kata, load_spec(kata))
            problems += filter(None, [rung.disagreement(kata)])
            family = [other.name for other in catalog.by_family[kata.family]]
            load_hints(kata, family)
            problems += pool_problems(kata, family)
        problems += [*levels.problems(catalog), *_missing_lessons(catalog)]
        return problems or tracks.problems(catalog)
    except (CatalogError, SpecError) as error:
        return [str(error)]


def _missing_lessons(catalog: Catalog) -> list[str]:
    lessons = [catalog.by_family[family][0].lesson_path for family in catalog.families]
    missing = [lesson.relative_to(catalog.root) for lesson in lessons if not lesson.is_file()]
    unfound = [words for lesson in lessons if lesson.is_file() for words in symptoms.problems(lesson, KINDS)]
    return [*(f"{lesson} is missing: every family has a lesson." for lesson in missing), *unfound]


def _speed_problems(kata: Kata, spec: Spec) -> Iterator[str]:
    """What of a kata's speed its spec does not know."""
    if kata.speed is None:
        return
    known = ("copy", "read", *spec.baselines)
    for name in (kata.speed.baseline, *kata.speed.also_compare):
        if name not in known:
            yield f"difficulty.yaml: {kata.name}: no baseline is called {name!r}; its spec knows {', '.join(known)}."
    if spec.operations is None or (spec.operations.count or spec.flops) is None:
        yield f"difficulty.yaml: {kata.name} has a speed; give its spec `operations`, for `kata estimate`."
    for shape in kata.speed.shapes:
        if set(shape) != set(spec.sizes):
            yield f"difficulty.yaml: {kata.name}: speed.shapes must name exactly the sizes {', '.join(spec.sizes)}."
        elif not allowed(kata, shape):
            yield f"difficulty.yaml: {kata.name}: a shape of its speed is not of the multiples that it asks for."


def check_skeletons(root: Path) -> list[str]:
    """Every skeleton is what its solution gives; lines that a learner put where answers belong do not count."""
    try:
        stale = skeleton.stale(load_catalog(root, missing_skeletons=True))
    except (CatalogError, SkeletonError) as error:
        return [str(error)]
    return [f"{kata.skeleton_path.relative_to(root)} is not current: `kata dev skeletons` writes it." for kata in stale]


def check_tables(root: Path) -> list[str]:
    """The tables of README.md, voice.md, SPEED.md and SUPPORT.md are what their data gives."""
    try:
        return tables.problems(load_catalog(root))
    except CatalogError as error:
        return [str(error)]


def check_wrong_kernels(root: Path) -> list[str]:
    """Every wrong kernel and exploit has its fields, and every edit of a solution stands in it exactly once."""
    try:
        catalog = load_catalog(root)
    except CatalogError as error:
        return [str(error)]
    return [
        problem for folder in wrong_kernel.FOLDERS for problem in wrong_kernel.problems(catalog, catalog.root / folder)
    ]


def check_helpers(root: Path) -> list[str]:
    """Helpers of one name are the same in every solution, or solutions/helpers.yaml says why they are not."""
    try:
        return helpers.problems(root)
    except CatalogError as error:
        return [str(error)]


def check_voice(root: Path) -> list[str]:
    """No file has more words to avoid, long sentences and wide lines than docs/voice_allowed.yaml allows it."""
    try:
        return voice.problems(root)
    except voice.VoiceError as error:
        return [str(error)]


def check_imports(root: Path) -> list[str]:
    """Imports between the grader's rooms go one way, and no modules import each other in a circle."""
    return rooms.problems(root)


def check_tests(root: Path, touched: Touched | None = None, *, fresh: bool = False) -> list[str]:
    """The tests of the machine and of all katas; spread by kata where pytest-xdist is there. ``fresh``: also those that
    passed before, and that nothing has touched since."""
    chosen = ["tests"]
    only = None if touched is None or touched.everything else touched.katas
    if touched is not None and not touched.everything:
        chosen = [name for name in touched.tests if name != KATA_TESTS]
        chosen += [KATA_TESTS, "--katas", ",".join(touched.katas)] if touched.katas else []
        if not chosen:
            print("  none of them can have been touched", flush=True)
            return []
    command = [sys.executable, "-m", "pytest", *chosen, "-q", *(["--fresh"] if fresh else [])]
    try:
        compile_all(root, only, lambda line: print(f"  {line}", flush=True))
    except Fault as error:
        return [str(error)]
    cores = os.cpu_count() or 1
    # One more than there are cores: some tests wait for a limit of time, or for each other.
    processes = min(cores + 1, MOST_PROCESSES) if importlib.util.find_spec("xdist") is not None else 1
    if processes > 1:
        command += ["-n", str(processes)]
    threads = str(max(1, cores // processes))  # torch's, in each process: more would wait for each other
    done = subprocess.run(command, cwd=root, env={**_keeps_bytecode(), "OMP_NUM_THREADS": threads})
    return ["pytest tests failed; see above."] if done.returncode else []


def _keeps_bytecode() -> dict[str, str]:
    """The environment of the tests. They start Python thousands of times: where Python may not write the bytecode of
    modules beside them (PYTHONDONTWRITEBYTECODE), each start would compile numpy, pytest and the grader again."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if len(environment) < len(os.environ):
        environment.setdefault("PYTHONPYCACHEPREFIX", str(cache_folder() / "bytecode"))
    return environment


def run(name: str, root: Path, touched: Touched | None = None, *, fresh: bool = False) -> list[str]:
    """The problems that one of CHECKS finds, in all of the repository or in what a change can have touched."""
    if name == "tests":
        return check_tests(root, touched, fresh=fresh)
    return QUICK[name](root)


QUICK: Mapping[str, Callable[[Path], list[str]]] = {
    "catalogue": check_catalogue,
    "skeletons": check_skeletons,
    "tables": check_tables,
    "wrong-kernels": check_wrong_kernels,
    "helpers": check_helpers,
    "voice": check_voice,
    "unreached": coverage.check,
    "equivalents": mutation.check,
    "imports": check_imports,
    "style": check_style,
}
CHECKS = (*QUICK, "tests")
