"""The doctor: each thing that can be wrong with a machine is planted, and named with its fix."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from facts import has

from grader.cli import main
from grader.commands import doctor
from grader.commands.doctor import (
    TorchBuild,
    arch_problem,
    driver_problem,
    examine,
    gpu_archs,
    nvidia_on_bus,
    torch_problem,
)
from grader.compile.toolchain import Gpu, Toolchain, ToolchainError, find_toolchain
from grader.content.catalog import load_catalog
from grader.devices.gpu import nvml
from grader.devices.gpu.nvml import NvmlStatus
from grader.learner import progress

ROOT = Path(__file__).parents[1]
CARD = Gpu("Card", (9, 0), "580.65.06", (13, 1), pci_bus_id="00000000:3B:00.0")
NVCC = Toolchain(Path("/cuda"), Path("/cuda/bin/nvcc"), (13, 0, 88), Path("/usr/bin/g++"), (12, 2), (), "")
TORCH = TorchBuild("2.13.0", "13.0", True, ("sm_80", "sm_90", "compute_120"))
OLD_DRIVER, OLD_CARD = replace(CARD, driver="550.54", cuda=(12, 4)), replace(CARD, capability=(7, 0))
OLD_TORCH = replace(TORCH, cuda="12.4")
ARCHS = (75, 80, 90, 120)


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """A machine on which all is well: a card, its driver, nvcc and torch fit together. Change what it is made of."""
    facts: dict[str, Any] = {"gpu": CARD, "toolchain": NVCC, "torch": TORCH, "archs": ARCHS, "status": None, "users": 0}
    facts["on bus"] = True

    def found(name: str) -> Any:
        if isinstance(facts[name], Exception):
            raise facts[name]
        return facts[name]

    monkeypatch.setenv("KATA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KATA_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(doctor, "find_gpu", lambda: found("gpu"))
    monkeypatch.setattr(doctor, "find_toolchain", lambda: found("toolchain"))
    monkeypatch.setattr(doctor, "_torch_build", lambda: found("torch"))
    monkeypatch.setattr(doctor, "gpu_archs", lambda nvcc: found("archs"))
    monkeypatch.setattr(doctor, "nvidia_on_bus", lambda: found("on bus"))
    monkeypatch.setattr(nvml, "probe", lambda: found("status"))
    monkeypatch.setattr(nvml.Monitor, "processes", lambda self: found("users"))
    return facts


def ill() -> dict[str, str]:
    """What is to fix: subject -> words."""
    return {item.subject: item.words for item in examine() if not item.well}


def test_a_machine_that_is_well() -> None:
    assert ill() == {}
    words = {item.subject: item.words for item in examine()}
    assert has(words["gpu"], "Card", "sm_90a", "580.65.06", "13.1")
    assert has(words["gpu+katas"], "all")
    assert {"driver", "nvcc+gpu", "torch+gpu", "gpu use", "cache", "progress", "ninja"} < set(words)


PLANTED: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
    # no GPU that can be used
    ({"gpu": None, "status": NvmlStatus(18, 0)}, "gpu", ("driver", "restart")),
    ({"gpu": None, "status": NvmlStatus(9, 0)}, "gpu", ("loaded", "modprobe nvidia")),
    ({"gpu": None, "status": NvmlStatus(999, 0)}, "gpu", ("NVML error 999", "nvidia-smi")),
    # driver and compiler
    ({"gpu": OLD_DRIVER, "torch": OLD_TORCH}, "driver", ("12.4", "580", "KATA_NVCC")),
    ({"gpu": replace(CARD, capability=(12, 1))}, "nvcc+gpu", ("sm_121a", "newer", "KATA_NVCC")),
    ({"gpu": OLD_CARD, "torch": replace(TORCH, archs=("sm_70",))}, "nvcc+gpu", ("sm_70", "12.9")),
    # torch
    ({"torch": replace(TORCH, cuda=None, available=False)}, "torch+gpu", ("without CUDA", "pip install --force")),
    ({"torch": replace(TORCH, cuda="14.0", available=False)}, "torch+gpu", ("CUDA 14.0", "13.1", "CUDA 13.")),
    ({"torch": replace(TORCH, available=False)}, "torch+gpu", ("torch.zeros(1).cuda()",)),
    ({"torch": replace(TORCH, archs=("sm_80", "sm_86"))}, "torch+gpu", ("kernels", "sm_90a", "sm_80, sm_86")),
    # who else is there
    ({"users": 1}, "gpu use", ("1 process", "nvidia-smi", "--no-speed")),
    ({"users": 3}, "gpu use", ("3 processes",)),
    # compilers, as find_toolchain says it
    (
        {"toolchain": ToolchainError("nvcc 13.0: g++ up to 15")},
        "compilers",
        ("nvcc 13.0", "g++ up to 15"),
    ),
]


@pytest.mark.parametrize(("change", "subject", "said"), PLANTED, ids=lambda item: item if isinstance(item, str) else "")
def test_what_is_wrong_is_named_with_its_fix(
    machine: dict[str, Any], change: dict[str, Any], subject: str, said: tuple[str, ...]
) -> None:
    machine.update(change)
    found = ill()
    assert list(found) == [subject]
    assert has(found[subject], *said)


def test_a_gpu_that_is_hidden(machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    machine.update(gpu=None, status=NvmlStatus(0, 2))
    for visible, well in (("", True), ("-1", True), ("7", False)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        (found,) = (item for item in examine() if item.subject == "gpu")
        assert found.well == well and has(found.words, "CUDA_VISIBLE_DEVICES", repr(visible), "unset")


def test_no_gpu_is_well(machine: dict[str, Any]) -> None:
    machine["gpu"] = None
    assert ill() == {}
    machine.update({"status": NvmlStatus(9, 0), "on bus": False})  # `apt install nvidia-cuda-toolkit`, and no card
    assert ill() == {}
    (found,) = (item for item in examine() if item.subject == "gpu")
    assert has(found.words, "none found", "library", "simulator")


def test_a_card_on_the_bus(tmp_path: Path) -> None:
    assert nvidia_on_bus(tmp_path)  # not known
    for place, vendor in (("0000:00:01.0", "0x8086"), ("0000:3b:00.0", "0x10de")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "vendor").write_text(f"{vendor}\n")
        assert nvidia_on_bus(tmp_path) == (vendor == "0x10de")


@pytest.mark.parametrize(
    ("cuda", "nvcc", "well"),
    [
        ((13, 1), (13, 0, 88), True),
        ((13, 0), (13, 1, 5), True),
        ((13, 0), (12, 4), True),
        ((12, 9), (13, 0, 88), False),
    ],
)
def test_drivers_run_what_is_of_their_major_version_or_older(
    cuda: tuple[int, int], nvcc: tuple[int, ...], well: bool
) -> None:
    assert (driver_problem(replace(CARD, cuda=cuda), nvcc) is None) == well


@pytest.mark.parametrize(
    ("capability", "archs", "well"),
    [
        ((9, 0), ("sm_90",), True),
        ((8, 9), ("sm_80",), True),  # machine code of an earlier minor version
        ((8, 0), ("sm_86",), False),
        ((9, 0), ("sm_80",), False),
        ((9, 0), ("compute_80",), True),  # PTX is compiled for any later one
        ((8, 0), ("compute_90",), False),
        ((12, 1), ("sm_90", "sm_120"), True),
    ],
)
def test_what_torch_has_kernels_for(capability: tuple[int, int], archs: tuple[str, ...], well: bool) -> None:
    problem = torch_problem(replace(CARD, capability=capability), replace(TORCH, archs=archs))
    assert (problem is None) == well


def test_how_many_katas_need_a_newer_card(machine: dict[str, Any]) -> None:
    machine["gpu"] = replace(CARD, capability=(7, 5))
    (check,) = [item for item in examine() if item.subject == "gpu+katas"]
    runs, newer = map(int, re.findall(r"\d+", check.words))
    assert check.well and has(check.words, "simulator")
    katas = load_catalog(ROOT).katas.values()
    assert (runs, newer) == (
        sum(kata.compute == "sm_75" for kata in katas),
        sum(kata.compute > "sm_75" for kata in katas),
    )


def test_what_this_nvcc_builds_for() -> None:
    with contextlib.suppress(ToolchainError):
        archs = gpu_archs(find_toolchain().nvcc)
        assert 90 in archs and arch_problem(CARD, NVCC, archs) is None
    assert gpu_archs(Path("/nowhere/nvcc")) == () and arch_problem(CARD, NVCC, ()) is None


def test_an_old_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 1, "final", 0))
    assert has(ill()["python"], "3.9.1", "3.10")


def test_missing_and_old_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor.importlib.metadata.version

    def version(name: str) -> str:
        if name == "hypothesis":
            raise doctor.importlib.metadata.PackageNotFoundError(name)
        return "2.1.0+cu118" if name == "torch" else real(name)

    monkeypatch.setattr(doctor.importlib.metadata, "version", version)
    found = ill()
    assert "pip install hypothesis" in found["hypothesis"] and has(found["torch"], "2.1.0+cu118", "2.6")


def test_no_ninja(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert "pip install ninja" in ill()["ninja"]


def test_a_cache_and_a_data_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KATA_CACHE", "/dev/null/cache")
    monkeypatch.setenv("KATA_DATA", "/dev/null/data")
    found = ill()
    assert has(found["cache"], "/dev/null/cache", "KATA_CACHE")
    assert has(found["progress"], "/dev/null/data", "KATA_DATA")


def test_a_progress_of_a_newer_version(tmp_path: Path) -> None:
    sqlite3 = pytest.importorskip("sqlite3")
    (tmp_path / "data").mkdir()
    with contextlib.closing(sqlite3.connect(progress.data_file())) as db:
        db.execute("PRAGMA user_version = 999")
    assert has(ill()["progress"], "newer", "version")


def test_a_disk_that_is_nearly_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=100 << 20))
    assert has(ill()["cache"], "0.1 GiB", "free")


def test_exit_code_and_json(machine: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    assert all(item["well"] for item in json.loads(capsys.readouterr().out))
    machine["users"] = 1
    assert main(["doctor", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [item["subject"] for item in found if not item["well"]] == ["gpu use"]
    assert main(["doctor"]) == 1 and "FIX  gpu use" in capsys.readouterr().out
