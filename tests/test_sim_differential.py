"""The simulator against a GPU, program by program: the same PTX, the same input, recorded results.

tests/differential has the programs, for every form of the engine's tables. To record anew on a GPU:
PYTHONPATH=. python3 tests/differential/capture.py
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import passed_before
import pytest

pytestmark = passed_before.REPOSITORY

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "differential"))

import capture  # noqa: E402
import katas  # noqa: E402
from comparison import differences  # noqa: E402
from not_ptx import not_ptx  # noqa: E402
from program import Program  # noqa: E402
from ptxas import Compiled  # noqa: E402
from recorded import load_all  # noqa: E402
from suite import NOT_COMPARED, forms, programs, signatures  # noqa: E402

from grader.compile.build import Build  # noqa: E402


@pytest.fixture(scope="module")
def written() -> dict[str, Program]:
    """Every program by its name."""
    return {program.name: program for group in programs(forms()).values() for program in group}


@pytest.fixture(scope="module")
def simulated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, written: dict[str, Program]
) -> dict[str, bytes]:
    """What every recorded program leaves in the simulator, computed in a process of its own; of the heavy ones some,
    with --all-seeds all of them."""
    every = request.config.getoption("--all-seeds")
    folder = tmp_path_factory.mktemp("differential")
    to_run, out = folder / "programs", folder / "out"
    known = [name for name in load_all().results if name in written]
    heavy = [name for name in known if written[name].heavy]
    left_out = set() if every else {*heavy} - {*heavy[::HEAVY_STEP]}
    recorded = [name for name in known if name not in left_out]
    to_run.write_bytes(pickle.dumps([written[name] for name in recorded]))
    command = [sys.executable, str(HERE / "differential" / "simulate.py"), str(to_run), str(out)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(HERE.parent)})
    results = pickle.loads(out.read_bytes())
    assert not [(name, found) for name, (_, found) in zip(recorded, results, strict=True) if found]
    return {name: data for name, (data, _) in zip(recorded, results, strict=True)}


def test_every_recorded_program_leaves_what_it_left_on_the_gpu(
    simulated: dict[str, bytes], written: dict[str, Program]
) -> None:
    recording, wrong = load_all(), []
    for name, data in simulated.items():
        if name not in recording.results:
            continue
        found = differences(written[name], data, recording.results[name], signatures().get(name))
        if found:
            wrong.append(f"{name}: {len(found)} places; {found[0]}")
    assert not wrong, f"{len(wrong)} programs differ from {recording.machine}:\n" + "\n".join(wrong)


def test_every_form_is_compared_or_it_is_said_why_not(written: dict[str, Program]) -> None:
    """A new row of the tables is compared with a GPU before it is called supported."""
    compared = {written[name].form for name in load_all().results if name in written}
    known = compared | not_ptx()
    missing = [form for form in forms() if form not in known and form not in NOT_COMPARED]
    assert not missing, (
        f"not compared: {missing[:20]}; write programs for them in tests/differential, or say in NOT_COMPARED why "
        "there can be none, and run tests/differential/not_ptx.py, then capture.py on a GPU"
    )


def test_the_recording_is_of_the_programs_that_are_there(written: dict[str, Program]) -> None:
    gone = [
        name for name, data in load_all().results.items() if name not in written or len(data) != written[name].out_bytes
    ]
    assert not gone, f"recorded of other programs: {gone[:20]}; run tests/differential/capture.py on a GPU"


def test_what_is_said_not_to_be_comparable_is_in_the_tables_and_not_compared(written: dict[str, Program]) -> None:
    compared = {written[name].form for name in load_all().results if name in written}
    assert set(NOT_COMPARED) <= set(forms())
    assert not compared & not_ptx()
    assert not compared & set(NOT_COMPARED)
    assert not_ptx() <= set(forms()), "run tests/differential/not_ptx.py"


HEAVY_STEP = 97  # of the heavy programs, one of so many runs
SPOILT = (
    *("add.s32", "fma.rn.f32", "setp.lt.f32", "ex2.approx.f32", "addc.u32 chain", "mov.b64.pack2", "ld.v2.u16 .shared"),
    *("st.b8 .local", "shfl.sync.bfly.b32", "bar.red.popc.u32", "call.indirect", "atom.add.f32 .global alone"),
    *("red.max.s32 .shared together", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "cp.async.cg.shared.global"),
    *("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 wide", "mbarrier.arrive_drop.shared.b64"),
    *("wmma.load.b.sync.aligned.row.m8n32k16.f16", "wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32 normal"),
    *("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 layout 1 01", "mapa.shared::cluster.u32"),
    *("cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group swizzle 1", "vset4.u32.s32.ge parts"),
)


@pytest.mark.parametrize("name", SPOILT)
def test_a_wrong_result_would_be_seen(name: str, simulated: dict[str, bytes], written: dict[str, Program]) -> None:
    spoilt = bytearray(load_all().results[name])
    spoilt[3] ^= 0x40  # of lane 0: the top of a 32-bit result
    spoilt[0] ^= 1
    assert differences(written[name], simulated[name], bytes(spoilt), signatures().get(name))


@pytest.mark.parametrize("broken", [(0,), (3, 4, 5), (1, 3, 9), tuple(range(10))])
def test_capturing_goes_on_behind_programs_that_break(
    broken: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is named once, also where several follow one another; after MOST_BROKEN of them the rest is left."""
    given = [Program(f"p{place}", "") for place in range(10)]

    def child(work: Path, start: int) -> tuple[dict[int, bytes], str]:
        end = next((place for place in broken if place >= start), len(given))
        return {place: b"%d" % place for place in range(start, end)}, "it broke"

    monkeypatch.setattr(capture, "_run_child", child)
    monkeypatch.setattr(capture, "MOST_BROKEN", 8)
    found = capture._run_class("scalar", [Compiled(given[:4], b"", {}), Compiled(given[4:], b"", {})])
    ran = min(len(given), broken[7] + 1 if len(broken) > 7 else len(given))
    assert found == {f"p{place}": b"%d" % place for place in range(ran) if place not in broken}
    said = capsys.readouterr().out.splitlines()
    assert said[:8] == [f"scalar: p{place}: it broke" for place in broken[:8]]
    assert len(said) == min(len(broken), 8) + (ran < len(given))


def test_the_support_table_is_current() -> None:
    from support import PLACE, support

    assert PLACE.read_text() == support(), "run tests/differential/support.py, then `kata dev tables`"


# -- whole solutions -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def solutions(request: pytest.FixtureRequest, forked_children: None) -> dict[str, Build]:
    """The builds of all that the chosen tests run, by the names of their katas."""
    to_run = [item for item in request.session.items if of_a_solution(item) and passed_before.kept(item) is None]
    names = {item.callspec.params["kata"] for item in to_run}
    chosen = [katas.all_katas()[name] for name in sorted(names)]
    return {built.request.kata.name: built for built in katas.build_solutions(chosen, "sim", "sm_90a")}


def of_a_solution(item: pytest.Item) -> bool:
    return item.path == Path(__file__) and "kata" in getattr(getattr(item, "callspec", None), "params", {})


def what_it_reads(item: Any) -> list[str | Path]:
    return [*passed_before.of_kata(katas.all_katas()[item.callspec.params["kata"]]), HERE / "differential"]


@pytest.mark.reads(by=what_it_reads)
@pytest.mark.parametrize("kata", sorted({ran.kata for ran in katas.comparable()}))
def test_a_solution_gives_what_it_gave_on_the_gpu(kata: str, solutions: dict[str, Build]) -> None:
    recorded, built = {ran.key: ran for ran in katas.comparable()}, solutions[kata]
    for ran in katas.run(built):
        assert not ran.problem
        if ran.key in recorded:  # the family may name other shapes since
            if ran.inputs != recorded[ran.key].inputs:
                pytest.skip("this version of numpy draws other inputs than that of the recording")
            assert not katas.differences(built, ran, recorded[ran.key]), ran.key


def test_another_answer_of_a_solution_would_be_seen() -> None:
    """One bit of an exact answer; a sum in another order passes until it is further off than two right answers."""
    [exact, free] = [next(ran for ran in katas.comparable() if ran.kata == name) for name in SPOILT_KATAS]
    for ran, samples, seen in ((exact, "01", True), (free, "01", False), (free, "0001", True)):
        [built] = katas.build_solutions([katas.all_katas()[ran.kata]], "sim", "sm_90a")
        [(name, (_, good))] = ran.outputs.items()
        bad = samples + good[len(samples) :]
        assert bad != good
        assert bool(katas.differences(built, replace(ran, outputs={name: ("another", bad)}), ran)) is seen


SPOILT_KATAS = ("elementwise_f32", "block_all_reduce_f32_f32")


def test_a_kata_that_is_not_recorded_is_left_out() -> None:
    from support import shapes_of

    recorded = next(iter(katas.comparable()))
    assert shapes_of([recorded]) == {recorded.kata: [recorded.key.split(" ", 1)[1]]}
