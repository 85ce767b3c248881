"""`kata dev coverage`: what no case of a solution's default grade on the simulator comes to.

Every line of a kernel is to be reached, every loop is to go round, and every kernel is to be launched. What is not, and
why that is right, stands in EXPLAINED: tests/test_wrong_kernels.py holds every solution's grade against it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.content.catalog import Catalog, CatalogError, Kata, load_catalog
from grader.content.yaml_fields import MANY, Field, Value, close_to, record, root_value, several, words
from grader.grade import grade, prepare
from grader.maintain.kata_builds import as_solution
from grader.output.console import Commands, examples, open_catalog
from grader.output.verdict_text import explanation
from grader.verdict import Coverage

EXPLAINED = Path("solutions/unreached.yaml")
_FIELDS = {
    "line": Field(words),
    "loop": Field(words),
    "kernel": Field(words),
    "why": Field(words, required=True),
}
_WHAT = {"line": "no thread comes to", "loop": "no thread goes round", "kernel": "is never launched:"}


@dataclass(frozen=True, order=True)
class Gap:
    """One thing that no case reaches: a line or a loop by the text of its line, or a kernel by its name."""

    kind: str
    text: str
    line: int = 0  # where it stands; 0 of a kernel, and of an entry

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{_WHAT[self.kind]} {self.text}"


def add(tasks: Commands[argparse.ArgumentParser]) -> None:
    parser = tasks.add_parser(
        "coverage",
        help="list what no default case of a solution reaches: lines, loops that never go round, kernels",
        description="Grade solutions on the simulator and list what no case reaches, each with its reason in "
        f"{EXPLAINED} where it has one. Exit code 0: all has one, 1: something has none.",
        epilog=examples("kata dev coverage relu_f16x2", "kata dev coverage softmax", "kata dev coverage"),
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="katas or families (default: all)")
    parser.set_defaults(command=_coverage)


def gaps(kata: Kata, coverage: Coverage) -> list[Gap]:
    """What a grade of the kata's solution left out."""
    lines = [_bare(line) for line in kata.solution_path.read_text(encoding="utf-8").splitlines()]
    found = [Gap("line", lines[number - 1], number) for number in coverage.unreached]
    found += [Gap("loop", lines[number - 1], number) for number in coverage.once]
    return found + [Gap("kernel", name) for name in coverage.unlaunched]


def reasons(root: Path) -> Mapping[str, Mapping[tuple[str, str], str]]:
    """Kata -> (kind, text) -> why it is not reached. Raises CatalogError."""
    return {name: dict(found) for name, found in _entries(root).items()}


def problems(catalog: Catalog) -> list[str]:
    """Entries of katas that there are not, and of lines that do not stand in their solution."""
    try:
        entries = _entries(catalog.root)
    except CatalogError as error:
        return [str(error)]
    found = []
    for name, explained in entries.items():
        if name not in catalog.katas:
            found.append(f"{EXPLAINED}: there is no kata {name}.{close_to(name, catalog.katas)}")
            continue
        lines = {_bare(line) for line in catalog.katas[name].solution_path.read_text(encoding="utf-8").splitlines()}
        missing = [text for (kind, text), _ in explained if kind != "kernel" and text not in lines]
        found += [f"{EXPLAINED}: {name}: no line of its solution is {text!r}. Remove the entry." for text in missing]
    return found


def check(root: Path) -> list[str]:
    """Every entry of EXPLAINED is about a line that its solution has."""
    try:
        return problems(load_catalog(root))
    except CatalogError as error:
        return [str(error)]


def disagreements(kata: Kata, coverage: Coverage, explained: Mapping[tuple[str, str], str]) -> list[str]:
    """What is not reached and has no reason, and reasons for what is reached."""
    found = gaps(kata, coverage)
    texts = {(gap.kind, gap.text) for gap in found}
    needless = [text for kind, text in explained if (kind, text) not in texts]
    return [f"{kata.name}: {gap}" for gap in found if (gap.kind, gap.text) not in explained] + [
        f"{kata.name}: {EXPLAINED} says why not, and yet a case reaches it: {text}" for text in needless
    ]


def _entries(root: Path) -> Mapping[str, Sequence[tuple[tuple[str, str], str]]]:
    whole = root_value(root / EXPLAINED, "unreached", CatalogError, "It says what no case of a solution reaches.")
    read = several(_entry, range(1, MANY), "entries")
    return {name: read(value) for name, _, value in whole.items()} if whole is not None else {}


def _entry(value: Value) -> tuple[tuple[str, str], str]:
    fields = record(value, _FIELDS)
    named = [(kind, fields[kind]) for kind in _WHAT if fields[kind] is not None]
    if len(named) != 1:
        raise value.error(f"has {len(named)} of the fields {', '.join(_WHAT)}. Write one of them.")
    return named[0], fields["why"]


def _bare(line: str) -> str:
    """A line without its remark, one space between its words."""
    return " ".join(line.partition("//")[0].split())


def _coverage(options: argparse.Namespace) -> int:
    catalog = open_catalog()
    katas = list(catalog.select(options.names))
    explained, graded = reasons(catalog.root), as_solution("sim")
    prepare([(kata, kata.solution_path) for kata in katas], graded)
    return max([_one(kata, explained.get(kata.name, {})) for kata in katas], default=0)


def _one(kata: Kata, explained: Mapping[tuple[str, str], str]) -> int:
    result = grade(kata, as_solution("sim"), source=kata.solution_path)
    coverage = result.verdict.coverage
    if coverage is None:
        print(explanation(result), flush=True)
        return 0 if result.verdict.lacks_library else 1
    for row in _rows(kata, coverage, explained):
        print(row)
    found = disagreements(kata, coverage, explained)
    print(f"{kata.name}: {'all is reached or explained' if not found else f'{len(found)} to explain or to reach'}")
    return 1 if found else 0


def _rows(kata: Kata, coverage: Coverage, explained: Mapping[tuple[str, str], str]) -> Iterator[str]:
    for gap in gaps(kata, coverage):
        why = explained.get((gap.kind, gap.text))
        yield f"{kata.name}: {gap}" + (f"\n  {why}" if why else "")
