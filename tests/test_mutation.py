"""Mutants: what is changed and what is not, samples, results that a run goes on from, and what may pass."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from facts import has

from grader.compile.unit import includes_of, may_share
from grader.content.catalog import Kata, load_catalog
from grader.content.skeleton import answer_lines
from grader.maintain import mutation
from grader.maintain.mutation import Result, alike_together, as_mutant, each, equivalents, known, run, sample, surviving
from grader.maintain.mutators import Mutant, bare, mutants_of
from grader.maintain.same_code import on_device_alone, same_code

ROOT = Path(__file__).resolve().parent.parent
CATALOG = load_catalog(ROOT)
ENOUGH = 3000
CHOSEN, SEED = 10, 20  # of the mutants that a run of the tests grades: one of each of so many families


def kata_with(folder: Path, *answer: str) -> Kata:
    """A kata whose solution has these lines as its answer."""
    place = folder / "solutions" / "relu" / "relu_f32.cu"
    place.parent.mkdir(parents=True, exist_ok=True)
    lines = ["int given = 1 + 2;", "// TODO(1): Write it. (~1 line)", *answer, "// END TODO(1)", "int more = 3;"]
    place.write_text("\n".join(lines) + "\n")
    return replace(CATALOG.katas["relu_f32"], root=folder)


# answer -> some of what becomes of it
CHANGES = {
    "if (idx < n && idx != m) y[idx] = x[idx];": (
        "if (idx <= n && idx != m) y[idx] = x[idx];",
        "if (idx < n || idx != m) y[idx] = x[idx];",
        "if (idx < n && idx == m) y[idx] = x[idx];",
        "if (true) y[idx] = x[idx];",
    ),
    "const int idx = blockIdx.x * THREADS + threadIdx.x;": (
        "const int idx = blockIdx.y * THREADS + threadIdx.x;",
        "const int idx = blockIdx.x + THREADS + threadIdx.x;",
        "const int idx = blockIdx.x * THREADS - threadIdx.x;",
    ),
    "for (int i = 0; i < 8; i += STEP) sum += a[i / 2];": (
        "for (int i = 1; i < 8; i += STEP) sum += a[i / 2];",
        "for (int i = 0; i < 9; i += STEP) sum += a[i / 2];",
        "for (int i = 0; i < 8; i = STEP) sum += a[i / 2];",
        "for (int i = 0; i < 8; i += STEP) sum = a[i / 2];",
        "for (int i = 0; i < 8; i += STEP) sum += a[i * 2];",
    ),
    "__syncthreads();": (";", "__syncwarp();"),
    "wait_group<1>();": ("wait_group<2>();", ";"),
    "float max = -INFINITY, sum = 0.0f;": ("float max = 0.0f, sum = 0.0f;", "float max = -INFINITY, sum = 1.0f;"),
    "tile[row][stage ^ 1] = x[row * N + col];": (
        "tile[col][stage ^ 1] = x[row * N + col];",
        "tile[row][stage + 1] = x[row * N + col];",
        "tile[row][stage ^ 1] = x[row * M + col];",
        ";",
    ),
    "sum += __shfl_xor_sync(ALL, sum, offset);": ("sum += __shfl_down_sync(ALL, sum, offset);",),
}


@pytest.mark.parametrize("answer", CHANGES)
def test_what_becomes_of_a_line(answer: str, tmp_path: Path) -> None:
    found = {bare(mutant.after) for mutant in mutants_of(kata_with(tmp_path, answer))}
    assert {*CHANGES[answer]} <= found and bare(answer) not in found


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "// a < b && c + 1 turns round: __syncthreads();",
        'printf("%d < %d\\n");',
        "const float* x = first;",
        "#pragma unroll 4",
        "half2 pair;",
        "kernel<<<blocks, THREADS>>>(x);",
        "kernel<<<blocks, THREADS, 0, stream>>>(x);",
    ],
)
def test_what_is_no_operator_is_left_alone(answer: str, tmp_path: Path) -> None:
    found = mutants_of(kata_with(tmp_path, "half2 pair;", answer))
    assert [mutant for mutant in found if mutant.operator != "statement dropped"] == []


def test_declarations_are_not_dropped(tmp_path: Path) -> None:
    kept = ("const int idx = first;", "float4 a4 = b4;", "return sum;")
    found = mutants_of(kata_with(tmp_path, *kept))
    assert [mutant for mutant in found if mutant.operator == "statement dropped"] == []


def test_only_answers_are_changed_each_time_in_one_line() -> None:
    for name in ("softmax_f32", "sgemm_t_8x8_sliced_k_f32", "block_all_reduce_f32_f32"):
        kata = CATALOG.katas[name]
        text = kata.solution_path.read_text()
        lines, answers = text.split("\n"), answer_lines(text)
        for mutant in mutants_of(kata):
            changed = [
                at for at, pair in enumerate(zip(lines, mutant.text.split("\n"), strict=True), 1) if len({*pair}) > 1
            ]
            assert changed == [mutant.line] and mutant.line in answers


def test_there_are_enough_of_every_family() -> None:
    found = [mutant for kata in CATALOG.katas.values() for mutant in mutants_of(kata)]
    families = Counter(mutant.kata.family for mutant in found)
    assert len(found) >= ENOUGH and {*families} == {*CATALOG.families}
    assert len({mutant.name for mutant in found}) == len(found)


def test_sample_is_the_seeds_own_and_takes_every_family_in_turn() -> None:
    katas, count = list(CATALOG.katas.values()), 2 * len(CATALOG.families)
    first = [mutant.name for mutant in sample(katas, count, 3)]
    assert (
        first
        == [mutant.name for mutant in sample(katas, count, 3)]
        != [mutant.name for mutant in sample(katas, count, 4)]
    )
    assert {*Counter(mutant.kata.family for mutant in sample(katas, count, 3)).values()} == {2}
    assert first[:5] == [mutant.name for mutant in sample(katas, 5, 3)], "a larger sample has all of a smaller one"


def test_each_kata_has_its_share_and_its_operators_take_turns() -> None:
    katas = list(CATALOG.katas.values())[::20]
    chosen = each(katas, 3, 0)
    names = [mutant.name for mutant in chosen]
    assert names == [mutant.name for mutant in each(katas, 3, 0)] != [mutant.name for mutant in each(katas, 3, 1)]
    assert [mutant.kata for mutant in chosen[: len(katas)]] == katas, "one of each comes first"
    for kata in katas:
        own = [mutant for mutant in chosen if mutant.kata is kata]
        operators = {mutant.operator for mutant in mutants_of(kata)}
        assert len({mutant.operator for mutant in own}) == min(3, len(own), len(operators))


def test_mutants_with_the_same_headers_are_neighbours_and_those_compiled_alone_come_last() -> None:
    chosen = each([kata for kata in CATALOG.katas.values() if kata.family in ("relu", "hgemm", "hopper_copy")], 2, 0)
    ordered = alike_together(chosen)
    groups = [(not may_share(mutant.text.encode()), includes_of(mutant.text)) for mutant in ordered]
    runs = [group for group, _ in itertools.groupby(groups)]
    assert len(runs) == len({*runs}) < len({mutant.kata.name for mutant in ordered})
    assert [alone for alone, _ in runs] == sorted(alone for alone, _ in runs) and runs[-1][0]
    assert Counter(map(id, ordered)) == Counter(map(id, chosen))


# -- results ---------------------------------------------------------------------------------------------------------


def result(name: str = "a", verdict: str = "pass") -> Result:
    return Result(name, "relu_f32", 3, "relation", "if (i < n) f();", "if (i <= n) f();", verdict, "right")


def test_results_are_read_back_but_for_a_line_that_was_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    rows = [json.dumps(asdict(result("a", "race"))), json.dumps(asdict(result("b"))), '{"name": "c", "ka']
    file.write_text("\n".join(rows))
    assert known(file) == {"a": result("a", "race"), "b": result("b")} and known(tmp_path / "none") == {} == known(None)


def test_survivor_is_what_passes_and_has_no_reason() -> None:
    reason = {"relu_f32": {("if (i < n) f();", "if (i <= n) f();"): "why"}}
    assert surviving(result(), {}) and not surviving(result(), reason)
    assert not surviving(result(verdict="wrong answer"), {})
    assert not result(verdict="does not compile").compiles and result(verdict="time-out").compiles


def test_entries_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kata = CATALOG.katas["relu_f32"]
    line, becomes = mutants_of(kata)[0].key
    right = f"relu_f32:\n  - line: {json.dumps(line)}\n    becomes: {json.dumps(becomes)}\n    why: it is the same\n"
    monkeypatch.setattr(mutation, "load_catalog", lambda root: CATALOG)
    (tmp_path / "solutions").mkdir()
    for text, wrong in {
        right: (),
        "": (),
        right.replace("relu_f32:", "relu_f33:"): ("relu_f33", "relu_f32"),
        right.replace('becomes: "', 'becomes: "x'): ("mutant",),
        right.replace("    why: it is the same\n", ""): ("why", "missing"),
    }.items():
        (tmp_path / mutation.EQUIVALENT).write_text(text)
        problems = mutation.check(tmp_path)
        assert has(problems[0], *wrong) if wrong else problems == []


# -- the same code -----------------------------------------------------------------------------------------------------

PTX = """
\t.file 1 "/tmp/unit_0123456789abcdef/kata.cu"
.entry _ZN21unit_0123456789abcdef6kernelEPf(
{
\t.loc 1 18 5
\tadd.s32 %r1, %r2, 1;
\tbra $L__BB3_2;
$L__BB3_2:
\tret;
}
"""
OTHER = PTX.replace("0123456789abcdef", "fedcba9876543210").replace("BB3_", "BB0_").replace("18 5", "19 7")


def test_code_is_the_same_but_for_names_places_and_labels() -> None:
    assert same_code(PTX, OTHER)
    assert not same_code(PTX, OTHER.replace("%r2, 1", "%r2, 2"))
    assert not same_code(PTX, OTHER.replace("bra $L__BB0_2", "bra $L__BB0_3"))


ON_DEVICE = """\
// A kernel.
template <int N>
__global__ void __launch_bounds__(256)
    kernel(float* y, int n) {
    y[N] = 1;
}

__host__ __device__ int both(int n) {
    return n + 1;
}

struct Tile {
    int rows = 1;
};

extern "C" void launch(float* y, int n) {
    kernel<1><<<n / 256, 256>>>(y, n);
}
"""


def test_a_line_that_host_code_runs_is_not_on_the_device_alone() -> None:
    lines = [line.strip() for line in ON_DEVICE.split("\n")]
    device = {line for number, line in enumerate(lines, 1) if on_device_alone(ON_DEVICE, number)}
    assert "y[N] = 1;" in device
    assert not device & {"return n + 1;", "int rows = 1;", "kernel<1><<<n / 256, 256>>>(y, n);", "template <int N>"}


# -- grades ----------------------------------------------------------------------------------------------------------


def test_sample_of_mutants_is_found() -> None:
    """A few each time; `kata dev mutate --sample N --seed S` grades others, and goes on where it was stopped."""
    chosen: list[Mutant] = sample(list(CATALOG.katas.values()), CHOSEN, SEED)
    results: list[Result] = []
    run(chosen, as_mutant(), results.append, lambda line: None)
    argued = equivalents(ROOT)
    assert len(results) == CHOSEN and sum(item.compiles for item in results) > CHOSEN // 2
    assert [item for item in results if surviving(item, argued)] == []
