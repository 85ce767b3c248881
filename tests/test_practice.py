"""`kata hunt`, `kata faster` and `kata estimate`: what they draw and ask, and that only right answers are right."""

from __future__ import annotations

import functools
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import passed_before
import pytest
from facts import has
from test_faces import ROOT, make_clone

from grader.cli import parser
from grader.commands import faster as faster_command
from grader.compile.toolchain import Gpu
from grader.content.catalog import load_catalog
from grader.content.rung import code_of
from grader.content.source_file import source_of
from grader.grade import Options, grade, prepare
from grader.judge.cards import CARDS, LIMITS, blocks_per_sm
from grader.learner import progress
from grader.maintain import wrong_kernel
from grader.maintain.kata_builds import as_solution
from grader.output import speeds
from grader.pages import practice
from grader.practice import estimates, faster, hunts, quantity
from grader.practice.estimates import BY_NAME, EstimateError
from grader.practice.faster import FasterError
from grader.practice.hunts import Hunt, HuntError
from grader.practice.quantity import QuantityError
from grader.verdict import Grade, Kind, Verdict

pytestmark = [passed_before.REPOSITORY, pytest.mark.usefixtures("forked_children")]

CATALOG = load_catalog(ROOT)
BUGS = hunts.bugs(CATALOG)
DRAWN = list(hunts.hunts_of(BUGS[name] for name in Random(24).sample(sorted(BUGS), 70)))
NO_BARRIER = next(wrong for wrong in BUGS.values() if wrong.name == "sgemm_sliced_k_f32/second-barrier-missing")
Say = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = make_clone(tmp_path_factory.mktemp("practice"))
    family = wrong_kernel.FOLDER / "elementwise.yaml"
    (place / family).parent.mkdir(parents=True)
    shutil.copy(ROOT / family, place / family)
    return place


@pytest.fixture
def say(
    pristine: Path,
    tmp_path: Path,
    nvcc_remembers: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Say:
    """Runs a command in a clone. Returns its exit code and all that it said."""
    monkeypatch.chdir(pristine)
    monkeypatch.setenv("KATA_DATA", str(tmp_path / "data"))
    shutil.rmtree(pristine / "work", ignore_errors=True)

    def run(*words: str) -> tuple[int, str]:
        options = parser(words[0]).parse_args(words)
        code = options.command.__wrapped__(options)  # without ending the children of this process
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


# -- hunts -------------------------------------------------------------------------------------------------------------


def test_there_are_hundreds_of_hunts_of_all_levels() -> None:
    assert len(DRAWN) >= 60 and len(BUGS) * len(DRAWN) / 70 >= 250
    assert {hunt.level for hunt in DRAWN} == {*hunts.LEVELS}
    loaded = wrong_kernel.load(CATALOG, ROOT / wrong_kernel.FOLDER)
    names = [hunts.name_of(wrong) for wrong in loaded]
    assert len({*names}) == len(names)


@pytest.mark.parametrize("hunt", DRAWN, ids=lambda hunt: hunt.name)
def test_a_hunt_differs_from_the_solution_by_its_bug_alone(hunt: Hunt) -> None:
    right = hunts.right_text(hunt)
    assert code_of(hunt.text) == code_of(wrong_kernel.text(hunt.wrong)) != code_of(right)
    assert code_of(right) == code_of(hunt.kata.solution_path.read_text())
    assert not re.search(r"BUG|TODO|^[ \t]+//|[;{}] *//", hunt.text, re.MULTILINE)
    assert hunt.wrong.bug not in hunt.path.name and hunt.report
    lines = hunt.text.split("\n")
    assert hunt.lines and all(lines[number - 1].strip() for number in hunt.lines)
    given = set(right.split("\n"))
    assert {number for number, line in enumerate(lines, 1) if line.strip() and line not in given} <= hunt.lines
    assert len(hunt.lines) <= hunts.MOST_LINES + 2 * hunts.NEAR * hunts.MOST_PLACES
    assert hunt.differences(hunt.text) == 0 < hunt.differences(right)


def test_where_a_line_is_missing_the_lines_around_it_count() -> None:
    hunt = hunts.hunt_of(NO_BARRIER)
    assert hunt is not None and hunt.omission and hunt.level == "easy"
    lines = hunt.text.split("\n")
    (last,) = [number for number, line in enumerate(lines, 1) if "++k) sum +=" in line]
    assert hunt.lines == {last - 1, last, last + 1, last + 2}


def test_a_comment_on_an_answer_does_not_tell_where_the_bug_is() -> None:
    hunt = next(hunts.hunt_of(wrong) for wrong in BUGS.values() if wrong.kata.name == "relu_f16")
    assert hunt is not None and "__hmax turns nan" in hunt.kata.solution_path.read_text()
    head, code = hunt.text.split("#include", 1)
    assert "nan" not in code.replace("__hmax_nan", "") and "//" in head


def test_a_longer_file_without_its_line_in_a_verdict_is_harder() -> None:
    hunt = hunts.hunt_of(BUGS[next(name for name in BUGS if BUGS[name].marked_lines)])
    assert hunt is not None and not hunt.omission and hunt.level == "easy"
    long = replace(hunt, text=hunt.text + "int x;\n" * (hunts.LONGER + 1))
    assert (long.level, replace(long, omission=True).level) == ("medium", "hard")


def test_a_hunt_fails_as_planted_and_passes_without_its_bug(tmp_path: Path) -> None:
    hunt = next(hunt for hunt in DRAWN if hunt.omission and len(code_of(hunt.text)) < hunts.LONG)
    options = Options(device="sim", smallest=False, diagnose=False, last_failure=False, together=True)
    files = tmp_path / "bug.cu", tmp_path / "right.cu"
    for file, text in zip(files, (hunt.text, hunts.right_text(hunt)), strict=True):
        file.write_text(text)
    prepare([(hunt.kata, file) for file in files], options)
    kinds = [grade(hunt.kata, options, source=file).verdict.kind for file in files]
    assert kinds[0] in hunt.wrong.sim.kinds and kinds[1] is Kind.PASS


def test_a_hunt_from_the_draw_to_the_end(say: Say, pristine: Path) -> None:
    assert say("hunt", "elementwise_f32")[0] == 1  # it is not passed
    code, said = say("hunt", "elementwise_f32", "--anyway", "--level", "easy", "--seed", "1", "--json")
    facts = json.loads(said)
    hunt, path = hunts.named(load_catalog(pristine), facts["hunt"]), Path(facts["file"])
    assert code == 0 and path.read_text() == hunt.text and path.parent == pristine / hunts.PLACE
    written = "".join(each.read_text() for each in path.parent.iterdir())
    assert hunt.wrong.wrong not in said + written and "answers" not in said
    wrong = [number for number in range(1, facts["lines"] + 1) if number not in hunt.lines]
    for number in wrong[-3:]:
        code, said = say("hunt", "answer", str(number))
        assert code == 1 and hunt.wrong.wrong not in said
    code, said = say("hunt", "grade")
    assert code == 1 and has(said, "not fixed", "as it was drawn") and f".cu:{min(hunt.lines)}" not in said
    assert say("hunt", "answer", str(min(hunt.lines)), hunt.name)[0] == 0
    path.write_text(hunts.right_text(hunt))
    code, said = say("hunt", "grade", hunt.name)
    assert code == 0 and has(said, "solved", "after 3 wrong", hunt.wrong.wrong)
    assert has(say("hunt", "list")[1], hunt.name, "solved", "1 of 1")
    code, said = say("hunt", hunt.name, "--json")
    assert code == 0 and Path(json.loads(said)["kept"]).read_text() == hunts.right_text(hunt)


def test_a_solution_that_was_shown_solves_no_hunt(say: Say) -> None:
    record = hunts.Record("x", (hunts.DRAWN, hunts.SOLUTION_SHOWN, hunts.FOUND, hunts.FIXED))
    assert not record.solved and replace(record, words=(hunts.FOUND, hunts.FIXED, hunts.SOLUTION_SHOWN)).solved
    say("hunt", "elementwise", "--anyway", "--seed", "2")
    code, said = say("hunt", "solution", "--json")
    hunt = BUGS[json.loads(said)["hunt"]]
    assert code == 0 and json.loads(said)["bug"] == hunt.wrong
    for words, facts in (
        (("answer", "0"), ("1 to",)),
        (("answer", "x"), ("line",)),
        (("answer", "3", "y"), ("no hunt", "y")),
    ):
        with pytest.raises(HuntError) as refused:
            say("hunt", *words)
        assert has(str(refused.value), *facts)


# -- faster ------------------------------------------------------------------------------------------------------------


def test_a_slow_rung_is_told_from_the_solution_by_counters(
    say: Say, pristine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goal = load_catalog(pristine).katas["elementwise_f32x4"]
    assert say("faster", goal.name)[0] == 1  # its start is not passed
    code, said = say("faster", goal.name, "--anyway", "--json")
    facts = json.loads(said)
    path = Path(facts["file"])
    assert code == 0 and facts["start"] == "elementwise_f32" and "83 %" in facts["threshold"]
    assert f"KATA_EXPORT void {goal.name}(" in path.read_text() and "TODO" not in path.read_text()
    code, said = say("faster", "grade", goal.name)
    assert code == 1 and has(said, "proxy", "instructions", "too many")
    path.write_text(goal.solution_path.read_text())
    assert say("faster", goal.name, "--anyway")[0] == 1 and path.read_text() == goal.solution_path.read_text()
    assert say("faster", "grade", goal.name)[0] == 0
    monkeypatch.setattr(faster, "ROOM", 100.0)  # then what the challenge begins with would be enough
    assert json.loads(say("faster", "grade", goal.name, "--json")[1])["result"] == "undecided"
    wrong = Grade(goal, source_of(path), (Verdict(Kind.WRONG_ANSWER, "3 of 4 elements of c are wrong"),))
    monkeypatch.setattr(faster_command, "grade", lambda *_, **__: wrong)
    found = json.loads(say("faster", "grade", goal.name, "--json")[1])
    assert (found["right"], found["result"]) == (False, "wrong answer")
    kept = progress.load(pristine).practised(progress.FASTER)
    assert [event.verdict for event in kept][1:] == ["counters above the goal", "pass", "undecided", "wrong answer"]


@pytest.mark.parametrize("kind", [Kind.PASS, Kind.TOO_SLOW])
def test_on_a_gpu_the_threshold_decides(say: Say, pristine: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    goal = load_catalog(pristine).katas["elementwise_f32x4"]
    say("faster", goal.name, "--anyway")
    right = Grade(goal, source_of(goal.solution_path), (Verdict(Kind.PASS, "right"),))
    timed = Grade(goal, right.source, (Verdict(kind, "90 % of copy, 83 % asked"),))
    monkeypatch.setattr(faster_command, "grade", lambda *_, **__: right)
    monkeypatch.setattr(faster_command, "bench", lambda *_, **__: timed)
    monkeypatch.setattr(faster_command, "find_gpu", lambda: Gpu("an H200", (9, 0), "580", (13, 0)))
    code, said = say("faster", "grade", goal.name)
    assert code == (kind is not Kind.PASS) and has(said, "83 %") and "proxy" not in said


def test_rungs_to_start_from_have_the_same_signature_and_are_slower() -> None:
    (arch, ratios), found = faster.ratios_of(CATALOG), 0
    for family in ("elementwise", "mat_trans", "sgemm", "reduce"):
        for goal in CATALOG.by_family[family]:
            try:
                challenge = faster.challenge(CATALOG, goal, None)
            except FasterError:
                continue
            found += 1
            assert goal.speed is not None and 100 * ratios[challenge.start.name] < goal.speed.percent[arch].percent
            assert challenge.text.count(f"KATA_EXPORT void {goal.name}(") == 1
    assert found >= 40
    with pytest.raises(FasterError, match=r"as fast as it asks: sgemm_naive_f32.*--from sgemm_naive_f32"):
        faster.challenge(CATALOG, CATALOG.katas["sgemm_sliced_k_f32"], None)
    with pytest.raises(FasterError, match="elementwise_f16x8"):
        faster.challenge(CATALOG, CATALOG.katas["elementwise_f16x8_pack"], "relu_f32")


# -- estimates ---------------------------------------------------------------------------------------------------------

# From the task's text alone: compulsory bytes, operations, and what bounds it on an H200.
VOCABULARY, ACTIVATIONS, QKV = 128256, 64 * 256 * 392 * 8, 64 * 512 * 3 * 1024
BY_HAND = {
    "elementwise_functor": (25 * 2**25, 2 * 2**25, "memory"),
    "gelu_f32": (8 * 2**26, 9 * 2**26, "memory"),
    "embedding_f32": (2 * 2**14 * 2**12 * 4 + 2**14 * 8, 0, "memory"),
    "upsample_nearest2d_backward_f32": (5 * 2**27, 2**27, "memory"),
    "block_all_reduce_i8_i32": (2**28 + 4, 2**28, "memory"),
    "softmax_f32": (8 * 2**26, 3 * 2**26, "memory"),
    "safe_softmax_f32": (8 * 2**26, 5 * 2**26, "memory"),
    "rope_f32": (8 * 2**26 + 2**14 * 4, 9 * 2**25, "memory"),
    "layer_norm_f16_f16": (4 * 2**27 + 2 * 2**12 * 2, 7 * 2**27, "memory"),
    "layer_norm_backward_f32": (12 * 2**26 + 2 * 2**16 * 4 + 3 * 2**10 * 4, 13 * 2**26, "memory"),
    "hgemv_k32_f16": (2**28 + 2**14 + 2**15, 2**28, "memory"),
    "sgemm_naive_f32": (3 * 2**26, 2**37, "compute"),
    "flash_attn_mma_causal_f16": (2**27, 2 * 64 * 4096 * 4097 * 64, "compute"),
    "flash_attn_mma_gqa_f16": (2**26 + 2**24, 2**38, "compute"),
    "decode_attention_kv_cache_f16": (2**29 + 2**12 + 4, 2**29, "memory"),
    "linear_attention_causal_f32": (2**29, 2**33, "compute"),
    "elementwise_f16x8": (6 * 2**27, 2**27, "memory"),
    "relu_f32": (8 * 2**26, 2**26, "memory"),
    "sigmoid_f16": (4 * 2**27, 3 * 2**27, "memory"),
    "elu_f32": (8 * 2**26, 3 * 2**26, "memory"),
    "gelu_erf_f32": (8 * 2**26, 5 * 2**26, "memory"),
    "swish_f32": (8 * 2**26, 3 * 2**26, "memory"),
    "hardswish_f32": (8 * 2**26, 5 * 2**26, "memory"),
    "hardshrink_f16": (4 * 2**27, 2**27, "memory"),
    "embedding_f16x8": (2 * 2**15 * 2**12 * 2 + 2**15 * 8, 0, "memory"),
    "upsample_nearest2d_f32": (5 * 2**27, 0, "memory"),
    "upsample_nearest2d_backward_f16": (5 * 2**27, 2**28, "memory"),
    "atomic_dot_f16": (2 * 2**22 * 2 + 4, 2 * 2**22, "memory"),
    "mat_trans_f32_tiled": (8 * 2**26, 0, "memory"),
    "tma_tile_copy_f16": (4 * 2**27, 0, "memory"),
    "tma_tile_scale_f16": (4 * 2**27, 2**27, "memory"),
    "tma_halo_stencil_f32": (8 * 2**26, 5 * 2**26, "memory"),
    "tma_reduce_add_f32": (4 * 2**26 + 4 * 2**16, 2**26, "memory"),
    "bulk_copy_f32": (8 * 2**26, 0, "memory"),
    "index_add_many_f32": (2**28 + 2**25 + 2**23, 2**26, "memory"),
    "index_add_few_f32": (3 * 2**28 + 128, 2**26, "memory"),
    "reduce_shuffle_f32": (2**30 + 4, 2**28, "memory"),
    "block_all_reduce_fp8_e4m3_f16": (2**28 + 2, 2**28, "memory"),
    "scan_warp_i32": (2**30, 2**27, "memory"),
    "scan_lookback_i32": (2**31, 2**28, "memory"),
    "partition_lookback_i32": (2**31 + 4, 2**28, "memory"),
    "scan_segmented_i32": (2**30 + 2**27, 2 * 2**27, "memory"),
    "scan_block_coarse_i32": (2**30, 2**27, "memory"),
    "dot_product_f16_f32": (2**29 + 4, 2**28, "memory"),
    "online_safe_softmax_f32": (8 * 2**26, 5 * 2**26, "memory"),
    "softmax_backward_f32": (12 * 2**26, 4 * 2**26, "memory"),
    "softmax_warp_f32": (8 * 2**26, 5 * 2**26, "memory"),
    "cluster_exchange_f32": (8 * 2**27, 2**27, "memory"),
    "cluster_reduce_f32": (2**30 + 4, 2**28, "memory"),
    "cluster_histogram_i32": (2**30 + 4 * 65536, 2**28, "memory"),
    "cluster_softmax_row_f32": (8 * 2**27, 5 * 2**27, "memory"),
    "ce_forward_bf16": (2 * 1024 * VOCABULARY + 12 * 1024, 4 * 1024 * VOCABULARY, "memory"),
    "ce_online_bf16": (2 * 2048 * VOCABULARY + 16 * 2048, 4 * 2048 * VOCABULARY, "memory"),
    "ce_backward_bf16": (4 * 1024 * VOCABULARY + 16 * 1024, 5 * 1024 * VOCABULARY, "memory"),
    "ce_smooth_ignore_bf16": (4 * 1024 * VOCABULARY + 8 * 1024 + 4, 10 * 1024 * VOCABULARY, "memory"),
    "ce_linear_tiled_bf16": (2**27 + 2**24 + 2**16, 2**39 + 4 * 2**27, "compute"),
    "argmax_row_f32": (4 * 1024 * VOCABULARY + 4 * 1024, 1024 * VOCABULARY, "memory"),
    "topk_warp_f32": (2**28 + 65536 * 64, 2**26, "memory"),
    "layer_norm_f32": (8 * 2**26 + 2**15, 7 * 2**26, "memory"),
    "rms_norm_f32": (8 * 2**26 + 2**14, 4 * 2**26, "memory"),
    "rms_norm_cluster_f16": (4 * 2**28 + 2**17, 4 * 2**28, "memory"),
    "layer_norm_cluster_f16": (4 * 2**28 + 2**18, 7 * 2**28, "memory"),
    "rms_norm_backward_f32": (12 * 2**26 + 8 * 1024 + 4 * 65536, 9 * 2**26, "memory"),
    "batch_norm_add_relu_f32": (16 * ACTIVATIONS + ACTIVATIONS // 8, 10 * ACTIVATIONS, "memory"),
    "add_bias_gelu_f16": (4 * 2**27 + 2048, 10 * 2**27, "memory"),
    "add_bias_residual_layer_norm_f16": (6 * 2**26 + 6 * 1024, 9 * 2**26, "memory"),
    "qkv_bias_transpose_f16": (4 * QKV + 2 * 3072, QKV, "memory"),
    "masked_softmax_f16": (4 * 2**27 + 2**23, 7 * 2**27, "memory"),
    "remove_padding_f16": (2**28 + 2048, 0, "memory"),
    "sgemv_k32_f32": (2**28 + 2**16, 2**27, "memory"),
    "hgemm_naive_f16": (6 * 2**24, 2**37, "compute"),
    "wgmma_tma_128x128_tn_f16": (6 * 2**24, 2**37, "compute"),
    "flash_attn_online_f16": (2**27, 2**38, "compute"),
    "flash_attn_mma_lse_f16": (2**27 + 2**20, 2**38, "compute"),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_what_was_derived_by_hand_agrees(name: str) -> None:
    of = estimates.estimate(CATALOG, CATALOG.katas[name], "H200")
    bytes_moved, operations, bound = BY_HAND[name]
    assert (of.bytes_moved, of.operations, of.bound) == (bytes_moved, operations, bound)
    assert of.measured_s is None or of.measured_s > 0.95 * of.least_s
    rows = dict(estimates.derivation(of))
    assert has(rows["bytes"], f"{bytes_moved:,}") and has(rows["operations"], f"{operations:,}") and "lesson" in rows


# From the solution's text alone, at the counted shape: sectors, wavefronts, and from its PTX the warp instructions. A
# row of a matrix whose length is an odd multiple of 16 bytes takes one sector more in every second row.
COUNTED_BY_HAND = {
    # n = 40001: 1251 of 1256 warps have an element
    "relu_f32": (2 * 5001, 0, 9 * 1256 + 9 * 1251 + 1256),
    # 132 x 196: stores are dense, loads have a sector per element
    "mat_trans_f32_row2col": (132 * 196 // 8 + 132 * 196, 0, 15 * 816 + 21 * 809),
    # 5 x 7 tiles: 132 x 7 warps load, 196 x 5 warps store; no conflicts
    "mat_trans_f32_tiled_padded": (
        66 * (25 + 31) + 98 * (17 + 21),
        132 * 7 + 196 * 5,
        76 * 280 + 6 * (132 * 7 + 196 * 5),
    ),
    # 300 tokens in 38 blocks of 8 warps, which all read the indices; rows of one sector
    "embedding_f16x8": (8 * 300 + 2 * 300, 0, 40 * 8 * 38 + 4 * 8 * 300 + 46 * 38 + 2 * 300 + 37 * 23 + 15),
    # 65537 elements, then 257, then 2; per block 8 stores, 3 accesses of each warp that adds, a load
    "reduce_interleaved_f32": (8193 + 33 + 1 + 260, 260 * (8 + 3 * 47 + 1), 967 * 260 + 4 * (2049 + 9 + 1)),
    "reduce_sequential_f32": (8193 + 33 + 1 + 260, 260 * (8 + 3 * 12 + 1), 629 * 260 + 4 * (2049 + 9 + 1)),
    # 67 rows of 64 pairs, in 18 of 24 warps; positions from 0 on need few of the swaps and signs
    "rope_f32": (67 * 2 * (8 + 8 + 1), 0, 70 * 134 + 115 * 18 + 25 * 6),
    # 70 x 260 x 36, 9 tiles along a row of B: 33 sectors or 41; A is a broadcast
    "sgemm_naive_f32": (70 * 9 * 36 + 70 * 18 * (33 + 41) + 35 * (33 + 41), 0, 31 * 864 + 238 * 630),
    # two slices: 864 warps store two rows of the tiles and read 64 words
    "sgemm_sliced_k_f32": (9 * 35 * 11 + 3 * 18 * (33 + 41) + 35 * (33 + 41), 2 * 864 * 66, None),
    # 9 rows of 8200: 1025 sectors of A and of x
    "sgemv_k32_f32": (9 * 2051, 0, 14 * 16 + 1176 * 9),
    # 9 rows of 1024, a warp each
    "softmax_warp_f32": (9 * 2 * 128, 0, 13 * 12 + 373 * 9),
    # 2 rows of 16384: three loads of x, weight, bias, y; each of two sums has 8 stores and 8 loads
    "layer_norm_f32": (2 * 6 * 2048, 2 * 2 * 16, 1237 * 16),
    # 130 x 136 x 56, four blocks and slices: per warp 4 ldmatrix.x4 with pairs of conflicts, 4 .x2 with all of them
    "hgemm_mma_m16n8k16_mma2x4_warp4x4": (
        2 * 65 * (4 + 7) + 2 * 28 * (9 + 10) + 130 * 17,
        16 * (2 * 8 * 4 + 8 * (4 * 8 + 4 * 16)),
        None,
    ),
    # 300 rows of 16 halves, two rows per warp: two sectors of a, two of b, and all sums in one
    "atomic_dot_f16": (150 * 5, 0, 12 * 152 + 24 * 150),
    # 520003 elements, 127 blocks: all but three by bulk copies; a barrier is initialised, told of bytes, and waited for
    "bulk_copy_f32": (2 * 65000 + 2, 3 * 127, 47 * 127 + 7),
    # 97 x 520, three boxes per row: 33 sectors or 35
    "tma_tile_copy_f16": (2 * (49 * 33 + 48 * 35), 3 * 12, None),
    # 130 x 136 x 56, four blocks: eight products of 48 wavefronts, and at most 16 operations on the barrier
    "wgmma_tma_128x128_tn_f16": (2 * 4 * (130 + 136) + 130 * 17, 4 * (8 * 48 + 12), None),
}


@pytest.fixture(scope="module")
def compiled() -> None:
    """The solutions that are counted: the builds that `kata dev check` makes."""
    katas = [CATALOG.katas[name] for name in COUNTED_BY_HAND]
    prepare([(kata, kata.solution_path) for kata in katas], as_solution("sim"))


@pytest.mark.parametrize("name", COUNTED_BY_HAND)
def test_counters_that_were_derived_by_hand_agree(name: str, compiled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "Options", as_solution)
    of = estimates.estimate(CATALOG, CATALOG.katas[name], "H200")
    sectors, wavefronts, instructions = COUNTED_BY_HAND[name]
    assert (of.right("sectors"), of.right("wavefronts")) == (sectors, wavefronts)
    # The compiler may choose others.
    assert instructions is None or estimates.is_right(BY_NAME["instructions"], instructions, of.right("instructions"))


def test_every_timed_kata_has_an_estimate_that_says_what_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speeds, "read", functools.cache(speeds.read))  # once for all
    timed = [kata for kata in CATALOG.katas.values() if kata.speed is not None]
    for kata in timed:
        of = estimates.estimate(CATALOG, kata, "H200")
        assert of.operations >= 0 < of.bytes_moved and of.bound and of.operations_of.per, kata.name
        assert bool(of.spec.min_bytes) == bool(of.operations_of.moved), f"{kata.name}: say in `moved` what moves"
    assert len(timed) > 300


def test_on_another_card_the_least_time_counts() -> None:
    kata = CATALOG.katas["sgemm_naive_f32"]
    of = estimates.estimate(CATALOG, kata, "NVIDIA A100")
    assert of.measured_s is None and of.time_s == pytest.approx(2**37 / 19.5e12)
    assert {card.capability for card in CARDS} <= LIMITS.keys()
    for name, card, facts in (
        ("scale_f32", "H200", ("scale_f32", "not timed")),
        ("relu_f32", "h20", ("h20", "H200", "T4")),
    ):
        with pytest.raises(EstimateError) as refused:
            estimates.estimate(CATALOG, CATALOG.katas[name], card)
        assert has(str(refused.value), *facts)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("64MB", "bytes", 64e6),
        ("1,024 KiB", "bytes", 2**20),
        ("3 * 4 * n", "bytes", 12 * 7),
        ("2^27", "bytes", 2**27),
        ("1.2 GFLOP", "operations", 1.2e9),
        ("67M", "operations", 67e6),
        ("1/12", "intensity", 1 / 12),
        ("35us", "time", 35e-6),
        ("0.2 ms", "time", 2e-4),
        ("75%", "share", 0.75),
        ("29.1k", "count", 29100),
        ("3 * ((n + 7) // 8)", "count", 3),
        ("Mem", "bound", "memory"),
        ("compute", "bound", "compute"),
        *[
            (text, "bytes", None)
            for text in ("", "12n", "1 GFLOP", "n.real", "-1", "1e999", "9**9**9", "m", "1,2", "f()")
        ],
        *[(text, "time", None) for text in ("35", "35 MB", "n")],
        *[(text, "bound", None) for text in ("", "cache")],
    ],
)
def test_a_quantity_is_read_or_refused(text: str, kind: str, value: float | str | None) -> None:
    if value is None:
        with pytest.raises(QuantityError) as refused:
            quantity.read(text, kind, {"n": 7})
        assert has(str(refused.value), quantity.EXAMPLES[kind])
        assert ("A formula may have n." in str(refused.value)) is (kind not in ("time", "bound"))
    else:
        assert quantity.read(text, kind, {"n": 7}) == (value if isinstance(value, str) else pytest.approx(value))


def test_peaks_say_where_they_come_from() -> None:
    of = {card.name: estimates.estimate(CATALOG, CATALOG.katas["relu_f32x4"], card.name) for card in CARDS}
    said = {name: dict(estimates.task(each, kernels=False))["peaks"] for name, each in of.items()}
    assert has(said["H200"], "SMs", "driver") and has(said["B200"], "NVIDIA", "1000 W", "75 to 80")
    assert all("NVIDIA" in source for name, source in said.items() if name != "H200")


def test_how_far_an_estimate_may_be_off() -> None:
    for name, inside, outside in (("bytes", 1.009, 1.02), ("time", 0.81, 1.21), ("sectors", 1.04, 0.94)):
        assert estimates.is_right(BY_NAME[name], inside * 1000, 1000.0)
        assert not estimates.is_right(BY_NAME[name], outside * 1000, 1000.0)
    assert estimates.is_right(BY_NAME["operations"], 0.0, 0.0)
    assert not estimates.is_right(BY_NAME["operations"], 1.0, 0.0)
    assert not estimates.is_right(BY_NAME["bound"], "memory", "compute")


def test_blocks_of_an_sm_are_those_of_the_table_of_budgets() -> None:
    found = 0
    for line in (ROOT / "docs/flash_budgets.md").read_text().splitlines():
        cells = line.split("|")
        if "| `" in line and "-" not in "".join(known := [cells[place] for place in (3, 8, 9, 11)]):
            warps, shared, registers, blocks = map(float, known)
            assert blocks_per_sm(LIMITS[9, 0], 32 * int(warps), int(registers), int(shared * 1024)) == blocks, line
            found += 1
    assert found > 50


def test_an_estimate_as_options_and_as_answers(say: Say, pristine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = say("estimate", "elementwise_f32", "--bytes", "3*4*n", "--bound", "compute", "--json")
    found = json.loads(said)
    assert code == 1 and {name: each["is_right"] for name, each in found["answers"].items()} == {
        "bytes": True,
        "bound": False,
    }
    assert "805,306,368" in found["derivation"]["bytes"] and found["sizes"] == {"n": 2**26}
    typed = iter(["8 apples", "805MB", "", "0.083", "m", "240us"])
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    code, said = say("estimate", "elementwise_f32")
    assert code == 0 and has(said, "8 apples", "240.4 us measured")
    monkeypatch.setattr("builtins.input", lambda _: (_ for _ in ()).throw(EOFError))
    assert say("estimate", "elementwise_f32")[0] == 1
    questions = json.loads(say("estimate", "elementwise_f32", "--json")[1])
    assert "805" not in json.dumps(questions["task"]) and "time" in questions["questions"]
    kept = progress.load(pristine).practised(progress.ESTIMATE)
    assert [(event.task, event.verdict) for event in kept] == [("H200", "wrong answer"), ("H200", "pass")]
    page = practice.results(progress.load(pristine))
    assert has(page, "elementwise_f32", "on H200", "pass", "proxy")
    assert next((event for event in kept if event.passed), None) is None  # only a grade passes a kata
    lines = list(progress.export_lines(progress.clone_of(pristine)))
    assert progress.import_lines(lines, pristine / "elsewhere") == len(kept)


def test_what_cannot_be_counted_is_left_out_and_other_answers_stay(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "counted", lambda *_: None)
    code, said = say("estimate", "hgemm_mma_cublas_nn", "--bytes", "3 * 2 * M * N", "--sectors", "5")
    assert code == 0 and has(said, "sectors", "left out", "compute")


def test_counters_and_occupancy_of_the_solution(say: Say, pristine: Path) -> None:
    answers = ("--sectors", "3 * 4 * 4099 / 32", "--occupancy", "100%", "--wavefronts", "0")
    code, said = say("estimate", "elementwise_f32x4", *answers, "--json")
    found = json.loads(said)
    assert all(each["is_right"] for each in found["answers"].values()) and code == 0
    assert has(found["derivation"]["occupancy"], "256 threads", "8 blocks", "100 %")
    assert has(found["task"]["counters"], "PTX", "32 bytes")
    # Lines of the solution are for those who have passed the kata, or have seen it.
    store = "*reinterpret_cast<float4*>(c + idx)"
    assert store not in said and has(found["derivation"]["lines"], "passed")
    progress.keep_solution(load_catalog(pristine).katas["elementwise_f32x4"])
    rows = json.loads(say("estimate", "elementwise_f32x4", *answers, "--json")[1])["derivation"]
    (line,) = [label for label, words in rows.items() if store in words]
    assert line.startswith("line ") and has(rows[line], "sectors", "instructions") and "lines" not in rows


def test_a_formula_has_the_sizes_that_its_question_is_about(say: Say) -> None:
    code, said = say("estimate", "elementwise_f32", "--bytes", "12 * n", "--sectors", "3 * ((n + 7) // 8)")
    assert code == 0 and has(said, "805", "1,539", "n=4099, with", "values", "counters")
