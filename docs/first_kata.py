"""The first kata in five minutes, really done -> docs/first_kata.svg, a terminal in which it happens.

    python docs/first_kata.py          do it in a fresh clone and draw it
    python docs/first_kata.py --text   do it and print it

Every line of output is what the command said; the picture plays once and stays. It needs what grading needs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("exercises", "solutions", "difficulty.yaml", "tracks.yaml", "conftest.py", "pyproject.toml")
FILE = "work/first_steps/scale_f32.cu"
KATA = "scale_f32"

UNGUARDED, GUARDED = "    y[i] = a * x[i];", "    if (i < n) y[i] = a * x[i];"
ANSWERS = (
    "    const int i = blockIdx.x * blockDim.x + threadIdx.x;",
    UNGUARDED,
    "    const int blocks = (n - 1) / THREADS + 1;",
    "    scale_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n, a);",
)


@dataclass(frozen=True)
class Line:
    """``look`` is what it is: a command, what one said, a line into the file or out of it; ``at_s`` when it comes."""

    text: str
    look: str
    at_s: float
    first: bool  # of a step


# The session


def session() -> Iterator[tuple[str, str]]:
    """(text, look) of every line, from a clone of its own in which all of it is done."""
    with tempfile.TemporaryDirectory() as folder:
        clone = _clone(Path(folder))
        yield from _command(clone, "kata next")
        yield from _command(clone, f"kata start {KATA}")
        yield from _command(clone, f"tail -n +11 {FILE}")
        yield f"# {FILE}: all TODOs, and a mistake", "note"
        for number, line in enumerate(ANSWERS, 1):
            yield from _answer(clone, number, line)
        yield from _command(clone, f"kata grade {KATA}")
        yield f"# {FILE}: a thread past the end must touch nothing", "note"
        _replace(clone, UNGUARDED, GUARDED)
        yield f"- {UNGUARDED.strip()}", "out"
        yield f"+ {GUARDED.strip()}", "in"
        yield from _command(clone, f"kata grade {KATA}")
        yield from _command(clone, "kata next")


def _clone(folder: Path) -> Path:
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, folder / part)  # type: ignore[operator]
    _run(folder, [sys.executable, "-m", "grader", "dev", "skeletons"])
    return folder


def _run(clone: Path, command: Sequence[str]) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KATA_DATA": str(clone / ".data"), "COLUMNS": "110"}
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
    if done.returncode == 2:  # the machine is at fault: nothing to draw
        raise SystemExit(done.stderr)
    return done.stdout


def _command(clone: Path, typed: str) -> Iterator[tuple[str, str]]:
    yield f"$ {typed}", "command"
    words = typed.split()
    program = [sys.executable, "-m", "grader"] if words[0] == "kata" else words[:1]
    device = ["--device", "sim"] if words[:2] == ["kata", "grade"] else []  # the same picture on every machine
    for text in _run(clone, [*program, *words[1:], *device]).splitlines():
        yield text, "said"


def _answer(clone: Path, number: int, line: str) -> Iterator[tuple[str, str]]:
    """The answer of one TODO, above its END."""
    end = f"    // END TODO({number})"
    _replace(clone, end, f"{line}\n{end}")
    yield f"+ {line.strip()}", "in"


def _replace(clone: Path, old: str, new: str) -> None:
    path = clone / FILE
    text = path.read_text()
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new))


# The picture

WIDTH, COLUMN, ROW, GAP, EDGE, BAR = 120, 7.83, 18, 9, 16, 34  # columns, then pixels; a column is 0.602 of 13 of them
TYPED_S, SAID_S, PAUSE_S = 0.9, 0.05, 1.4  # after a command, a line, and before the next command

_STYLE = """
text { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #d5dde5; white-space: pre; }
.command { fill: #ffffff; font-weight: 700; } .note { fill: #8fa1b3; font-style: italic; }
.in { fill: #7fd58f; } .out { fill: #ff9d7a; }
.wrong { fill: #ffb454; font-weight: 700; } .right { fill: #7fd58f; font-weight: 700; }
g { animation: come 0.01s both; } @keyframes come { from { opacity: 0; } to { opacity: 1; } }
@media (prefers-reduced-motion: reduce) { g { animation: none; } } @media print { g { animation: none; } }
"""


def timed(lines: Iterator[tuple[str, str]]) -> Iterator[Line]:
    """When each line comes: what is typed and edited waits a little."""
    at_s, last = 0.3, "command"
    for text, look in lines:
        first = look in ("command", "note") and last not in ("command", "note")
        at_s += PAUSE_S if first else 0.0
        yield Line(text, _verdict(text) or look, round(at_s, 2), first)
        at_s += TYPED_S if look in ("command", "in", "out") else SAID_S
        last = look


def _verdict(text: str) -> str | None:
    """What a verdict's headline looks like."""
    if re.match(rf"{KATA} +pass on", text):
        return "right"
    return "wrong" if re.match(rf"{KATA}: \w", text) and ": c = " not in text else None


def drawing(lines: Sequence[Line]) -> str:
    """The SVG. It loads nothing, and shows all of it where nothing moves."""
    places = list(accumulate((ROW + GAP * line.first for line in lines), initial=BAR - 4))[1:]
    width, height = round(WIDTH * COLUMN + 2 * EDGE), places[-1] + EDGE
    rows = [
        f'<g style="animation-delay:{line.at_s}s"><text class="{line.look}" x="{EDGE}" y="{place}">'
        f"{escape(line.text[:WIDTH])}</text></g>"
        for line, place in zip(lines, places, strict=True)
    ]
    dots = "".join(f'<circle cx="{EDGE + 4 + 16 * place}" cy="16" r="5" fill="#48535f"/>' for place in range(3))
    title = "The first kata: kata next, a kernel without its bounds check, the verdict, the repaired kernel, a pass"
    return "\n".join(
        [
            "<!-- Written by docs/first_kata.py. -->",
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            ' role="img">',
            f"<title>{title}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#14191f"/>{dots}',
            *rows,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    if "--text" in sys.argv[1:]:
        for shown, _ in session():
            print(shown)
    else:
        Path(__file__).with_suffix(".svg").write_text(drawing(list(timed(session()))))
