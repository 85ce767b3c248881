"""pytest exercises -n 2: the same verdicts as one process gives, each file compiled once, all progress kept."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_faces import make_clone, pytest_run, solve

from grader import pytest_plugin
from grader.compile.toolchain import find_nvcc
from grader.learner import progress

pytest.importorskip("xdist", reason="pytest-xdist is not installed; pip install -e .[parallel]")

pytestmark = pytest.mark.usefixtures("module_remembers")

RIGHT = ("relu_f32", "relu_f32x4", "elementwise_f32")


def counting_nvcc(folder: Path) -> tuple[str, Path]:
    """An nvcc that writes down what it compiles, and the file where it does."""
    log, script = folder / "compiled.txt", folder / "nvcc"
    log.touch()
    script.write_text(f'#!/bin/sh\nif test -e kata.cu; then head -1 kata.cu >> {log}; fi\nexec {find_nvcc()[0]} "$@"\n')
    script.chmod(0o755)
    return str(script), log


def verdicts(said: str) -> dict[str, str]:
    """What -rA says: kata -> passed, failed."""
    return {name: word for word, name in re.findall(r"^(PASSED|FAILED|NOT STARTED) \S+::(\w+)", said, re.MULTILINE)}


def test_the_work_is_spread_and_nothing_is_lost(tmp_path: Path) -> None:
    clone = make_clone(tmp_path)
    for name in RIGHT:
        solve(clone, name)
    wrong = solve(clone, "elementwise_f32x4")
    wrong.write_text(wrong.read_text().replace("< n", "<= n"))
    nvcc, log = counting_nvcc(tmp_path)
    data, engine = tmp_path / "data", Path(os.environ.get("KATA_CACHE") or "~/.cache/kata").expanduser()
    cache = tmp_path / "cache"
    cache.mkdir()
    for place in engine.glob("engine-*"):
        (cache / place.name).symlink_to(place)
    environment = {"KATA_NVCC": nvcc, "KATA_DATA": str(data), "KATA_CACHE": str(cache)}
    wanted = ("exercises/relu", "exercises/elementwise", "--device", "sim", "-rA")
    spread = pytest_run(clone, *wanted, "-n", "2", **environment)
    compiled = Counter(re.findall(r"^// (\w+):", log.read_text(), re.MULTILINE))
    assert spread.returncode == 1 and "Traceback" not in spread.stdout, spread.stdout
    assert set(RIGHT) <= set(compiled) and {compiled[name] for name in RIGHT} == {1}
    single = pytest_run(clone, *wanted, **environment)
    assert verdicts(spread.stdout) == verdicts(single.stdout) and set(RIGHT) < set(verdicts(single.stdout))
    explained = re.findall(r"^elementwise_f32x4: .*$", single.stdout, re.MULTILINE)
    assert explained and explained[0] in spread.stdout
    started = len(re.findall(r"^\w+: not started: ", single.stdout, re.MULTILINE))
    assert started and started == len(re.findall(r"^\w+: not started: ", spread.stdout, re.MULTILINE))
    kept = Counter(event.kata for event in kept_in(data, clone))
    graded = {*RIGHT, "elementwise_f32x4"}
    assert kept == dict.fromkeys(graded, 2)  # once by each of the two runs


def kept_in(data: Path, clone: Path) -> list[progress.Event]:
    before = os.environ.get("KATA_DATA")
    os.environ["KATA_DATA"] = str(data)
    try:
        return list(progress.load(clone).events)
    finally:
        os.environ["KATA_DATA"] = before or ""


def test_progress_that_cannot_be_kept_is_said_once(tmp_path: Path) -> None:
    clone = make_clone(tmp_path)
    for name in RIGHT[:2]:
        solve(clone, name)
    (tmp_path / "file").write_text("")
    done = pytest_run(clone, "exercises/relu", "-n", "2", "--device", "sim", KATA_DATA=str(tmp_path / "file" / "data"))
    assert done.stdout.count("not kept as progress") == 1


def test_a_bad_catalogue_is_one_error(tmp_path: Path) -> None:
    clone = make_clone(tmp_path)
    file = clone / "difficulty.yaml"
    file.write_text(file.read_text().replace("level: easy", "level: esay", 1))
    done = pytest_run(clone, "exercises", "-n", "2")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR and "Traceback" not in done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("'esay'") == 1


def test_a_machine_that_cannot_grade_says_so_for_each_kata(tmp_path: Path) -> None:
    clone = make_clone(tmp_path)
    for name in RIGHT[:2]:
        solve(clone, name)
    done = pytest_run(clone, "exercises/relu", "-n", "2", "--device", "sim", KATA_NVCC="/nowhere/nvcc")
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    assert all(re.search(rf"\b{name}\b.*KATA_NVCC", done.stdout) for name in RIGHT[:2])


class Config(SimpleNamespace):
    """As much of pytest's as the plugin asks while it is configured."""

    pluginmanager = SimpleNamespace(register=lambda plugin: None)

    def addinivalue_line(self, name: str, line: str) -> None:
        pass

    def getoption(self, name: str) -> Any:
        return {"--device": "auto", "--sim-arch": "sm_80", "--kata-seed": 0}.get(name, False)


def test_each_worker_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    for index in range(3):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
        pytest_plugin.pytest_configure(Config(workerinput={"workerid": f"gw{index}", "workercount": 3}))  # type: ignore[arg-type]
        taken.append(os.environ["CUDA_VISIBLE_DEVICES"])
    assert taken == ["4", "7", "4"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    pytest_plugin.pytest_configure(Config())  # type: ignore[arg-type]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,7"


def test_workers_share_out_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    worker = Config(workerinput={"workerid": "gw0", "workercount": 4})
    assert pytest_plugin._options(worker).jobs == 2 and pytest_plugin._options(Config()).jobs == 8  # type: ignore[arg-type]


def test_without_xdist_nothing_is_different(tmp_path: Path) -> None:
    clone = make_clone(tmp_path)
    solve(clone, "relu_f32")
    done = pytest_run(clone, "exercises/relu/relu_f32.cu", "-p", "no:xdist", "--device", "sim", "-q")
    assert done.returncode == 0
