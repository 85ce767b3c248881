"""`kata try`: every trial passes on its solution, and names what is wrong with a planted mistake."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy
import passed_before
import pytest
from facts import has
from test_faces import ROOT, make_clone, run

from grader.commands.trial import Tried, _none, joined, tried
from grader.compile.build import CompileFailure, Request, Target, build_all
from grader.compile.toolchain import find_toolchain
from grader.content import skeleton
from grader.content.catalog import load_catalog
from grader.content.source_file import Source
from grader.content.trial import Trial, load_trials
from grader.devices import SIM_ARCH
from grader.grade import Options
from grader.verdict import Kind

pytestmark = [passed_before.REPOSITORY, pytest.mark.usefixtures("forked_children")]

CATALOG = load_catalog(ROOT)
TRIALS = {kata.name: trials for kata in CATALOG.katas.values() if (trials := load_trials(kata))}
OPTIONS = Options(device="sim", together=True)
INCLUDES = "".join(f"#include <{name}>\n" for name in ("algorithm", "cfloat", "cmath", "cstdint", "cuda_fp16.h"))
SWIZZLED = "flash_attn_mma_stages_split_q_shared_kv_swizzle_q"
NAIVE = "hgemm_mma_m16n8k16_naive"
ONLINE, CAUSAL, DECODE = "flash_attn_online_f16", "flash_attn_mma_causal_f16", "decode_attention_kv_cache_f16"
HGEMM, SGEMM = "hgemm_mma_m16n8k16_mma2x4_warp4x4x2_stages_dsmem_swizzle", "sgemm_t_8x8_sliced_k16_f32x4_bcf_dbuf"

MERGE, LANES = "online_safe_softmax_f32_two_reductions", "online_safe_softmax_f32"
COUNTS, TREE, LARGEST = "histogram_i32_privatized", "reduce_unroll_last_warp_f32", "warp_reduce_max_f32"
SCAN, BOXES, PLANES, CHUNK = "remove_padding_f16", "nms_f32", "batch_norm_add_relu_f32", "linear_attention_causal_f32"
BATCH, SLOPE = "ce_online_bf16", "ce_backward_bf16"
SPREAD, MOMENTS = "cluster_histogram_i32", "layer_norm_cluster_f16"
ANGLE, BLOCK = "rope_f32", "block_all_reduce_f32_grid_stride_f32"
WARP_SCAN, PADDED, LOOK, RUNS = "scan_warp_i32", "scan_block_brent_i32", "scan_lookback_i32", "scan_segmented_i32"
GATE, WORD = "swiglu_backward_bf16", "bias_gelu_dropout_bf16"
RANK, BIN, WORDS = "argmax_row_f32", "topk_radix_select_f32", "sample_gumbel_f32"

# (kata, TODO, what the solution has, what stands there instead, facts of what is said)
MISTAKES = [
    (RANK, 1, "bits >> 31 != 0 ? ~bits : bits | 0x80000000", "bits ^ 0x80000000", ("-inf is smaller than -3.4e38",)),
    (RANK, 1, "__float_as_uint(value + 0.0f)", "__float_as_uint(value)", ("-0 and 0", "same rank")),
    (BIN, 1, "bin = {top, end - sum};", "bin = {top, end};", ("lie above",)),
    (BIN, 1, "end >= wanted)) - 1", "end > wanted)) - 1", ("from the top is in bin",)),
    (WORDS, 1, "round < 10", "round < 7", ("after 7 rounds",)),
    (WORDS, 1, "^ counter.w ^ key.y", "^ counter.w", ("counter", "key", "give the words")),
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
    (NAIVE, 3, "(c[2 * i], c[2 * i + 1])", "(c[2 * i + 1], c[2 * i])", ("C[0, 0]", "c[0] of lane 0")),
    (HGEMM, 1, "col ^ row / ROWS % CHUNKS * CHUNK", "col ^ row % CHUNKS * CHUNK", ("rows of 32 halves", "all eight")),
    (SGEMM, 1, "k / PACK % 4 * 8", "k / PACK % 2 * 8", ("slices 0, 4, 8 and 12", "32")),
    (MERGE, 1, "b.sum * __expf(b.max - merged.max)", "b.sum", ("maximum 4 and maximum 1", "the sum must be")),
    (LANES, 1, "merge(value, {max, sum})", "merge(value, {max, value.sum})", ("lane 0", "the sum over 32 lanes")),
    (COUNTS, 1, "if (value < own_bins) {", "if (value < own_bins - 1) {", ("value 7", "counts_smem[7] must be 32")),
    (SPREAD, 1, "slot / CHUNK * RANKS + rank", "slot / CHUNK + rank * 4", ("block 0", "counter 8", "bin 64")),
    (MOMENTS, 1, " + distance * distance * a.count * part", "", ("squares must be 20", "is 4")),
    (MOMENTS, 1, "b.count > 0.0f ? b.count / merged.count : 0.0f", "b.count / merged.count", ("[] and []", "mean")),
    (COUNTS, 1, "atomicAdd(&counts_smem[value], 1)", "counts_smem[value] += 1", ("counts_smem", "race")),
    (TREE, 1, "int offset = WARP_SIZE; offset", "int offset = WARP_SIZE / 2; offset", ("place 32", "31 other places")),
    (TREE, 1, "yet to read.\n        __syncwarp();", "yet to read.", ("partial_smem", "race")),
    (LARGEST, 1, "if (a > b || isnan(a))", "if (a > b)", ("nan and 1", "must be nan")),
    (LARGEST, 2, "offset = WARP_SIZE / 2", "offset = WARP_SIZE / 4", ("lane 16 must get 1",)),
    (SCAN, 1, "if (lane_id >= offset) sum += below;", "sum += below;", ("lane 0", "32 times")),
    (BOXES, 1, "> iou_threshold", ">= iou_threshold", ("1/2, not above the threshold", "false")),
    ("sgemv_k16_f32", 1, "offset = LANES / 2", "offset = WARP_SIZE / 2", ("lanes 0 and 16", "different rows")),
    ("hgemv_k16_f16", 1, "offset = LANES / 2", "offset = LANES / 4", ("lanes 0 and 8", "share a row")),
    (PLANES, 1, "(vec / vecs * C + channel) * vecs", "(vec / vecs + channel * C) * vecs", ("channel 0", "must be 12")),
    (CHUNK, 1, "unroll 4\n    for (int token = 0;", "unroll 4\n    for (int token = 1;", ("S[0, 0]", "K[token, 0]")),
    (ANGLE, 2, "fmaf(position, freq.lo, lost)", "lost", ("position 1000, pair 0", "off by")),
    (ANGLE, 3, "x.x * sine + x.y * cosine", "x.x * sine - x.y * cosine", ("position 0", "off by")),
    (BATCH, 1, "__expf(mine.max - max)", "__expf(max - mine.max)", ("no logits", "It is nan")),
    (BATCH, 1, "mine.max = max;", "", ("no logits", "must be")),
    (SLOPE, 1, "if (col == row.target) dx -= 1.0f;", "", ("the target's column", "dx must be")),
    (BLOCK, 1, "lane_id < WARPS ?", "lane_id < WARPS - 1 ?", ("lane 0 of warp 0", "warp 7")),
    (BLOCK, 1, "__syncthreads();\n    if (warp_id == 0)", "if (warp_id == 0)", ("partial_smem", "race")),
    (WARP_SCAN, 1, "if (lane_id >= offset) sum += below;", "sum += below;", ("lane 0", "32 times")),
    (PADDED, 1, "i + i / BANKS", "i", ("step 1 of the tree up", "bank", "2 lanes share it")),
    (LOOK, 1, "lane_id <= nearest ? number_of(state) : 0", "number_of(state)", ("4P", "must get 4000")),
    (LOOK, 1, "__ffs(prefixes) - 1", "31 - __clz(prefixes)", ("4P", "must get 4000")),
    (GATE, 1, "finite * (1.0f - s)", "(1.0f - s)", ("g = 0", "slope must be 0.5")),
    (GATE, 1, "g == -INFINITY ? -FLT_MAX : g", "g", ("g = -inf", "silu must be 0")),
    (WORD, 1, "c.x = hi1 ^ c.y ^ key.x", "c.x = hi1 ^ key.x", ("counter and key", "word 0", "0x6627e8d5")),
    (WORD, 1, "key.y += 0xBB67AE85;", "", ("counter and key", "word 0")),
    (RUNS, 1, "right.head ? right.sum : left.sum + right.sum", "left.sum + right.sum", ("{0, 5}", "{1, 7}")),
    ("w8a16_gemv_f16", 1, "word ^ 0x80808080", "word", ("byte 0 is 0x00", "must be 0", "It is -128")),
    ("w8a16_gemv_f16", 1, "0x4140", "0x4041", ("half 0 of pairs[0]", "must be 0")),
    ("w4a16_gemv_f16", 1, "(-64.0f - 8.0f)", "(-8.0f)", ("nibble 1", "pairs[1]")),
    ("w4a16_gemv_f16", 1, "word >> (4 * i)", "word >> i", ("nibble 2", "pairs[2]")),
    ("w4a16_gemm_f16", 1, "scales[p / 2]", "scales[p % 2]", ("scales 2 and 0.5", "W[0][1]", "nibble 1")),
    ("w4a16_gemv_mma_f16", 1, "x8.x, x8.z, 0x7632", "x8.x, x8.y, 0x7632", ("pairs[1]", "x[5]")),
    ("w4a16_gemm_wgmma_f16", 2, "W[p % 2 * 2 + p / 2]", "W[p]", ("scales 2 and 0.5", "W[1]", "nibble 2")),
]  # fmt: skip


def source_of(name: str, todo: int, *change: str) -> Source:
    """The solution, with one thing changed, up to the first kernel after the TODO. All have the same includes: then
    they share a run of nvcc, which spends its time on headers and on kernels that no trial calls."""
    text = CATALOG.katas[name].solution_path.read_text()
    assert not change or text.count(change[0]) == 1, change
    return shortened(name, todo, text.replace(*change) if change else text)


def empty_of(name: str, todo: int) -> Source:
    """The skeleton, shortened in the same way."""
    return shortened(name, todo, skeleton.skeleton_of(CATALOG.katas[name]))


def shortened(name: str, todo: int, text: str) -> Source:
    head, end, rest = text.partition(f"// END TODO({todo})")
    helpers = re.split(r"\n(?://.*\n|template.*\n)*__global__", rest, maxsplit=1)[0]
    return Source(CATALOG.katas[name].skeleton_path, f"{INCLUDES}{head}{end}{helpers}\n".encode())


def trial_of(name: str, todo: int) -> Trial:
    (trial,) = [trial for trial in TRIALS[name] if todo in trial.todos]
    return trial


def outcome(name: str, todo: int, source: Source, options: Options = OPTIONS) -> Tried:
    return tried(trial_of(name, todo), CATALOG.katas[name], source, options)


def first_of_each() -> list[tuple[str, int]]:
    """Each trial of a family once: with the first kata that it is for."""
    found: dict[tuple[str, str], tuple[str, int]] = {}
    for name, trials in TRIALS.items():
        for trial in trials:
            found.setdefault((CATALOG.katas[name].family, trial.about), (name, trial.todos[0]))
    return list(found.values())


@pytest.fixture(scope="module")
def built() -> None:
    """All that is tried below, many files in one run of nvcc."""
    wanted = [(name, todo, source_of(name, todo)) for name, todo in first_of_each()]
    wanted += [(name, todo, source_of(name, todo, old, new)) for name, todo, old, new, _ in MISTAKES]
    requests = []
    for name, todo, source in [*wanted, (COUNTS, 1, empty_of(COUNTS, 1))]:
        kata, trial = CATALOG.katas[name], trial_of(name, todo)
        target = Target("sim", SIM_ARCH)
        requests.append(Request(trial.kata(kata), trial.spec, joined(trial, source), target, together=True))
    done = build_all(requests, find_toolchain(), jobs=2)
    assert [each.message for each in done if isinstance(each, CompileFailure)] == []


@pytest.mark.parametrize(("name", "todo"), first_of_each())
def test_a_solution_is_right_and_drawn(built: None, name: str, todo: int) -> None:
    done = outcome(name, todo, source_of(name, todo))
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
def test_a_mistake_is_named(built: None, name: str, todo: int, old: str, new: str, facts: tuple[str, ...]) -> None:
    done = outcome(name, todo, source_of(name, todo, old, new))
    said = done.problem or f"{done.verdict and done.verdict.kind} {done.verdict and done.verdict.summary}"
    assert not done.right and has(said, *facts), said


def test_every_trial_has_a_planted_mistake() -> None:
    named = {(CATALOG.katas[name].family, trial_of(name, todo).about) for name, todo, *_ in MISTAKES}
    all_of_them = {(CATALOG.katas[name].family, trial.about) for name, trials in TRIALS.items() for trial in trials}
    assert named == all_of_them


def test_every_trial_names_the_function_of_its_todo() -> None:
    """Also for the katas that no test runs: their TODO is in a function of the name that the trial calls."""
    for kata in map(CATALOG.katas.__getitem__, TRIALS):
        for trial in TRIALS[kata.name]:
            lines = kata.solution_path.read_text().split("\n")
            assert not re.search(r"\btrial(_kernel)?\b", "\n".join(lines)), "the trial's code has these names"
            places = {todo.number: todo.line for todo in skeleton.todos("\n".join(lines))}
            for number in trial.todos:
                above = lines[: places[number]]
                name = next(line for line in reversed(above) if line.startswith("__device__")).split("(")[0].split()[-1]
                assert f"{name}(" in trial.code or f"{name}<" in trial.code, (kata.name, number)
    assert len({CATALOG.katas[name].family for name in TRIALS}) >= 16


def test_a_trial_says_when_the_skeletons_function_is_gone() -> None:
    source = source_of(COUNTS, 1, "void count_value(", "void counted(")
    done = outcome(COUNTS, 1, source, Options(device="sim"))
    assert done.verdict is not None and done.verdict.kind is Kind.DOES_NOT_COMPILE
    assert "count_value" in str(done.verdict)


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


def test_a_kata_or_todo_without_a_trial_is_named() -> None:
    assert has(_none(CATALOG.katas[SGEMM], TRIALS[SGEMM]), SGEMM, "1")
    assert has(_none(CATALOG.katas["relu_f32"], ()), "relu_f32", "kata grade")


def test_the_picture_is_of_code_that_is_empty_too(built: None) -> None:
    """The other TODOs may be empty; that of the trial, too: then it is wrong, and not a fault."""
    done = outcome(COUNTS, 1, empty_of(COUNTS, 1))
    assert not done.right and has(done.problem, "value 0") and done.picture
