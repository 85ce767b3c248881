"""`kata sass` and `kata ptx`: what the compiler made of a kata, by the lines of its file."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from grader.commands.kata import keep_seen, may_see
from grader.compile.build import CompileFailure, Request, Target, build
from grader.compile.listing import Kernel, grouped, headline, in_order, listing
from grader.compile.toolchain import find_gpu, find_toolchain
from grader.content.catalog import CatalogError, Kata
from grader.content.source_file import Source, source_of
from grader.content.spec import load_spec
from grader.devices import SIM_ARCH
from grader.grade import does_not_compile, unbuildable
from grader.output import verdict_text
from grader.output.console import Commands, examples, named_file, one_kata, open_catalog, say_json
from grader.output.terminal import plain
from grader.system.processes import leaving_nothing
from grader.verdict import Grade, Verdict

_WHAT = {"sass": "machine code", "ptx": "PTX"}


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    for kind, what in _WHAT.items():
        _add(commands, kind, what)


def _add(commands: Commands[argparse.ArgumentParser], kind: str, what: str) -> None:
    parser = commands.add_parser(
        kind,
        help=f"show the {what} of your kernels, by the lines of your file",
        description=f"Compile your file for a GPU, which you need not have, and show the {what} of its kernels: "
        "first registers, shared memory and spills, then each line of the file with its instructions. "
        "docs/profiling.md says how to read them. Exit code 0: shown, 1: the file does not compile, 2: the command or "
        "the machine is at fault.",
        epilog=examples(f"kata {kind} sgemm_naive_f32", f"kata {kind} relu_f32x4 --solution --in-order | less"),
    )
    parser.add_argument("name", metavar="KATA")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--solution", action="store_true", help="of the solution; before a pass it needs --anyway")
    which.add_argument("--file", type=Path, metavar="FILE", help="of this file, as the kata")
    parser.add_argument("--anyway", action="store_true", help="with --solution: also before you passed it; recorded")
    parser.add_argument("--arch", metavar="ARCH", help=f"sm_80, sm_90a, ... (default: the GPU's, or {SIM_ARCH})")
    parser.add_argument("--kernel", metavar="NAME", help="only kernels with this in their name")
    parser.add_argument("--in-order", action="store_true", help="in the GPU's order, to follow loops and branches")
    parser.add_argument("--json", action="store_true", help="as a JSON object")
    parser.set_defaults(command=_code, kind=kind)


@leaving_nothing()
def _code(options: argparse.Namespace) -> int:
    catalog = open_catalog()
    kata = one_kata(catalog, options.name, f"`kata {options.kind}`")
    if options.solution and not may_see(catalog, [kata], f"{options.kind} --solution", anyway=options.anyway):
        return 1
    own = kata.solution_path if options.solution else kata.own_path
    source = own if options.file is None else named_file(options.file)
    target, read = Target("gpu", _arch(options.arch)), source_of(source)
    if refused := unbuildable(kata, read):
        return _refused(kata, read, refused)
    toolchain = find_toolchain()
    built = build(Request(kata, load_spec(kata), read, target), toolchain)
    if isinstance(built, CompileFailure):
        return _refused(kata, read, does_not_compile(built))
    kernels = _chosen(listing(built, options.kind, toolchain), options.kernel)
    if options.solution:
        keep_seen(catalog, [kata])
    if options.json:
        found = [{**asdict(kernel), "instructions": kernel.instructions} for kernel in kernels]
        say_json({"kata": kata.name, "file": str(source), "arch": target.arch, "kind": options.kind, "kernels": found})
        return 0
    _print(kernels, read.text, target.arch, ordered=options.in_order)
    return 0


def _refused(kata: Kata, source: Source, verdict: Verdict) -> int:
    """Say what a grade would."""
    print(verdict_text.explanation(Grade(kata, source, (verdict,))), file=sys.stderr)
    return 1


def _arch(asked: str | None) -> str:
    """Raises CatalogError for what no nvcc could mean."""
    if asked is None:
        gpu = find_gpu()
        return gpu.arch if gpu is not None else SIM_ARCH
    if not re.fullmatch(r"sm_\d{2,3}[af]?", asked):
        raise CatalogError(f"--arch is as nvcc writes it: sm_80, sm_90a, not {asked!r}.")
    return asked


def _chosen(kernels: Sequence[Kernel], name: str | None) -> list[Kernel]:
    found = [kernel for kernel in kernels if name is None or name in kernel.name]
    if not found and name is not None:
        there = ", ".join(kernel.name for kernel in kernels) or "none at all"
        raise CatalogError(f"no kernel has {name!r} in its name; there are: {there}.")
    return found


def _print(kernels: Sequence[Kernel], source: str, arch: str, *, ordered: bool) -> None:
    if not kernels:
        print("There is no kernel in the file.")
    for place, kernel in enumerate(kernels):
        if place:
            print()
        for line in headline(kernel):
            print(plain(line))
        print(f"  for {arch}")
        print()
        for line in (in_order if ordered else grouped)(kernel, source):
            print(plain(line))
