"""`kata show`, `hint`, `solution` and `diff`: one kata, from its task to its answer."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from grader.commands import lookups
from grader.content import rung, skeleton, start, symptoms
from grader.content.catalog import Catalog, CatalogError, Kata, find_root, load_catalog
from grader.content.hints import COUNT, load_hints
from grader.content.source_file import digest_of
from grader.content.start import BLANK, SKELETON
from grader.learner import progress
from grader.learner.pointer import rows_on
from grader.learner.progress import History, ProgressError
from grader.learner.state import PASSED, State
from grader.output.console import Commands, examples, one_kata, open_catalog, open_progress, open_states, say_json, warn
from grader.output.terminal import is_terminal, line_width, plain
from grader.output.verdict_text import display_path
from grader.verdict import Kind

WIDTH = 120  # characters of a line


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    _add_show(commands)
    _add_hint(commands)
    _add_solution(commands)
    _add_diff(commands)
    _add_reset(commands)


def _add_show(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "show",
        help="show one kata: its task, its TODOs, the katas before it, your state",
        description="Show one kata: what it computes and how, its TODOs in your file, its lesson, the katas before it, "
        "your state, the hints you had. Exit code 0, or 2 if the command is at fault.",
        epilog=examples("kata show elementwise_f32", "kata show softmax_f32 --json"),
    )
    parser.add_argument("name", metavar="KATA")
    parser.add_argument("--json", action="store_true", help="as a JSON object")
    parser.set_defaults(command=_show)


def _add_hint(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "hint",
        help="show one of a kata's three hints; each says more than the one before",
        description="Show one of a kata's three hints. After a grade that failed, first comes what its verdict points "
        "at: the line, the TODO, and the row of the lesson that fits. Without STRENGTH it is the weakest hint, and "
        "after a grade that failed one that says more than those you had before it. `kata show` says which you had. "
        "Exit code 0, or 2 if the command is at fault.",
        epilog=examples("kata hint elementwise_f32", "kata hint elementwise_f32 3"),
    )
    parser.add_argument("name", metavar="KATA")
    parser.add_argument(
        "strength",
        nargs="?",
        type=int,
        choices=range(1, COUNT + 1),
        metavar="STRENGTH",
        help=f"1 to {COUNT} (default: 1; after a grade that failed, the next)",
    )
    parser.add_argument("--json", action="store_true", help="as a JSON object")
    parser.set_defaults(command=_hint)


_ANYWAY = "also before you passed it; your progress records that"


def _add_solution(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "solution",
        help="show a kata's solution, once you passed it",
        description="Print a kata's solution. Before you passed the kata it needs --anyway, and your progress "
        "records that. Exit code 0: printed, 1: not passed yet, 2: the command is at fault.",
        epilog=examples("kata solution elementwise_f32", "kata solution relu_f32 --anyway | less"),
    )
    parser.add_argument("name", metavar="KATA")
    parser.add_argument("--anyway", action="store_true", help=_ANYWAY)
    parser.add_argument("--json", action="store_true", help="as a JSON object")
    parser.set_defaults(command=_solution)


def _add_diff(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "diff",
        help="show what is new in a kata's code since the rung before it",
        description="Print the unified diff from the code of the rung before to this kata's, without comments and "
        "blank lines: the new idea of the rung. It compares the solutions, so before you passed both it needs "
        "--anyway. With --mine it compares your own two files. Exit code 0: printed (nothing if the two are equal), "
        "1: not passed yet, or there is no rung before, 2: the command is at fault.",
        epilog=examples("kata diff sgemm_sliced_k_f32", "kata diff sgemm_sliced_k_f32 --mine"),
    )
    parser.add_argument("name", metavar="KATA")
    parser.add_argument("--mine", action="store_true", help="compare your own files instead of the solutions")
    parser.add_argument("--anyway", action="store_true", help=_ANYWAY)
    parser.add_argument("--json", action="store_true", help="as a JSON object")
    parser.set_defaults(command=_diff)


def _show(options: argparse.Namespace) -> int:
    catalog, _, states = open_states()
    state = states[one_kata(catalog, options.name, "`kata show`").name]
    kata = state.kata
    if not _allowed([kata], "show"):
        return 1
    if options.json:
        todos = skeleton.todos(_text(kata.own_path))
        listed = [{"number": todo.number, "text": todo.text, "line": todo.line, "empty": todo.empty} for todo in todos]
        say_json({**state.record(), "header": rung.header(kata), "todos": listed})
        return 0
    for line in task(state, states, line_width(WIDTH)):
        print(plain(line))
    return 0


def task(state: State, states: Mapping[str, State], columns: int) -> Iterator[str]:
    """The lines of `kata show`: the header, the TODOs in the learner's file, and the learner's state."""
    kata = state.kata
    width = min(WIDTH, columns)
    yield from _narrowed(rung.header(kata), width)
    yield ""
    for todo in skeleton.todos(_text(kata.own_path)):
        place = f"{display_path(kata.own_path)}:{todo.line}"
        first = f"TODO {todo.number}  "
        yield from textwrap.wrap(todo.text, width, initial_indent=first, subsequent_indent=" " * 8)
        yield f"{'':8}{place}{', empty' if todo.empty else ''}"
    yield ""
    for label, text in _facts(state, [states[name] for name in kata.requires]):
        lines = textwrap.wrap(text, columns - 10, break_on_hyphens=False) if columns < WIDTH else [text]
        yield from (f"{label if place == 0 else '':<9} {line}" for place, line in enumerate(lines))


def _narrowed(header: str, width: int) -> Iterator[str]:
    """A header as it is in its file, or with its paragraphs wrapped again if that is too wide."""
    if max(map(len, header.splitlines())) <= width:
        yield from header.splitlines()
        return
    for paragraph in re.sub(r"\n {2,}", " ", header).splitlines():
        label = re.match(r"\w+ {2,}", paragraph)
        indent = " " * len(label[0]) if label else "  "
        yield from textwrap.wrap(paragraph, width, subsequent_indent=indent, break_on_hyphens=False) or [""]


def _facts(state: State, before: Sequence[State]) -> Iterator[tuple[str, str]]:
    kata = state.kata
    yield "level", f"{kata.level}, {kata.role}"
    yield "lesson", display_path(kata.lesson_path)
    yield "after", ", ".join(f"{item.kata.name} ({_standing(item)})" for item in before) or "nothing: start here"
    yield "state", state.text
    if state.last is not None and state.last.summary:
        yield "last", state.last.summary
    had = ", ".join(map(str, state.hints)) or "none"
    yield "hints", f"{had} of {COUNT} shown; `kata hint {kata.name}`"
    if state.solution_seen is not None:
        early = state.passed is None or state.solution_seen.time < state.passed.time
        yield "solution", f"looked at, {state.solution_seen.date}{', before you passed' if early else ''}"


def _standing(state: State) -> str:
    return PASSED if state.passed is not None else f"not {PASSED} yet"


def _allowed(katas: Sequence[Kata], how: str, *, anyway: bool = False, locked: bool = False) -> bool:
    """Whether these may be shown while an interview may be on; says why not. ``locked``: another rule forbids it."""
    refusal = lookups.refusal(katas, how, anyway=anyway, locked=locked)
    if refusal is not None:
        print(refusal, file=sys.stderr)
    return refusal is None


def _hint(options: argparse.Namespace) -> int:
    catalog = open_catalog()
    kata = one_kata(catalog, options.name, "a hint")
    known = _known(catalog)
    strength = options.strength or known.next_hint(kata.name, COUNT)
    if not _allowed([kata], f"hint {strength}"):
        return 1
    hint = load_hints(kata)[strength - 1]
    if options.json:
        said = {"kata": kata.name, "strength": strength, "of": COUNT, "hint": hint}
        say_json({**said, "symptom": [*said_symptom(kata, known)]})
    else:
        symptom = [*said_symptom(kata, known)]
        for line in map(plain, (*symptom, *[""] * bool(symptom), *said_hint(kata, hint, strength, known))):
            print(textwrap.fill(line, min(WIDTH, line_width(WIDTH)), break_on_hyphens=False) if is_terminal() else line)
    warn(progress.keep_hint(kata, strength))
    return 0


def said_symptom(kata: Kata, known: History) -> Iterator[str]:
    """What the last grade points at, if it failed: the line, the TODO, and the lesson's rows on its kind."""
    last = next(reversed(known.grades(kata.name)), None)
    if last is None or last.passed:
        return
    leads = " at" if last.verdict != Kind.WRONG_ANSWER.value else "; the clues point at"
    where = f"{leads} line {last.line}" if last.line is not None else ""
    where += f", in TODO({last.todo})" if last.todo is not None else ""
    since = "" if last.digest == digest_of(kata.own_path) else " You have edited the file since."
    yield f"Your last grade: {last.verdict}{where}.{since}"
    todo = next((each for each in skeleton.todos(_text(kata.own_path)) if each.number == last.todo), None)
    if todo is not None:
        yield f"TODO({todo.number}): {todo.text}"
    if rows := rows_on(kata, last.verdict or ""):
        yield f"The lesson on {last.verdict}, and its usual causes:"
    for row in rows:
        yield "  {}: {}".format(*(symptoms.plain(cell) for cell in (row.sees, row.cause)))


def said_hint(kata: Kata, hint: str, strength: int, known: History) -> Iterator[str]:
    """A hint, what comes after it, and for a blank file where the names are that a hint in code's words uses."""
    yield hint
    if strength == COUNT and known.started_from(kata.name) == BLANK:
        yield f"(its names are those of the skeleton, {display_path(kata.skeleton_path)}; your file has its own)"
    if strength < COUNT:
        yield f"(hint {strength} of {COUNT}; `kata hint {kata.name} {strength + 1}` says more)"


def _solution(options: argparse.Namespace) -> int:
    catalog = open_catalog()
    kata = one_kata(catalog, options.name, "`kata solution`")
    if not may_see(catalog, [kata], "solution", anyway=options.anyway):
        return 1
    text = kata.solution_path.read_text()
    if options.json:
        say_json({"kata": kata.name, "file": str(kata.solution_path), "text": text})
    else:
        print(text, end="")
    warn(progress.keep_solution(kata))
    return 0


def may_see(catalog: Catalog, katas: Sequence[Kata], how: str, *, anyway: bool) -> bool:
    """Whether these solutions may be shown by a command; says why not."""
    known = History() if anyway else open_progress(catalog)
    unsolved = [kata.name for kata in katas if not anyway and known.passed(kata.name) is None]
    if not _allowed(katas, how, anyway=anyway, locked=bool(unsolved)):
        return False
    if unsolved:
        print(
            f"You have not passed {' and '.join(unsolved)} yet. `kata hint {unsolved[0]}` helps. --anyway shows it"
            " now, and your progress records that.",
            file=sys.stderr,
        )
    return not unsolved


def _diff(options: argparse.Namespace) -> int:
    catalog = open_catalog()
    kata = one_kata(catalog, options.name, "`kata diff`")
    old = rung.before(kata, catalog)
    if old is None:
        print(f"{kata.name} is the first: there is no rung before it.", file=sys.stderr)
        return 1
    if not options.mine and not may_see(catalog, [old, kata], "diff", anyway=options.anyway):
        return 1
    lines = difference(old, kata, mine=options.mine)
    if options.json:
        say_json({"kata": kata.name, "before": old.name, "mine": options.mine, "diff": lines})
    else:
        for line in lines:
            print(plain(line))
    if not options.mine:
        keep_seen(catalog, [old, kata])
    return 0


def difference(old: Kata, new: Kata, *, mine: bool) -> list[str]:
    """The unified diff of two katas' code: of the learner's files, or of the solutions. Raises CatalogError."""
    one, other = (item.own_path if mine else item.solution_path for item in (old, new))
    return rung.code_diff(_text(one), _text(other), old_name=display_path(one), new_name=display_path(other))


def keep_seen(catalog: Catalog, katas: Sequence[Kata]) -> None:
    """Record that the learner saw these solutions, for the katas that are not passed."""
    known = _known(catalog)
    for kata in katas:
        if known.passed(kata.name) is None:
            warn(progress.keep_solution(kata))


def _known(catalog: Catalog) -> History:
    """Progress for a command that must also work without it."""
    try:
        return open_progress(catalog)
    except ProgressError as error:
        warn(str(error))
        return History()


def _text(path: Path) -> str:
    try:
        return skeleton.read(path)
    except OSError as error:
        raise CatalogError(f"{display_path(path)} cannot be read ({error.strerror}). Make it readable.") from None


def _add_reset(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("reset", help="write a kata's skeleton again; your file is kept as a .bak file")
    parser.add_argument("names", nargs="+", metavar="NAME", help="katas, families, levels, globs or files")
    parser.set_defaults(command=_reset)


def _reset(options: argparse.Namespace) -> int:
    for kata in load_catalog(find_root(), missing_skeletons=True).select(options.names):
        kept = reset(kata)
        note = f"; your file is kept as {kept.name}" if kept is not None else ""
        print(f"{kata.own_path}: skeleton written{note}")
    return 0


def reset(kata: Kata) -> Path | None:
    """Write the skeleton in the place of the learner's file, and return where a begun file is kept.

    Raises SkeletonError.
    """
    if kata.own_path == kata.skeleton_path:
        return skeleton.reset(kata)
    kept = start.write(kata, SKELETON)
    warn(progress.keep_start(kata, SKELETON))
    return kept
