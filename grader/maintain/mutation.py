"""`kata dev mutate`: mutants of the solutions' answers, graded on the simulator; those that pass are told.

A mutant that passes and is not another way to write the same kernel shows a case that is missing. nvcc makes of some
the same code as of the solution: these are not graded. Others that are as right are in EQUIVALENT, each with the
reason. A run is resumable: its results are a file of JSON lines, and what is there already is not graded again.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from grader.compile import unit
from grader.compile.build import Build
from grader.content.catalog import Catalog, CatalogError, Kata, load_catalog
from grader.content.yaml_fields import MANY, Field, Value, close_to, record, root_value, several, words
from grader.grade import grade, prepare
from grader.maintain.mutators import Mutant, bare, mutants_of
from grader.maintain.same_code import on_device_alone, same_code
from grader.options import Options
from grader.output.console import Commands, examples, open_catalog
from grader.sandbox.parent import forked_sandboxes
from grader.verdict import Kind

EQUIVALENT = Path("solutions/equivalents.yaml")
TOGETHER = 160  # mutants that are compiled before they are graded
SAME = "same code"  # as the solution's: in place of a verdict
# No kernel: what nvcc refuses, and what this machine or the simulator cannot run.
NO_KERNEL = (str(Kind.DOES_NOT_COMPILE), str(Kind.NOT_STARTED), str(Kind.UNSUPPORTED), str(Kind.NOT_ALLOWED))
_FIELDS = {name: Field(words, required=True) for name in ("line", "becomes", "why")}


@dataclass(frozen=True)
class Result:
    """What became of one mutant; ``name`` is Mutant.name."""

    name: str
    kata: str
    line: int
    operator: str
    before: str
    after: str
    verdict: str
    summary: str

    @property
    def compiles(self) -> bool:
        return self.verdict not in NO_KERNEL

    @property
    def is_same(self) -> bool:
        return self.verdict == SAME

    @property
    def survives(self) -> bool:
        return self.verdict == str(Kind.PASS)

    @property
    def key(self) -> tuple[str, str]:
        return bare(self.before), bare(self.after)


def add(tasks: Commands[argparse.ArgumentParser]) -> None:
    parser = tasks.add_parser(
        "mutate",
        help="grade mutants of the solutions on the simulator, and list those that pass",
        description="Change one operator, bound, index, constant or statement of a solution's answers at a time, grade "
        f"each such mutant on the simulator, and list those that pass and are not in {EQUIVALENT}. Exit code 0: there "
        "is no such mutant, 1: there are some.",
        epilog=examples(
            "kata dev mutate relu_f32",
            "kata dev mutate --sample 200 --seed 7 --results mutants.jsonl",
            "kata dev mutate --each 10 --results mutants.jsonl",
            "kata dev mutate --count",
        ),
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="katas or families (default: all)")
    parser.add_argument("--sample", type=int, metavar="N", help="so many of them, families in turn (default: all)")
    parser.add_argument("--each", type=int, metavar="N", help="at most so many of each kata, its operators in turn")
    parser.add_argument("--seed", type=int, default=0, help="which ones --sample and --each take (default: 0)")
    parser.add_argument("--results", type=Path, metavar="FILE", help="keep results there, and go on where it ends")
    parser.add_argument("--again", action="store_true", help="grade those that passed in FILE again")
    parser.add_argument("--count", action="store_true", help="only say how many there are")
    parser.set_defaults(command=_mutate)


def sample(katas: Iterable[Kata], count: int | None, seed: int) -> list[Mutant]:
    """``count`` mutants, or all. Families take turns, so that each has as many as the others, as far as it has any."""
    if count is None:
        return [mutant for kata in katas for mutant in mutants_of(kata)]
    random = Random(seed)
    families: dict[str, list[Kata]] = {}
    for kata in katas:
        families.setdefault(kata.family, []).append(kata)
    shuffled = []
    for members in families.values():
        found = [mutant for kata in members for mutant in mutants_of(kata)]
        shuffled.append(random.sample(found, len(found)))
    turns = itertools.chain.from_iterable(itertools.zip_longest(*shuffled))
    return list(itertools.islice((mutant for mutant in turns if mutant is not None), count))


def each(katas: Iterable[Kata], count: int, seed: int) -> list[Mutant]:
    """At most ``count`` mutants of each kata, drawn so that all its operators take turns. First come one mutant of each
    kata, then the second of each: a run that is stopped has looked at all katas."""
    chosen = []
    for kata in katas:
        random, operators = Random(f"{kata.name} {seed}"), dict[str, list[Mutant]]()
        for mutant in (found := mutants_of(kata)):
            operators.setdefault(mutant.operator, []).append(mutant)
        groups = [random.sample(group, len(group)) for group in operators.values()]
        turns = itertools.chain.from_iterable(itertools.zip_longest(*random.sample(groups, len(groups))))
        chosen.append(itertools.islice((mutant for mutant in turns if mutant is not None), min(count, len(found))))
    rounds = itertools.chain.from_iterable(itertools.zip_longest(*chosen))
    return [mutant for mutant in rounds if mutant is not None]


def run(
    mutants: Sequence[Mutant], options: Options, keep: Callable[[Result], None], tell: Callable[[str], None]
) -> None:
    """Compile and grade, some at a time; ``keep`` gets each result as soon as it is there."""
    mutants = alike_together(mutants)
    for first in range(0, len(mutants), TOGETHER):
        batch = mutants[first : first + TOGETHER]
        tell(f"mutants {first + 1} to {first + len(batch)} of {len(mutants)}")
        with TemporaryDirectory(prefix="mutants-") as folder, forked_sandboxes():
            files = [_written(mutant, Path(folder)) for mutant in batch]
            solutions = {mutant.kata.name: (mutant.kata, mutant.kata.solution_path) for mutant in batch}
            work = [(mutant.kata, file) for mutant, file in zip(batch, files, strict=True)]
            same = _same([*work, *solutions.values()], batch, files, options)
            for mutant, file in zip(batch, files, strict=True):
                keep(_result(mutant, SAME, "") if file in same else _graded(mutant, file, options))


def alike_together(mutants: Sequence[Mutant]) -> list[Mutant]:
    """In an order in which nvcc reads the headers seldom: only files with the same ones go into one run of it. What has
    to be compiled alone comes last."""
    alike: dict[tuple[bool, tuple[str, ...]], list[Mutant]] = {}
    for mutant in mutants:
        alone = not unit.may_share(mutant.text.encode())
        alike.setdefault((alone, unit.includes_of(mutant.text)), []).append(mutant)
    groups = sorted(alike.items(), key=lambda item: (item[0][0], -len(item[1])))
    return [mutant for _, group in groups for mutant in group]


def _same(
    work: Sequence[tuple[Kata, Path]], mutants: Sequence[Mutant], files: Sequence[Path], options: Options
) -> set[Path]:
    """Compiles all files. Returns those of mutants whose change leaves no trace in the code."""
    built = {item.request.source.path: item.ptx for item in prepare(work, options) if isinstance(item, Build)}
    return {
        file
        for mutant, file in zip(mutants, files, strict=True)
        if (own := built.get(file)) and (solutions := built.get(mutant.kata.solution_path))
        if on_device_alone(mutant.text, mutant.line) and same_code(own.read_text(), solutions.read_text())
    }


def _written(mutant: Mutant, folder: Path) -> Path:
    place = folder / mutant.name / f"{mutant.kata.name}.cu"
    place.parent.mkdir()
    place.write_text(mutant.text, encoding="utf-8")
    return place


def _graded(mutant: Mutant, file: Path, options: Options) -> Result:
    verdict = grade(mutant.kata, options, source=file).verdict
    return _result(mutant, str(verdict.kind), verdict.summary)


def _result(mutant: Mutant, verdict: str, summary: str) -> Result:
    said = (mutant.operator, mutant.before.strip(), mutant.after.strip(), verdict, summary)
    return Result(mutant.name, mutant.kata.name, mutant.line, *said)


def as_mutant() -> Options:
    """The smallest failing shape is of no interest, only whether one fails."""
    return Options(device="sim", speed=False, last_failure=False, together=True, smallest=False)


# -- what stands in files --------------------------------------------------------------------------------------------


def known(results: Path | None) -> dict[str, Result]:
    """What an earlier run found. A last line that was cut off is left out."""
    found: dict[str, Result] = {}
    if results is None or not results.is_file():
        return found
    for line in results.read_text(encoding="utf-8").splitlines():
        try:
            result = Result(**json.loads(line))
        except (ValueError, TypeError):
            continue
        found[result.name] = result
    return found


def equivalents(root: Path) -> Mapping[str, Mapping[tuple[str, str], str]]:
    """Kata -> (line, what becomes of it) -> why that is as right. Raises CatalogError."""
    whole = root_value(root / EQUIVALENT, "equivalents", CatalogError, "It says which mutants are as right.")
    read = several(_entry, range(1, MANY), "entries")
    return {name: dict(read(value)) for name, _, value in whole.items()} if whole is not None else {}


def _entry(value: Value) -> tuple[tuple[str, str], str]:
    fields = record(value, _FIELDS)
    return (fields["line"], fields["becomes"]), fields["why"]


def check(root: Path) -> list[str]:
    """Every entry of EQUIVALENT is a mutant that there is."""
    try:
        catalog, entries = load_catalog(root), equivalents(root)
    except CatalogError as error:
        return [str(error)]
    return [problem for name, found in entries.items() for problem in _problems(catalog, name, found)]


def _problems(catalog: Catalog, name: str, found: Mapping[tuple[str, str], str]) -> Iterator[str]:
    if name not in catalog.katas:
        yield f"{EQUIVALENT}: there is no kata {name}.{close_to(name, catalog.katas)}"
        return
    there = {mutant.key for mutant in mutants_of(catalog.katas[name])}
    for line, becomes in found:
        if (line, becomes) not in there:
            yield f"{EQUIVALENT}: {name}: no mutant makes {becomes!r} of {line!r}. Remove the entry."


# -- the command -----------------------------------------------------------------------------------------------------


def _mutate(options: argparse.Namespace) -> int:
    catalog = open_catalog()
    katas = catalog.select(options.names)
    if options.each is not None:
        chosen = each(katas, options.each, options.seed)[: options.sample]
    else:
        chosen = sample(katas, options.sample, options.seed)
    if options.count:
        print(f"{len(chosen)} mutants of {len({mutant.kata.name for mutant in chosen})} katas")
        return 0
    found = known(options.results)
    argued = equivalents(catalog.root)
    wanted = [item for item in chosen if item.name not in found or (options.again and found[item.name].survives)]

    def keep(result: Result) -> None:
        found[result.name] = result
        if options.results is not None:
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(result)) + "\n")
        if surviving(result, argued):
            print(_row(result), flush=True)

    run(wanted, as_mutant(), keep, lambda line: print(line, flush=True))
    return _summary([found[mutant.name] for mutant in chosen if mutant.name in found], argued)


def surviving(result: Result, argued: Mapping[str, Mapping[tuple[str, str], str]]) -> bool:
    """Whether it passes and no entry says why it may."""
    return result.survives and result.key not in argued.get(result.kata, {})


def _row(result: Result) -> str:
    return f"{result.kata}:{result.line} [{result.operator}] {bare(result.before)}  =>  {bare(result.after)}"


def _summary(results: Sequence[Result], argued: Mapping[str, Mapping[tuple[str, str], str]]) -> int:
    kernels = [result for result in results if result.compiles]
    passing = [result for result in kernels if result.survives]
    left = [result for result in passing if surviving(result, argued)]
    print("survivors:" if left else "no survivors")
    for result in left:
        print(f"  {_row(result)}")
    kinds = ", ".join(f"{kind} {count}" for kind, count in Counter(item.verdict for item in results).most_common())
    print(f"{len(results)} mutants: {kinds}")
    right = len(passing) - len(left) + sum(result.is_same for result in kernels)
    judged = len(kernels) - right
    share = (judged - len(left)) / judged if judged else 1.0
    print(f"{len(kernels)} are kernels, {right} of them as right; of the others {share:.1%} are found")
    return 1 if left else 0
