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

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "differential"))

import katas  # noqa: E402
from comparison import differences  # noqa: E402
from not_ptx import not_ptx  # noqa: E402
from program import Program  # noqa: E402
from recorded import load  # noqa: E402
from suite import NOT_COMPARED, forms, programs, signatures, why_not_compared  # noqa: E402

from grader.compile.build import Build  # noqa: E402


@pytest.fixture(scope="module")
def written() -> dict[str, Program]:
    """Every program by its name."""
    return {program.name: program for group in programs(forms()).values() for program in group}


@pytest.fixture(scope="module")
def simulated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, written: dict[str, Program]
) -> dict[str, bytes]:
    """What every recorded program leaves in the simulator, computed in a process of its own, and some of those that
    wait for a card; with --all-seeds all of them."""
    every = request.config.getoption("--all-seeds")
    folder = tmp_path_factory.mktemp("differential")
    names, out = folder / "names", folder / "out"
    results = load().results
    waiting = [name for name, program in written.items() if name not in results and program.form not in not_ptx()]
    kinds: dict[str, list[str]] = {}
    for name in waiting:
        kinds.setdefault(name.split(".")[0], []).append(name)
    chosen = [name for names in kinds.values() for name in names[:: 1 if every else NEW_STEP]]
    recorded = [name for name in (*results, *chosen) if name in written]
    recorded = [name for name in recorded if every or not written[name].heavy]
    names.write_text("\n".join(recorded))
    command = [sys.executable, str(HERE / "differential" / "simulate.py"), str(names), str(out)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(HERE.parent)})
    results = pickle.loads(out.read_bytes())
    assert not [(name, found) for name, (_, found) in zip(recorded, results, strict=True) if found]
    return {name: data for name, (data, _) in zip(recorded, results, strict=True)}


def test_every_recorded_program_leaves_what_it_left_on_the_gpu(
    simulated: dict[str, bytes], written: dict[str, Program]
) -> None:
    recording, wrong = load(), []
    for name, data in simulated.items():
        if name not in recording.results:
            continue
        found = differences(written[name], data, recording.results[name], signatures().get(name))
        if found:
            wrong.append(f"{name}: {len(found)} places; {found[0]}")
    assert not wrong, f"{len(wrong)} programs differ from {recording.machine}:\n" + "\n".join(wrong)


def test_every_form_is_compared_or_it_is_said_why_not(written: dict[str, Program]) -> None:
    """A new row of the tables is compared with a GPU before it is called supported."""
    compared = {written[name].form for name in load().results if name in written}
    known = compared | not_ptx()
    missing = [form for form in forms() if form not in known and why_not_compared(form) is None]
    assert not missing, (
        f"not compared: {missing[:20]}; write programs for them in tests/differential, or say in NOT_COMPARED why "
        "there can be none, and run tests/differential/not_ptx.py, then capture.py on a GPU"
    )


def test_the_recording_is_of_the_programs_that_are_there(written: dict[str, Program]) -> None:
    gone = [
        name for name, data in load().results.items() if name not in written or len(data) != written[name].out_bytes
    ]
    assert not gone, f"recorded of other programs: {gone[:20]}; run tests/differential/capture.py on a GPU"


def test_what_is_said_not_to_be_comparable_is_in_the_tables_and_not_compared(written: dict[str, Program]) -> None:
    compared = {written[name].form for name in load().results if name in written}
    assert set(NOT_COMPARED) <= set(forms())
    assert not compared & not_ptx()
    assert not [form for form in compared if why_not_compared(form)]
    assert not_ptx() <= set(forms()), "run tests/differential/not_ptx.py"


def test_programs_that_wait_for_a_card_run(simulated: dict[str, bytes], written: dict[str, Program]) -> None:
    recorded = load().results
    waiting = [name for name in simulated if name not in recorded]
    silent = {written[name].form for name in waiting if written[name].out_bytes and not any(simulated[name])}
    assert not [form for form in silent if not form.endswith(".eq")], "a program that leaves nothing"
    kinds = {name.split(".")[0] for name in waiting}
    assert not waiting or {"wgmma", "cp", "st", "red"} <= kinds, kinds


NEW_STEP = 37  # of programs that wait for a card, one of so many runs
SPOILT = (
    *("add.s32", "fma.rn.f32", "setp.lt.f32", "ex2.approx.f32", "addc.u32 chain", "mov.b64.pack2", "ld.v2.u16 .shared"),
    *("st.b8 .local", "shfl.sync.bfly.b32", "bar.red.popc.u32", "call.indirect", "atom.add.f32 .global alone"),
    *("red.max.s32 .shared together", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "cp.async.cg.shared.global"),
    *("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 wide", "mbarrier.arrive_drop.shared.b64"),
    *("wmma.load.b.sync.aligned.row.m8n32k16.f16", "wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32 normal"),
)


@pytest.mark.parametrize("name", SPOILT)
def test_a_wrong_result_would_be_seen(name: str, simulated: dict[str, bytes], written: dict[str, Program]) -> None:
    spoilt = bytearray(load().results[name])
    spoilt[3] ^= 0x40  # of lane 0: the top of a 32-bit result
    spoilt[0] ^= 1
    assert differences(written[name], simulated[name], bytes(spoilt), signatures().get(name))


def test_the_support_table_is_current() -> None:
    from support import PLACE, support

    assert PLACE.read_text() == support(), "run tests/differential/support.py, then `kata dev tables`"


# -- whole solutions -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def solutions(request: pytest.FixtureRequest, forked_children: None) -> dict[str, Build]:
    """The builds of all that the chosen tests run, by the names of their katas."""
    names = {item.callspec.params["kata"] for item in request.session.items if of_a_solution(item)}
    chosen = [katas.all_katas()[name] for name in sorted(names)]
    return {built.request.kata.name: built for built in katas.build_solutions(chosen, "sim", "sm_90a")}


def of_a_solution(item: pytest.Item) -> bool:
    return item.path == Path(__file__) and "kata" in getattr(getattr(item, "callspec", None), "params", {})


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
