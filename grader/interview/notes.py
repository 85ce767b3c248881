"""What the candidate writes in words: forms to fill in, and what was written under each of their headings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grader.content.questions import KERNEL, OPENING, FollowUp, Reading

PROMPTS = {
    "shapes": "Which sizes, which extremes, which element types? What does the sum accumulate in? What do you assume?",
    "alignment": "Which layout, which alignment? What of a size that no vector divides?",
    "bound": "Memory, shared memory, arithmetic or latency? Why?",
    "bytes": "How many must move at least, for a size of your choice? How long does that take, on which card?",
    "operations": "How many of which kind? How many per byte?",
}
_OWN_LINES = {f"> {prompt}" for prompt in PROMPTS.values()}
_HEADING = re.compile(r"^## (\d+)\. ")


def opening_form(task: str, minutes: float) -> str:
    """What to fill in before the code."""
    told = (
        f"# {task}\n\n> {minutes:g} minutes to clarify and to estimate. Then you get the file to write.\n"
        "> What you would ask an interviewer, ask here, and write what you assume.\n"
        "> The page shows it next to what a strong answer says."
    )
    return _form(told, [(OPENING[name], PROMPTS[name]) for name in OPENING])


def follow_ups_form(task: str, follow_ups: Sequence[FollowUp]) -> str:
    """What to answer after a pass."""
    told = f"# After the pass: {task}\n\n> Answer in a few sentences each, with numbers. The clock still runs."
    return _form(told, [(item.ask, "") for item in follow_ups])


def paper_form(task: str, text: str, reading: Reading) -> str:
    """What to read, and its questions."""
    fence = "cuda" if reading.kind == KERNEL else "text"
    how = "> Answer under each question, in a few sentences. Nothing is compiled."
    told = f"# {task}\n\n{how}\n\n```{fence}\n{text}\n```"
    return _form(told, [(item.question, "") for item in reading.questions])


def _form(told: str, items: Sequence[tuple[str, str]]) -> str:
    parts = [told]
    for number, (heading, prompt) in enumerate(items, 1):
        parts.append(f"## {number}. {heading}\n" + (f"\n> {prompt}\n" if prompt else ""))
    return "\n\n".join(parts) + "\n"


def answers(text: str, count: int) -> list[str]:
    """What is written under each of a form's headings, without the form's own lines; empty where nothing is."""
    found: dict[int, list[str]] = {}
    number = 0
    for line in text.splitlines():
        heading = _HEADING.match(line)
        number = int(heading[1]) if heading else number
        if not heading and line.rstrip() not in _OWN_LINES:
            found.setdefault(number, []).append(line)
    return ["\n".join(found.get(number, ())).strip() for number in range(1, count + 1)]
