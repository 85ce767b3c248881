"""`kata dev mutant`: a wrong kernel as the whole file that is graded, and the entry for a new one."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from pathlib import Path

from grader.content.catalog import Catalog
from grader.content.yaml_fields import close_to
from grader.maintain import edits, wrong_kernel
from grader.maintain.wrong_kernel import FOLDER, WrongKernel, WrongKernelError
from grader.output.console import Commands, examples, named_file, one_kata, open_catalog


def add(tasks: Commands[argparse.ArgumentParser]) -> None:
    parser = tasks.add_parser(
        "mutant",
        help="print a wrong kernel as a whole file, or the entry for a new one",
        description=f"Print a wrong kernel of {FOLDER}: the solution with the bug's edits. A kata's name lists its "
        "bugs, and no name lists all bugs. Exit code 0, or 2 where no bug has that name or its edits do not fit.",
        epilog=examples(
            "kata dev mutant relu_f32",
            "kata dev mutant relu_f32/nan-becomes-0 --diff",
            "kata dev mutant relu_f32/nan-becomes-0 > mutant.cu; kata grade relu_f32 --file mutant.cu",
            "kata dev mutant relu_f32/a-new-bug --from edited_copy_of_the_solution.cu",
        ),
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="KATA/BUG, or BUG if only one kata has it, or KATA")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--diff", action="store_true", help="print what differs from the solution")
    how.add_argument(
        "--from", dest="source", type=Path, metavar="FILE", help="print the entry that makes this file of the solution"
    )
    parser.set_defaults(command=_mutant)


def _mutant(options: argparse.Namespace) -> int:
    catalog = open_catalog()
    if options.source is not None:
        print(_entry(catalog, options.name or "", named_file(options.source)), end="")
        return 0
    known = wrong_kernel.load(catalog, catalog.root / FOLDER)
    if options.name is None or options.name in catalog.katas:
        _list([wrong for wrong in known if options.name in (None, wrong.kata.name)])
        return 0
    wrong = _named(known, options.name)
    print(_diff(wrong) if options.diff else wrong_kernel.text(wrong), end="")
    return 0


def _list(chosen: Sequence[WrongKernel]) -> None:
    for wrong in chosen:
        print(f"{wrong.name}: {wrong.wrong}")


def _named(known: Sequence[WrongKernel], name: str) -> WrongKernel:
    found = [wrong for wrong in known if name in (wrong.name, wrong.bug)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(wrong.name for wrong in found)
        raise WrongKernelError(f"{len(found)} katas have a bug {name!r}. Name one of them: {names}.")
    close = close_to(name, dict.fromkeys(part for wrong in known for part in (wrong.name, wrong.bug)))
    raise WrongKernelError(f"no kata has a bug {name!r}.{close} `kata dev mutant` lists all bugs.")


def _diff(wrong: WrongKernel) -> str:
    solution = wrong.kata.solution_path
    right, changed = solution.read_text(encoding="utf-8"), wrong_kernel.text(wrong)
    place = solution.relative_to(wrong.kata.root).as_posix()
    return "".join(difflib.unified_diff(right.splitlines(True), changed.splitlines(True), place, wrong.name))


def _entry(catalog: Catalog, name: str, source: Path) -> str:
    """The YAML for a new bug: what differs between the solution and a copy of it with the bug."""
    kata_name, _, bug = name.partition("/")
    if not bug:
        raise WrongKernelError("--from needs a name for the bug: `kata dev mutant KATA/BUG --from FILE`.")
    kata = one_kata(catalog, kata_name, "--from")
    if not wrong_kernel.is_name(bug):
        raise WrongKernelError(f"{bug!r} is not a name for a bug. {wrong_kernel.NAME_HINT}")
    for known in wrong_kernel.load(catalog, catalog.root / FOLDER):
        if (known.kata.name, known.bug) == (kata.name, bug):
            place = f"{known.path.relative_to(catalog.root)}:{known.line}"
            raise WrongKernelError(f"{known.name} is there already: {place}. Choose another name.")
    solution = kata.solution_path.read_text(encoding="utf-8")
    pairs = edits.between(solution, source.read_text(encoding="utf-8"))
    if not pairs:
        raise WrongKernelError(f"{source} is the solution of {kata.name}. Plant the bug in it first.")
    return edits.entry(kata.name, bug, pairs)
