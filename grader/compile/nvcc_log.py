"""nvcc's messages about a file, and its output -> a sentence for its author, with the line if there is one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from grader.compile.offsets import source_line

SOURCE = "kata.cu"  # the name of every file for nvcc: a build does not depend on the learner's file name

_ERROR = re.compile(
    r"^(?P<file>[^\s(:][^(:\n]*)[(:](?P<line>\d+)\)?(?::\d+)?: "
    r"(?:catastrophic |fatal )?error(?: #[\w-]+)?: (?P<text>.*)$",
    re.MULTILINE,
)
_TOOL_ERROR = re.compile(r"^(?:ptxas|nvlink|nvcc|cicc)\s*(?:error|fatal)\s*: (?P<text>.*)$", re.MULTILINE)
_PTXAS_LINE = re.compile(r"^ptxas \S+, line (?P<line>\d+); error\s*: (?P<text>.*)$", re.MULTILINE)
_LACKING = re.compile(
    r"(?:Feature )?(?P<what>.+?) (?:requires|require|needs) \.target (?P<arch>sm_\w+)(?: or higher)?$"
)
_DETECTED = re.compile(rf"at line (\d+)(?: of \S*{re.escape(SOURCE)})?$", re.MULTILINE)
# A part of nvcc's sentence -> its usual cause, for readers who are new to C++.
_CAUSES = {
    "must be a modifiable lvalue": "what is left of the = is const, or not a variable",
    "must have integral or unscoped enum type": "an index, and an operand of %, must be a whole number",
    "must have pointer-to-object type": "is a * missing where it is declared?",
    '"restrict" is not allowed': "is a * missing before __restrict__?",
    "is undefined in device code": (
        "a constexpr outside of functions is only a value there. A pointer, a reference, and ?: next to a variable need"
        " its address: copy it into a local variable first"
    ),
    "function call must be configured": "a kernel is launched as name<<<blocks, threads, 0, stream>>>(arguments)",
    "is undefined": "is it misspelt, or is its type or its header missing?",
    'no operator "': "vector types such as float4 have no operators; use their members .x, .y, ...",
}
_CLASHES = ("linkage", "incompatible with previous", "distinguished by return type alone", "later")


@dataclass(frozen=True)
class File:
    """A learner's file, the launcher that it must have, and how to fix a malformed file: empty if nothing fixes it."""

    text: str
    launcher: str
    signature: str
    reset_hint: str


def first_error(log: str, file: File, ptx: str = "") -> tuple[str, int | None]:
    """nvcc's first error as (sentence, line of the learner's file or None). ``ptx`` is what ptxas was given."""
    match = _ERROR.search(log)
    if match is not None:
        text, line = match["text"], int(match["line"])
        if Path(match["file"]).name == SOURCE:
            return _in_our_words(text, line, file), line
        if match["file"].endswith("signature.h"):
            return _in_our_words(text, None, file), None
        used = _DETECTED.search(log, match.end())
        return f"{text} (in {Path(match['file']).name})", int(used[1]) if used else None
    if match := _PTXAS_LINE.search(log):
        lacking = _LACKING.match(match["text"])
        text = f"{lacking['what']} needs {lacking['arch']} or newer" if lacking else match["text"]
        return text, source_line(ptx, int(match["line"]), SOURCE)
    if match := _TOOL_ERROR.search(log):
        return match["text"], None
    last = log.strip().splitlines()[-1:] or ["nvcc printed nothing"]
    return f"nvcc failed: {last[0]}", None


def _in_our_words(text: str, line: int | None, file: File) -> str:
    """The errors of a wrong parameter list or return type, turned into what to write instead."""
    lines = file.text.splitlines()
    there = text + (lines[line - 1] if line is not None and line <= len(lines) else "")
    if file.launcher in there and any(clash in text for clash in _CLASHES):
        return f"the launcher must be declared as: KATA_EXPORT {file.signature}"
    if text == 'expected a ";"' and line is not None:
        return text + _end_of_statement(lines[: line - 1])
    return "; ".join([text, *(cause for part, cause in _CAUSES.items() if part in text)][:2])


def _end_of_statement(lines: list[str]) -> str:
    """The place of a missing `;`, given the lines before the one that nvcc names: empty if that line is the place.

    nvcc notices it at the next word, often lines later: behind comments.
    """
    code = [(number, line.partition("//")[0].strip()) for number, line in enumerate(lines, 1)]
    number, last = next(((number, words) for number, words in reversed(code) if words), (0, "}"))
    return "" if last[-1] in ";{}:/" or last.startswith("#") else f"; is it missing at the end of line {number}?"


def missing_launcher(exported: Collection[str], file: File) -> str | None:
    """A sentence if a library that exports these names has no launcher with the kata's name."""
    name = file.launcher
    if name in exported:
        return None
    wanted = f"KATA_EXPORT {file.signature}"
    if not file.text.strip():
        return f"the file is empty; {file.reset_hint}" if file.reset_hint else "the file is empty"
    others = [other for other in exported if not other.startswith(("_", "kata_"))]
    if any(re.match(rf"_Z\d+{name}", other) for other in exported):
        return f"{name} is there, but not as a C function: it must be declared as {wanted}"
    close = difflib.get_close_matches(name, others, n=1, cutoff=0.6)
    if close:
        return f"there is no launcher {name}; is {close[0]} a misspelling of it? It must be: {wanted}"
    if "main" in others:
        return f"the file has a main() but no launcher. The grader never calls main(); write {wanted}"
    return f"there is no launcher {name}. The file must have: {wanted}"
