"""The record of an interview -> its page: one HTML file that loads nothing, in light and dark, on a phone and on paper.

The record comes from files that the candidate wrote: its texts become HTML only through ``tag``, which escapes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grader.interview import handout
from grader.interview.clock import format_duration
from grader.interview.report_data import FIGURES
from grader.interview.run import is_right
from grader.pages import document, folded, paragraph
from grader.pages.code import coloured
from grader.pages.markup import Markup, Part, join, tag

_HERE = Path(__file__).parent
Record = Mapping[str, Any]


def page(record: Record) -> str:
    """The whole HTML file."""
    parts = record["parts"]
    title = f"Interview {record['name']}"
    body = [
        tag("header", tag("h1", title), _about(record), _summary(parts)),
        _conclusions(parts),
        _honesty(record),
        *(_part(record, part) for part in parts),
        _marks_bar(parts),
    ]
    return document(title, [tag("div", join(filter(None, body), "\n"), data_interview=record["name"])], _HERE)


def _quiet(words: Part) -> Markup:
    return tag("p", words, class_="quiet")


def _about(record: Record) -> Markup:
    words = (
        f"begun {_day(record['begun'])}",
        f"plan {record['plan'] or 'of its own'}",
        f"device {record['device']}",
        f"seed {record['seed']}",
        record["machine"],
    )
    return _quiet(" · ".join(words))


def _day(time: str) -> str:
    return f"{time[:10]} {time[11:16]} UTC"


def _summary(parts: Sequence[Record]) -> Markup:
    return tag("ul", *map(_card, parts), class_="cards")


def _card(part: Record) -> Markup:
    """One part in the summary."""
    good, words = _outcome(part)
    name = tag("a", tag("b", part["name"]), href=f"#part-{part['number']}")
    how = "on paper" if part["on_paper"] else f"from {handout.WORDS.get(part['start'], part['start'])}"
    asked = tag("span", f"{part['level']}, {part['minutes']:g} minutes{_first(part)}, {how}", class_="quiet")
    return tag("li", name, asked, tag("span", words, class_="verdict"), class_=f"card {good}")


def _first(part: Record) -> str:
    return f" and {part['opening_minutes']:g} before" if part["opening_minutes"] else ""


def _conclusions(parts: Sequence[Record]) -> Markup | None:
    """What the page says first: the figures of each part, and what an interviewer would write down."""
    begun = [part for part in parts if part["begun"] is not None]
    if not begun:
        return None
    note = (
        "Facts from the log, for an interviewer to judge by. Waiting goes from asking for a grade to its verdict. "
        "Where memory bounds a kata, fewer instructions do not make up for more sectors."
    )
    return tag("section", tag("h2", "Conclusion"), *map(_conclusion, begun), _quiet(note), class_="conclusion")


def _conclusion(part: Record) -> Markup:
    found = part["conclusion"]
    figures = [
        ("thinking and writing", format_duration(found["thinking_s"])),
        ("waiting for the grader", format_duration(found["waiting_s"])),
    ]
    if not part["on_paper"]:
        todos = f"{found['todos'] - found['todos_empty']} of {found['todos']}" if found["todos"] else "none left"
        figures += [
            ("lines of code added", str(found["lines_added"])),
            ("TODOs filled", todos),
            ("grades asked for", str(found["tries"])),
        ]
    rows = [tag("div", tag("dt", words), tag("dd", value)) for words, value in figures]
    name = tag("h3", f"Part {part['number']}: {part['name']}")
    return join((name, tag("dl", *rows, class_="figures"), _list(found["remarks"]), _against(found)))


def _against(found: Record) -> Markup | None:
    """The simulator's counters beside the solution's."""
    rows = [
        (item["counter"], f"{item['handed_in']:,}", f"{item['solution']:,}", _ratio(item))
        for item in found["against_solution"]
    ]
    return _table(("counter", "#handed in", "#solution", "#ratio"), rows) if rows else None


def _ratio(item: Record) -> str:
    return f"{item['handed_in'] / item['solution']:.2f}" if item["solution"] else "-"


def _outcome(part: Record) -> tuple[str, str]:
    """(its class, the words) for how a part went."""
    if part["begun"] is None:
        return "none", "not begun"
    if part["on_paper"]:
        return "none", part["conclusion"]["remarks"][0]
    tried = _tries(part["attempts"])
    if part["first_right_s"] is None:
        return "bad", f"✗ no right answer, {tried}, {format_duration(part['spent_s'])} spent"
    when = format_duration(part["first_right_s"]) + ("" if part["first_right_in_time"] else ", after the time was up")
    final = part["final"] or part["attempts"][-1]
    if not is_right(final["verdict"]):
        return "bad", f"✗ right at {when}, but handed in: {final['verdict']}"
    slow = "" if final["verdict"] == "pass" else f"; {final['verdict']}"
    good, sign = ("good", "✓") if part["first_right_in_time"] else ("bad", "✗")
    return good, f"{sign} right after {when}{slow}"


def _tries(attempts: Sequence[Record]) -> str:
    count = sum(not item["at_the_finish"] for item in attempts)
    return f"{count or 'no'} attempt{'' if count == 1 else 's'}"


# What is known of the time and of what was looked up


def _honesty(record: Record) -> Markup:
    before = [
        f"{part['kata']}, before the interview: {part['known_before']}"
        for part in record["parts"]
        if part["known_before"]
    ]
    looked = [*before, *map(_lookup, record["lookups"])]
    return tag(
        "section",
        tag("h2", "Time and looking up"),
        tag("p", "The clock ran from the start of each part to its end, with or without a running process."),
        _list(_clock(record) or ["the clock was never off the screen for longer than a minute"]),
        _list(looked or ["nothing was looked up by a command"]),
        paragraph(record["lookups_note"], class_="quiet"),
    )


def _clock(record: Record) -> list[str]:
    """Where the clock was not on screen, and where it was set."""
    if not record["clock_on_screen"]:
        return ["there was no clock on screen: who was there between the commands is not known"]
    gaps = [
        f"no clock on screen from {format_duration(gap['start_s'])} to {format_duration(gap['end_s'])}, "
        f"{format_duration(gap['end_s'] - gap['start_s'])} long: {gap['why']}"
        for gap in record["gaps"]
    ]
    sets = record["clock_sets"]
    return gaps + [
        f"at {format_duration(item['at_s'])} the machine's clock was set by {item['by_s']:+.0f} s" for item in sets
    ]


def _lookup(item: Record) -> str:
    answer = "shown" if item["shown"] else "asked for, not shown"
    return f"{format_duration(item['at_s'])}  kata {item['how']} of {item['kata']} ({item['about']}): {answer}"


def _list(items: Iterable[str]) -> Markup:
    return tag("ul", *(tag("li", item) for item in items))


# One part


def _part(record: Record, part: Record) -> Markup:
    sections: list[Markup | None] = [tag("h2", f"Part {part['number']}: {part['name']}")]
    if part["begun"] is None:
        sections.append(tag("p", "Not begun."))
    elif part["on_paper"]:
        of = _quiet(f"It is about {part['kata']}. The candidate was not told.")
        text = tag("pre", part["shown"], class_="wide")
        sections += [tag("p", part["task"], class_="task"), _timeline(record, part), of, text, _questions(part)]
    else:
        sections += [
            tag("p", part["task"], class_="task"),
            _timeline(record, part),
            _opening(part),
            _attempts(part),
            _speed(part),
            _counters(part),
            _compiler(part["compiler"]),
            _diff(part),
            _beside(part),
            _follow_ups(part),
            _questions(part),
        ]
    return tag("section", join(filter(None, sections), "\n"), id=f"part-{part['number']}")


def _opening(part: Record) -> Markup | None:
    """What was said before the code, beside what a strong answer says."""
    if not part["opening"]:
        return None
    rows = [
        tag("div", tag("h4", item["heading"]), _said(item["written"]), tag("p", tag("b", "Strong: "), item["strong"]))
        for item in part["opening"]
    ]
    minutes = f"{part['opening_minutes']:g} minutes to clarify and to estimate. The notes are from their end."
    return _under("Before the code", _quiet(minutes), tag("div", *rows, class_="spoken"))


def _said(text: str) -> Markup:
    return tag("blockquote", text) if text else _quiet("Nothing was written.")


def _follow_ups(part: Record) -> Markup | None:
    """What came after a pass: weak, good and strong count 0, 1 and 2."""
    if not part["follow_ups"]:
        return None
    asked = [_follow_up(part, number, item) for number, item in enumerate(part["follow_ups"], 1)]
    told = (
        "Handed out after the pass."
        if part["follow_ups_asked"]
        else "Not handed out: no grade before the finish was right."
    )
    form = tag("form", *asked, class_="marks", data_part=str(part["number"]), data_kata=part["name"])
    return _under("After a pass", tag("p", told), form)


def _follow_up(part: Record, number: int, item: Record) -> Markup:
    base = f"p{part['number']}-f{number}"
    signals = [
        tag("p", tag("b", f"{mark}, {words}: "), item[words]) for mark, words in enumerate(("weak", "good", "strong"))
    ]
    mark = _point(f"{base}-1", "Which of these is it?")
    answer = folded("Weak, good and strong answers", *signals, mark, _note(base))
    legend = tag("legend", f"{number}. {item['ask']}")
    return tag("fieldset", legend, _said(item["written"]), answer, class_="question")


def _note(base: str) -> Markup:
    return tag("label", "Notes", tag("textarea", name=f"{base}-note", rows="2"), class_="note")


def _timeline(record: Record, part: Record) -> Markup:
    """The part's time as a bar: attempts, gaps and looks, each at its place. The table after it says the same."""
    limit = part["limit_s"]
    whole = max(limit, part["spent_s"]) or 1.0

    def place(seconds: float) -> str:
        return f"{100 * min(max(seconds, 0.0), whole) / whole:.2f}%"

    def since(seconds: float) -> float:
        return seconds - float(part["begun_s"])

    marks = [tag("span", class_="spent", style=f"width:{place(part['spent_s'])}")]
    for gap in record["gaps"]:
        start, end = (min(max(since(gap[name]), 0.0), part["spent_s"]) for name in ("start_s", "end_s"))
        if end > start:
            marks.append(tag("span", class_="gap", style=f"left:{place(start)};width:{place(end - start)}"))
    for item in part["attempts"]:
        kind, sign = ("good", "✓") if is_right(item["verdict"]) else ("bad", "✗")
        marks.append(tag("span", sign, class_=f"mark {kind}", style=f"left:{place(item['asked_s'])}"))
    looks = [item for item in record["lookups"] if item["shown"] and 0 <= since(item["at_s"]) <= part["spent_s"]]
    for item in part.get("nudges", ()):
        marks.append(tag("span", "h", class_="mark look", style=f"left:{place(item['at_s'])}"))
    marks += [tag("span", "?", class_="mark look", style=f"left:{place(since(item['at_s']))}") for item in looks]
    marks.append(tag("span", class_="limit", style=f"left:{place(limit)}"))
    spent = f"{format_duration(part['spent_s'])} of {format_duration(limit)} spent"
    words = f"{spent}; {_tries(part['attempts'])}, {len(looks)} looked up"
    bar = tag("div", *marks, class_="track", role="img", aria_label=words)
    return join((bar, _quiet(f"{words}. ✓ right, ✗ not, ? looked up, h hint, hatched: no clock on screen.")))


def _table(head: Sequence[str], rows: Iterable[Sequence[Part]]) -> Markup:
    """A head that begins with # is of a column of numbers."""
    kinds = ["number" if name.startswith("#") else None for name in head]
    names = [tag("th", name.lstrip("#"), class_=kind) for name, kind in zip(head, kinds, strict=True)]
    body = [tag("tr", *(tag("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True))) for row in rows]
    return tag("div", tag("table", tag("thead", tag("tr", *names)), tag("tbody", *body)), class_="wide")


def _under(heading: str, *parts: Part) -> Markup:
    return join((tag("h3", heading), *parts))


def _attempts(part: Record) -> Markup:
    if not part["attempts"]:
        return _under("Attempts", tag("p", "None, and no file was handed in."))
    return _under("Attempts", _table(("#", "#asked at", "verdict", "#graded in"), map(_attempt_row, part["attempts"])))


def _attempt_row(item: Record) -> tuple[Part, ...]:
    late = "" if item["in_time"] or item["at_the_finish"] else " (over time)"
    sign = "✓" if is_right(item["verdict"]) else "✗"
    told = folded(f"{sign} {item['verdict']}{late}", tag("pre", item["explanation"]))
    took = f"{item['grade']['seconds']:.1f} s" if item["grade"] else ""
    number = "finish" if item["at_the_finish"] else str(item["number"])
    return number, format_duration(item["asked_s"]), told, took


def _final_grade(part: Record) -> Record | None:
    """The grade of the file that was handed in, where there is one."""
    return part["final"]["grade"] if part["final"] else None


def _speed(part: Record) -> Markup:
    graded = _final_grade(part)
    if not graded or not graded["measurements"]:
        why = "no GPU graded the file, and the simulator says nothing about speed, or the kata has no baseline to time"
        return _under("Speed", tag("p", f"Not timed: {why}."))
    head = ("shape", "baseline", "#share of it", "#95 % interval", "#pairs", "#time")
    launched = tag("pre", "\n".join(graded["launches"]), class_="wide")
    return _under("Speed", _table(head, map(_speed_row, graded["measurements"])), launched)


def _speed_row(item: Record) -> tuple[Part, ...]:
    return (
        ", ".join(f"{name}={size}" for name, size in item["sizes"].items()),
        item["baseline"],
        f"{100 * item['ratio']:.1f} %",
        f"{100 * item['low']:.1f} to {100 * item['high']:.1f} %",
        str(item["pairs"]),
        f"{1e6 * item['time_s']:.1f} µs",
    )


def _counters(part: Record) -> Markup:
    graded = _final_grade(part)
    if not graded or not graded["costs"]:
        return _under("Counters", tag("p", "None: they are counted on the simulator, of a file that passes."))
    return _under("Counters", tag("pre", "\n".join(graded["costs"]), class_="wide"))


def _compiler(found: Record) -> Markup:
    rows = [
        (whose, tag("code", item["name"]), *(str(item[name]) for name in FIGURES))
        for whose, key in (("handed in", "handed_in"), ("solution", "solution"))
        for item in found[key]
    ]
    head = ("file", "kernel", "#registers", "#shared bytes", "#stack bytes", "#spill stores", "#spill loads")
    note = tag("p", found["note"]) if found["note"] else None
    return _under("Compiler", note, _table(head, rows) if rows else None, _quiet(f"ptxas -v for {found['arch']}."))


def _diff(part: Record) -> Markup:
    if not part["diff"]:
        return _under("What was written", tag("p", "Nothing: the file is as it was handed out."))
    return _under("What was written", tag("pre", *map(_diff_row, part["diff"][2:]), class_="wide diff"))


def _diff_row(line: str) -> Markup:
    kind = {"+": "ins", "-": "del", "@": "where"}.get(line[:1], "same")
    return tag("span", line or " ", class_=kind)


def _beside(part: Record) -> Markup:
    panes = [
        tag("div", tag("h4", name), tag("pre", coloured(part[key]), class_="wide"))
        for name, key in (("Handed in", "handed_in"), ("Solution", "solution"))
    ]
    return folded("The whole file, beside the solution", tag("div", *panes, class_="panes"))


# Questions and marks


def _questions(part: Record) -> Markup:
    asked = [_question(part, number, item) for number, item in enumerate(part["questions"], 1)]
    how = (
        "Ask, listen, then open what a good answer has and mark each point: 0 missing or wrong, 1 half of it, "
        "2 all of it."
    )
    form = tag("form", *asked, class_="marks", data_part=str(part["number"]), data_kata=part["name"])
    return _under("Questions", tag("p", how), form)


def _question(part: Record, number: int, item: Record) -> Markup:
    base = f"p{part['number']}-q{number}"
    points = [_point(f"{base}-{place}", text) for place, text in enumerate(item["points"], 1)]
    then = tag("p", tag("b", "Then ask:"), " ", item["follow_up"])
    answer = folded("What a good answer has", *points, then, _note(base))
    said = _said(item["written"]) if "written" in item else None
    return tag("fieldset", tag("legend", f"{number}. {item['question']}"), said, answer, class_="question")


def _point(name: str, text: str) -> Markup:
    choices = [
        tag("label", tag("input", type="radio", name=name, value=mark), tag("span", mark)) for mark in ("0", "1", "2")
    ]
    choice = tag("span", *choices, class_="choice")
    return tag("div", tag("span", text), choice, class_="point", role="radiogroup", aria_label=text)


def _marks_bar(parts: Sequence[Record]) -> Markup | None:
    if not any(part.get("questions") for part in parts):
        return None
    save, clear = (
        tag("button", words, type="button", id=name)
        for name, words in (("save", "Save marks as JSON"), ("clear", "Clear"))
    )
    choose = tag("input", type="file", id="load", accept=".json,application/json")
    return tag(
        "section",
        tag("h2", "Marks"),
        tag("p", tag("output", "0 of 0 marked points", id="total")),
        tag("p", save, " ", tag("label", "Load marks", choose, class_="button"), " ", clear),
        tag("p", "Marks need JavaScript; on paper, the points can be ticked.", class_="quiet", id="kept"),
        class_="bar",
    )
