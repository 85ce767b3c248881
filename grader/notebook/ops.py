"""Kata -> torch operator: ``torch.ops.kata.<name>`` on CPU tensors (simulator) and CUDA tensors.

``import grader.ops`` defines one operator for every kata of the clone; a kata is compiled when it is first called, and
again when its file has changed. See launcher.py for what a call does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from grader.content.catalog import Kata, find_root, load_catalog
from grader.content.spec import Spec
from grader.notebook.launcher import KataError, Launcher, sizes_to_give

__all__ = ["KataError", "register", "schema"]

_LIBRARY: Any = torch.library.Library("kata", "DEF")  # type: ignore[no-untyped-call]


def schema(kata: Kata, spec: Spec) -> str:
    """The operator's schema: inputs, sizes that no input's shape tells, other parameters with their defaults."""
    arguments = [f"Tensor {tensor.name}" for tensor in spec.inputs]
    arguments += [f"int {name}" for name in sizes_to_give(spec)]
    for parameter in spec.parameters:
        kind = "int" if parameter.ctype.startswith("int") else "float"
        arguments.append(f"{kind} {parameter.name}={parameter.value}")
    results = ", ".join(["Tensor"] * len(spec.outputs))
    return f"{kata.name}({', '.join(arguments)}) -> " + (results if len(spec.outputs) == 1 else f"({results})")


_LAUNCHERS: dict[str, Launcher] = {}


def register(root: Path | None = None, *, solutions: bool = False) -> None:
    """Define the operators of a clone; ``solutions`` calls the reference solutions instead of the learner's files.

    Calling it again changes which files the operators call.
    """
    for kata in load_catalog(root or find_root()).katas.values():
        defined = kata.name in _LAUNCHERS
        _LAUNCHERS[kata.name] = Launcher(kata, kata.solution_path if solutions else kata.own_path)
        if not defined:
            _define(kata.name, schema(kata, _LAUNCHERS[kata.name].spec))


def _define(name: str, text: str) -> None:
    _LIBRARY.define(text)
    for key in ("CPU", "CUDA"):
        _LIBRARY.impl(name, lambda *arguments: _call(name, arguments), key)
    _LIBRARY.impl(name, lambda *arguments: _shapes(name, arguments), "Meta")


def _call(name: str, arguments: tuple[Any, ...]) -> Any:
    launcher = _LAUNCHERS[name]
    if launcher.edited:
        launcher.reload()
    return launcher(*arguments)


def _shapes(name: str, arguments: tuple[Any, ...]) -> Any:
    launcher = _LAUNCHERS[name]
    _, sizes, _ = launcher.bind(arguments)
    return launcher.results(launcher.empty(sizes, torch.device("meta")))


register()
