"""The record of an interview -> its page: one HTML file that loads nothing, in light and dark, on a phone and on paper.

The record comes from files that the candidate wrote: every text in it is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from grader.interview.clock import said
from grader.interview.conduct import is_right
from grader.interview.dossier import FIGURES
from grader.pages import document, paragraph
from grader.pages.markup import Markup

_HERE = Path(__file__).parent
Record = Mapping[str, Any]


def page(record: Record) -> str:
    """The whole HTML file."""
    parts = record["parts"]
    title = f"Interview {record['name']}"
    body = [
        f"<header><h1>{escape(title)}</h1>{_about(record)}</header>",
        _honesty(record),
        *(_part(record, part) for part in parts),
        _marks_bar(parts),
    ]
    whole = Markup(f"<div data-interview='{escape(record['name'])}'>\n{_lines(body)}</div>")
    return document(title, [whole], _HERE)


def _lines(parts: Iterable[str]) -> str:
    return "".join(f"{part}\n" for part in parts if part)


def _about(record: Record) -> str:
    words = (
        f"begun {_day(record['begun'])}",
        f"plan {record['plan'] or 'of its own'}",
        f"device {record['device']}",
        f"seed {record['seed']}",
        record["machine"],
    )
    return f"<p class='quiet'>{escape(' · '.join(words))}</p>{_summary(record['parts'])}"


def _day(time: str) -> str:
    return f"{time[:10]} {time[11:16]} UTC"


def _summary(parts: Sequence[Record]) -> str:
    cards = []
    for part in parts:
        good, words = _outcome(part)
        cards.append(
            f"<li class='card {good}'><a href='#part-{part['number']}'><b>{escape(part['kata'])}</b></a>"
            f"<span class='quiet'>{escape(part['level'])}, {part['minutes']:g} minutes</span>"
            f"<span class='verdict'>{escape(words)}</span></li>"
        )
    return f"<ul class='cards'>{''.join(cards)}</ul>"


def _outcome(part: Record) -> tuple[str, str]:
    """(its class, the words) for how a part went."""
    if part["begun"] is None:
        return "none", "not begun"
    tried = _tries(part["attempts"])
    if part["first_right_s"] is None:
        return "bad", f"✗ no right answer, {tried}, {said(part['spent_s'])} spent"
    late = "" if part["first_right_in_time"] else ", after the time was up"
    final = part["final"] or part["attempts"][-1]
    if not is_right(final["verdict"]):
        return "bad", f"✗ right at {said(part['first_right_s'])}{late}, but handed in: {final['verdict']}"
    slow = "" if final["verdict"] == "pass" else f"; {final['verdict']}"
    return ("bad" if late else "good"), f"{'✗' if late else '✓'} right after {said(part['first_right_s'])}{late}{slow}"


def _tries(attempts: Sequence[Record]) -> str:
    count = sum(not item["at_the_finish"] for item in attempts)
    return f"{count or 'no'} attempt{'' if count == 1 else 's'}"


# What is known of the time and of what was looked up


def _honesty(record: Record) -> str:
    clock = [
        f"no clock on screen from {said(gap['start_s'])} to {said(gap['end_s'])}, "
        f"{said(gap['end_s'] - gap['start_s'])} long: {gap['why']}"
        for gap in record["gaps"]
    ]
    clock += [
        f"at {said(item['at_s'])} the machine's clock was set by {item['by_s']:+.0f} s" for item in record["clock_sets"]
    ]
    if not record["clock_on_screen"]:
        clock = ["there was no clock on screen: who was there between the commands is not known"]
    looked = [
        f"{said(item['at_s'])}  kata {item['how']} of {item['kata']} ({item['about']}): "
        + ("shown" if item["shown"] else "asked for, not shown")
        for item in record["lookups"]
    ]
    before = [
        f"{part['kata']}, before the interview: {part['known_before']}"
        for part in record["parts"]
        if part["known_before"]
    ]
    return _lines(
        [
            "<section><h2>Time and looking up</h2>",
            "<p>The time ran on whether or not anything was running, from the begin of each part to its end.</p>",
            _list(clock or ["the clock was never off the screen for longer than a minute"]),
            _list([*before, *looked] or ["nothing was looked up by a command"]),
            paragraph(record["lookups_note"], class_="quiet"),
            "</section>",
        ]
    )


def _list(items: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"


# One part


def _part(record: Record, part: Record) -> str:
    head = f"<section id='part-{part['number']}'><h2>Part {part['number']}: {escape(part['kata'])}</h2>"
    if part["begun"] is None:
        return f"{head}<p>Not begun.</p></section>"
    return _lines(
        [
            head,
            f"<p class='task'>{escape(part['task'])}</p>",
            _timeline(record, part),
            _attempts(part),
            _speed(part),
            _counters(part),
            _compiler(part["compiler"]),
            _diff(part),
            _beside(part),
            _questions(part),
            "</section>",
        ]
    )


def _timeline(record: Record, part: Record) -> str:
    """The part's time as a bar: attempts, gaps and looks, each at its place. The table after it says the same."""
    limit = 60 * part["minutes"]
    whole = max(limit, part["spent_s"]) or 1.0

    def place(seconds: float) -> str:
        return f"{100 * min(max(seconds, 0.0), whole) / whole:.2f}%"

    def since(seconds: float) -> float:
        return seconds - float(part["begun_s"])

    marks = [f"<span class='spent' style='width:{place(part['spent_s'])}'></span>"]
    for gap in record["gaps"]:
        start, end = (min(max(since(gap[name]), 0.0), part["spent_s"]) for name in ("start_s", "end_s"))
        if end > start:
            marks.append(f"<span class='gap' style='left:{place(start)};width:{place(end - start)}'></span>")
    for item in part["attempts"]:
        kind, sign = ("good", "✓") if is_right(item["verdict"]) else ("bad", "✗")
        marks.append(f"<span class='mark {kind}' style='left:{place(item['asked_s'])}'>{sign}</span>")
    looks = [item for item in record["lookups"] if item["shown"] and 0 <= since(item["at_s"]) <= part["spent_s"]]
    marks += [f"<span class='mark look' style='left:{place(since(item['at_s']))}'>?</span>" for item in looks]
    marks.append(f"<span class='limit' style='left:{place(limit)}'></span>")
    words = f"{said(part['spent_s'])} of {said(limit)} spent; {_tries(part['attempts'])}, {len(looks)} looked up"
    return (
        f"<div class='track' role='img' aria-label='{escape(words)}'>{''.join(marks)}</div>"
        f"<p class='quiet'>{escape(words)}. ✓ right, ✗ not, ? looked up, hatched: no clock on screen.</p>"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML already. A head that begins with # is of a column of numbers."""
    names = "".join(f"<th{_numbers(name)}>{escape(name.lstrip('#'))}</th>" for name in head)
    body = (
        f"<tr>{''.join(f'<td{_numbers(name)}>{cell}</td>' for name, cell in zip(head, row, strict=True))}</tr>"
        for row in rows
    )
    return f"<div class='wide'><table><thead><tr>{names}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"


def _numbers(name: str) -> str:
    return " class='number'" if name.startswith("#") else ""


def _attempts(part: Record) -> str:
    if not part["attempts"]:
        return "<h3>Attempts</h3><p>None, and no file was handed in.</p>"
    rows = [_attempt_row(item) for item in part["attempts"]]
    return f"<h3>Attempts</h3>{_table(('#', '#asked at', 'verdict', '#graded in'), rows)}"


def _attempt_row(item: Record) -> tuple[str, str, str, str]:
    late = "" if item["in_time"] or item["at_the_finish"] else " (over time)"
    sign = "✓" if is_right(item["verdict"]) else "✗"
    words = f"{sign} {escape(item['verdict'])}{late}"
    text = escape(item["explanation"])
    told = f"<details><summary>{words}</summary><pre>{text}</pre></details>"
    took = f"{item['grade']['seconds']:.1f} s" if item["grade"] else ""
    number = "finish" if item["at_the_finish"] else str(item["number"])
    return number, said(item["asked_s"]), told, took


def _final_grade(part: Record) -> Record | None:
    """The grade of the file that was handed in, where there is one."""
    return part["final"]["grade"] if part["final"] else None


def _speed(part: Record) -> str:
    graded = _final_grade(part)
    found = graded["measurements"] if graded else []
    if not found:
        why = "no GPU graded the file, and the simulator says nothing about speed, or the kata has no baseline to time"
        return f"<h3>Speed</h3><p>Not timed: {why}.</p>"
    rows = [
        (
            escape(", ".join(f"{name}={size}" for name, size in item["sizes"].items())),
            escape(item["baseline"]),
            f"{100 * item['ratio']:.1f} %",
            f"{100 * item['low']:.1f} to {100 * item['high']:.1f} %",
            str(item["pairs"]),
            f"{1e6 * item['time_s']:.1f} µs",
        )
        for item in found
    ]
    head = ("shape", "baseline", "#share of it", "#95 % interval", "#pairs", "#time")
    launched = escape("\n".join(graded["launches"])) if graded else ""
    return f"<h3>Speed</h3>{_table(head, rows)}<pre class='wide'>{launched}</pre>"


def _counters(part: Record) -> str:
    graded = _final_grade(part)
    costs = graded["costs"] if graded else []
    if not costs:
        return "<h3>Counters</h3><p>None: they are counted on the simulator, of a file that passes.</p>"
    return f"<h3>Counters</h3><pre class='wide'>{escape(chr(10).join(costs))}</pre>"


def _compiler(found: Record) -> str:
    rows = [
        (whose, f"<code>{escape(item['name'])}</code>", *(str(item[name]) for name in FIGURES))
        for whose, key in (("handed in", "handed_in"), ("solution", "solution"))
        for item in found[key]
    ]
    head = ("file", "kernel", "#registers", "#shared bytes", "#stack bytes", "#spill stores", "#spill loads")
    note = f"<p>{escape(found['note'])}</p>" if found["note"] else ""
    table = _table(head, rows) if rows else ""
    return f"<h3>Compiler</h3>{note}{table}<p class='quiet'>ptxas -v for {escape(found['arch'])}.</p>"


def _diff(part: Record) -> str:
    if not part["diff"]:
        return "<h3>What was written</h3><p>Nothing: the file is as it was handed out.</p>"
    rows = "".join(_diff_row(line) for line in part["diff"][2:])
    return f"<h3>What was written</h3><pre class='wide diff'>{rows}</pre>"


def _diff_row(line: str) -> str:
    kind = {"+": "ins", "-": "del", "@": "where"}.get(line[:1], "same")
    return f"<span class='{kind}'>{escape(line) or ' '}</span>"


def _beside(part: Record) -> str:
    panes = "".join(
        f"<div><h4>{name}</h4><pre class='wide'>{escape(part[key])}</pre></div>"
        for name, key in (("Handed in", "handed_in"), ("Solution", "solution"))
    )
    return f"<details><summary>The whole file, beside the solution</summary><div class='panes'>{panes}</div></details>"


# Questions and marks


def _questions(part: Record) -> str:
    asked = "".join(_question(part, number, item) for number, item in enumerate(part["questions"], 1))
    return (
        "<h3>Questions</h3><p>Ask, listen, then open what a good answer has and mark each point: 0 missing or wrong, "
        f"1 half of it, 2 all of it.</p><form class='marks' data-part='{part['number']}' "
        f"data-kata='{escape(part['kata'])}'>{asked}</form>"
    )


def _question(part: Record, number: int, item: Record) -> str:
    base = f"p{part['number']}-q{number}"
    points = "".join(_point(f"{base}-{place}", text) for place, text in enumerate(item["points"], 1))
    return (
        f"<fieldset class='question'><legend>{number}. {escape(item['question'])}</legend>"
        f"<details><summary>What a good answer has</summary>{points}"
        f"<p><b>Then ask:</b> {escape(item['follow_up'])}</p>"
        f"<label class='note'>Notes<textarea name='{base}-note' rows='2'></textarea></label></details></fieldset>"
    )


def _point(name: str, text: str) -> str:
    choices = "".join(
        f"<label><input type='radio' name='{name}' value='{mark}'><span>{mark}</span></label>" for mark in (0, 1, 2)
    )
    words = escape(text)
    return (
        f"<div class='point' role='radiogroup' aria-label='{words}'><span>{words}</span>"
        f"<span class='choice'>{choices}</span></div>"
    )


def _marks_bar(parts: Sequence[Record]) -> str:
    if not any(part.get("questions") for part in parts):
        return ""
    return (
        "<section class='bar'><h2>Marks</h2><p><output id='total'>0 of 0 marked points</output></p>"
        "<p><button type='button' id='save'>Save marks as JSON</button> "
        "<label class='button'>Load marks<input type='file' id='load' accept='.json,application/json'></label> "
        "<button type='button' id='clear'>Clear</button></p>"
        "<p class='quiet' id='kept'>Marks need JavaScript; on paper, the points can be ticked.</p></section>"
    )
