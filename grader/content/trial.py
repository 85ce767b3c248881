"""exercises/<family>/tries.py -> Trials: what one TODO of a kata must do, checked without the rest of the kata.

A trial is code that is put below the learner's file, and a function of Python that judges what it stores. The code has
a kernel that calls what the TODO is in, and a launcher `trial` with the trial's tensors as arguments. A family's
tries.py has them in TRIES.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from grader.content.catalog import Kata
from grader.content.spec import Exact, InputKind, Size, Spec, SpecError, Tensor

if TYPE_CHECKING:
    from numpy import ndarray

FILE = "tries.py"
LAUNCHER = "trial"

Arrays = Mapping[str, "ndarray"]  # by the names of the tensors; floats as float64, integers as int64


@dataclass(frozen=True)
class Trial:
    """``katas``: names or globs. ``todos``: the skeleton's TODOs that it checks, by number. ``about``: what it does.

    ``code`` is CUDA and comes after the learner's file. ``judge`` gets all tensors by name, and returns what is wrong
    in a sentence, or an empty text. ``picture`` draws them in lines of text.
    """

    katas: tuple[str, ...]
    todos: tuple[int, ...]
    about: str
    code: str
    outputs: tuple[Tensor, ...]
    judge: Callable[[Arrays], str]
    picture: Callable[[Arrays], Sequence[str]]
    inputs: tuple[Tensor, ...] = ()
    values: InputKind | None = None

    def is_for(self, kata: Kata) -> bool:
        return any(fnmatch.fnmatchcase(kata.name, pattern) for pattern in self.katas)

    def kata(self, kata: Kata) -> Kata:
        """The kata with the trial's launcher in place of its own."""
        return replace(kata, name=LAUNCHER, multiples={}, speed=None)

    @property
    def spec(self) -> Spec:
        values = self.values or InputKind("none", {})
        return Spec(
            computes=self.about,
            inputs=self.inputs,
            outputs=self.outputs,
            sizes={"n": Size(1, 1)},
            values=(values,),
            reference=_unused,
            tolerance=Exact(),
            named_sizes=({"n": 1},),
            work=lambda sizes: 1,
        )


def _unused(**_: object) -> ndarray:
    raise AssertionError("a trial is judged by its own function")


def cells(matrix: ndarray, rows: str) -> list[str]:
    """A matrix of counts as a picture: `.` for 0, `#` for 1, another digit as it is, `?` for all else. ``rows`` names
    a row."""
    signs = {0.0: ".", 1.0: "#", **{float(digit): str(digit) for digit in range(2, 10)}}
    lines = ("".join(signs.get(float(value), "?") for value in row) for row in matrix)
    return [f"{rows} {number:>2}  {line}" for number, line in enumerate(lines)]


def load_trials(kata: Kata) -> tuple[Trial, ...]:
    """The trials of a kata, by their first TODO; none if its family has no file of them. Raises SpecError."""
    path = kata.spec_path.with_name(FILE)
    if not path.is_file():
        return ()
    module_spec = importlib.util.spec_from_file_location(f"kata_tries_{kata.family}", path)
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module
    module_spec.loader.exec_module(module)
    found = getattr(module, "TRIES", None)
    if not isinstance(found, tuple) or not all(isinstance(trial, Trial) for trial in found):
        raise SpecError(f"{path}: defines no TRIES. Add `TRIES = (Trial(...), ...)` from grader.content.trial.")
    return tuple(sorted((trial for trial in found if trial.is_for(kata)), key=lambda trial: trial.todos))
