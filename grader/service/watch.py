"""A kata + saves of its file -> grades of what was saved last, one after the other; a face shows them.

At any moment one content is being graded, or none: a newer one takes its place.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from grader.content.catalog import Catalog, Kata
from grader.options import Options
from grader.output.verdict_text import display_path
from grader.service.client import Service, ServiceError
from grader.service.saves import Saved, Saves
from grader.service.task import KEPT, Answer, Task


@dataclass
class Watch:
    """The kata that is watched, its last grade, and whether another is under way. ``follows``: changes to any saved."""

    catalog: Catalog
    kata: Kata
    options: Options
    follows: bool
    last: Answer | None = None  # the last grade of this kata
    last_at: str = ""
    seconds: float = 0.0  # from the question to the last grade
    fault: str = ""  # why there is no verdict on the last save
    told: str = ""  # what the grade says of its progress
    since: float | None = None  # when the running grade was asked for

    def __post_init__(self) -> None:
        every = self.catalog.katas.values() if self.follows else [self.kata]
        self._by_path = {path: kata for kata in every for path in (kata.skeleton_path, kata.work_path)}
        self._saves = Saves(self._by_path, self.kata.own_path)
        self._service: Service | None = None
        self._asked: int | None = None  # the last question's number
        self._asked_digest = ""
        self.ask(self._saves.digest)

    def close(self) -> None:
        if self._service is not None:
            self._service.close()

    def ask(self, digest: str) -> None:
        """Grade the file's current content, and abandon the grade that is running."""
        running, self.since = self.since is not None, time.monotonic()
        self._asked_digest, self.told, self.fault = digest, "", ""
        self._service = self._service or Service(self.catalog.root)
        if running and self._asked is not None:
            self._service.stop(self._asked, gently=True)
        self._asked = self._service.ask(Task(self.kata.name, self.options, work=KEPT))

    def wait(self, others: Sequence[Any], timeout_s: float) -> list[Any]:
        """Wait for an answer or until one of ``others`` can be read; which of them can."""
        sources = [*others, *([self._service] if self._service is not None else [])]
        return [source for source in select.select(sources, [], [], timeout_s)[0] if source is not self._service]

    def answers(self) -> Iterator[Answer]:
        """What came of the last question so far, taken note of."""
        if self._service is None or not select.select([self._service], [], [], 0)[0]:
            return
        try:
            found = self._service.answers()
        except ServiceError as error:
            self._lost(error)
            yield {"fault": self.fault}
            return
        for answer in found:
            if "died" in answer:
                answer = {"fault": "the grade ended without a verdict; was its process killed?"}
            answer = answer.get("done", answer)
            self.told = answer.get("tell", self.told)
            if "tell" not in answer:
                self._note(answer)
            yield answer

    def saved(self) -> Saved | None:
        """A file that was saved: it is being graded now, unless its content is already."""
        saved = self._saves.look()
        if saved is None or (self.since is not None and saved == Saved(self.kata.own_path, self._asked_digest)):
            return None
        if saved.path not in (self._saves.current, self._by_path[saved.path].own_path):
            return None  # a skeleton in exercises/, of a kata whose work is elsewhere
        if not saved.digest:
            self.fault = f"{display_path(saved.path)} is gone; save it again, or `kata reset` writes the skeleton"
            return saved
        self.open(self._by_path[saved.path], saved.digest)
        return saved

    def open(self, kata: Kata, digest: str | None = None) -> None:
        """Go to a kata and grade its file."""
        if kata.name != self.kata.name:
            self.kata, self.last = kata, None
        if self._saves.current != kata.own_path:
            self._by_path |= {kata.skeleton_path: kata, kata.work_path: kata}
            self._saves.add(kata.own_path)
        self.ask(self._saves.digest if digest is None else digest)

    def _note(self, answer: Answer) -> None:
        started, self.since = self.since, None
        if "fault" in answer:
            self.fault = answer["fault"]
            return
        self.last, self.last_at = answer, datetime.now().strftime("%H:%M:%S")
        self.seconds = time.monotonic() - started if started is not None else 0.0

    def _lost(self, error: ServiceError) -> None:
        """The next save starts another process."""
        if self._service is not None:
            self._service.close()
        self._service, self._asked, self.since, self.fault = None, None, None, str(error)
