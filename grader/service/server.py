"""The warm process: it is asked for tasks, forks for each of them, and passes on what they answer.

A fork adopts the orphans below it, so all that a task started is below its fork, and what a fork left behind when it
was killed comes to this process. Both are ended before the task is answered.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import selectors
import shutil
import signal
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn, cast

from grader.compile.request import Tell
from grader.compile.toolchain import ToolchainError, find_gpu, find_toolchain
from grader.content.catalog import FILE, Catalog, CatalogError, find_root, load_catalog
from grader.content.source_file import digest_of
from grader.devices.sim import engine_library
from grader.fault import Fault
from grader.grade import targets
from grader.options import Options
from grader.sandbox.parent import start_children_by
from grader.sandbox.template import Template
from grader.service.lines import Lines, write
from grader.service.task import Answer, Slot, Task, Work, decoded
from grader.storage import cache
from grader.system.blas import spare_threads
from grader.system.processes import adopt_orphans, children, end_with_parent, kill_tree

END_S = 10.0  # for the guards of sandboxes to end what they guard


@dataclass
class _Running:
    """A fork and its task. ``ready``: the simulator is built, so that stopping it loses no more than a grade."""

    number: int
    pid: int
    task: Task
    slot: Slot
    lines: Lines
    deadline: float
    ready: bool = False
    unwanted: bool = False  # to be ended as soon as it is ready
    answer: Answer | None = None  # the last one


@dataclass
class _Server:
    root: Path
    asked: Lines | None  # None when no client is left
    template: Template
    is_warm: bool = False
    running: dict[int, _Running] = field(default_factory=dict)
    engine_is_built: bool = False
    catalog: Catalog | None = None
    catalog_digest: str = ""

    def serve(self) -> None:
        """Answer until no client and no task is left."""
        tempfile.gettempdir()  # tries the folder with a file there, which a fork that is killed meanwhile would leave
        while self.asked is not None or self.running:
            ready = self._ready()
            if not ready and not self.running and not self.is_warm:
                _warm(self.template)
                self.is_warm = True
            for source in ready:
                if isinstance(source, Lines):
                    self._hear(source)
                elif source.number in self.running:
                    self._relay(source)
            for running in [*self.running.values()]:
                if running.answer is None and time.monotonic() > running.deadline:
                    running.answer = {"late": True}
                if running.answer is not None or (running.unwanted and running.ready):
                    self._finish(running)

    def _ready(self) -> list[_Running | Lines]:
        """What can be read; waits for it, or for the first limit."""
        with selectors.DefaultSelector() as selector:
            if self.asked is not None:
                selector.register(self.asked, selectors.EVENT_READ, self.asked)
            for running in self.running.values():
                selector.register(running.lines, selectors.EVENT_READ, running)
            idle = not self.running and not self.is_warm
            left_s = min((running.deadline for running in self.running.values()), default=float("inf"))
            left_s = 0.0 if idle else left_s - time.monotonic()
            return [key.data for key, _ in selector.select(None if left_s == float("inf") else max(0.0, left_s))]

    def _hear(self, asked: Lines) -> None:
        """Do what is asked. Without a client, only the tasks that must finish go on."""
        questions = asked.read()
        for question in questions or ():
            if "task" in question:
                self._start(question["id"], *decoded(question))
            elif "stop" in question and (running := self.running.get(question["stop"])) is not None:
                running.unwanted = True
                if running.ready or not question["gently"]:
                    self._finish(running)
            elif "end" in question:
                self._end(lasting=True)
                return
        if questions is None:
            self._end(lasting=False)

    def _end(self, *, lasting: bool) -> None:
        self.asked = None
        for running in [*self.running.values()]:
            if lasting or running.unwanted or not running.task.lasting:
                self._finish(running)

    def _start(self, number: int, task: Task, slot: Slot) -> None:
        try:
            catalog, work = self._catalog(), _work(task)
        except (CatalogError, ImportError, AttributeError) as error:
            self._say(number, {"fault": str(error)})
            return
        ours, theirs = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: numpy's, which know of forks
            pid = os.fork()
        if pid == 0:
            self._become_fork(ours, task)
            start_children_by(partial(self.template.start, theirs))
            _fork(work, task, slot, catalog, theirs, engine_is_built=self.engine_is_built)
        os.close(theirs)
        deadline = float("inf") if slot.limit_s is None else time.monotonic() + slot.limit_s
        self.running[number] = _Running(number, pid, task, slot, Lines(ours), deadline)

    def _become_fork(self, ours: int, task: Task) -> None:
        """In the fork: let go of what is the service's, and end with it."""
        adopt_orphans()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if not task.lasting:
            end_with_parent()
        held = [ours, *(running.lines.fd for running in self.running.values())]
        for fd in [*held, *([self.asked.fd] if self.asked is not None else [])]:
            os.close(fd)

    def _catalog(self) -> Catalog:
        """From difficulty.yaml, which is read again only where it changed. A file may be missing while it is saved."""
        digest = digest_of(self.root / FILE)
        if self.catalog is None or digest != self.catalog_digest:
            self.catalog, self.catalog_digest = load_catalog(self.root, missing_skeletons=True), digest
        return self.catalog

    def _relay(self, running: _Running) -> None:
        answers = running.lines.read()
        for answer in answers or ():
            if "tell" in answer:
                self._say(running.number, answer)
            elif "ready" in answer:
                running.ready = True
                self.engine_is_built |= answer["ready"] == "sim"
            else:
                running.answer = answer
        if answers is None and running.answer is None:
            running.answer = {"died": None}

    def _finish(self, running: _Running) -> None:
        """End the fork and all that it started, empty its folder; then its answer is passed on."""
        del self.running[running.number]
        kill_tree(running.pid)
        _, status = os.waitpid(running.pid, 0)
        _drain(running.lines.fd)
        os.close(running.lines.fd)
        self._end_strays()
        if running.slot.folder is not None:
            _empty(running.slot.folder)
        if running.answer is not None and "died" in running.answer:
            running.answer = {"died": os.waitstatus_to_exitcode(status)}
        if running.answer is not None and not running.unwanted:
            self._say(running.number, running.answer)

    def _end_strays(self) -> None:
        """End what came to this process when its fork died. The forks that go on keep theirs."""
        known = {self.template.pid, *(running.pid for running in self.running.values())}
        while strays := set(children(os.getpid())) - known:
            for pid in strays:
                kill_tree(pid)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _say(self, number: int, answer: Answer) -> None:
        if self.asked is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # _hear will notice
                write(self.asked.fd, {"id": number, **answer})


def _work(task: Task) -> Work:
    module, _, name = task.work.partition(":")
    return cast(Work, getattr(importlib.import_module(module), name))


def _warm(template: Template) -> None:
    """What every grade needs, imported and found; what is missing is the next grade's to say.

    There is nothing to end yet but the template and this process, which is busy now: they die with who asks, or when
    this one is told.
    """

    def end(number: int, frame: FrameType | None) -> NoReturn:
        template.kill()
        os._exit(128 + number)

    end_with_parent()
    before = signal.signal(signal.SIGTERM, end)
    spare_threads()
    import hypothesis
    import hypothesis.strategies as st

    for name in ("sqlite3", "numpy"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ToolchainError):
        find_toolchain()
    hypothesis.find(st.integers(), lambda number: number > 1, settings=hypothesis.settings(database=None))
    gc.collect()
    gc.freeze()  # the forks share these pages as long as no collection writes to them
    signal.signal(signal.SIGTERM, before)
    end_with_parent(False)


def _drain(fd: int) -> None:
    """Wait until the guards of a grade's sandboxes have ended, too, who hold the other end of its pipe."""
    while select.select([fd], [], [], END_S)[0] and os.read(fd, 1 << 16):
        pass


def _empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # what cannot be removed stays until the folder goes
        for place in folder.iterdir():
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place, ignore_errors=True)
            else:
                place.unlink(missing_ok=True)


# -- the fork --------------------------------------------------------------------------------------------------------


def _fork(work: Work, task: Task, slot: Slot, catalog: Catalog, out: int, *, engine_is_built: bool) -> NoReturn:
    """Do the work where it is to be done, answer, end."""

    def say(answer: Answer) -> None:
        with contextlib.suppress(BrokenPipeError):  # what is to last goes on
            write(out, answer)

    def tell(line: str) -> None:
        say({"tell": line})

    try:
        _take_place(slot)
        say({"ready": _made_ready(task.options, tell, engine_is_built=engine_is_built)})
        say({"done": work(task, catalog, tell)})
    except Fault as error:
        say({"fault": str(error)})
    except BaseException as error:
        say({"fault": f"the grader itself is broken: {type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def _take_place(slot: Slot) -> None:
    os.environ.update(slot.environment)
    if slot.folder is not None:
        slot.folder.mkdir(parents=True, exist_ok=True)
        os.chdir(slot.folder)
        tempfile.tempdir = None  # to be found again


def _made_ready(options: Options, tell: Tell, *, engine_is_built: bool) -> str:
    """Build the simulator where it is needed. Returns "sim" then, else "gpu"."""
    simulates = any(target.device == "sim" for target in targets(options, find_gpu()))
    if simulates and not engine_is_built:
        engine_library(cache.cache_folder(), tell=tell)
    return "sim" if simulates else "gpu"


def _heed_not(number: int, frame: FrameType | None) -> None:
    """Handles a signal whose message the end of the socket also gives. Unlike an ignored signal it is not inherited."""


def _main(root: Path, *, eager: bool) -> None:
    asked = Lines(os.dup(0))  # nothing that reads or prints may get between questions and answers
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(cache.CacheError):  # else hypothesis writes into the current folder
        os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(cache.cache_folder() / "hypothesis"))
    template = Template()
    if eager:
        _warm(template)
    signal.signal(signal.SIGTERM, _heed_not)
    _Server(root, asked, template, is_warm=eager).serve()
    template.close()


if __name__ == "__main__":
    _main(find_root(Path(sys.argv[1])), eager="--eager" in sys.argv)
