"""The command line: `kata` and its commands.

Exit codes: 0 success, 1 a grade or a check did not pass, 2 the command or the machine is at fault.
"""

from __future__ import annotations

import argparse
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
    "maintain.command": ("dev",),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. __main__.py handles Ctrl-C, also while this module is imported."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parser(given[0] if given else "").parse_args(given)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        code = command(options)
        sys.stdout.flush()
        return code
    except Fault as error:
        print(f"kata: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has seen enough: `kata list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


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
    found.set_defaults(parser=parser)
    commands = found.add_subparsers(required=True, metavar="COMMAND")
    for module in _modules(command):
        module.add(commands)
    return found


def _modules(command: str) -> Iterator[ModuleType]:
    known = [name for name in MODULES if Path(__file__).parent.joinpath(*name.split(".")).with_suffix(".py").is_file()]
    own = [name for name in known if command in MODULES[name]]
    for name in own or known:
        yield importlib.import_module(f"grader.{name}")
