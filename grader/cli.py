"""The command line: `kata` and its commands.

Exit codes: 0 success, 1 a grade or a check did not pass, 2 the command or the machine is at fault, 141 the reader of
the output has closed it.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

from grader.fault import Fault
from grader.output.console import Parser, examples

# Modules and the commands that each adds, in the order of `kata --help`. Without its room, a command does not exist.
MODULES = {
    "commands.course": ("list", "next", "status"),
    "commands.start": ("start", "update"),
    "commands.kata": ("show", "hint", "solution", "diff", "reset"),
    "commands.grade": ("grade", "bench"),
    "commands.trial": ("try",),
    "commands.watch": ("watch",),
    "commands.hunt": ("hunt",),
    "commands.faster": ("faster",),
    "commands.estimate": ("estimate",),
    "commands.code": ("sass", "ptx"),
    "interview.command": ("interview",),
    "commands.progress": ("progress",),
    "pages.command": ("report",),
    "commands.doctor": ("doctor",),
    "commands.completion": ("completion",),
    "commands.editor": ("editor",),
    "maintain.command": ("dev",),
}
GUESSED = {  # what people type -> the command
    **dict.fromkeys(("run", "test", "check", "verify", "submit"), "grade"),
    **dict.fromkeys(("new", "init", "begin", "open"), "start"),
    **dict.fromkeys(("ls", "katas", "search", "find"), "list"),
    **dict.fromkeys(("answer", "solve", "solutions"), "solution"),
    **dict.fromkeys(("tip", "hints"), "hint"),
    **dict.fromkeys(("benchmark", "time", "profile"), "bench"),
    **dict.fromkeys(("vscode", "clangd", "ide"), "editor"),
}
CLOSED = 141  # 128 + SIGPIPE: what a shell gives of any program whose reader has closed the pipe


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. __main__.py handles Ctrl-C, also while this module is imported."""
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    try:
        if given[:1] == ["help"]:
            given = [*given[1:2], "--help"]
        _know(given[0] if given else "")
        options = parser(given[0] if given else "").parse_args(given)
        command: Callable[[argparse.Namespace], int] = options.command
        code = command(options)
        sys.stdout.flush()
        return code
    except Fault as error:
        print(f"kata: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has seen enough: `kata list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED


def parser(command: str = "") -> argparse.ArgumentParser:
    """The parser of this command's module: importing all modules takes longer. Unknown command: of all modules.

    The options have this function as ``parser``, for a command that is about all commands.
    """
    found: argparse.ArgumentParser = Parser(
        prog="kata",
        description="Learn CUDA kernels by writing them: start a kata, write its file, grade it.",
        epilog=examples(
            "kata next",
            "kata start scale_f32",
            "$EDITOR work/first_steps/scale_f32.cu",
            "kata grade scale_f32",
            title="To start:",
        ),
    )
    found.add_argument("--version", action=_Version, nargs=0, help="print the version and where it is, and exit")
    found.set_defaults(parser=parser, command=_welcome)
    commands = found.add_subparsers(metavar="COMMAND")
    for module in _modules(command):
        module.add(commands)
    return found


@functools.cache
def _known() -> list[str]:
    """The modules that are there."""
    return [name for name in MODULES if Path(__file__).parent.joinpath(*name.split(".")).with_suffix(".py").is_file()]


def _modules(command: str) -> Iterator[ModuleType]:
    known = _known()
    own = [name for name in known if command in MODULES[name]]
    for name in own or known:
        yield importlib.import_module(f"grader.{name}")


def _know(word: str) -> None:
    """Raises Fault for a first word that is not a command: with the command that it may mean."""
    commands = [command for module in _known() for command in MODULES[module]]
    if word in commands or not word or word.startswith("-"):
        return
    if word in GUESSED:
        meant = f"Did you mean `kata {GUESSED[word]}`?"
    elif (count := _katas(word)) == 1:
        meant = f"It names a kata: `kata show {word}` shows its task, `kata grade {word}` grades your file."
    elif count:
        meant = f"It names {count} katas: `kata list {word}` lists them, `kata grade {word}` grades your files."
    else:
        from grader.content.yaml_fields import close_to

        meant = f"{close_to(word, commands).strip()} `kata help` lists the commands.".strip()
    raise Fault(f"there is no command {word!r}. {meant}")


def _katas(word: str) -> int:
    """How many katas the word names."""
    from grader.content.catalog import CatalogError, find_root, load_catalog

    try:
        return len(load_catalog(find_root(), missing_skeletons=True).select([word]))
    except CatalogError:
        return 0


def _welcome(options: argparse.Namespace) -> int:
    """Bare `kata`: the next kata, and where the help is."""
    from grader.commands import course

    commands = argparse.ArgumentParser().add_subparsers()
    course.add(commands)
    course.next_kata(commands.choices["next"].parse_args([]))
    print()
    print("`kata grade` grades the file that you changed last, `kata hint NAME` helps, `kata help` lists all commands.")
    return 0


class _Version(argparse.Action):
    """Looks the version up when it is asked for: that takes longer than to start."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(_version())
        parser.exit()


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    folder = Path(__file__).resolve().parents[1]
    try:
        return f"kata {version('cuda-kata')} in {folder}"
    except PackageNotFoundError:  # python -m grader, not installed
        return f"kata in {folder}"
