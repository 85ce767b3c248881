"""Task: what a service is to grade, as data that goes through a pipe; and Slot: where it is to do that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from grader.compile.request import Tell
from grader.content.catalog import Catalog
from grader.options import Options

GRADED = "grader.service.work:graded"
KEPT = "grader.service.work:kept"
LIMIT_S = 1200.0  # for one file, its compilation included; CuTe's templates alone may take 900

Answer = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A file to grade as a kata. ``source`` None is the learner's own file.

    ``work`` names the function that makes the answer in the fork: "module:function", of the type Work. A ``lasting``
    task goes on when the process that asked was killed. ``label`` is the caller's own and never leaves its process.
    """

    kata: str
    options: Options
    source: Path | None = None
    work: str = GRADED
    lasting: bool = False
    label: Any = None


@dataclass(frozen=True)
class Slot:
    """Where a task is done: in a scratch ``folder`` that is emptied afterwards (None: where the asking process stands),
    with additions to the environment, and for ``limit_s`` at most."""

    folder: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    limit_s: float | None = None


Work = Callable[[Task, Catalog, Tell], Answer]


def encoded(task: Task, slot: Slot) -> dict[str, Any]:
    """Both as JSON knows them."""
    plain = {"kata": task.kata, "options": asdict(task.options), "work": task.work, "lasting": task.lasting}
    source, folder = (path and str(path) for path in (task.source, slot.folder))
    place = {"folder": folder, "environment": dict(slot.environment), "limit_s": slot.limit_s}
    return {"task": {**plain, "source": source}, "slot": place}


def decoded(question: Mapping[str, Any]) -> tuple[Task, Slot]:
    """What ``encoded`` made, but for the label."""
    task, slot = dict(question["task"]), dict(question["slot"])
    task["options"] = Options(**task["options"])
    task["source"], slot["folder"] = (path and Path(path) for path in (task["source"], slot["folder"]))
    return Task(**task), Slot(**slot)
