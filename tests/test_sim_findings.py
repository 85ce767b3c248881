"""The simulator: every planted hazard is found at its line, every near miss passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import passed_before
import pytest
from facts import has
from sim_kernels.harness import HERE, LIMITS, build, engine, given, line_of, open_device, pack, run, unpack, wanted

from grader.content.catalog import Kata
from grader.content.source_file import source_of
from grader.devices import Finding, Limits
from grader.devices.sim import SimDevice
from grader.devices.sim.library import load_engine
from grader.judge.cause import WRITTEN
from grader.output.verdict_text import explanation
from grader.verdict import Grade, Kind, Verdict

pytestmark = passed_before.GRADER

HAZARDS = HERE / "hazards.cu"
SOUND = HERE / "sound.cu"
N = 257
X = [float(i % 17) for i in range(N)]


@pytest.fixture(scope="module")
def hazards() -> SimDevice:
    return open_device(HAZARDS)


def finding(device: SimDevice, launcher: str, *, n: int = N, seed: int = 0, limits: Limits = LIMITS) -> Finding:
    outcome = run(device, launcher, given("x", "f32", X), wanted("y", "f32", N), n, seed=seed, limits=limits)
    assert len(outcome.findings) == 1, outcome.findings
    return outcome.findings[0]


# What the grader alone can say: of these no finding is.
GRADERS_OWN = {
    *(Kind.PASS, Kind.NOT_STARTED, Kind.DOES_NOT_COMPILE, Kind.NOT_ALLOWED, Kind.WRONG_ANSWER),
    *(Kind.NOT_REPEATABLE, Kind.TOO_SLOW, Kind.INCONCLUSIVE),
}


def test_the_engine_names_its_findings_as_the_verdicts_do() -> None:
    """Each side's kinds are the other's: a misspelt one would wait for the first finding of its kind."""
    named = load_engine(engine()).sim_finding_kinds().decode().split("\n")[:-1]
    assert len(named) == len(set(named))
    assert set(named) == {kind.value for kind in Kind} - {kind.value for kind in GRADERS_OWN}


# launcher -> kind, facts of the message, index
PLANTED: dict[str, tuple[str, list[str], int | None]] = {
    "write_past": ("out of bounds", ["writes", "y[257]", "past the end of y", "257 elements"], 257),
    "read_past": ("out of bounds", ["reads", "x[257]", "past the end of x", "257 elements"], 257),
    "read_before": ("out of bounds", ["reads", "x[-3]", "3", "before the start of x"], -3),
    "vector_past": ("out of bounds", ["writes", "y[256..259]", "16 bytes", "3", "past the end of y"], 256),
    "null_pointer": ("out of bounds", ["writes", "4 bytes", "0x0", "null pointer"], None),
    "inlined": ("out of bounds", ["reads", "x[257]", "past the end"], 257),
    "value_not_used": ("out of bounds", ["reads", "x[257]", "past the end"], 257),
    "misaligned_global": ("misaligned", ["reads", "16 bytes", "x[1]"], 1),
    "misaligned_shared": ("misaligned", ["reads", "8 bytes", "tile["], None),
    "shared_past": ("out of bounds", ["writes", "tile[32]", "past the end of tile", "32 elements"], None),
    "dynamic_past": ("out of bounds", ["writes", "buffer[16]", "past the end of buffer", "16 elements"], None),
    "local_past": ("out of bounds", ["local memory"], None),
    "writes_input": ("modified its input", ["writes", "x[0]", "input"], 0),
    "uninitialised_output": ("uninitialised", ["reads", "y[0]"], 0),
    "uninitialised_atomic": ("uninitialised", ["updates", "y[0]"], 0),
    "uninitialised_shared": ("uninitialised", ["reads", "tile[32]", "shared memory"], None),
    **{
        f"row_unwritten_{width}": ("uninitialised", ["reads", place, "shared memory"], None)
        for width, place in ((1, "tile[21]"), (2, "tile[21]"), (4, "tile[21]"), (8, "tile[21]"), (16, "tile[84..87]"))
    },
    "same_unwritten": ("uninitialised", ["reads", "tile[37]", "shared memory"], None),
    "row_past": ("out of bounds", ["reads", "x[257]", "past the end of x"], 257),
    "row_written_past": ("out of bounds", ["writes", "y[257]", "past the end of y"], 257),
    "same_past": ("out of bounds", ["reads", "x[257]", "past the end of x"], 257),
    "row_misaligned": ("misaligned", ["reads", "8 bytes", "x[1]"], 1),
    "uninitialised_malloc": ("uninitialised", ["reads", "cudaMalloc #1[0]"], 0),
    "malloc_past": ("out of bounds", ["cudaMalloc #1[32]", "past the end"], 32),
    "race_missing_barrier": ("race", ["race", "tile["], None),
    "race_second_barrier": ("race", ["race", "tile["], None),
    "race_same_value": ("race", ["race", "flag[0]"], None),
    "race_in_warp": ("race", ["race", "tile["], None),
    "race_atomic_plain": ("race", ["race", "bins["], None),
    "race_bytes": ("race", ["race", "tile["], None),
    "race_flag": ("race", ["race", "tile["], None),
    "deadlock_exit": ("deadlock", ["32 threads", "exited"], None),
    "deadlock_half_warp": ("deadlock", ["32 threads", "wait"], None),
    "shuffle_exited": ("deadlock", ["thread (20,0,0)", "exited"], None),
    "shuffle_unnamed": ("deadlock", ["0x0000ffff", "lane 16"], None),
    "shuffle_never": ("deadlock", ["never comes"], None),
    "named_barrier": ("deadlock", ["32 threads", "wait"], None),
    "trap": ("crash", ["trap"], None),
    "shared_nonsense": ("uninitialised", ["reads", "tile[32]", "no thread has written"], None),
    "breakpoint": ("crash", ["breakpoint", "debugger"], None),
    "unsupported": ("unsupported", ["vshl.u32.u32.u32.sat.clamp"], None),
    "moved_above_its_check": ("out of bounds", ["reads", "x[257]", "past the end of x"], 257),
    "chooses_nonsense": ("out of bounds", ["reads", "x[257]", "past the end of x"], 257),
    "moved_and_misaligned": ("misaligned", ["reads", "8 bytes", "x[1]"], 1),
    "divergent_and_stuck": ("deadlock", ["32 threads", "wait"], None),
    "recursion": ("crash", ["stack overflow", "deeper", "129", "1024 bytes"], None),
}


SHARED_LINES = {"chooses_nonsense": "moved_above_its_check"}  # launcher -> the launcher whose mark its line has


@pytest.mark.parametrize("launcher", PLANTED)
def test_hazard_is_found_at_its_line(hazards: SimDevice, launcher: str) -> None:
    kind, facts, index = PLANTED[launcher]
    found = finding(hazards, launcher)
    assert found.kind == kind and has(found.message, *facts), found
    assert (found.file, found.line) == (str(HAZARDS), line_of(HAZARDS, SHARED_LINES.get(launcher, launcher))), found
    assert found.index == index
    assert found.kernel is not None and launcher in found.kernel


def test_what_is_written_of_an_array_is_noted_where_it_is_one_run(hazards: SimDevice) -> None:
    (note,) = finding(hazards, "uninitialised_shared").notes
    line = line_of(HAZARDS, "uninitialised_shared") - 2
    assert note.startswith(WRITTEN) and has(note, "tile[0]", "tile[31]", f"line {line}")
    assert finding(hazards, "row_unwritten_4").notes == ()  # elements before it and after it are written


def test_an_exit_names_the_branch_that_led_there(hazards: SimDevice) -> None:
    """nvcc gives all returns of a kernel one instruction, on the line of its last brace."""
    line = line_of(HAZARDS, "deadlock_exit") - 1
    assert f"(thread (32,0,0) exited after the branch on line {line})" in finding(hazards, "deadlock_exit").message


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "launcher", ["race_missing_barrier", "race_second_barrier", "race_in_warp", "race_atomic_plain"]
)
def test_race_does_not_depend_on_the_schedule(hazards: SimDevice, launcher: str, seed: int) -> None:
    found = finding(hazards, launcher, seed=seed)
    assert (found.kind, found.line) == ("race", line_of(HAZARDS, launcher)), found


def test_race_names_both_lines_and_both_threads(hazards: SimDevice) -> None:
    found = finding(hazards, "race_missing_barrier")
    lines = {line_of(HAZARDS, "race_missing_barrier"), line_of(HAZARDS, "race_missing_barrier_write")}
    assert all(f"on line {line}" in found.message for line in lines), found.message
    assert found.message.count("thread (") == 2


@pytest.mark.parametrize(
    "launcher", ["moved_above_its_check", "chooses_nonsense", "moved_and_misaligned", "shared_nonsense"]
)
def test_a_load_outside_names_the_line_that_uses_it(hazards: SimDevice, launcher: str) -> None:
    """The compiler may move a load above its check: what nothing uses is no finding, so the use is named beside it."""
    assert f"line {line_of(HAZARDS, launcher + '_use')} uses" in finding(hazards, launcher).message


def test_divergent_barrier_names_both_lines(hazards: SimDevice) -> None:
    found = finding(hazards, "divergent_barrier")
    lines = {line_of(HAZARDS, "divergent_barrier_a"), line_of(HAZARDS, "divergent_barrier_b")}
    assert found.kind == "divergent barrier" and found.line in lines
    assert all(str(line) in found.message for line in lines), found.message


# Who waits for lanes of a warp is not helped by a word on barriers.
NOTES = {
    "deadlock_exit": ["every thread", "same barrier"],
    "named_barrier": ["every thread", "same barrier"],
    "shuffle_exited": ["every lane in the mask"],
    "shuffle_unnamed": ["every lane in the mask"],
    "shuffle_never": ["every lane in the mask"],
}


# What test_sim_asynchronous and test_sim_tensor bring about, in the engine's words.
NOTES_OF_MESSAGES = {
    "waits at the mbarrier full, which expects 2 arrivals and still lacks 1 arrival in phase 0": ["arrivals"],
    "wmma.mma.sync.aligned needs all 32 lanes of the warp, but this one has 16 threads": ["all 32 lanes"],
}


def note(message: str) -> str:
    kata = Kata(name="hazards", family="hazards", level="easy", elem="f32", root=HERE)
    verdict = Verdict(Kind.DEADLOCK, message, device="sim", finding=Finding("deadlock", message))
    (line,) = (
        line for line in explanation(Grade(kata, source_of(HAZARDS), (verdict,))).splitlines() if " note " in line
    )
    return line


@pytest.mark.parametrize("launcher", NOTES)
def test_a_deadlock_says_what_must_come_where(hazards: SimDevice, launcher: str) -> None:
    assert has(note(finding(hazards, launcher).message), *NOTES[launcher])


@pytest.mark.parametrize("message", NOTES_OF_MESSAGES)
def test_a_deadlock_of_another_kind_has_its_own_note(message: str) -> None:
    assert has(note(message), *NOTES_OF_MESSAGES[message])


def test_block_and_thread_are_named(hazards: SimDevice) -> None:
    found = finding(hazards, "write_past")
    assert (found.block, found.thread, found.buffer) == ((1, 0, 0), (1, 0, 0), "y")


def test_assert_shows_its_text(hazards: SimDevice) -> None:
    found = finding(hazards, "assert_fails")
    assert found.kind == "crash" and "threadIdx.x < 7" in found.message and found.line == line_of(HAZARDS, "assert")
    assert found.thread == (7, 0, 0)


def test_time_out_says_where(hazards: SimDevice) -> None:
    found = finding(hazards, "endless", limits=Limits(instructions=3_000_000))
    assert found.kind == "time-out" and "3 million" in found.message
    assert found.line is not None and abs(found.line - line_of(HAZARDS, "endless")) <= 1


REFUSED = {
    "too_many_threads": ("2000 threads", "1024"),
    "empty_grid": ("grid of (0,1,1)", "at least 1"),
    "too_much_shared": ("60000 bytes", "49152"),
    "raised_for_another": ("60000 bytes", "49152", "it is raised for bounded_kernel alone"),
    "far_too_much_shared": ("300000 bytes", "232448"),
    "bounded": ("128 threads", "__launch_bounds__", "64"),
}


@pytest.mark.parametrize("launcher", REFUSED)
def test_launch_that_the_card_refuses(hazards: SimDevice, launcher: str) -> None:
    found = finding(hazards, launcher)
    assert found.kind == "launch failed"
    assert has(found.message, *REFUSED[launcher])


def test_host_side_accesses_are_checked(hazards: SimDevice) -> None:
    assert "1032 bytes" in finding(hazards, "copy_past").message
    assert finding(hazards, "memsets_input").kind == "modified its input"
    freed = finding(hazards, "use_after_free")
    assert freed.kind == "out of bounds" and has(freed.message, "freed")


def test_host_cannot_follow_device_pointers() -> None:
    program = (
        "from sim_kernels.harness import *\n"
        f"d = open_device(HERE / {HAZARDS.name!r})\n"
        "run(d, 'host_dereference', given('x', 'f32', [1.0]), wanted('y', 'f32', 1), 1)\n"
    )
    root = HERE.parent.parent
    child = subprocess.run(
        [sys.executable, "-c", program], cwd=HERE.parent, env={**os.environ, "PYTHONPATH": f"{root}:{HERE.parent}"}
    )
    assert child.returncode == -11


def test_nothing_runs_after_a_finding(hazards: SimDevice) -> None:
    first = run(hazards, "write_past", given("x", "f32", X), wanted("y", "f32", N), N)
    assert first.findings
    again = run(hazards, "bounded", given("x", "f32", X), wanted("y", "f32", N), N)
    assert [f.kind for f in again.findings] == ["launch failed"]  # the next call starts afresh


def test_missing_launcher_is_named(hazards: SimDevice) -> None:
    assert has(finding(hazards, "absent").message, "no launcher", "absent")


def expect(launcher: str, x: list[float]) -> list[float]:
    """What a sound kernel writes; None of it comes from the simulator."""
    if launcher == "reversed":
        return x[255::-1][:256]
    if launcher == "named_barriers":
        return x[127::-1][:128] + x[:128]
    if launcher == "half_masks":
        return [x[i] + x[i ^ (1 if i % 32 < 16 else 2)] for i in range(64)]
    if launcher == "big_shared":
        return [x[i ^ 33] for i in range(256)]
    if launcher == "partial_warp":
        return [sum(x[:16])]
    if launcher == "divergent_meeting":
        v = [x[i] + (1 if i % 3 == 0 else 2) + i % 5 for i in range(32)]
        return [v[7] + x[i] - v[i] for i in range(32)]
    if launcher == "variables":
        factors, table = [5, 6, 7, 8], [10, 20, 30, 40]
        return [x[i] * factors[i & 3] + table[factors[i & 3] & 3] + ((i + N) & 7) for i in range(32)]
    if launcher == "spin_lock":
        return [256.0]
    if launcher == "shared_lock":
        return [sum(x[:64])] * 64
    if launcher == "votes":
        return [255.0] * 64
    if launcher == "halves_of_nothing":
        return [0.0] * 64
    if launcher in ("nonsense_not_chosen", "shared_nonsense_not_chosen"):
        return [x[i] for i in range(32)] + [-1.0] * 32
    return x[: {"tail": N, "wait_for_blocks": 6, "printing": 32, "shared_flag": 32}.get(launcher, 256)]


SOUND_LAUNCHERS = (
    "tail", "reversed", "warp_synchronous", "shared_atomics", "adjacent_bytes", "named_barriers", "divergent_meeting",
    "half_masks", "partial_warp", "spin_lock", "shared_lock", "shared_flag",
    "wait_for_blocks", "big_shared", "variables", "printing", "votes", "halves_of_nothing", "nonsense_not_chosen",
    "shared_nonsense_not_chosen",
    "scratch_kept",
)  # fmt: skip


@pytest.fixture(scope="module")
def sound(hazards: SimDevice) -> SimDevice:
    return open_device(SOUND)


@pytest.mark.parametrize("launcher", SOUND_LAUNCHERS)
def test_sound_kernel_passes(sound: SimDevice, launcher: str) -> None:
    for seed in range(3):
        outcome = run(sound, launcher, given("x", "f32", X), wanted("y", "f32", N), N, seed=seed)
        assert outcome.findings == ()
        expected = expect(launcher, X)
        assert unpack("f32", outcome.outputs["y"])[: len(expected)] == expected


def test_printf_goes_to_stdout(sound: SimDevice, capfd: pytest.CaptureFixture[str]) -> None:
    run(sound, "printing", given("x", "f32", X), wanted("y", "f32", N), N)
    assert capfd.readouterr().out == "thread 3 of 32:  3.00 text 1234567890123 z %\n"


def test_runtime_answers_for_the_stated_card(sound: SimDevice) -> None:
    outcome = run(sound, "runtime", given("x", "f32", X), wanted("y", "f32", 4), N)
    assert outcome.findings == ()
    assert outcome.outputs["y"] == pack("f32", [132, 9, 8, 232448])


def test_unknown_runtime_symbol_is_named(tmp_path: Path, sound: SimDevice) -> None:
    source = tmp_path / "graphs.cu"
    source.write_text(
        '#include "kata.cuh"\n#include <cstdio>\n/* cudaGraphCreate and\ncudaGraphAddEmptyNode */\n'
        'KATA_EXPORT void graphs(cudaStream_t s) { printf("cudaGraphCreate\\n"); cudaGraph_t g;\n'
        "cudaGraphCreate(&g, 0);\ncudaGraphDestroy(g); cudaGraphNode_t n;\n"
        "cudaGraphAddEmptyNode(&n, g, nullptr, 0); }\n"
    )
    outcome = run(open_device(source), "graphs")
    assert [(f.kind, f.line) for f in outcome.findings] == [("unsupported", 6)]
    assert has(outcome.findings[0].message, "calls cudaGraphCreate", "cudaGraphAddEmptyNode")


# SMs, major, resident blocks of 256 threads, bytes of shared memory that a block may ask for: the cards' data sheets
CARDS = {"sm_75": [40, 7, 4, 65536], "sm_80": [108, 8, 8, 166912], "sm_86": [72, 8, 6, 101376]}


@pytest.mark.parametrize("arch", CARDS)
def test_runtime_answers_for_an_older_card(arch: str) -> None:
    built = build(SOUND, arch="90a")
    paths = {"library": built / "kata.so", "ptx": built / "kata.ptx", "source": SOUND}
    device = SimDevice(engine=engine(), arch=arch, threads=1, **paths)
    outcome = run(device, "runtime", given("x", "f32", X), wanted("y", "f32", 4), N)
    assert outcome.findings == () and outcome.outputs["y"] == pack("f32", CARDS[arch])
