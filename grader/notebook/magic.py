"""A notebook's cell -> a grade: ``%load_ext grader``, then ``%%kata NAME`` above the text of a .cu file.

It needs no torch, and IPython only as the object that loads it. ``%kata NAME`` puts the skeleton into the next cell.
"""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from grader.content import skeleton, start
from grader.content.catalog import CatalogError, Kata, find_root, load_catalog
from grader.fault import Fault
from grader.grade import grade
from grader.learner import progress
from grader.notebook.graded import Graded
from grader.options import Options
from grader.pages.accesses import into_memory
from grader.pages.markup import Markup, join, tag
from grader.storage.whole_file import write_whole

USAGE = "%%kata NAME [--pictures] [--thorough] [--device auto|gpu|sim], and the text of the .cu file below it"

# Colours that can be read on a light and on a dark notebook; the text has the notebook's own.
_STYLE = """
.kata svg { max-width: 520px; display: block; } .kata svg text { font: 11px sans-serif; fill: currentColor; }
.kata .sector, .kata .cell { fill: #8884; } .kata .used { fill: #2c8ed1; } .kata .worse { fill: #d9661f; }
.kata .axis { stroke: currentColor; } .kata .high { color: #d9661f; font-weight: 650; }
"""


class Shown(Graded):
    """A grade as a notebook shows it: text, or the same in HTML with pictures of memory accesses."""

    def _repr_html_(self) -> str:
        counted = any(verdict.counters for verdict in self.grade.verdicts)
        pictures = into_memory([self.grade]) if counted else Markup()
        return join((tag("style", Markup(_STYLE)), tag("div", tag("pre", repr(self)), pictures, class_="kata")))


def register(shell: Any) -> None:
    """Make `kata` a line and cell magic of an IPython shell."""

    def kata(line: str, cell: str | None = None) -> Shown | None:
        try:
            return run(shell, line, cell)
        except Fault as error:
            print(f"kata: {error}")
            return None

    shell.register_magic_function(kata, "line_cell", "kata")


def run(shell: Any, line: str, cell: str | None) -> Shown | None:
    """The grade of a cell's text, which becomes the learner's file; without a cell, the skeleton for the next one.

    Raises a Fault: for an unknown name or option, or a machine that cannot grade.
    """
    options = _options(line)
    found = load_catalog(find_root()).select([options.name])
    if len(found) != 1:
        raise CatalogError(f"{options.name!r} names {len(found)} katas; name one.")
    (kata,) = found
    if cell is None:
        shell.set_next_input(f"%%kata {kata.name}\n{_text_of(kata)}")
        return None
    _keep(kata, cell)
    device = "sim" if options.pictures else options.device
    asked = Options(device, options.thorough, counters=options.pictures, speed=False)
    graded = grade(kata, asked, source=kata.work_path)
    if warning := progress.keep_grade(graded):
        print(f"kata: {warning}")
    return Shown(graded)


def _text_of(kata: Kata) -> str:
    """The learner's file, or the skeleton where there is none."""
    try:
        return skeleton.read(kata.own_path) if kata.own_path.is_file() else start.text_of(kata, start.SKELETON)
    except OSError as error:
        raise CatalogError(f"{kata.own_path}: cannot be read ({error.strerror}). Make it readable.") from None


_WRITTEN: dict[str, str] = {}  # kata -> the text that this process wrote last: not kept as a .bak


def _keep(kata: Kata, text: str) -> None:
    """Write the learner's file in work/. What a cell did not write is kept beside it as a .bak file."""
    place = kata.work_path
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        there = place.read_text(errors="surrogateescape") if place.exists() else None
        if there not in (None, text, _WRITTEN.get(kata.name)) and start.is_begun(kata, place):
            start.set_aside(place)
        write_whole(place, text)
    except OSError as error:
        raise CatalogError(f"{place}: cannot be written ({error.strerror}). Make the folder writable.") from None
    _WRITTEN[kata.name] = text


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise CatalogError(f"{message}; write {USAGE}.")


def _options(line: str) -> argparse.Namespace:
    parser = _Parser(prog="%%kata", add_help=False)
    parser.add_argument("name")
    parser.add_argument("--pictures", action="store_true")
    parser.add_argument("--thorough", action="store_true")
    parser.add_argument("--device", choices=("auto", "gpu", "sim"), default="auto")
    try:
        found = parser.parse_args(shlex.split(line))
    except ValueError as error:
        raise CatalogError(f"{error}; write {USAGE}.") from None
    if found.pictures and found.device == "gpu":
        raise CatalogError("--pictures are of the simulator, which counts accesses; leave out --device gpu.")
    return found
