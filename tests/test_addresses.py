"""What the addresses of a line are made of, and what is said of two writes that meet because of that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import passed_before
import pytest

from grader.compile.addresses import BLOCK, ROUND, THREAD, UNKNOWN, Address, updated_by, written_by
from grader.devices import Finding, Side
from grader.judge.shared_places import in_words, of_shared_place, without_order
from grader.sandbox.parent import Program
from grader.verdict import Clue

pytestmark = passed_before.GRADER

PTX = """.file 1 "/somewhere/kata.cu"
.visible .entry k(.param .u64 k_param_0)
{
 .loc 1 2 1
 ld.param.u64  %rd1, [k_param_0];
 mov.u32  %r1, %ctaid.x;
 mov.u32  %r2, %tid.x;
 mov.u32  %r9, tile;
 { .reg .b64 %tmp;
  cvt.u64.u32  %tmp, %r9;
  cvta.shared.u64  %rd2, %tmp; }
 mov.u32  %r3, 0;
$L__loop:
 .loc 1 3 1
 mul.wide.s32  %rd3, %r1, 4;
 add.s64  %rd4, %rd1, %rd3;
 st.global.f32  [%rd4], %f1;
 .loc 1 4 1
 st.global.f32  [%rd1+8], %f1;
 .loc 1 5 1
 mapa.u64  %rd5, %rd2, %r2;
 st.f32  [%rd5], %f1;
 .loc 1 6 1
 add.s32  %r4, %r9, %r3;
 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd1], 16, [%r9];
 .loc 1 7 1
 ld.shared.u32  %r5, [tile];
 add.s32  %r6, %r9, %r5;
 st.shared.f32  [%r6], %f1;
 .loc 1 8 1
 st.shared.f32  [tile+4], %f1;
 .loc 1 9 1
 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r9], 16;
 .loc 1 10 1
 @%p2 mov.u32  %r7, 1;
 @!%p2 mov.u32  %r7, 2;
 add.s32  %r8, %r9, %r7;
 st.shared.f32  [%r8], %f1;
 .loc 1 11 1
 add.s32  %r3, %r3, 16;
 @%p1 bra  $L__loop;
 ret;
}
"""
ONE = Side("writes", "k", "/somewhere/kata.cu", 4, (), (0, 0, 0), (0, 0, 0))


@pytest.mark.parametrize(
    ("line", "parts"),
    [(3, {BLOCK}), (4, set()), (5, {THREAD}), (6, {ROUND}), (7, {UNKNOWN}), (8, set()), (10, {UNKNOWN})],
)
def test_an_address_is_followed_to_what_it_is_made_of(line: int, parts: set[str]) -> None:
    [address] = written_by(PTX, "kata.cu", line, ())
    assert address.parts == parts


def test_a_copy_to_global_memory_writes_no_shared_place() -> None:
    assert written_by(PTX, "kata.cu", 9, ()) == []


def test_what_two_writes_lack_is_said() -> None:
    other = {"block": replace(ONE, block=(1, 0, 0)), "thread": replace(ONE, thread=(1, 0, 0)), "round": ONE}
    nothing = [Address(frozenset(), "tile")]
    assert "from every block" in in_words(ONE, other["block"], nothing)
    assert "from every thread" in in_words(ONE, other["thread"], nothing)
    assert "each time" in in_words(ONE, other["round"], nothing)
    for part, side in other.items():
        assert in_words(ONE, side, [Address(frozenset({part}), "tile")]) == ""
        assert in_words(ONE, side, [*nothing, Address(frozenset({UNKNOWN}), "tile")]) == ""
        assert in_words(ONE, side, []) == ""


def test_an_unrolled_loop_writes_to_places_of_its_own() -> None:
    assert in_words(ONE, ONE, [Address(frozenset(), "tile"), Address(frozenset(), "tile+16")]) == ""


def test_a_race_of_two_writes_of_one_line_is_explained(tmp_path: Path) -> None:
    ptx = tmp_path / "kata.ptx"
    ptx.write_text(PTX)
    program = Program("sim", "sm_90a", tmp_path / "kata.so", ptx, tmp_path / "kata.cu")
    race = Finding("race", "race on x[2]", "k", line=4, sides=(ONE, replace(ONE, block=(1, 0, 0))))
    [clue] = of_shared_place(program, race)
    assert (clue.about, clue.line) == ("place", 4) and "neither blockIdx nor" in clue.text
    assert of_shared_place(program, replace(race, sides=(ONE, replace(ONE, line=3)))) == []
    assert of_shared_place(program, replace(race, sides=(ONE, replace(ONE, does="reads", block=(1, 0, 0))))) == []
    assert of_shared_place(program, replace(race, sides=())) == []


UPDATES = """.file 1 "/somewhere/kata.cu"
.visible .entry k(.param .u64 k_param_0)
{
 .loc 1 2 1
 ld.param.u64 %rd1, [k_param_0];
 ld.param.u64 %rd9, [k_param_1];
 mov.u32 %r2, %tid.x;
 mul.wide.s32 %rd3, %r2, 4;
 add.s64 %rd4, %rd1, %rd3;
 add.s64 %rd5, %rd9, %rd3;
 .loc 1 3 1
 ld.global.f32 %f2, [%rd5];
 ld.global.f32 %f3, [%rd4];
 add.f32 %f4, %f3, %f2;
 st.global.f32 [%rd4], %f4;
 .loc 1 4 1
 ld.global.f32 %f5, [%rd4+128];
 ld.global.f32 %f6, [%rd4];
 add.f32 %f7, %f6, %f5;
 st.global.f32 [%rd4], %f7;
 .loc 1 5 1
 ld.global.f32 %f8, [%rd4];
 st.global.f32 [%rd4], %f2;
 ret;
}
"""


@pytest.mark.parametrize(("line", "updates"), [(3, True), (4, False), (5, False)])
def test_a_line_that_puts_a_changed_value_back_is_told_from_one_of_a_tree(line: int, updates: bool) -> None:
    assert updated_by(UPDATES, "kata.cu", line, ()) is updates


def test_a_race_of_updates_needs_an_atomic_unless_a_barrier_takes_it_away(tmp_path: Path) -> None:
    ptx = tmp_path / "kata.ptx"
    ptx.write_text(UPDATES)
    program = Program("sim", "sm_90a", tmp_path / "kata.so", ptx, tmp_path / "kata.cu")
    sides = (replace(ONE, line=3), replace(ONE, line=3, does="reads", thread=(0, 1, 0)))
    race = Finding("race", "race on y[0]", "k", line=3, sides=sides)
    found = of_shared_place(program, race)
    assert [clue.line for clue in found] == [3] and "atomic update" in found[0].text
    assert without_order([*found, Clue("index", "i = 3")]) == [Clue("index", "i = 3")]
