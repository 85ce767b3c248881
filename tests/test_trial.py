"""`kata try`: every trial passes on its solution, and names what is wrong with a planted mistake."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest
from facts import has
from test_faces import ROOT, make_clone, run

from grader.commands.trial import Tried, tried
from grader.content import skeleton
from grader.content.catalog import load_catalog
from grader.content.rung import code_of
from grader.content.source_file import Source
from grader.content.trial import load_trials
from grader.grade import Options
from grader.verdict import Kind

CATALOG = load_catalog(ROOT)
OPTIONS = Options(device="sim")
SWIZZLED = "flash_attn_mma_stages_split_q_shared_kv_swizzle_q"
NAIVE = "hgemm_mma_m16n8k16_naive"
ONLINE, CAUSAL, DECODE = "flash_attn_online_f16", "flash_attn_mma_causal_f16", "decode_attention_kv_cache_f16"
HGEMM, SGEMM = "hgemm_mma_m16n8k16_mma2x4_warp4x4x2_stages_dsmem_swizzle", "sgemm_t_8x8_sliced_k16_f32x4_bcf_dbuf"

# (kata, TODO, what the solution has, what stands there instead, facts of what is said)
MISTAKES = [
    (SWIZZLED, 1, "col ^ row / (8 / PERIOD) % PERIOD * CHUNK", "col", ("rows 0 to 7", "column 0", "all eight")),
    (SWIZZLED, 1, "col ^ row / (8 / PERIOD) % PERIOD * CHUNK", "(col | row) % 64", ("row", "each of its chunks once")),
    (ONLINE, 1, "shrink = exp2f(scale * (row_max - max));", "shrink = exp2f(row_max);", ("after tile", "rescales")),
    (ONLINE, 1, "max = group_max(max);", "", ("row_max",)),
    (ONLINE, 2, "row_sum *= shrink;", "", ("after tile 1", "sum")),
    (CAUSAL, 1, "key <= seen ? s.x", "key < seen ? s.x", ("query", "sees key")),
    (CAUSAL, 1, "query + i * 8", "query", ("query", "row 8")),
    (DECODE, 1, "part.sum = mine * part.sum", "part.sum = part.sum", ("maximum", "the sum")),
    (DECODE, 1, "+ others * other.sum", "+ other.sum", ("maximum", "the sum")),
    (NAIVE, 1, '(regs[1]), "=r"(regs[2])', '(regs[2]), "=r"(regs[1])', ("lane 0", "regs[1]", "A[8, 0]", "A[0, 8]")),
    (HGEMM, 1, "col ^ row / ROWS % CHUNKS * CHUNK", "col ^ row % CHUNKS * CHUNK", ("rows of 32 halves", "all eight")),
    (SGEMM, 1, "k / PACK % 4 * 8", "k / PACK % 2 * 8", ("slices 0, 4, 8 and 12", "32")),
]  # fmt: skip


def outcome(name: str, todo: int, text: str) -> Tried:
    kata = CATALOG.katas[name]
    (trial,) = [trial for trial in load_trials(kata) if todo in trial.todos]
    return tried(trial, kata, Source(kata.skeleton_path, text.encode()), OPTIONS)


@pytest.mark.parametrize("name", [SWIZZLED, ONLINE, CAUSAL, DECODE, NAIVE, HGEMM, SGEMM])
def test_a_solution_is_right_and_drawn(name: str) -> None:
    kata = CATALOG.katas[name]
    for trial in load_trials(kata):
        done = tried(trial, kata, Source(kata.solution_path, kata.solution_path.read_bytes()), OPTIONS)
        assert done.right, (done.problem, done.verdict)
        assert len(done.picture) > 3 and all(len(line) <= 120 for line in done.picture)


def test_sums_that_are_no_number_are_drawn_too() -> None:
    (trial,) = [trial for trial in load_trials(CATALOG.katas[NAIVE]) if 3 in trial.todos]
    values = numpy.full((16, 16), numpy.nan, numpy.float16)
    values[0] = numpy.inf
    arrays = {"C": values}
    assert has(trial.judge(arrays), "C[0, 0]", "c[0] of lane 0", "inf")
    assert trial.picture is not None and has("\n".join(trial.picture(arrays)), "inf", "nan")


@pytest.mark.parametrize(("name", "todo", "old", "new", "facts"), MISTAKES)
def test_a_mistake_is_named(name: str, todo: int, old: str, new: str, facts: tuple[str, ...]) -> None:
    text = CATALOG.katas[name].solution_path.read_text()
    assert text.count(old) == 1
    done = outcome(name, todo, text.replace(old, new))
    assert not done.right and has(done.problem, *facts)


def test_every_trial_is_of_hard_katas_whose_todo_it_names() -> None:
    """Also for the katas that no test runs: their TODO is in a function of the name that the trial calls."""
    counted = 0
    for kata in CATALOG.katas.values():
        for trial in load_trials(kata):
            counted += 1
            lines = kata.solution_path.read_text().split("\n")
            places = {todo.number: todo.line for todo in skeleton.todos("\n".join(lines))}
            for number in trial.todos:
                above = lines[: places[number]]
                name = next(line for line in reversed(above) if line.startswith("__device__")).split("(")[0].split()[-1]
                assert f"{name}(" in trial.code or f"{name}<" in trial.code, (kata.name, number)
    assert counted >= 10


def test_a_trial_says_when_the_skeletons_function_is_gone() -> None:
    text = (
        CATALOG.katas[SGEMM]
        .solution_path.read_text()
        .replace("int swizzle(int k, int m)", "int permuted(int k, int m)")
    )
    done = outcome(SGEMM, 1, text)
    assert done.verdict is not None and done.verdict.kind is Kind.DOES_NOT_COMPILE and "swizzle" in str(done.verdict)


def test_the_command_tries_the_learners_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KATA_DATA", str(tmp_path / "data"))
    clone = make_clone(tmp_path)
    kata = load_catalog(clone).katas[SGEMM]
    kata.work_path.parent.mkdir(parents=True)
    pristine = skeleton.skeleton_of(kata)
    kata.work_path.write_text(pristine)
    done = run(clone, "-m", "grader", "try", SGEMM, "1")
    assert done.returncode == 1 and has(done.stdout, "TODO 1", "wrong", "32")
    answer = next(line for line in kata.solution_path.read_text().split("\n") if "place ^=" in line)
    kata.work_path.write_text(pristine.replace("    // END TODO(1)", f"{answer}\n    // END TODO(1)", 1))
    done = run(clone, "-m", "grader", "try", SGEMM, "--json")
    (record,) = json.loads(done.stdout)
    assert done.returncode == 0 and record["right"] and record["todos"] == [1] and record["file"] == str(kata.work_path)
    for arguments, facts in (((SGEMM, "2"), ("1",)), (("relu_f32",), ("relu_f32", "kata grade"))):
        done = run(clone, "-m", "grader", "try", *arguments)
        assert done.returncode == 1 and has(done.stderr, *facts)


def test_the_picture_is_of_code_that_is_empty_too() -> None:
    """The other TODOs may be empty; that of the trial, too: then it is wrong, and not a fault."""
    kata = CATALOG.katas[SWIZZLED]
    text = skeleton.skeleton_of(kata)
    assert code_of(text) and not outcome(SWIZZLED, 1, text).right
