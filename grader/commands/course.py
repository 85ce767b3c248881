"""`kata list`, `next` and `status`: the whole course, and the learner's progress in it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

from grader.content import rung, skeleton
from grader.content.catalog import LEVELS, ROLES, Catalog, CatalogError, Kata
from grader.content.start import BLANK, SKETCH
from grader.content.tracks import COLLECTION, track_of
from grader.learner import progress
from grader.learner.progress import GRADE, Event
from grader.learner.state import FAILED, NOT_STARTED, PASSED, WORDS, WRITTEN, State, next_ones
from grader.learner.way import Way, in_order, way_of
from grader.output.console import NAMES, Commands, examples, open_states, say_json, warn
from grader.output.terminal import line_width, painted, plain
from grader.output.verdict_text import display_path

LAST = 5  # grades that a status shows
BAR = 20  # characters
LONG_NAME, LONG_STATE = 60, 18  # characters, in a list that does not fit
WIDEST = 1000  # characters of a line that goes to no terminal
_STYLES = {PASSED: "green", FAILED: "red", WRITTEN: "bold"}


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    _add_list(commands)
    _add_next(commands)
    _add_status(commands)


def _add_list(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "list",
        help="show the katas in the order to solve them, each with its state",
        description="Show katas in the order to solve them. `open` says whether you passed all katas before one. The "
        "state is not started, written, failed with the last verdict, or passed. What you passed stays passed. Exit "
        "code 0: found, 1: no kata matches, 2: the command is at fault.",
        epilog=examples("kata list sgemm", "kata list --state failed", "kata list --open", "kata list swizzle"),
    )
    parser.add_argument("names", nargs="*", metavar="NAME|WORD", help=f"{NAMES}; or words of its header and TODOs")
    parser.add_argument("--level", choices=LEVELS, help="only this level")
    parser.add_argument("--family", metavar="FAMILY", help="only this family")
    parser.add_argument("--role", choices=ROLES, help="core: the main path of a family; drill: extra practice")
    parser.add_argument(
        "--state", type=lambda text: text.replace("-", " "), choices=WORDS, help="only this state, such as not-started"
    )
    parser.add_argument("--open", action="store_true", help="only katas whose earlier katas you passed")
    parser.add_argument("--json", action="store_true", help="as a JSON array, one object per kata")
    parser.set_defaults(command=_list)


def _add_next(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "next",
        help="say which kata to solve next",
        description="Name the next kata with its lesson, and its file or how to start it: of your track, the first "
        "that is not done; of the whole collection, the first that is open and not passed, core katas before drills. "
        "--track chooses a track, and later `kata next`, `status` and `report` follow it. Exit code 0: found, 1: no "
        "such kata, 2: the command is at fault.",
        epilog=examples("kata next", "kata next --track interview", "kata next softmax", "kata next easy --json"),
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=NAMES)
    parser.add_argument("--track", metavar="TRACK", help=f"follow this one from now on; {COLLECTION}: all katas")
    parser.add_argument("--json", action="store_true", help="as a JSON object, or null if no kata matches")
    parser.set_defaults(command=next_kata)


def _add_status(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "status",
        help="show how far you are: passed by level and family, the last grades",
        description="Show how many katas you passed, by level and by family, and your last grades. Exit code 0, or 2 "
        "if progress cannot be read.",
        epilog=examples("kata status", "kata status --json"),
    )
    parser.add_argument("--track", metavar="TRACK", help="how far you are on this one (default: the one you chose)")
    parser.add_argument("--json", action="store_true", help="as a JSON object")
    parser.set_defaults(command=_status)


def _list(options: argparse.Namespace) -> int:
    catalog, _, states = open_states()
    names, words = _names_and_words(catalog, options.names)
    if options.family is not None and options.family not in catalog.families:
        raise CatalogError(f"no family is called {options.family!r}.{_families_like(catalog, options.family)}")
    chosen = [states[kata.name] for kata in catalog.select(names)]
    found = [state for state in _having(chosen, words, catalog) if _wanted(state, options)]
    if options.json:
        say_json([state.record() for state in found])
    elif found:
        first, *rest = table(found, line_width(WIDEST))
        print(painted(first, "dim"))
        for state, line in zip(found, rest, strict=True):
            print(painted(line, _STYLES.get(state.word, "")))
    else:
        asked = f" {' '.join(words)!r}" if words else ""
        print(f"No kata matches{asked}.{_hint(catalog, words)} `kata list` shows them all.", file=sys.stderr)
    return 0 if found else 1


def _names_and_words(catalog: Catalog, given: Iterable[str]) -> tuple[list[str], list[str]]:
    """Arguments that name katas, and the others, which are words to search for."""
    names: list[str] = []
    words: list[str] = []
    for text in given:
        try:
            catalog.select([text])
            names.append(text)
        except CatalogError:
            words.append(text)
    return names, words


def _hint(catalog: Catalog, words: Iterable[str]) -> str:
    """What a word may have been meant to name."""
    return next(filter(None, map(catalog.meant, words)), "")


def _families_like(catalog: Catalog, name: str) -> str:
    return catalog.meant(name) or f" The families are: {', '.join(catalog.families)}."


def _wanted(state: State, options: argparse.Namespace) -> bool:
    kata = state.kata
    asked = ((options.level, kata.level), (options.family, kata.family), (options.role, kata.role))
    given = (*asked, (options.state, state.word))
    return all(wish in (None, fact) for wish, fact in given) and (state.unlocked or not options.open)


def _having(chosen: Sequence[State], words: Sequence[str], catalog: Catalog) -> Sequence[State]:
    """The katas whose name, header and TODOs have all the words. If none has, the family's about line counts too."""
    if not words:
        return chosen
    texts = [f"{state.kata.name} {rung.header(state.kata)} {_todos(state.kata)}".lower() for state in chosen]
    if not any(_has(text, words) for text in texts):
        pairs = zip(chosen, texts, strict=True)
        texts = [f"{text} {catalog.about[state.kata.family].lower()}" for state, text in pairs]
    return [state for state, text in zip(chosen, texts, strict=True) if _has(text, words)]


def _todos(kata: Kata) -> str:
    return " ".join(todo.text for todo in skeleton.todos(kata.solution_path.read_text()))


def _has(text: str, words: Sequence[str]) -> bool:
    """Whether all of them are in it, the plural of a word also as its singular."""
    return all(word in text or (len(word) > 4 and word.removesuffix("s") in text) for word in map(str.lower, words))


def table(found: Sequence[State], columns: int) -> Iterator[str]:
    """Katas with their states under a headline. In narrow lines it drops the least useful columns and puts a long name
    on a line of its own above its row.
    """
    rows = [dict(zip(_COLUMNS, _COLUMNS, strict=True)), *map(_row, found)]
    name, state = (max(len(row[cell]) for row in rows) for cell in ("kata", "state"))
    widths = dict(_WIDTHS)

    def room() -> int:
        """What the other cells and the blanks between them leave for a name."""
        return columns - state - 2 - sum(widths.values()) - len(widths)

    if columns >= WIDEST:  # every row is one line, and a longer name moves the rest of its own
        name = min(name, LONG_NAME)
        for row in rows:
            cells = [f"{row['kata']:<{name}}", *(f"{row[cell]:<{width}}" for cell, width in widths.items())]
            yield " ".join([*cells, row["state"]])
        return
    if name > room():
        name, state = min(name, LONG_NAME), min(state, LONG_STATE)
    for cell in _LEAST:
        if name > room():
            del widths[cell]
    name = max(len("kata"), min(name, room()))
    for row in rows:
        above, first = (f"{row['kata']}\n", "") if len(row["kata"]) > name else ("", row["kata"])
        cells = [f"{first:<{name}} ", *(f"{row[cell]:<{width}}" for cell, width in widths.items()), row["state"]]
        line = " ".join(cells)
        yield above + (line if len(line) <= columns else f"{line[: columns - 3]}...")


_COLUMNS = ("kata", "level", "dtype", "role", "open", "state")
_WIDTHS = {"level": 7, "dtype": 8, "role": 6, "open": 5}
_LEAST = ("role", "dtype", "level", "open")


def _row(state: State) -> dict[str, str]:
    kata = state.kata
    dtype = f"{kata.elem}/{kata.acc}" if kata.acc and kata.acc != kata.elem else kata.elem
    cells = (kata.name, kata.level, dtype, kata.role, "yes" if state.unlocked else "no", state.text)
    return dict(zip(_COLUMNS, cells, strict=True))


def next_kata(options: argparse.Namespace) -> int:
    catalog, known, states = open_states()
    if options.track is not None:
        if options.names:
            raise CatalogError("--track chooses among all katas; leave out the names.")
        track_of(catalog, options.track)
        warn(progress.keep_track(catalog.root, options.track))
    if not options.names and (way := way_of(catalog, states, known, options.track)) is not None:
        return _next_on(way, as_json=options.json)
    every = in_order(catalog, states)
    chosen = [states[kata.name] for kata in catalog.select(options.names)] if options.names else every
    opened = next_ones(chosen)
    if options.json:
        say_json(opened[0].record() if opened else None)
    elif opened:
        _print_next(opened[0])
    else:
        print(why_none(chosen, states))
    return 0 if opened else 1


def _next_on(way: Way, *, as_json: bool) -> int:
    """Name the next kata of a track, or say what one can do at its end."""
    step, track = way.next, way.track
    if as_json:
        facts = {"track": way.record(), "blank": step.blank, "read": step.read} if step is not None else {}
        say_json({**way.states[step.kata.name].record(), **facts} if step is not None else None)
    elif step is None:
        print(f"You have finished the track {track.name}. You can now:")
        for line in track.afterwards:
            print(f"  {line}")
    else:
        _print_next(way.states[step.kata.name], blank=step.blank)
        for link in step.read:
            print(f"  read    {display_path(way.states[step.kata.name].kata.root / link)}")
        if left_out := [name for name in step.kata.requires if name not in track.by_name]:
            print(f"  advice  the track leaves out {', '.join(left_out)}")
        print(f"  track   {track.name}, step {track.katas.index(step.kata) + 1} of {len(track.steps)}")
    return 0 if step is not None else 1


def _print_next(state: State, *, blank: bool = False) -> None:
    kata = state.kata
    print(rung.header(kata).partition("\n")[0])
    print(f"  kata    {kata.name} ({kata.level}, {kata.role})")
    print(f"  state   {state.text}")
    print(f"  lesson  {display_path(kata.lesson_path)}")
    started = kata.own_path == kata.work_path
    if started or state.word not in (NOT_STARTED, PASSED):
        print(f"  file    {display_path(kata.own_path)}")
    if blank and not (started and state.start == BLANK):
        again = " --again" if state.word != NOT_STARTED else ""
        print(f"  start   kata start {kata.name} --blank{again}    a milestone: write the whole kernel")
    elif not started:
        print(f"  start   kata start {kata.name}    writes {display_path(kata.work_path)}; also --sketch, --blank")
    print(f"  grade   kata grade {kata.name}")


def why_none(chosen: Iterable[State], states: Mapping[str, State]) -> str:
    """Why next_ones has none of them."""
    left = [state for state in chosen if state.passed is None]
    if not left:
        return "You have passed all of them."
    first = left[0].kata
    missing = [name for name in first.requires if states[name].passed is None]
    return f"None of them is open yet: {first.name} comes after {', '.join(missing)}. `kata next` names an open one."


def _status(options: argparse.Namespace) -> int:
    catalog, known, states = open_states()
    way = way_of(catalog, states, known, options.track)
    every = list(states.values())
    levels = {level: [state for state in every if state.kata.level == level] for level in LEVELS}
    families = {family: [states[kata.name] for kata in katas] for family, katas in catalog.by_family.items()}
    last = [event for event in known.events if event.what == GRADE][-LAST:][::-1]
    if options.json:
        say_json(
            {
                **_count(every),
                "from": {start: sum(start in state.passed_from for state in every) for start in (SKETCH, BLANK)},
                "track": way and way.record(),
                "levels": {name: _count(part) for name, part in levels.items()},
                "families": {name: _count(part) for name, part in families.items()},
                "last_grades": [asdict(event) for event in last],
            }
        )
        return 0
    tried = {event.kata for event in known.events}
    begun = {
        family: part
        for family, part in families.items()
        if any(state.word != NOT_STARTED or state.kata.name in tried for state in part)
    }
    for line in [*_way_lines(way), *_status_lines(every, levels, begun, last)]:
        print(plain(line))
    return 0


def _way_lines(way: Way | None) -> Iterator[str]:
    if way is None:
        return
    passed, due = way.milestones
    yield f"track {way.track.name}: {way.done} of {len(way.track.steps)} done"
    yield f"  about {way.track.hours} hours in all, an estimate"
    yield f"  milestones, from a blank file: {passed} of {due}"
    if way.next is not None:
        yield f"  next: {way.next.kata.name}{' from a blank file' if way.next.blank else ''}"
    yield ""


def _count(part: Sequence[State]) -> dict[str, int]:
    return {"passed": sum(state.passed is not None for state in part), "katas": len(part)}


def _status_lines(
    every: Sequence[State],
    levels: Mapping[str, Sequence[State]],
    begun: Mapping[str, Sequence[State]],
    last: Sequence[Event],
) -> Iterator[str]:
    width = max(map(len, (*levels, *begun)))
    yield _bar("all", every, width)
    starts = [(start, sum(start in state.passed_from for state in every)) for start in (SKETCH, BLANK)]
    if any(count for _, count in starts):
        yield "passed from a " + ", from a ".join(f"{start}: {count}" for start, count in starts)
    for parts in filter(None, (levels, begun)):
        yield ""
        yield from (_bar(name, part, width) for name, part in parts.items() if part)
    if left := len({state.kata.family for state in every} - begun.keys()):
        yield f"not begun: {left} {'family' if left == 1 else 'families'}; `kata list` shows their katas"
    yield ""
    if not last:
        yield "No grade yet; `kata next` says where to start."
        return
    yield "last grades"
    for event in last:
        speed = f", {event.ratio:.1%} of {event.baseline}".replace("%", " %") if event.ratio is not None else ""
        yield f"  {event.date}  {event.kata}: {event.verdict} on {event.device or 'no device'}{speed}"


def _bar(name: str, part: Sequence[State], width: int) -> str:
    passed, total = _count(part).values()
    full = passed * BAR // total if total else 0
    return f"{name:<{width}}  [{'#' * full}{'.' * (BAR - full)}]  {passed:>3} of {total}"
