"""The repository -> problems: the maintainer's checks. A problem names the file and the fix; none is an empty list.

Nothing here is about one kata; a new kata is checked because it is in the catalog.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from grader import readme, skeleton, wrong_kernel
from grader.case import allowed
from grader.catalog import Catalog, CatalogError, Kata, load_catalog
from grader.grade import Grade, Options, grade, prepare
from grader.hints import load_hints
from grader.questions import load_questions
from grader.report import explanation
from grader.service.replies import LIMIT_S, replies
from grader.service.task import Answer, Task, Tell
from grader.service.work import kata_of
from grader.skeleton import SkeletonError
from grader.spec import Spec, SpecError, load_spec
from grader.toolchain import find_gpu
from grader.verdict import Kind

SIM_ARCH = "sm_80"  # beside the one that everything else is graded on
ROOM = 0.5  # share of the tolerance that a solution may use up
GPU_SLOTS = 4  # solutions on a GPU side by side: each has a context there, and the memory of its largest shape
SCREEN = 60  # lines of a C++ function, with its signature

# Each module may import only from those before it. A folder counts as one module.
ORDER = (
    "grader.dtype",
    "grader.terminal",
    "grader.devices",
    "grader.verdict",
    "grader.cache",
    "grader.lock",
    "grader.processes",
    "grader.toolchain",
    "grader.libraries",
    "grader.symbols",
    "grader.static_shared",
    "grader.nvcc_log",
    "grader.unit",
    "grader.ninja",
    "grader.yaml_fields",
    "grader.catalog",
    "grader.hints",
    "grader.questions",
    "grader.spec",
    "grader.skeleton",
    "grader.rung",
    "grader.wrong_kernel",
    "grader.edits",
    "grader.build",
    "grader.listing",
    "grader.devices.driver",
    "grader.devices.ptx",
    "grader.devices.nvml",
    "grader.devices.baselines",
    "grader.devices.race",
    "grader.devices.gpu",
    "grader.devices.sim",
    "grader.frames",
    "grader.sandbox",
    "grader.case",
    "grader.answer",
    "grader.check",
    "grader.thresholds",
    "grader.peaks",
    "grader.measure",
    "grader.grade",
    "grader.progress",
    "grader.state",
    "grader.record",
    "grader.results",
    "grader.submission",
    "grader.report",
    "grader.pages",
    "grader.service",
    "grader.saves",
    "grader.watch",
    "grader.launcher",
    "grader.ops",
    "grader.pytest_plugin",
    "grader.doctor",
    "grader.completion",
    "grader.readme",
    "grader.interview",
    "grader.dev",
    "grader.commands",
    "grader.commands.classes",
    "grader.commands.course",
    "grader.commands.mutant",
    "grader.commands.interview",
    "grader.commands.kata",
    "grader.commands.watch",
    "grader.commands.code",
    "grader.commands.records",
    "grader.commands.page",
    "grader.cli",
    "grader.__main__",
)


def check_catalogue(root: Path) -> list[str]:
    """difficulty.yaml is whole, every kata has a spec that loads and its hints, every family a lesson and questions for
    an interview."""
    problems: list[str] = []
    try:
        catalog = load_catalog(root)
        for kata in catalog.katas.values():
            problems += _speed_problems(kata, load_spec(kata))
            load_hints(kata)
            load_questions(kata, family=[other.name for other in catalog.by_family[kata.family]])
    except (CatalogError, SpecError) as error:
        return [str(error)]
    return problems + [
        f"{lesson.relative_to(root)} is missing: every family has a lesson."
        for family in catalog.families
        if not (lesson := catalog.by_family[family][0].lesson_path).is_file()
    ]


def _speed_problems(kata: Kata, spec: Spec) -> Iterator[str]:
    """What of a kata's speed its spec does not know."""
    if kata.speed is None:
        return
    known = ("copy", "read", *spec.baselines)
    for name in (kata.speed.baseline, *kata.speed.beside):
        if name not in known:
            yield f"difficulty.yaml: {kata.name}: no baseline is called {name!r}; its spec knows {', '.join(known)}."
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


def check_readme(root: Path) -> list[str]:
    """README.md's generated parts are current: the curriculum, and what works without a GPU."""
    try:
        return readme.problems(load_catalog(root))
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


def check_imports(root: Path) -> list[str]:
    """Imports between the grader's modules go one way, and no module is outside the order."""
    problems = []
    for path in sorted((root / "grader").rglob("*.py")):
        module = _module(path.relative_to(root))
        if module == "grader":
            continue
        if module not in ORDER:
            problems.append(f"{path.relative_to(root)}: {module} has no place in ORDER of grader/dev.py; give it one.")
            continue
        for line, other in _imports(path):
            if other != module and ORDER.index(other) > ORDER.index(module):
                problems.append(f"{path.relative_to(root)}:{line}: imports {other}, which comes after {module}.")
    return problems


def _module(path: Path) -> str:
    """The place in ORDER that a file belongs to: the longest name there that begins the file's own."""
    parts = list(path.with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    names = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((name for name in names if name in ORDER), ".".join(parts))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module of the grader) for every import in a file, also those inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "grader":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "grader"]
        else:
            continue
        for name in names:
            module = _module(Path(*name.split(".")))
            if module in ORDER:
                yield node.lineno, module


def check_style(root: Path) -> list[str]:
    """ruff (lint and format), mypy --strict on grader/, clang-format on every .cu, .cpp and .h, and no function of a
    .cpp or .h longer than a screen."""
    sources = [str(path) for path in _sources(root)]
    commands: Mapping[str, list[str]] = {
        "ruff check": ["ruff", "check", "."],
        "ruff format": ["ruff", "format", "--check", "."],
        "mypy": ["mypy", "--strict", "grader"],
        "clang-format": ["clang-format", "--dry-run", "--Werror", *sources],
    }
    problems = [problem for name, command in commands.items() for problem in _run(name, command, root)]
    engine = [path for path in _sources(root) if path.suffix in (".cpp", ".h")]
    return problems + [problem for path in engine for problem in _long_functions(root, path)]


def _long_functions(root: Path, path: Path) -> Iterator[str]:
    for line, name, length in functions_of((root / path).read_text()):
        if length > SCREEN:
            yield f"{path}:{line}: {name} has {length} lines; split it, a function fits a screen of {SCREEN}."


# What is no code but may hold braces, and what stands between the parameters of a function and its body.
_NO_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'|^[ \t]*#[^\n]*", re.DOTALL | re.MULTILINE
)
_HEAD = re.compile(
    r"([\w:~]+(?:[^\w\s(]{1,3})?)\s*\((?:[^()]|\([^()]*\))*\)\s*(?:const|noexcept|override|\s)*(?::[^:].*)?$", re.DOTALL
)


def functions_of(text: str) -> Iterator[tuple[int, str, int]]:
    """(line, name, lines) of every C++ function with a body; a lambda counts as part of the function around it."""
    code = _NO_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    start, depth, inside = 0, 0, -1
    for place in re.finditer(r"[{};]", code):
        if place[0] == "{":
            head = code[start : place.start()]
            match = _HEAD.search(head) if inside < 0 else None
            if match is not None and "=" not in head.partition("(")[0]:
                inside, name = depth, match[1]
                first = code.count("\n", 0, start + len(head) - len(head.lstrip())) + 1
            depth += 1
        elif place[0] == "}":
            depth -= 1
            if depth == inside:
                inside = -1
                yield first, name, code.count("\n", 0, place.start()) + 2 - first
        if inside < 0:
            start = place.end()


def _sources(root: Path) -> Iterator[Path]:
    for folder in ("exercises", "solutions", "grader"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".cu", ".cuh", ".cpp", ".h"):
                yield path.relative_to(root)


def _run(name: str, command: list[str], root: Path) -> list[str]:
    program = shutil.which(command[0], path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        return [f"{name}: {command[0]} is not installed; `pip install -e .[dev]`"]
    done = subprocess.run([program, *command[1:]], cwd=root, capture_output=True, text=True)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return [f"{name}: {line}" for line in lines[:20]] if done.returncode else []


def check_skeletons_compile(root: Path) -> list[str]:
    """Every skeleton compiles, so that a learner's first error is the learner's own, and its answer is wrong.

    What is graded is the skeleton with its TODO markers blanked, which an untouched one would not be; to a compiler
    both are the same, line by line.
    """
    folder = root / ".kata-dev"
    folder.mkdir(exist_ok=True)
    try:
        work = [(kata, _blanked(kata, folder)) for kata in load_catalog(root).katas.values()]
        options = Options(device="sim")
        prepare(work, options, _say)
        tasks = [Task(kata.name, options, bare, work="grader.dev:skeleton_work") for kata, bare in work]
        return _side_by_side(tasks, root)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _blanked(kata: Kata, folder: Path) -> Path:
    """Derived from the solution, not the file in exercises/: a learner may be at work on that."""
    bare = folder / f"{kata.name}.cu"
    lines = skeleton.skeleton_of(kata).splitlines()
    bare.write_text("\n".join("" if "TODO(" in line else line for line in lines) + "\n")
    return bare


def _side_by_side(tasks: Sequence[Task], root: Path, *, most: int | None = None) -> list[str]:
    """The problems of all tasks, in their order. As many tasks run at a time as there are cores, or ``most``."""
    cores = os.cpu_count() or 1
    count = min(cores, most or cores)
    options = [replace(task.options, jobs=cores // count) for task in tasks]
    labelled = [replace(task, label=place, options=options[place]) for place, task in enumerate(tasks)]
    found: dict[int, list[str]] = {}
    for reply in replies(labelled, root, count=count):
        error = f"not graded within {LIMIT_S:g} s" if reply.late else reply.error
        found[reply.task.label] = [f"{reply.task.kata}: {error}"] if error else reply.done["problems"]
        for line in reply.done.get("said", ()):
            _say(line)
    return [problem for place in sorted(found) for problem in found[place]]


def skeleton_work(task: Task, catalog: Catalog, tell: Tell) -> Answer:
    """A service's work: "problems" has what is wrong with a skeleton."""
    graded = grade(kata_of(task, catalog), task.options, source=task.source, progress=tell)
    return {"problems": [*_skeleton_problems(graded)]}


def _skeleton_problems(graded: Grade) -> Iterator[str]:
    kata, verdict = graded.kata, graded.verdict
    place = kata.skeleton_path.relative_to(kata.root)
    if verdict.kind is Kind.DOES_NOT_COMPILE:
        yield f"{place}:{verdict.line or 1}: the skeleton does not compile: {verdict.summary}"
    elif verdict.passed:
        yield f"{place}: passes with nothing filled in."


def check_solutions(root: Path) -> list[str]:
    """Every solution passes, warnings being errors, on the other simulated card and on the GPU where there is one.

    tests/test_wrong_kernels.py grades them all on the simulated card that learners get, beside what must not pass.
    """
    catalog = load_catalog(root)
    work = [(kata, kata.solution_path) for kata in catalog.katas.values()]
    runs = [Options(device="sim", sim_arch=SIM_ARCH, warnings_are_errors=True)]
    if find_gpu() is not None:
        runs.append(Options(device="gpu", warnings_are_errors=True, speed=False))
    problems = []
    for options in runs:
        prepare(work, options, _say)
        tasks = [Task(kata.name, options, source, work="grader.dev:solution_work") for kata, source in work]
        problems += _side_by_side(tasks, root, most=GPU_SLOTS if options.device == "gpu" else None)
    return problems


def solution_work(task: Task, catalog: Catalog, tell: Tell) -> Answer:
    """A service's work: "problems" has what is wrong with a solution, "said" why one cannot be built here."""
    graded = grade(kata_of(task, catalog), task.options, source=task.source, progress=tell)
    verdict, name = graded.verdict, task.kata
    if verdict.lacks_library:
        return {"problems": [], "said": [f"{name} is left out: {verdict.summary}"]}
    if not graded.passed:
        return {"problems": [explanation(graded)]}
    if verdict.error_share > ROOM:
        uses = f"{name}: uses {verdict.error_share:.0%} of its tolerance"
        return {"problems": [f"{uses}; a solution must keep to {ROOM:.0%}."]}
    return {"problems": []}


def check_tests(root: Path) -> list[str]:
    """The tests of the machine, wrong kernels and exploits among them; spread by file where pytest-xdist is there."""
    command = [sys.executable, "-m", "pytest", "tests", "-q"]
    if importlib.util.find_spec("xdist") is not None:
        command += ["-n", str(min(os.cpu_count() or 1, 4)), "--dist", "loadfile"]
    done = subprocess.run(command, cwd=root)
    return ["pytest tests failed; see above."] if done.returncode else []


def _say(line: str) -> None:
    print(f"  {line}", flush=True)


CHECKS: Mapping[str, Callable[[Path], list[str]]] = {
    "catalogue": check_catalogue,
    "skeletons": check_skeletons,
    "readme": check_readme,
    "wrong-kernels": check_wrong_kernels,
    "imports": check_imports,
    "style": check_style,
    "skeletons-compile": check_skeletons_compile,
    "solutions": check_solutions,
    "tests": check_tests,
}
