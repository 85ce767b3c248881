"""The child process: whatever becomes of it, its parent answers, and nothing is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from facts import all_of, has
from patience import PATIENCE_S, wait_for, wait_for_the_end_of
from test_wrong_kernels import BY_NAME

from grader.compile.build import Build, Request, Target, build
from grader.compile.toolchain import find_toolchain
from grader.content.catalog import load_catalog
from grader.content.source_file import source_of
from grader.content.spec import load_spec
from grader.devices import Call, Finding, Limits, Outcome, TimingRequest
from grader.devices.sim import engine_library
from grader.grade import Options, _uses_torch, grade
from grader.judge.case import Case, CaseKey
from grader.sandbox import parent, torch_ahead
from grader.sandbox.parent import Program, Sandbox, SandboxError
from grader.storage import cache
from grader.system.processes import can_run, processor_s
from grader.system.stopwatch import Stopwatch

ROOT = Path(__file__).resolve().parent.parent
KATA = load_catalog(ROOT).katas["elementwise_f32"]
SPEC = load_spec(KATA)
LIMITS = Limits()


@pytest.fixture
def built(tmp_path: Path, nvcc_remembers: None, monkeypatch: pytest.MonkeyPatch) -> tuple[Build, Path]:
    """A build in a cache of its own, and the engine from the usual one."""
    engine = engine_library(cache.cache_folder())
    monkeypatch.setenv("KATA_CACHE", str(tmp_path / "cache"))
    made = build(Request(KATA, SPEC, source_of(KATA.solution_path), Target("sim", "sm_90a")), find_toolchain())
    assert isinstance(made, Build)
    return made, engine


@pytest.fixture
def sandbox(built: tuple[Build, Path]) -> Iterator[Sandbox]:
    made, engine = built
    with Sandbox("sim") as box:
        box.load(Program("sim", "sm_90a", made.library, made.ptx, made.source, engine))
        yield box


def a_call(n: int = 100, *, limits: Limits = LIMITS) -> Call:
    return Case(KATA, SPEC, CaseKey((("n", n),), "normal", 1)).call(nth=0, limits=limits)


def test_the_end_of_what_was_printed_is_kept(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child = sandbox.start()
    for text, kept in (("", ""), ("a\n" * 5, "a\n" * 5), ("b\n", "...\na\na\na\nb\n")):
        monkeypatch.setattr("grader.sandbox.parent.PRINTED_LIMIT", 10)
        child._output.seek(0, os.SEEK_END)
        child._output.write(text.encode())
        assert child.printed() == kept


def children() -> set[int]:
    """Processes that this one started and that are still there, zombies left out."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and fields[0] != "Z":
            found.add(int(entry.name))
    return found


def test_a_child_answers_many_calls_and_is_gone_at_the_end(built: tuple[Build, Path]) -> None:
    before = children()
    made, engine = built
    with Sandbox("sim") as box:
        box.load(Program("sim", "sm_90a", made.library, made.ptx, made.source, engine))
        outcomes = [box.call(a_call()) for _ in range(3)]
        assert len(children() - before) == 1
    assert all(not outcome.findings for outcome in outcomes)
    assert outcomes[0].outputs == outcomes[1].outputs
    assert children() - before == set()


def test_a_killed_child_is_a_finding_and_the_next_call_gets_a_new_one(sandbox: Sandbox) -> None:
    assert not sandbox.call(a_call()).findings
    os.kill(sandbox.start()._process.pid, signal.SIGKILL)  # that child alone: this process has others
    assert sandbox.call(a_call()).findings[0].kind == "crash"
    assert not sandbox.call(a_call()).findings


def test_a_cache_deleted_under_our_feet_is_one_sentence_and_the_next_grade_is_fine(
    sandbox: Sandbox, built: tuple[Build, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not sandbox.call(a_call()).findings
    for path in built[0].folder.iterdir():
        path.unlink()
    assert not sandbox.call(a_call()).findings  # a child that has it loaded goes on
    sandbox.close()
    with pytest.raises(SandboxError, match=all_of("gone", "cache")):
        sandbox.call(a_call())
    monkeypatch.undo()  # back to the cache that has the engine
    assert grade(KATA, Options(device="sim"), source=KATA.solution_path).passed


# -- limits of seconds


class Process:
    """A process as /proc shows it, and the clock beside it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.computed = 0.0
        self.runs = True
        monkeypatch.setattr("grader.system.stopwatch.processor_s", lambda pid: self.computed)
        monkeypatch.setattr("grader.system.stopwatch.can_run", lambda pid: self.runs)
        monkeypatch.setattr("grader.system.stopwatch.time", self)
        self.stopwatch = Stopwatch(0)

    def monotonic(self) -> float:
        return self.now

    def after(self, wall_s: float, *, computed: float = 0.0, runs: bool = True) -> float:
        self.now, self.computed, self.runs = self.now + wall_s, self.computed + computed, runs
        return self.stopwatch.seconds()


def test_a_stopwatch_stands_still_while_the_process_waits_for_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    assert process.after(1000.0) == 0.0
    assert process.after(1000.0, computed=2.5) == 2.5
    assert process.after(1000.0, runs=False) == 2.5  # perhaps it computed until now
    assert process.after(3.0, runs=False) == 5.5
    assert process.after(1000.0) == 5.5
    assert process.after(2.0, computed=4.0) == 9.5  # by two threads


@pytest.mark.parametrize(("does", "runs"), [("time.sleep(1000)", False), ("while True: pass", True)])
def test_whether_a_process_sleeps_is_seen(does: str, runs: bool) -> None:
    """Also where it is a thread that computes."""
    program = f"import threading, time\ndef f():\n  {does}\nthreading.Thread(target=f).start()\nprint(flush=True)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        before_s = processor_s(process.pid)
        wait_for(lambda: can_run(process.pid) == runs, "a look at what it does")
        if runs:
            wait_for(lambda: processor_s(process.pid) > before_s + 0.2, "it to compute")
        process.kill()
    assert not can_run(process.pid) and processor_s(process.pid) == 0.0


@pytest.fixture
def sleepy(tmp_path: Path) -> Iterator[Sandbox]:
    """The solution, but its launcher sleeps for a while in every call."""
    source = tmp_path / f"{KATA.name}.cu"
    start = "    if (n == 0) return;"
    text = KATA.solution_path.read_text()
    assert start in text
    source.write_text("#include <unistd.h>\n" + text.replace(start, f"    usleep(300000);\n{start}"))
    made = build(Request(KATA, SPEC, source_of(source), Target("sim", "sm_90a")), find_toolchain())
    assert isinstance(made, Build)
    with Sandbox("sim") as box:
        box.load(Program("sim", "sm_90a", made.library, made.ptx, made.source, engine_library(cache.cache_folder())))
        yield box


def first_finding(sandbox: Sandbox, limits: Limits) -> tuple[int, Finding]:
    """How many calls came before it. A sleep may be missed where the looks at it come late."""
    outcomes = ((count, sandbox.call(a_call(limits=limits))) for count in range(500))
    return next((count, outcome.findings[0]) for count, outcome in outcomes if outcome.findings)


def test_sleeping_in_every_call_adds_up(sleepy: Sandbox) -> None:
    count, found = first_finding(sleepy, Limits(all_seconds=2.0))
    assert count >= 2 and found.kind == "time-out" and has(found.message, "together", "2 s")
    assert not sleepy.call(a_call()).findings  # one that does not ask how much it was


def test_one_call_that_sleeps_for_too_long_is_a_time_out(sleepy: Sandbox) -> None:
    _, found = first_finding(sleepy, Limits(seconds=0.1))
    assert found.kind == "time-out" and has(found.message, "0.1 s")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_a_grade_that_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    endless = BY_NAME["elementwise_f32/launcher-never-returns"].path
    command = [sys.executable, "-m", "grader", "grade", KATA.name, "--device", "sim", "--file", str(endless)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    child = wait_for_child(process.pid)
    os.kill(process.pid, number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in said
    if number == signal.SIGINT:
        assert process.returncode == 130 and has(said, "nothing", "left behind")
    wait_for_the_end_of([child])


def wait_for_child(parent: int) -> int:
    """The sandbox's child, once it is busy: when it has used half a second of processor time."""
    stop = time.monotonic() + PATIENCE_S
    while time.monotonic() < stop:
        for entry in Path("/proc").iterdir():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                command = (entry / "cmdline").read_text()
            except OSError:
                continue
            if int(fields[1]) == parent and "grader.sandbox.child" in command and int(fields[11]) > 50:
                return int(entry.name)
        time.sleep(0.05)
    raise AssertionError(textwrap.dedent("no busy child was seen"))


def test_torch_is_imported_once_for_all_sandboxes_that_need_it(
    built: tuple[Build, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for those that replace a child that died, and none of them waits for it again."""
    made, engine = built
    log = tmp_path / "imports"
    (tmp_path / "torch.py").write_text(
        f"import os\nwith open({str(log)!r}, 'a') as log:\n    print(os.getpid(), file=log)"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(parent, "_TORCH", parent._Torch())
    parent.prestart_torch()
    try:
        for _ in range(2):
            with Sandbox("sim", torch=True) as box:
                box.load(Program("sim", "sm_90a", made.library, made.ptx, made.source, engine))
                first = box.start()
                assert box.call(a_call()).outputs
                os.kill(first._process.pid, signal.SIGKILL)
                assert box.call(a_call()).findings and box.call(a_call()).outputs
                assert box.start()._process.pid != first._process.pid
        assert log.read_text().split() == [str(parent._TORCH.template().pid)]
    finally:
        parent._TORCH.close()


class Leaves(Sandbox):
    """Its child is gone once it is let."""

    def __init__(self) -> None:
        super().__init__("gpu")
        self.let = threading.Event()

    def close(self) -> None:
        assert self.let.wait(PATIENCE_S)


class Answers:
    """A child that answers every call, and lets another go meanwhile, or afterwards."""

    took_s = 0.0

    def __init__(self, let: threading.Event, delay_s: float) -> None:
        self.let, self.delay_s = let, delay_s

    def ask(self, call: Call, before_s: float, undisclosed: object) -> tuple[Outcome, bool]:
        if call.timing is not None:
            threading.Timer(self.delay_s, self.let.set).start()
        return Outcome(), False

    def printed(self) -> str:
        return ""


@pytest.mark.parametrize(("delay_s", "told"), [(0.0, True), (1.0, False)])
def test_a_timing_run_tells_nothing_while_another_child_is_still_there(
    delay_s: float, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, box = Leaves(), Sandbox("gpu")
    monkeypatch.setattr(parent, "WARM_UP_S", 0.9 if not told else PATIENCE_S)
    monkeypatch.setattr(box, "start", lambda: Answers(other.let, delay_s))
    box.replace(other)
    timing = Call("k", (), (), timing=TimingRequest("k", "copy", 1))
    assert not box.call(Call("k", (), ())).findings, "an untimed call does not mind"
    findings = box.call(timing).findings
    assert [item.kind for item in findings] == ([] if told else ["inconclusive"])
    assert other.let.is_set() and not box.call(timing).findings, "it is gone by now"


def test_a_torch_that_cannot_be_imported_without_some_parts_is_imported_whole(
    built: tuple[Build, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same process, which begins again, so that a request for a child is still answered."""
    made, engine = built
    log = tmp_path / "imports"
    (tmp_path / "torch.py").write_text(
        f"import os, sys\nlean = any('lean_torch' in type(each).__module__ for each in sys.meta_path)\n"
        f"with open({str(log)!r}, 'a') as log:\n    print(os.getpid(), lean, file=log)\n"
        "if lean:\n    raise ImportError('a part is missing')"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(parent, "_TORCH", parent._Torch())
    parent.prestart_torch()
    try:
        with Sandbox("sim", torch=True) as box:
            box.load(Program("sim", "sm_90a", made.library, made.ptx, made.source, engine))
            assert box.call(a_call()).outputs
        pid = parent._TORCH.template().pid
        assert log.read_text().split() == [str(pid), "True", str(pid), "False"]
    finally:
        parent._TORCH.close()


def test_a_command_starts_the_import_of_torch_for_its_grade(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(parent, "_TORCH", parent._Torch())
    monkeypatch.setattr(torch_ahead, "GPUS", (str(tmp_path),))
    try:
        torch_ahead.begin(["grade", "sgemm_naive_f32"])
        assert torch_ahead._begun is not None
        pid = torch_ahead._begun[1].pid
        parent.prestart_torch()
        assert parent._TORCH.template().pid == pid and torch_ahead.take() is None
    finally:
        parent._TORCH.close()
    torch_ahead.begin(["grade", "sgemm_naive_f32"])
    process = torch_ahead._begun[1]
    torch_ahead._end()
    assert process.returncode == -signal.SIGKILL, "no grade took it"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("grade sgemm_naive_f32", True),
        ("grade sgemm_naive_f32 --file mine.cu --device gpu", True),
        ("bench flash_attn_mma_stages_split_q", True),
        ("grade sgemm_naive_f32 --device sim", False),
        ("grade sgemm_naive_f32 --no-speed", False),
        ("show sgemm_naive_f32", False),
        ("grade softmax_f32x4", False),  # beside a copy
        ("grade relu_f32", False),
        ("grade nothing_of_this_name", False),
        ("grade", False),
    ],
)
def test_torch_is_for_katas_that_are_timed_beside_it(words: str, wanted: bool) -> None:
    assert torch_ahead.wanted(words.split()) == wanted


def test_what_wants_torch_is_what_a_grade_says() -> None:
    """Of every kata, from the text of the catalogue as from its meaning."""
    for kata in load_catalog(Path(__file__).parents[1]).katas.values():
        request = Request(kata, load_spec(kata), source_of(kata.solution_path), Target("gpu", "sm_90a"))
        assert torch_ahead.wanted(["grade", kata.name]) == _uses_torch(request, Options(device="gpu")), kata.name


def test_without_the_process_that_has_torch_children_are_spawned(
    built: tuple[Build, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, engine = built
    monkeypatch.setattr(parent, "_TORCH", parent._Torch())
    try:
        os.kill(parent._TORCH.template().pid, signal.SIGKILL)
        with Sandbox("sim", torch=True) as box:
            box.load(Program("sim", "sm_90a", made.library, made.ptx, made.source, engine))
            assert box.call(a_call()).outputs
    finally:
        parent._TORCH.close()
