"""NVML says which cards there are, who uses one and how fast it runs; where it is missing, nothing breaks."""

from __future__ import annotations

import pytest
from fake_nvml import build_nvml

from grader.compile.toolchain import find_gpu, visible_gpus
from grader.devices.gpu.nvml import Monitor, Nvml, NvmlError, NvmlStatus, probe

MISSING = "libno-such-thing.so.1"
PLACE = "00000000:3B:00.0"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_nvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A driver from before the functions that are called, but for the first."""
    return build_nvml(tmp_path_factory.mktemp("old"), 'extern "C" int nvmlInit_v2() { return 0; }\n')


def test_the_facts_of_a_card(library: str) -> None:
    with Nvml(library) as nvml:
        card, slice_ = nvml.card("1"), nvml.card("MIG-cc")
        assert card is not None and slice_ is not None and nvml.card("7") is None and nvml.card("GPU-zz") is None
        assert nvml.whole(slice_).value == nvml.whole(card).value == card.value != slice_.value
        assert (nvml.name(card), nvml.uuid(card), nvml.pci_bus_id(card)) == ("Large", "GPU-bb", PLACE)
        assert (nvml.capability(card), nvml.memory_bytes(card)) == ((9, 0), 8 << 30)
        assert (nvml.driver(), nvml.cuda(), nvml.count()) == ("580.65.06", (13, 1), 2)


def test_a_card_is_watched(library: str) -> None:
    monitor = Monitor(PLACE, library)
    assert (monitor.sm_clock_mhz(), monitor.processes(), monitor.other_processes()) == (1980, 3, 2)
    unknown = Monitor("00000000:FF:00.0", library)
    assert (unknown.sm_clock_mhz(), unknown.processes(), unknown.other_processes()) == (None, 0, 0)


def test_whether_nvml_answers(library: str, old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (probe(library), probe(MISSING)) == (NvmlStatus(0, 2), None)
    assert probe(old) == NvmlStatus(13, 0)  # NVML_ERROR_FUNCTION_NOT_FOUND
    monkeypatch.setenv("NVML_BROKEN", "1")
    assert probe(library) == NvmlStatus(18, 0)
    with pytest.raises(NvmlError, match="error 18"):
        Nvml(library)


def test_a_machine_without_nvml_or_with_an_old_one(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(NvmlError, match="not installed"):
        Nvml(MISSING)
    for library in (MISSING, old):
        monitor = Monitor(PLACE, library)
        assert (monitor.sm_clock_mhz(), monitor.processes()) == (None, 0)
        assert find_gpu(library=library) is None and visible_gpus(library=library) == []


@pytest.mark.skipif(find_gpu() is None, reason="no GPU here")
def test_the_card_of_this_machine() -> None:
    gpu, status = find_gpu(), probe()
    assert gpu is not None and status is not None and status.error == 0 and status.cards >= len(visible_gpus()) > 0
    assert gpu.name and gpu.capability >= (5, 0) and gpu.driver and gpu.cuda >= (12, 0) and gpu.memory_bytes > 1 << 30
    assert gpu.uuid.startswith("GPU-") and gpu.pci_bus_id.count(":") == 2
    monitor = Monitor(gpu.pci_bus_id)
    clock = monitor.sm_clock_mhz()
    assert clock is not None and 100 <= clock <= 5000 and 0 <= monitor.other_processes() <= monitor.processes()
    for name in (gpu.uuid, "0"):
        with Nvml() as nvml:
            assert nvml.card(name) is not None
