"""What the commands of `kata` share: how they are described, how they open the katas, what they print and write."""

from __future__ import annotations

import argparse
import functools
import json
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from grader.content.catalog import Catalog, CatalogError, Kata, find_root, load_catalog
from grader.fault import Fault
from grader.learner import progress
from grader.learner.progress import History, ProgressError
from grader.learner.state import State, states
from grader.storage.whole_file import write_whole

Commands = argparse._SubParsersAction  # of ArgumentParser; argparse has no public name for it
KINDS = "katas, families, levels, globs or files"
NAMES = f"{KINDS} (default: all)"


class Help(argparse.HelpFormatter):
    """argparse's, but what has lines of its own keeps them: a command that is shown there can be copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.indent(text, indent) if "\n" in text else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """argparse's with that help; the parsers of its commands are of the same class."""

    def __init__(self, **given: Any) -> None:
        super().__init__(formatter_class=Help, **given)

    def error(self, message: str) -> NoReturn:
        """A sentence, as of any other fault of a command: the options of `kata grade` alone fill eleven lines."""
        raise Fault(f"{message}. `{self.prog} --help` says what it takes.")


def add_sim_arch(parser: argparse.ArgumentParser) -> None:
    from grader.devices import SIM_ARCH, SIM_ARCH_HELP, SIM_ARCHITECTURES

    parser.add_argument("--sim-arch", default=SIM_ARCH, choices=SIM_ARCHITECTURES, metavar="ARCH", help=SIM_ARCH_HELP)


def examples(*lines: str, title: str = "Examples:") -> str:
    """The end of a command's help: commands to copy, one on a line."""
    return "\n".join([title, *(f"  {line}" for line in lines)])


def open_catalog() -> Catalog:
    return load_catalog(find_root())


def open_progress(catalog: Catalog) -> History:
    """What was kept of this clone. Raises ProgressError."""
    found = progress.load(catalog.root)
    warn(found.warning)
    return found


def open_states() -> tuple[Catalog, History, Mapping[str, State]]:
    catalog = open_catalog()
    known = open_progress(catalog)
    return catalog, known, states(catalog, known)


def one_kata(catalog: Catalog, name: str, what: str) -> Kata:
    """The kata that a name stands for. Raises CatalogError where it stands for several; ``what`` is for one."""
    katas = catalog.select([name])
    if len(katas) != 1:
        raise CatalogError(f"{what} is for one kata, but {name!r} names {len(katas)}.")
    return katas[0]


def named_file(file: Path) -> Path:
    """What --file names. Raises CatalogError if it is not a file."""
    if not file.is_file():
        raise CatalogError(f"{file} is not a file. Name one with --file, or leave it out for the kata's own.")
    return file


def save(place: Path, text: str) -> None:
    """Write a file whole or not at all: an older one stays as it is. Raises ProgressError where it cannot."""
    try:
        write_whole(place, text)
    except OSError as error:
        raise ProgressError(f"{place} cannot be written ({error.strerror}). Name another file.") from None


def say_json(value: Any) -> None:
    print(json.dumps(value, indent=1))


def tell(line: str) -> None:
    """What is said beside the answer, while it is on its way."""
    print(line, file=sys.stderr, flush=True)


@functools.cache  # the same words are said once
def warn(words: str | None) -> None:
    if words:
        print(f"kata: {words}", file=sys.stderr, flush=True)
