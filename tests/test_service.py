"""The service: grades side by side in processes that can be stopped, die and be late, and leave nothing behind.

Most tests have it do a work of their own in place of a grade: the functions of WORK, in a module that it can import.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import runs
from test_faces import make_clone

from grader.content.catalog import load_catalog
from grader.grade import Options
from grader.service.client import Service, ServiceError
from grader.service.replies import TRIES, Reply, replies
from grader.service.task import KEPT, Answer, Slot, Task
from grader.system.processes import children, descendants

ROOT = Path(__file__).resolve().parent.parent
CATALOG = load_catalog(ROOT)
KATA = CATALOG.katas["elementwise_f32"]
OPTIONS = Options(device="sim", last_failure=False)
LIMIT_S = 120.0
pytestmark = pytest.mark.timeout(600)

# What the label would say goes by the source's name: a label stays where it is asked.
WORK = '''
import os, subprocess, sys, tempfile, time
from pathlib import Path
from grader.sandbox.parent import Sandbox

def meet(task, catalog, tell):
    """Ends when the other has come, which waits for this one likewise: so both are there at the same time."""
    mine, other = task.source, task.source.with_name({"a": "b", "b": "a"}[task.source.name])
    staged = mine.with_name(f"staged-{mine.name}")
    staged.write_text(str(os.getpid()))
    staged.rename(mine)
    while not other.exists():
        time.sleep(0.01)
    return {"pids": [os.getpid(), int(other.read_text())]}

def stay(task, catalog, tell):
    """Starts a process in a session of its own and one that loses its parent, says their ids, and stays."""
    sleep = [sys.executable, "-c", "import time; time.sleep(1000)"]
    child = subprocess.Popen(sleep, start_new_session=True)
    popen = f"subprocess.Popen({sleep!r}, stdout=-3, stderr=-3, start_new_session=True)"
    script = f"import subprocess; print({popen}.pid)"
    orphan = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout
    tell(f"{os.getpid()} {child.pid} {orphan}")
    time.sleep(1000)

def die(task, catalog, tell):
    os._exit(9)

def die_once(task, catalog, tell):
    if not task.source.exists():
        task.source.touch()
        os.kill(os.getpid(), 9)
    return {"alive": True}

def kill_the_service_once(task, catalog, tell):
    if not task.source.exists():
        task.source.touch()
        os.kill(os.getppid(), 9)
        time.sleep(1000)
    return {"alive": True}

def fail(task, catalog, tell):
    raise ValueError("of no use")

def write(task, catalog, tell):
    """Waits for leave to write, and writes."""
    tell("waiting")
    while not task.source.exists():
        time.sleep(0.01)
    task.source.with_name("written").write_text("")
    return {}

def talk(task, catalog, tell):
    print("not JSON", flush=True)
    os.write(1, b"half a line")
    os.write(2, b"an error")
    return {"read": sys.stdin.read()}

def look(task, catalog, tell):
    """Where it stands, and what it has of the machine. Leaves a file and a folder."""
    Path("left").write_text("")
    tempfile.mkdtemp()
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return {"place": os.getcwd(), "temporary": tempfile.gettempdir(), "gpu": gpu,
            "omp": os.environ["OMP_NUM_THREADS"]}

def hold(task, catalog, tell):
    """Starts a sandbox, says its child's id and what that is, and stays."""
    child = Sandbox("sim").start()
    tell(str(child._process.pid))
    time.sleep(1000)

def child(task, catalog, tell):
    """What a sandbox's child is, in a process that has numpy; and how two of them end."""
    sandbox = Sandbox("sim")
    process = sandbox.start()._process
    place = Path(f"/proc/{process.pid}")
    while "grader" in (place / "cwd").resolve().name or os.getsid(process.pid) != process.pid:
        time.sleep(0.01)
    time.sleep(0.1)
    status = (place / "status").read_text()
    found = {
        "files": len(list((place / "fd").iterdir())),
        "numpy": "numpy" in (place / "maps").read_text(),
        "grades": "numpy" in sys.modules,
        "parent": int(status.partition("PPid:")[2].split()[0]),
        "folder": str((place / "cwd").resolve()),
        "core": "Max core file size        0 " in (place / "limits").read_text(),
    }
    assert process.poll() is None
    os.kill(process.pid, 11)
    found["ends"] = [process.wait(timeout=60), process.poll()]
    sandbox.close()
    other = sandbox.start()._process
    sandbox.close()
    return {**found, "ends": [*found["ends"], other.poll()]}

def level(task, catalog, tell):
    return {"level": catalog.katas[task.kata].level}
'''

BEFORE: set[int] = set()


@pytest.fixture(autouse=True)
def before() -> None:
    """Other tests of this process may have left a process of theirs running."""
    BEFORE.clear()
    BEFORE.update(descendants(os.getpid()))


def started() -> list[int]:
    """What this test has started and is there."""
    return [pid for pid in descendants(os.getpid()) if pid not in BEFORE]


@pytest.fixture(autouse=True, scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The module of works is where a service finds it."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "works.py").write_text(WORK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{ROOT}")
        yield


@pytest.fixture(scope="module")
def shared(work: None) -> Iterator[Service]:
    """A warm service for tests that leave nothing in it."""
    with Service(ROOT, eager=True) as service:
        yield service


def a_task(name: str, source: Path | None = None, **more: Any) -> Task:
    return Task(KATA.name, more.pop("options", OPTIONS), source, work=f"works:{name}", **more)


def answers_of(service: Service, *numbers: int) -> dict[int, Answer]:
    """The last answer to each of these, or what it tells where that comes first."""
    found: dict[int, Answer] = {}
    while not set(numbers) <= set(found):
        assert select.select([service], [], [], LIMIT_S)[0], "no answer"
        found |= {answer["id"]: answer for answer in service.answers()}
    return found


def pids_of(answer: Answer) -> list[int]:
    return [int(word) for word in answer["tell"].split()]


def gone(pids: list[int]) -> bool:
    return not any(map(runs, pids))


def wait_for(holds: Callable[[], bool], what: str) -> None:
    stop = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < stop, f"waited in vain for {what}"
        time.sleep(0.02)


# -- one service -------------------------------------------------------------------------------------------------------


def test_tasks_are_done_side_by_side_and_leave_no_zombie(tmp_path: Path) -> None:
    with Service(ROOT) as service:
        numbers = [service.ask(a_task("meet", tmp_path / name)) for name in "ab"]
        found = [set(answer["done"]["pids"]) for answer in answers_of(service, *numbers).values()]
        assert found[0] == found[1] and len(found[0]) == 2 and os.getpid() not in found[0]
        assert len(children(service.pid)) == 1  # the template; a zombie would be another
    assert gone([service.pid, *found[0]])


def test_a_task_that_is_stopped_ends_with_all_it_started_and_no_other_does() -> None:
    with Service(ROOT) as service:
        first, second = (service.ask(a_task("stay")) for _ in range(2))
        found = answers_of(service, first, second)
        assert set(pids_of(found[first])) < set(descendants(service.pid))
        service.stop(first)
        assert answers_of(service, service.ask(a_task("level")))  # a question later it is done
        assert gone(pids_of(found[first])) and not gone(pids_of(found[second])[:1])
        assert set(pids_of(found[second])) < set(descendants(service.pid)) and len(descendants(service.pid)) == 4
    assert gone(pids_of(found[second]))


def test_what_builds_the_simulator_is_stopped_when_that_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that waits for leave stands in for half a minute of compiling."""
    leave = tmp_path / "leave"
    compiler = tmp_path / "g++"
    compiler.write_text(
        f"#!/bin/sh\necho $$ >> {tmp_path}/begun\nwhile ! test -e {leave}; do sleep 0.05; done\nexit 1\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with Service(ROOT) as service:
        number = service.ask(a_task("stay"))
        wait_for((tmp_path / "begun").exists, "the compiler")
        pid = int((tmp_path / "begun").read_text().split()[0])
        service.stop(number, gently=True)
        assert answers_of(service, service.ask(Task(KATA.name, OPTIONS, work="no_such_module:work")))
        assert not gone([pid])  # a question later
        service.stop(number)
        wait_for(lambda: gone([pid]), "the compiler to end")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_all_ends_with_the_process_that_asks(tmp_path: Path, number: signal.Signals) -> None:
    service, said = asker(tmp_path, "stay")
    with said:
        pids = pids_of(json.loads(said.stdout.readline()))  # type: ignore[union-attr]
        below = descendants(said.pid)
        assert set(pids) < set(below) and service in below
        said.send_signal(number)
    wait_for(lambda: gone(below), "all to end")


def asker(tmp_path: Path, *names: str, lasting: str = "") -> tuple[int, subprocess.Popen[str]]:
    """A process that has a service do these works and prints what it answers; and the service's id."""
    script = f"""
        import json, sys, time
        from pathlib import Path
        from grader.grade import Options
        from grader.service.client import Service
        from grader.service.task import Task
        service = Service(Path({str(ROOT)!r}))
        print(service.pid, flush=True)
        for name in {names!r}:
            options, source = Options(device="sim"), Path({str(tmp_path / "leave")!r})
            service.ask(Task({KATA.name!r}, options, source, work=f"works:{{name}}", lasting=name == {lasting!r}))
        while True:
            for answer in service.answers():
                print(json.dumps(answer), flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return int(process.stdout.readline()), process


def test_what_is_to_last_goes_on_when_the_asker_was_killed(tmp_path: Path) -> None:
    service, said = asker(tmp_path, "write", "stay", lasting="write")
    with said:
        assert said.stdout is not None
        told = [json.loads(said.stdout.readline()) for _ in range(2)]
        pids = [pid for answer in told if answer["tell"] != "waiting" for pid in pids_of(answer)]
        said.kill()
    wait_for(lambda: gone(pids), "the one that is not to last")
    assert not gone([service])
    (tmp_path / "leave").write_text("")
    wait_for((tmp_path / "written").exists, "the one that is to last")
    wait_for(lambda: gone([service]), "the service")


def test_closing_ends_also_what_is_to_last(tmp_path: Path) -> None:
    with Service(ROOT) as service:
        answers_of(service, service.ask(a_task("write", tmp_path / "leave", lasting=True)))
        below = descendants(service.pid)
    assert below and gone([service.pid, *below]) and not (tmp_path / "written").exists()


def test_whatever_is_printed_does_not_stand_between_answers(shared: Service) -> None:
    numbers = [shared.ask(a_task("talk")) for _ in range(3)]
    assert [answer["done"] for answer in answers_of(shared, *numbers).values()] == [{"read": ""}] * 3


def test_a_fault_is_that_of_its_task_alone(shared: Service) -> None:
    numbers = [shared.ask(a_task("fail")), shared.ask(a_task("level"))]
    numbers += [shared.ask(Task(KATA.name, OPTIONS, work="no_such_module:work"))]
    found = answers_of(shared, *numbers)
    assert found[numbers[0]]["fault"] == "the grader itself is broken: ValueError: of no use"
    assert found[numbers[1]]["done"] == {"level": "easy"}
    assert "no_such_module" in found[numbers[2]]["fault"]


def test_a_service_that_was_killed_says_so() -> None:
    with Service(ROOT) as service:
        pids = pids_of(answers_of(service, number := service.ask(a_task("stay")))[number])
        os.kill(service.pid, signal.SIGKILL)
        with pytest.raises(ServiceError, match="ended with exit code -9"):
            service.answers()
        wait_for(lambda: gone(pids[:1]), "its fork")
        for pid in pids:  # what nobody is left to end
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_changed_catalogue_is_seen(tmp_path: Path) -> None:
    clone = make_clone(tmp_path)
    file = clone / "difficulty.yaml"
    changed = file.read_text().replace(f"  {KATA.name}:\n    level: easy", f"  {KATA.name}:\n    level: hard")
    with Service(clone) as service:
        assert answers_of(service, number := service.ask(a_task("level")))[number]["done"] == {"level": "easy"}
        file.write_text("families: [")
        assert "difficulty.yaml" in answers_of(service, number := service.ask(a_task("level")))[number]["fault"]
        file.write_text(changed)
        assert answers_of(service, number := service.ask(a_task("level")))[number]["done"] == {"level": "hard"}


def test_only_a_kept_grade_is_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone = make_clone(tmp_path)
    monkeypatch.setenv("KATA_DATA", str(tmp_path / "data"))
    file = clone / KATA.skeleton_path.relative_to(ROOT)
    file.write_text(KATA.solution_path.read_text())
    with Service(clone) as service:
        done = answers_with_end(service, service.ask(Task(KATA.name, OPTIONS)))
        assert done["grade"]["passed"] and done["lines"][0].startswith("elementwise_f32: pass on sim")
        assert not (tmp_path / "data").exists()
        done = answers_with_end(service, service.ask(Task(KATA.name, OPTIONS, work=KEPT)))
        assert done["warning"] is None and (tmp_path / "data" / "progress.db").exists()


def answers_with_end(service: Service, number: int) -> Answer:
    while "done" not in (answer := answers_of(service, number)[number]):
        assert "tell" in answer, answer
    return dict(answer["done"])


# -- the sandbox's children --------------------------------------------------------------------------------------------


def test_a_sandbox_has_a_clean_child_of_its_own(shared: Service, tmp_path: Path) -> None:
    done = answers_with_end(shared, shared.ask(a_task("child"), Slot(tmp_path / "slot")))
    assert done.pop("parent") not in children(shared.pid)  # a guard of the template's
    wanted = {"files": 4, "numpy": False, "grades": True, "folder": str(tmp_path / "slot"), "core": True}
    assert done == {**wanted, "ends": [-signal.SIGSEGV, -signal.SIGSEGV, -signal.SIGKILL]}


@pytest.mark.parametrize("how", ["stop", "late", "fork"])
def test_a_sandbox_ends_with_its_grade(shared: Service, how: str) -> None:
    number = shared.ask(a_task("hold"), Slot(limit_s=5.0 if how == "late" else None))
    pids = pids_of(answers_of(shared, number)[number])
    assert not gone(pids)
    if how == "stop":
        shared.stop(number)
        answers_of(shared, shared.ask(a_task("level")))
    elif how == "late":
        assert answers_of(shared, number)[number]["late"]
    else:
        _, fork = sorted(children(shared.pid))
        os.kill(fork, signal.SIGKILL)
        assert answers_of(shared, number)[number]["died"] == -signal.SIGKILL
    assert gone(pids)


@pytest.mark.parametrize("how", ["service", "close"])
def test_a_sandbox_ends_with_its_service(how: str) -> None:
    with Service(ROOT, eager=True) as service:
        pids = pids_of(answers_of(service, number := service.ask(a_task("hold")))[number])
        assert not gone(pids)
        if how == "service":
            os.kill(service.pid, signal.SIGKILL)
            wait_for(lambda: gone(pids), "the sandbox's child")
    assert gone(pids)


def test_without_its_template_a_service_grades_all_the_same() -> None:
    with Service(ROOT) as service:
        answers_of(service, service.ask(a_task("level")))
        (template,) = children(service.pid)
        os.kill(template, signal.SIGKILL)
        number = service.ask(Task(KATA.name, OPTIONS, KATA.solution_path))
        assert answers_with_end(service, number)["grade"]["passed"]


# -- many tasks --------------------------------------------------------------------------------------------------------


def test_replies_come_from_as_many_processes_as_there_are_slots(tmp_path: Path) -> None:
    tasks = [a_task("meet", tmp_path / name, label=name) for name in "ab"]
    found = {reply.task.label: reply.done["pids"] for reply in replies(tasks, ROOT, count=2, limit_s=LIMIT_S)}
    assert set(found) == {"a", "b"} and found["a"] == found["b"][::-1]
    assert started() == []


def test_one_that_dies_is_tried_again_and_the_others_go_on(tmp_path: Path) -> None:
    tasks = [a_task("die", label="never"), a_task("die_once", tmp_path / "died", label="once"), a_task("level")]
    found = {reply.task.label: reply for reply in replies(tasks, ROOT, count=2, limit_s=LIMIT_S)}
    assert found["never"].error == f"the grader's own process ended with exit code 9, {TRIES} times"
    assert found["once"].done == {"alive": True} and found[None].done == {"level": "easy"}


def test_a_service_that_dies_is_replaced_and_its_tasks_are_tried_again(tmp_path: Path) -> None:
    tasks = [a_task("kill_the_service_once", tmp_path / "died"), a_task("level")]
    found = list(replies(tasks, ROOT, count=2, limit_s=LIMIT_S))
    assert sorted(map(str, (reply.done for reply in found))) == ["{'alive': True}", "{'level': 'easy'}"]


def test_one_that_is_late_is_ended_with_all_it_started() -> None:
    (reply,) = replies([a_task("stay")], ROOT, count=1, limit_s=1.0)
    assert reply.late and not reply.done and not reply.error
    assert started() == []


def test_leaving_ends_all(tmp_path: Path) -> None:
    found = replies([a_task("level"), a_task("stay")], ROOT, count=2, limit_s=LIMIT_S)
    assert next(found).done == {"level": "easy"}
    assert len(descendants(os.getpid())) >= 2
    found.close()
    assert started() == []


def test_each_slot_has_a_folder_that_is_emptied_and_its_share_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    seen: list[Reply] = []
    found = replies([a_task("look", options=Options(device="sim", jobs=3))] * 3, ROOT, count=2, limit_s=LIMIT_S)
    for reply in found:
        seen.append(reply)
        assert list(Path(reply.done["place"]).iterdir()) == []
    assert {reply.done["omp"] for reply in seen} == {"3"}
    assert all(reply.done["place"] == reply.done["temporary"] for reply in seen)
    assert {(Path(reply.done["place"]).name, reply.done["gpu"]) for reply in seen} == {("0", "4"), ("1", "7")}
    assert not Path(seen[0].done["place"]).exists()


def test_no_tasks_need_no_service() -> None:
    assert list(replies([], ROOT, count=0)) == [] and started() == []


def test_a_limit_is_for_each_task(shared: Service, tmp_path: Path) -> None:
    late = shared.ask(a_task("stay"), Slot(limit_s=0.5))
    other = shared.ask(a_task("write", tmp_path / "leave"))
    while "late" not in (answer := answers_of(shared, late)[late]):
        assert "tell" in answer
    (tmp_path / "leave").write_text("")
    while "done" not in answers_of(shared, other)[other]:
        pass
