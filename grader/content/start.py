"""Kata -> the file to start it from: its skeleton, a sketch of the solution, or a blank file.

A skeleton lacks the answers of its TODOs. A sketch has the types, the constants and the signatures of kernels and
helpers, and says in each empty body what must hold. A blank has the task, the launcher's signature and all that a
verdict asks. All three follow from the solution, the spec and difficulty.yaml. They are graded in the same way.
"""

from __future__ import annotations

import ast
import functools
import glob
import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from grader.content import skeleton
from grader.content.catalog import ARCHITECTURES, EXACT, Catalog, Kata
from grader.content.rung import code_of, header
from grader.content.skeleton import SkeletonError
from grader.content.source_file import read_source
from grader.storage.whole_file import write_whole

if TYPE_CHECKING:  # only a blank needs the spec
    from numpy import ndarray

    from grader.content.spec import InputKind, Sizes, Spec

SKELETON, SKETCH, BLANK = STARTS = ("skeleton", "sketch", "blank")  # from the least to the most work
WIDTH = 120  # characters of a line
MOST_DRAWN = 4_000  # elements of the inputs that show which numbers a kind of values has
SEEDS, MORE_SEEDS = 6, 60  # of such draws; more where one of the first has a special number
SPECIAL = ("nan", "inf", "-inf", "-0")

_BOUND = re.compile(r" The bound(?: is |: )")  # from here on a paragraph derives how far off an answer may be
_TODO = re.compile(r"^\s*// TODO\((\d+)\): (.*)$")
_SIZE = re.compile(r"\s*\(~\d+ lines?(?: each)?\)\.?$")
_ROW = re.compile(r"^(\w+) {2,}(\S.*)$")
_GIVEN = re.compile(r"\b(?:constexpr|struct|union|class|enum|using|namespace|operator)\b")  # stays in a sketch
_CONSTANT = re.compile(r"^    (?:extern )?(?:static )?(?:constexpr|__shared__|using) .*;")  # stays, too
_ASM = re.compile(r"\basm\b")
_EMPTY_LAUNCHER = re.compile(r'(?:#include[<"][\w./]+[>"])*KATA_EXPORTvoid\w+\([^()]*\)\{\}')
_LIBRARY_ROWS = {
    "cublas": "cublas (cublas_v2.h)",
    "cutlass": "cutlass (its headers)",
    "driver": "the CUDA driver (cuda.h)",
}
_TAKEN = re.compile(r"^// From (kata_\w+\.cuh):\nusing ([^;]*);", re.MULTILINE)
_TIED = "\N{NO-BREAK SPACE}"
_LABELS = re.compile(r"^([\w*]+(?:, [\w*]+)*): ")  # of a paragraph: names of katas, with wildcards


def text_of(kata: Kata, start: str) -> str:
    """What the kata's file holds at first. Raises SkeletonError or SpecError if the repository's files are malformed.

    ``start`` is one of STARTS.
    """
    return {SKELETON: skeleton.skeleton_of, SKETCH: sketch_of, BLANK: blank_of}[start](kata)


def is_untouched(kata: Kata, text: str) -> bool:
    """Whether a file is one of the three as it was written: white space does not count, nor a blank's comments."""
    if skeleton.is_pristine(text, skeleton.skeleton_of(kata)):
        return True
    if _EMPTY_LAUNCHER.fullmatch("".join("".join(code_of(text)).split())):
        return True
    return skeleton.is_pristine(text, sketch_of(kata))


# -- the learner's own file --------------------------------------------------------------------------------------------


def write(kata: Kata, start: str) -> Path | None:
    """Write the file of a start into the folder of the learner's work. Raises SkeletonError.

    What was there is kept beside it, if it was begun, and its new path is returned.
    """
    text, kept = text_of(kata, start), None
    try:
        kata.work_path.parent.mkdir(parents=True, exist_ok=True)
        if is_begun(kata, kata.work_path):
            kept = set_aside(kata.work_path)
        write_whole(kata.work_path, text)
    except OSError as error:
        if kept is not None and not kata.work_path.exists():
            kept.rename(kata.work_path)
        raise SkeletonError(
            f"{kata.work_path}: cannot be written ({error.strerror}). Make the folder writable."
        ) from None
    return kept


class Taken(NamedTuple):
    """Where a learner's file is now, and whether it was not there before."""

    path: Path
    is_new: bool


def carry(kata: Kata) -> Taken | None:
    """Move a begun file out of exercises/ into the folder of the learner's work, and write the skeleton again.

    Returns where the work is now; None where there is nothing to move. The work there, if any, is kept beside it.
    """
    if not is_begun(kata, kata.skeleton_path):
        return None
    try:
        content = read_source(kata.skeleton_path)
    except OSError as error:
        raise SkeletonError(f"{kata.skeleton_path}: cannot be read ({error.strerror}). Move it away.") from None
    kept = take(kata, content)
    skeleton.write(kata)
    return kept


def take(kata: Kata, content: bytes) -> Taken:
    """Put a learner's file into the folder of their work, unless it is there already. Raises SkeletonError.

    If another begun file of the kata is there, it stays, and this one is kept beside it as a .bak file.
    """
    place = kata.work_path
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        for there in (place, *_kept(place)) if is_begun(kata, place) else (place,):
            if there.is_file() and there.read_bytes() == content:
                return Taken(there, is_new=False)
        if is_begun(kata, place):
            place = _free(place)
        place.write_bytes(content)
    except OSError as error:
        raise SkeletonError(f"{place}: cannot be written ({error.strerror}). Make the folder writable.") from None
    return Taken(place, is_new=True)


def is_begun(kata: Kata, path: Path) -> bool:
    """Whether a learner wrote into the file, also only comments. One that cannot be read counts as begun, so that it is
    kept."""
    if not os.path.lexists(path):
        return False
    try:
        text = skeleton.read(path)
    except OSError:
        return True
    return not any(skeleton.is_pristine(text, text_of(kata, start)) for start in STARTS)


def last_changed(catalog: Catalog) -> Kata | None:
    """The kata whose file the learner started or changed last; None if there is no such file.

    A skeleton in exercises/ counts once it is begun.
    """
    started = [kata for kata in catalog.katas.values() if os.path.lexists(kata.work_path)]
    last = max(started, key=lambda kata: _changed(kata.work_path), default=None)
    newest = _changed(last.work_path) if last is not None else 0.0
    others = [kata for kata in catalog.katas.values() if _changed(kata.skeleton_path) > newest]
    by_time = sorted((kata for kata in others if kata not in started), key=lambda kata: -_changed(kata.skeleton_path))
    return next((kata for kata in by_time if is_begun(kata, kata.skeleton_path)), last)


def _changed(path: Path) -> float:
    """When a file was written, in seconds; 0 if it cannot be said."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def set_aside(path: Path) -> Path:
    """Rename a file to the first free .bak name, and return that. Raises OSError."""
    return path.rename(_free(path))


def _kept(path: Path) -> list[Path]:
    """The .bak files of a file."""
    return sorted(path.parent.glob(f"{glob.escape(path.name)}.*.bak"))


def _free(path: Path) -> Path:
    return next(place for n in count(1) if not os.path.lexists(place := path.with_name(f"{path.name}.{n}.bak")))


# -- the sketch --------------------------------------------------------------------------------------------------------


def sketch_of(kata: Kata) -> str:
    """The solution with empty functions. Helpers that wrap PTX and constexpr functions keep what the skeleton has."""
    return _sketch_of(kata.solution_path.read_text(), kata.solution_path)


@functools.lru_cache(maxsize=8)
def _sketch_of(solution: str, path: Path) -> str:
    answers = skeleton.answer_lines(solution, path)
    lines = [(line, number in answers) for number, line in enumerate(solution.split("\n"), 1)]
    numbers = count(1)
    written: list[str] = []
    for part in _parts(lines):
        written += _sketched(part, _above(written), numbers)
    return "\n".join(written)


def _above(written: Sequence[str]) -> str:
    """The line above a function: the comment on it, if it has one."""
    return written[-1] if written else ""


_Line = tuple[str, bool]  # its text, and whether it is part of an answer


def _parts(lines: Sequence[_Line]) -> Iterator[list[_Line]]:
    """Functions, each in one piece from its first line to its closing brace, and single lines."""
    index = 0
    while index < len(lines):
        end = _end_of_function(lines, index)
        yield list(lines[index:end])
        index = end


def _end_of_function(lines: Sequence[_Line], start: int) -> int:
    """Where the function ends that starts on this line; the next line if none does."""
    first = lines[start][0]
    if not first or first[0] in "#/} \t":
        return start + 1
    for index in range(start, len(lines)):
        text = _without_comment(lines[index][0])
        if text.endswith("{") and "(" in "".join(line for line, _ in lines[start : index + 1]):
            return next(at for at in range(index, len(lines)) if lines[at][0] == "}" or lines[at][0] == "};") + 1
        if text.endswith((";", "{", "}")):
            return start + 1
    return start + 1


def _without_comment(line: str) -> str:
    return line.partition("//")[0].rstrip()


def _sketched(part: Sequence[_Line], above: str, numbers: Iterator[int]) -> Iterator[str]:
    if len(part) == 1:
        yield from _outside(part[0])
        return
    opening = next(index for index, (line, _) in enumerate(part) if _without_comment(line).endswith("{"))
    signature, body = part[: opening + 1], part[opening + 1 : -1]
    written = [line for line, _ in signature]
    whole_in_answer = all(inside for _, inside in part)
    given = _GIVEN.search(" ".join(written)) or any(_ASM.search(line) for line, _ in body)
    if given and not whole_in_answer:
        kept = (line for line, inside in part if not inside)
        yield from _renumbered(kept, numbers)
        return
    yield from written
    yield from (line for line, inside in body if not inside and _CONSTANT.match(line))
    yield from _task(body, above.startswith("//"), next(numbers))
    yield part[-1][0]


def _outside(line: _Line) -> Iterator[str]:
    """A line between functions. A TODO's text stays as a comment; what an answer says about itself does not."""
    text, inside = line
    if (inside and text.lstrip().startswith("//")) or text.lstrip().startswith("// END TODO("):
        return
    todo = _TODO.match(text)
    yield f"// {_SIZE.sub('', todo[2])}" if todo else _SIZE.sub("", text) if text.startswith("//   ") else text


def _renumbered(lines: Iterator[str], numbers: Iterator[int]) -> Iterator[str]:
    number = 0
    for line in lines:
        if _TODO.match(line):
            number = next(numbers)
        yield re.sub(r"TODO\(\d+\)", f"TODO({number})", line) if "TODO(" in line else line


def _task(body: Sequence[_Line], is_described: bool, number: int) -> Iterator[str]:
    """What must hold in a function: the texts of its TODOs and of the comments between them, and how many lines of code
    the solution has there."""
    kept = [line for line, inside in body if not inside and not _CONSTANT.match(line)]
    found = list(_said(kept)) or [f"Write {'what the comment above says' if is_described else 'this function'}."]
    size = sum(not line.lstrip().startswith("#") for line in code_of("\n".join(line for line, _ in body)))
    words = f"{' '.join(found)} (~{size} {'line' if size == 1 else 'lines'})"
    yield from textwrap.wrap(
        words, WIDTH, initial_indent=f"    // TODO({number}): ", subsequent_indent="    //   ", break_on_hyphens=False
    )
    yield f"    // END TODO({number})"


def _said(lines: Sequence[str]) -> Iterator[str]:
    """What comments on lines of their own say, in sentences."""
    for line in lines:
        words = line.strip()
        if words.startswith("// END TODO(") or not words.startswith("//"):
            continue
        todo = _TODO.match(line)
        text = _SIZE.sub("", todo[2] if todo else words.removeprefix("//").strip())
        if text:
            yield text


# -- the blank ---------------------------------------------------------------------------------------------------------


def blank_of(kata: Kata) -> str:
    """The task, what a verdict asks, and the launcher with nothing in it."""
    return _blank_of(kata, kata.solution_path.read_text())


@functools.lru_cache(maxsize=8)
def _blank_of(kata: Kata, solution: str) -> str:
    from grader.content.spec import load_spec

    spec = load_spec(kata)
    lines = [*_filled(f"{kata.name}: {spec.computes}"), "//"]
    for label, words in _asked(kata, spec):
        lines += _filled(words, label)
    for paragraph in _contract(kata):
        lines += ["//", *paragraph]
    includes = [f"#include <{name}>" for name in spec.headers(kata)]
    size = len(code_of(solution))
    task = f"Write this launcher, and above it the kernels that it launches. (~{size} lines)"
    body = [*_opened(f"KATA_EXPORT {spec.signature(kata)} {{"), f"    // TODO(1): {task}", "    // END TODO(1)", "}"]
    return "\n".join([*lines, '#include "kata.cuh"', *includes, "", *body, ""])


def _opened(line: str) -> list[str]:
    """A function's first line, over several if it is long: parameters are not cut."""
    if len(line) <= WIDTH:
        return [line]
    name, _, parameters = line.partition("(")
    tied = parameters.replace(" ", _TIED).replace(f",{_TIED}", ", ")
    wrapped = textwrap.wrap(tied, WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return [f"{name}(", *(each.replace(_TIED, " ") for each in wrapped)]


def _filled(words: str, label: str = "") -> list[str]:
    first, more = (f"// {label:<9}  ", "//" + " " * 12) if label else ("// ", "// ")
    return textwrap.wrap(words, WIDTH, initial_indent=first, subsequent_indent=more, break_on_hyphens=False)


def _asked(kata: Kata, spec: Spec) -> Iterator[tuple[str, str]]:
    """What a verdict asks, in rows: a label and its words."""
    shapes = _row(kata, "Shapes")
    yield "Shapes", shapes
    if least := ", ".join(_least(kata, spec, shapes)):
        yield "Sizes", least
    if "aligned" not in shapes:
        yield "Pointers", ", ".join(f"{each.name} {each.align}-byte aligned" for each in (*spec.inputs, *spec.written))
    if kata.multiples:
        known = ", ".join(f"{name} is a multiple of {step}" for name, step in kata.multiples.items())
        yield "Multiples", f"the launcher is only called where {known}"
    if parameters := [f"{each.name} = {each.value:g}" for each in spec.parameters]:
        yield "Given", ", ".join(parameters)
    yield "Rounding", _rounding(kata, spec)
    yield "Values", "; ".join(_values(spec))
    yield "Repeats", _repeats(kata, spec)
    yield "Arrays", _arrays(spec)
    yield "Launcher", "works on the given stream; the host does not compute (README.md, What a launcher may do)"
    libraries = [_LIBRARY_ROWS[name] for name in kata.libraries]
    yield "Libraries", ", ".join(("the C++ standard library", "the CUDA runtime", *libraries))
    if taken := [f"{name} has {functions}" for name, functions in _taken(kata)]:
        yield "Headers", f"in grader/include, in the namespace kata: {'; '.join(taken)}"
    if kata.speed is not None and kata.level != "easy":
        asked = ", ".join(f"{each.percent:g} % on {arch}" for arch, each in kata.speed.percent.items())
        yield "Speed", f"of {kata.speed.baseline}: {asked}" if asked else f"shown against {kata.speed.baseline}"
    if kata.compute != ARCHITECTURES[0]:
        yield "Card", kata.compute if kata.compute in EXACT else f"{kata.compute} or newer"


def _taken(kata: Kata) -> Iterator[tuple[str, str]]:
    """The headers of grader/include beside kata.cuh that the solution includes, and what it takes from each."""
    for name, names in _TAKEN.findall(kata.solution_path.read_text()):
        yield name, ", ".join(words.strip().removeprefix("kata::") for words in names.split(","))


def _row(kata: Kata, label: str) -> str:
    """A row of the solution's header, with its further lines."""
    words: list[str] = []
    for line in header(kata).split("\n"):
        row = _ROW.match(line)
        if row and row[1] == label:
            words.append(row[2])
        elif words and line.startswith("   "):
            words.append(line.strip())
        elif words:
            break
    return " ".join(words)


def _least(kata: Kata, spec: Spec, shapes: str) -> Iterator[str]:
    """The least value of each size of which the row of shapes does not say it by itself: "n >= 0" says it of n."""
    for name, size in spec.sizes.items():
        step = kata.multiples.get(name, 1)
        if not re.search(rf"\b{name} (?:>= \d|one of|in \d)", shapes):
            yield f"{name} >= {-(-size.min // step) * step}"


def _rounding(kata: Kata, spec: Spec) -> str:
    from grader.content.spec import Accumulated, Rounded

    if isinstance(spec.tolerance, Accumulated):
        acc = kata.acc or kata.elem
        return f"compared with a reference in float64: sums may round as in {acc}, and each output once to its type"
    if isinstance(spec.tolerance, Rounded):
        acc = kata.acc or kata.elem
        return (
            f"compared with a reference in float64: numbers may be off as in {acc} before an output rounds them, once"
        )
    if not any(spec.dtype(each, kata).is_float for each in spec.outputs):
        return "every element is exactly right"
    zeros = "; -0 and 0 differ" if spec.tolerance.signed_zeros else ""
    return f"every element is exactly right, rounded once to the output's type{zeros}; any nan stands for any other"


def _repeats(kata: Kata, spec: Spec) -> str:
    if spec.repeatable:
        return "two calls with the same inputs give the same bits: no float atomics in an order of chance"
    if spec.deterministic and not any(spec.dtype(each, kata).is_float for each in spec.outputs):
        return "the launcher is called more than once"
    free = "get a note" if spec.deterministic else "may change the last bits"
    return f"the launcher is called more than once; float atomics {free}"


def _values(spec: Spec) -> Iterator[str]:
    """The kinds of inputs by name, with what is not an ordinary number in them."""
    for kind in spec.values:
        special = _special_numbers(kind, spec)
        exact = ["the answer is exact"] if kind.exact else []
        notes = ", ".join([*special, *exact])
        yield f"{kind.name} ({notes})" if notes else kind.name


def _special_numbers(kind: InputKind, spec: Spec) -> list[str]:
    """Which of nan, inf (or only -inf) and -0 are among the inputs, found by drawing some."""
    from grader.content.spec import Rng

    sizes, rng = _drawn_sizes(spec), Rng(0)
    found: set[str] = set()
    for seed in range(MORE_SEEDS):
        if (seed == SEEDS and not found) or len(found) == len(SPECIAL):
            break
        for each in spec.inputs:
            rng.state = _seeded(seed)
            found |= _special_in(kind.for_input(each.name)(rng, each.extent(sizes), sizes))
    if "inf" in found:
        found.discard("-inf")
    return [name for name in SPECIAL if name in found]


@functools.cache
def _seeded(seed: int) -> Mapping[str, Any]:
    """Where a source of this seed begins: to put one there is quicker than to make another."""
    from grader.content.spec import Rng

    return Rng(seed).state


def _special_in(array: ndarray) -> set[str]:
    import numpy

    if array.dtype.kind != "f" or (array.all() and numpy.isfinite(array).all()):
        return set()
    found = {
        "nan": numpy.isnan(array),
        "inf": numpy.isposinf(array),
        "-inf": numpy.isneginf(array),
        "-0": numpy.signbit(array) & (array == 0),
    }
    return {name for name, where in found.items() if where.any()}


def _drawn_sizes(spec: Spec) -> Sizes:
    """The largest of the named shapes that are quick to draw."""
    few = [sizes for sizes in spec.named_sizes if _elements(spec, sizes) <= MOST_DRAWN]
    return max(few or spec.named_sizes[:1], key=lambda each: _elements(spec, each))


def _elements(spec: Spec, sizes: Sizes) -> int:
    return sum(each.elements(sizes) for each in spec.inputs)


def _arrays(spec: Spec) -> str:
    if not spec.updated:
        return "none overlap; inputs keep what they hold; every element of an output is written in each call"
    kept = _kept_in_part(spec)
    overwritten = spec.updated - kept
    rows = ["none overlap"]
    if overwritten:
        rows.append(f"{_are(overwritten)} overwritten in place, every element in each call")
    if kept:
        rows.append(f"{_are(kept)} updated in place, and what the task does not write there keeps its value")
    return "; ".join([*rows, "other inputs keep what they hold"])


def _are(names: Iterable[str]) -> str:
    """The names and their verb: "x is", "a and b are"."""
    found = sorted(names)
    return f"{' and '.join(found)} {'is' if len(found) == 1 else 'are'}"


def _kept_in_part(spec: Spec) -> set[str]:
    """Those of the updated tensors of which the reference leaves some elements as they are, such as a cache that gets
    one row per token; found by drawing inputs."""
    from grader.content.spec import Rng

    sizes, kind = _drawn_sizes(spec), spec.values[0]
    rng = Rng(1)
    drawn = {each.name: kind.for_input(each.name)(rng, each.extent(sizes), sizes) for each in spec.inputs}
    given = {name: array.astype("f8" if array.dtype.kind == "f" else "i8") for name, array in drawn.items()}
    rows = {"rows": None} if spec.reference_takes_rows else {}
    answers = spec.reference(**given, sizes=sizes, **rows)
    outputs = zip(spec.outputs, answers if isinstance(answers, tuple) else (answers,), strict=True)
    return {each.name for each, answer in outputs if each.name in spec.updated and (answer == given[each.name]).any()}


def labelled(paragraph: str, katas: Iterable[str]) -> set[str]:
    """The katas that a paragraph names before its first colon, such as "one_kata_f32, other_*: ...".

    None if it is about all of them.
    """
    found = _LABELS.match(paragraph)
    labels = found[1].split(", ") if found else []
    return {name for name in katas if any(fnmatchcase(name, label) for label in labels)}


def _contract(kata: Kata) -> Iterator[list[str]]:
    """The paragraphs of the spec's docstring that say what is asked, as comments; not those on its bound, and not those
    that begin with the names of other katas."""
    text = _docstring(kata.spec_path.read_text())
    katas = {path.stem for path in kata.solution_path.parent.glob("*.cu")}
    for paragraph in text.split("\n\n"):
        words = " ".join(paragraph.split())
        if words.startswith(("The bound", "The whole numbers")):
            return
        if words.startswith("SPECS ") or kata.name not in (labelled(words, katas) or {kata.name}):
            continue
        if paragraph.startswith(" "):
            yield [f"// {line}".rstrip() for line in paragraph.split("\n")]
        else:
            yield _filled(_BOUND.split(words)[0])


@functools.lru_cache(maxsize=4)
def _docstring(module: str) -> str:
    """One text is the spec of all katas of a family."""
    return ast.get_docstring(ast.parse(module)) or ""
