"""`kata editor`: the files that clangd, VS Code and CLion read. An editor then knows the katas' headers and flags."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grader.compile.compilation import INCLUDE
from grader.compile.libraries import LibraryMissing, find_library
from grader.compile.toolchain import Toolchain, find_toolchain
from grader.content.catalog import Kata
from grader.fault import Fault
from grader.output.console import Commands, examples, open_catalog, say_json
from grader.output.verdict_text import display_path
from grader.storage.whole_file import write_whole

DATABASE = "compile_commands.json"
# clang compiles no machine code here: a card that clang 14 knows, and that has what the katas use. It reads the host's
# side: for the card's, clang 22 wants a launch as CUDA 9.1 had it, since the version of the toolkit does not reach it.
_FLAGS = (
    "-xcuda",
    "--cuda-host-only",
    "-std=c++17",
    "--cuda-gpu-arch=sm_80",
    "-D_CG_HAS_CLUSTER_GROUP",
    "-nocudalib",
    "-Wno-unknown-cuda-version",
)
_CLANG = Path(__file__).with_name("clang")  # headers that clang includes and not every toolkit has, and:
_STORES = _CLANG / "stores.cuh"  # functions that nvcc declares and clang does not
_KATA = "${workspaceFolder}/.venv/bin/kata"
SETTINGS: Mapping[str, Any] = {
    "python.defaultInterpreterPath": "${workspaceFolder}/.venv/bin/python",
    "python.testing.pytestEnabled": True,
    "python.testing.unittestEnabled": False,
    "python.testing.pytestArgs": ["exercises"],
    "files.associations": {"*.cu": "cuda-cpp", "*.cuh": "cuda-cpp"},
    "C_Cpp.default.compileCommands": f"${{workspaceFolder}}/{DATABASE}",
}
_MATCHER = {
    "owner": "kata",
    "fileLocation": ["relative", "${workspaceFolder}"],
    "pattern": {"regexp": r"^\s+at\s+(\S+):(\d+)\s+(.*)$", "file": 1, "line": 2, "message": 3},
}
TASKS: Mapping[str, Any] = {
    "version": "2.0.0",
    "tasks": [
        {
            "label": "kata: grade this file",
            "type": "process",
            "command": _KATA,
            "args": ["grade", "${relativeFile}"],
            "group": {"kind": "build", "isDefault": True},
            "problemMatcher": _MATCHER,
        },
        {
            "label": "kata: hint for this file",
            "type": "process",
            "command": _KATA,
            "args": ["hint", "${fileBasenameNoExtension}"],
            "problemMatcher": [],
        },
        {"label": "kata: next", "type": "process", "command": _KATA, "args": ["next"], "problemMatcher": []},
    ],
}


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "editor",
        help="write what clangd, VS Code and CLion need to read the katas",
        description=f"Write {DATABASE}, which clangd, VS Code and CLion read, and the tasks and settings of VS Code: "
        "Ctrl-Shift-B grades the open file, and each kata is a test. A file in .vscode that is already there stays as "
        "it is. Run it again after a change of the compiler. Exit code 0, or 2 if a file cannot be written.",
        epilog=examples("kata editor", "kata editor --json"),
    )
    parser.add_argument("--json", action="store_true", help="as a JSON object: file -> written, current or kept")
    parser.set_defaults(command=_editor)


def _editor(options: argparse.Namespace) -> int:
    catalog = open_catalog()
    root, katas = catalog.root, [*catalog.katas.values()]
    done = {DATABASE: _write_database(root / DATABASE, database(katas, root, find_toolchain()))}
    for name, content in (("settings.json", SETTINGS), ("tasks.json", TASKS)):
        done[f".vscode/{name}"] = _write_new(root / ".vscode" / name, content)
    if options.json:
        say_json(done)
        return 0
    for name, what in done.items():
        print(f"{display_path(root / name)}: {what}{', it is yours' if what == KEPT else ''}")
    for name, content in (("settings.json", SETTINGS), ("tasks.json", TASKS)):
        if done[f".vscode/{name}"] == KEPT:
            print(f"\nYour .vscode/{name} may lack some of this:\n{json.dumps(content, indent=2)}")
    return 0


def database(katas: Sequence[Kata], root: Path, toolchain: Toolchain) -> list[dict[str, Any]]:
    """What ``compile_commands.json`` holds: an entry for each skeleton, solution and file of the learner."""
    return [
        {"directory": str(root), "file": str(file), "arguments": [*_command(kata, toolchain), str(file)]}
        for kata in katas
        for file in (kata.skeleton_path, kata.work_path, kata.solution_path)
        if os.path.lexists(file)
    ]


def _command(kata: Kata, toolchain: Toolchain) -> Iterator[str]:
    """clang's command line without the file."""
    yield from ("clang++", *_FLAGS, f"--cuda-path={toolchain.toolkit}", "-I", str(INCLUDE))
    for include in (toolchain.toolkit / "include", *sorted(toolchain.toolkit.glob("targets/*/include"))):
        if (include / "cccl").is_dir():
            yield from ("-isystem", str(include / "cccl"))
            break
    for name in kata.libraries:
        try:
            flags = find_library(name, toolkit=toolchain.toolkit, device="sim").flags
        except LibraryMissing:  # a grade says how to install it
            continue
        yield from flags
    yield from ("-include", str(_STORES), "-idirafter", str(_CLANG), "-c")


WRITTEN, CURRENT, KEPT = "written", "current", "kept"


def _write_database(place: Path, entries: list[dict[str, Any]]) -> str:
    """Raises Fault where the file is of another program."""
    text = json.dumps(entries, indent=1) + "\n"
    old = place.read_text(errors="replace") if place.is_file() else ""
    if old == text:
        return CURRENT
    if old and str(INCLUDE.relative_to(INCLUDE.parents[1])) not in old:
        raise Fault(f"{place} is not from `kata editor`. Move it away, and run this again.")
    return _write(place, text)


def _write_new(place: Path, content: Mapping[str, Any]) -> str:
    text = json.dumps(content, indent=2) + "\n"
    if os.path.lexists(place):
        return CURRENT if place.is_file() and place.read_text(errors="replace") == text else KEPT
    return _write(place, text)


def _write(place: Path, text: str) -> str:
    try:
        place.parent.mkdir(exist_ok=True)
        write_whole(place, text)
    except OSError as error:
        raise Fault(f"{place} cannot be written ({error.strerror}). Make its folder writable.") from None
    return WRITTEN
