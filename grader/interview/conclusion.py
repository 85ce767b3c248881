"""One part of a record -> the conclusion that its page begins with: what was written, where the time went, and what an
interviewer would write down. It states facts and gives no mark.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from grader.content import skeleton
from grader.content.rung import code_of
from grader.interview.clock import format_duration
from grader.interview.run import is_right

TOTALS = (  # of a call's kernels together: key, words
    ("warp_instructions", "warp instructions"),
    ("sectors", "sectors"),
    ("wavefronts", "wavefronts"),
    ("barriers", "barriers"),
    ("atomics", "atomics"),
)
NEAR = 1.05  # so many times the solution's count is the same
Record = Mapping[str, Any]


def conclude(part: Record) -> dict[str, Any]:
    """The figures, and ``remarks`` in sentences, of a part that began. Seconds waited are within ``spent_s``."""
    tries = [item for item in part["attempts"] if not item["at_the_finish"]]
    waited = min(sum(item["waited_s"] for item in tries), part["spent_s"])
    found = {
        "tries": len(tries),
        "waiting_s": waited,
        "thinking_s": part["spent_s"] - waited,
        **(_written(part["handed_out"], part["handed_in"]) if "handed_out" in part else {}),
        "against_solution": list(_against(part)),
    }
    return {**found, "remarks": list(_remarks(part, found, tries))}


def _written(before: str, after: str) -> dict[str, int]:
    """Lines of code added and removed, and the TODOs of the file handed in."""
    todos = skeleton.todos(after)
    matcher = difflib.SequenceMatcher(a=code_of(before), b=code_of(after), autojunk=False)
    changes = [step for step in matcher.get_opcodes() if step[0] != "equal"]
    return {
        "lines_added": sum(last - first for _, _, _, first, last in changes),
        "lines_removed": sum(last - first for _, first, last, _, _ in changes),
        "todos": len(todos),
        "todos_empty": sum(todo.empty for todo in todos),
    }


def totals(counters: Record) -> dict[str, int]:
    """The sums of a call's kernels, by TOTALS' keys; empty without counters."""
    kernels = counters.get("kernels", ())
    return {key: sum(kernel[key] for kernel in kernels) for key, _ in TOTALS} if kernels else {}


def _against(part: Record) -> Iterator[dict[str, Any]]:
    """Each counter of the file handed in and of the solution, for the same shape."""
    mine, ours = part.get("counted") or {}, part.get("solution_counted") or {}
    if mine.get("sizes") == ours.get("sizes"):
        first, second = totals(mine), totals(ours)
        for key, words in TOTALS:
            if first.get(key) or second.get(key):
                yield {"counter": words, "handed_in": first[key], "solution": second[key]}


# What an interviewer would write down


def _remarks(part: Record, found: Record, tries: list[Record]) -> Iterator[str]:
    if part["kind"] in ("kernel", "profile"):
        answered = sum(bool(item["written"]) for item in part["questions"])
        yield f"Wrote an answer to {answered} of {len(part['questions'])} questions."
        return
    if part["opening"]:
        said = [item["heading"] for item in part["opening"] if item["written"]]
        left = [item["heading"] for item in part["opening"] if not item["written"]]
        rest = f" Left out {_listed(left)}." if left else ""
        yield f"Before the code, wrote about {_listed(said)}.{rest}" if said else "Before the code, wrote no notes."
    yield _outcome(part, tries)
    if part["handed_in"] and part["handed_in"] == part["handed_out"]:
        yield "Handed in the file as it was handed out."
    wrong = list(dict.fromkeys(item["verdict"] for item in tries if not is_right(item["verdict"])))
    if wrong:
        yield f"Verdicts on the way: {', '.join(wrong)}."
    if part["nudges"]:
        cost = sum(item["minutes"] for item in part["nudges"])
        yield f"Took {_count(len(part['nudges']), 'hint')}, for {cost:g} minutes of the time."
    yield from _cost(found["against_solution"])
    if part["follow_ups"] and part["follow_ups_asked"]:
        answered = sum(bool(item["written"]) for item in part["follow_ups"])
        yield f"Answered {answered} of {len(part['follow_ups'])} questions after the pass."


def _outcome(part: Record, tries: list[Record]) -> str:
    when = part["first_right_s"]
    if when is None:
        return f"Reached no right answer, with {_count(len(tries), 'grade')}."
    place = next((number for number, item in enumerate(tries, 1) if is_right(item["verdict"])), None)
    which = f"at grade {place}" if place else "in the file handed in"
    late = "" if part["first_right_in_time"] else ", after the time was up"
    return f"Right after {format_duration(when)}, {which}{late}."


def _cost(against: list[Record]) -> Iterator[str]:
    """Where the kernel costs more than the solution, and where less."""
    named = {"more": "handed_in", "less": "solution"}
    other = {"handed_in": "solution", "solution": "handed_in"}
    for words, larger in named.items():
        found = [
            f"{item['counter']} ({item['handed_in']:,} to {item['solution']:,})"
            for item in against
            if item[larger] > NEAR * item[other[larger]]
        ]
        if found:
            yield f"Needs {words} than the solution of: {', '.join(found)}."


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def _listed(words: list[str]) -> str:
    return ", ".join(word.lower() for word in words)
