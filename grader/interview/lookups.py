"""What a command would show of a kata -> whether it may while an interview is on, and a note that it was asked for.

It knows only what our own commands show. A file that is opened in an editor leaves no usable trace, and neither does a
browser. (The access time does not prove it: many file systems do not keep one, and a search reads files, too.)
"""

from __future__ import annotations

from collections.abc import Sequence

from grader.content.catalog import Kata
from grader.interview import session

FORBIDDEN = ("hint", "start", "estimate")  # with or without --anyway
ANYWAY = ("solution", "diff", "sass", "ptx", "hunt", "faster")  # shown with --anyway


def refusal(katas: Sequence[Kata], how: str, *, anyway: bool = False, locked: bool = False) -> str | None:
    """Why ``how`` may not show this of these katas now, in a sentence; None where it may. Either way it is noted.

    ``how`` is a command and what it was told. ``locked``: something else forbids it anyhow, so nothing will be shown.
    Raises InterviewError where the log of the interview cannot be read or written: then nothing may be shown.
    """
    on = session.current(katas[0].root)
    if on is None or on.over:
        return None
    mine = {part.kata for part in on.parts[: on.part + 1]}
    asked = [kata.name for kata in katas if kata.name in mine]
    command = how.partition(" ")[0]
    allowed = not asked or (command not in FORBIDDEN and (anyway or command not in ANYWAY))
    for kata in katas:
        on = session.append(on, session.LOOKUP, kata=kata.name, how=how, shown=allowed and not locked)
    if allowed:
        return None
    insist = "; --anyway shows it all the same, and the page will say so" if command in ANYWAY else ""
    return f"{asked[0]} is being asked in an interview: no {command} until `kata interview finish`{insist}."
