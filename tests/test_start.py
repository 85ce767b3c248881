"""A kata's three files to start from, the folder of a learner's work, and what an update of the clone leaves in it."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import passed_before
import pytest
from facts import has
from test_faces import ROOT, pytest_run, run

from grader.compile import unit
from grader.compile.build import Request, Target, _signature_header
from grader.compile.compilation import INCLUDE
from grader.compile.nvcc_log import SOURCE
from grader.compile.toolchain import find_toolchain
from grader.compile.unit import Member
from grader.content import skeleton, start
from grader.content.catalog import Catalog, Kata, load_catalog
from grader.content.rung import code_of
from grader.content.source_file import source_of
from grader.content.spec import Accumulated, load_spec
from grader.learner import progress

pytestmark = passed_before.REPOSITORY

CATALOG = load_catalog(ROOT)
KATAS = tuple(CATALOG.katas.values())
SOLVED = KATAS[:20]
TARGET = Target("sim", "sm_90a")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KATA_DATA", str(tmp_path / "data"))


@pytest.fixture(scope="module")
def texts() -> dict[tuple[str, str], str]:
    """All sketches and blanks."""
    return {(kata.name, each): start.text_of(kata, each) for kata in KATAS for each in (start.SKETCH, start.BLANK)}


# -- the texts ---------------------------------------------------------------------------------------------------------


def test_every_start_is_untouched_and_every_solution_is_not(
    texts: dict[tuple[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "sketch_of", lambda kata: texts[kata.name, start.SKETCH])  # made once
    for kata in KATAS:
        for each in (start.SKETCH, start.BLANK):
            assert start.is_untouched(kata, texts[kata.name, each]), (kata.name, each)
        assert start.is_untouched(kata, skeleton.skeleton_of(kata)), kata.name
        assert not start.is_untouched(kata, kata.solution_path.read_text()), kata.name


def test_one_line_of_code_makes_a_start_a_learners_file() -> None:
    kata = CATALOG.katas["relu_f32"]
    for each in start.STARTS:
        text = start.text_of(kata, each)
        assert not start.is_untouched(kata, text.replace("// END TODO(1)", "int mine = 0;\n// END TODO(1)")), each
        assert start.is_untouched(kata, text.replace("\n", "  \n")), each
    assert not start.is_untouched(kata, ""), "an empty file is one that somebody emptied"


def launcher_of(text: str) -> str:
    found = re.search(r"KATA_EXPORT([^{]*)\{", text)
    assert found is not None
    return "".join(re.sub(r"//.*", "", found[1]).split())


def test_a_blank_has_the_launcher_of_the_solution_and_no_code(texts: dict[tuple[str, str], str]) -> None:
    for kata in KATAS:
        blank = texts[kata.name, start.BLANK]
        assert launcher_of(blank) == launcher_of(kata.solution_path.read_text()), kata.name
        assert all(line.startswith(("#include", "KATA_EXPORT", "    ", "}")) for line in code_of(blank)), kata.name
        assert "Technique" not in blank and "New  " not in blank and "Bound  " not in blank, kata.name


def test_a_blank_says_what_a_verdict_asks(texts: dict[tuple[str, str], str]) -> None:
    """Sizes and their multiples, alignment, the type of sums, same bits, given numbers, the speed, the libraries."""
    for kata in KATAS:
        spec, blank = load_spec(kata), " ".join(texts[kata.name, start.BLANK].replace("//", " ").split())
        asked = [*(f"{name} is a multiple of {step}" for name, step in kata.multiples.items()), "aligned", "Repeats"]
        asked += ["none overlap", "inputs keep", "the given stream", "the host does not compute", "CUDA runtime"]
        asked += [f"{each.name} = " for each in spec.parameters]
        asked += [f"sums may round as in {kata.acc or kata.elem}"] * isinstance(spec.tolerance, Accumulated)
        asked += ["same bits"] * spec.repeatable + list(kata.libraries) + [kind.name for kind in spec.values]
        if kata.speed is not None and kata.level != "easy":
            asked += [f"{each.percent:g} % on {arch}" for arch, each in kata.speed.percent.items()]
        assert [words for words in asked if words not in blank] == [], kata.name


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("relu_f32", ("nan where x[i] is nan", "special (nan, inf, -0)")),
        ("safe_softmax_f32", ("only -inf gives nan",)),
        ("masked_softmax_f16", ("row of zeros where torch has nan", "scale = 0.125")),
        ("nms_f32", ("equal scores the lower index", "iou_threshold = 0.5")),
        ("block_all_reduce_f32x4_last_block_f32", ("same bits",)),
        ("histogram_i32", ("exactly right",)),
        ("rms_norm_f16_f16", ("sums may round as in f16", "thousands of additions in half")),
        ("layer_norm_f16_f16", ("thousands of additions in half", "difference of two large sums")),
        ("batch_norm_add_relu_f32", ("Every bit of mask", "difference of two large sums", "one_nan (nan)")),
        ("reduce_interleaved_f32", ("one special (nan, inf, -0)",)),
        ("safe_softmax_f16_f32", ("masked (-inf)", "poisoned (nan, inf)")),
        ("argmax_row_f32", ("Sizes rows >= 1 Rounding",)),
        ("hgemm_mma_m16n8k16_mma2x4_warp4x4", ("Sizes M >= 1, N >= 8, K >= 8", "kept in half where sums may round")),
        ("tma_tile_copy_f16", ("Sizes N >= 8", "the CUDA driver (cuda.h)")),
        ("cluster_softmax_row_async_f32", ("only -inf gives nan",)),
        ("scan_block_brent_i32", ("each row by itself", "within 32 bits")),
        ("sgemm_mma_m16n8k8_mma2x4_warp4x8_stages_rbuf", ("first rounded to 11 significant bits",)),
        ("ce_backward_bf16", ("x is overwritten in place, every element in each call",)),
        (
            "qkv_rope_cache_bf16",
            ("k_cache and v_cache are updated in place, and what the task does not write there keeps its value",),
        ),
    ],
)
def test_a_blank_says_what_is_special_in_its_family(texts: dict[tuple[str, str], str], name: str, facts: str) -> None:
    blank = " ".join(texts[name, start.BLANK].replace("//", " ").split())
    assert [fact for fact in facts if fact not in blank] == []


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("cluster_reduce_f32", ("softmax of", "a group's rows", "counts are exact")),
        ("cluster_softmax_row_f32", ("off by some u", "The bound")),
        ("sgemm_t_8x8_sliced_k_f32x4", ("TF32",)),
        ("flash_attn_mma_stages_split_q", ("a query sees only", "share a head")),
        ("scan_lookback_i32", ("each row by itself", "head is not 0")),
        ("gelu_f32", ("0.5 (1 + erf",)),
        ("scan_warp_i32", ("Sizes",)),
    ],
)
def test_a_blank_says_nothing_of_other_katas(texts: dict[tuple[str, str], str], name: str, facts: str) -> None:
    """Nor how far off an answer may be, nor of a size what the row of shapes says of it."""
    blank = " ".join(texts[name, start.BLANK].replace("//", " ").split())
    assert [fact for fact in facts if fact in blank] == []


@pytest.mark.parametrize(
    ("name", "its", "of_others"),
    [
        ("elementwise_functor", ("h[1, i] = x[i], rounded to half",), ()),
        ("elementwise_f32", ("rounded once",), ("h[1, i]",)),
        ("scan_block_kogge_i32", ("each row by itself", "within 32 bits"), ("one array of any length",)),
        ("partition_lookback_i32", ("stand at the front",), ("each row by itself", "within 32 bits")),
        ("layer_norm_f32", ("difference of two large sums",), ("additions in half",)),
        ("warp_reduce_sum_i32_i32", ("integers must be exact",), ("rounds once", "nan wins", "float atomics")),
        ("gelu_erf_f32", ("0.5 (1 + erf(",), ("0.5 (1 + tanh(",)),
        ("cluster_softmax_row_f32", ("only -inf gives nan",), ("a group's rows", "|x - m|")),
        ("upsample_nearest2d_backward_f32", ("in any order",), ("match to the bit",)),
        ("histogram_i32", ("more than once",), ("float atomics",)),
        ("nms_f32", ("exactly right",), ("any nan stands for", "to the output's type")),
        ("topk_warp_f32", ("any nan stands for",), ("-0 and 0 differ",)),
    ],
)
def test_a_blank_says_what_its_kata_asks_and_not_what_another_one_does(
    texts: dict[tuple[str, str], str], name: str, its: tuple[str, ...], of_others: tuple[str, ...]
) -> None:
    blank = " ".join(texts[name, start.BLANK].replace("//", " ").split())
    assert [fact for fact in its if fact not in blank] == []
    assert [fact for fact in of_others if fact in blank] == []


def test_each_label_of_a_specs_paragraph_names_a_kata() -> None:
    for spec_path in {kata.spec_path for kata in KATAS}:
        katas = {path.stem for path in (ROOT / "solutions" / spec_path.parent.name).glob("*.cu")}
        text = ast.get_docstring(ast.parse(spec_path.read_text())) or ""
        for words in (" ".join(paragraph.split()) for paragraph in text.split("\n\n")[1:]):
            found = re.match(r"([\w*]+(?:, [\w*]+)*): ", words)
            for label in found[1].split(", ") if found and re.search(r"[_*,]", found[1]) else ():
                assert start.labelled(f"{label}: ", katas), (spec_path, label)


def test_a_sketch_has_no_answer_and_every_signature(texts: dict[tuple[str, str], str]) -> None:
    for kata in KATAS:
        solution, sketch = kata.solution_path.read_text(), texts[kata.name, start.SKETCH]
        given = {line.strip() for line in skeleton.skeleton_of(kata).split("\n")}
        lines, answers = solution.split("\n"), skeleton.answer_lines(solution)
        secret = {lines[number - 1].strip() for number in answers if lines[number - 1].startswith("    ")} - given
        leaked = secret & {line.strip() for line in sketch.split("\n")}
        assert not leaked, kata.name
        kernels = re.findall(r"^__global__", solution, re.MULTILINE)
        assert re.findall(r"^__global__", sketch, re.MULTILINE) == kernels, kata.name
        assert launcher_of(sketch) == launcher_of(solution), kata.name
        constants = re.findall(r"^constexpr .*;", solution, re.MULTILINE)
        assert [line for line in constants if line not in sketch] == [], kata.name


def test_no_start_has_a_wide_line(texts: dict[tuple[str, str], str]) -> None:
    wide = {key for key, text in texts.items() if any(len(line) > 120 for line in text.split("\n"))}
    assert wide == set()


def test_the_todos_of_a_start_are_numbered_and_empty(texts: dict[tuple[str, str], str]) -> None:
    for key, text in texts.items():
        found = skeleton.todos(text)
        assert [todo.number for todo in found] == list(range(1, len(found) + 1)) and found, key


def nvcc_says(texts: Mapping[str, str], folder: Path, *, lack_no_header: bool = False) -> list[str]:
    """The errors of nvcc's front end, which reads kernels and launchers. Files with the same includes share a run, or
    all files that surely lack no header: each is a namespace, and follows its launcher's declaration."""
    toolchain = find_toolchain()
    groups: dict[tuple[str, ...], list[Member]] = {}
    for name, text in texts.items():
        kata = CATALOG.katas[name]
        member = Member(name, _signature_header(Request(kata, load_spec(kata), source_of(folder), TARGET)), text)
        groups.setdefault(() if lack_no_header else member.includes, []).append(member)
    said = []
    for number, members in enumerate(groups.values()):
        place = folder / str(number)
        place.mkdir()
        unit.write(members, place)
        command = [str(toolchain.nvcc), *toolchain.nvcc_flags, "-std=c++17", "-w", "-I", str(INCLUDE), *TARGET.code]
        command += ["-ptx", "-o", "out.ptx", "-include", "cuda_runtime.h", SOURCE]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True)
        if done.returncode != 0:
            said.append(done.stdout + done.stderr)
    return said


@pytest.mark.parametrize("each", [start.SKETCH, start.BLANK])
def test_every_sketch_and_blank_compiles(texts: dict[tuple[str, str], str], each: str, tmp_path: Path) -> None:
    wanted = {kata.name: texts[kata.name, each] for kata in KATAS if not kata.libraries}
    assert len(wanted) > 300
    is_sketch = each == start.SKETCH
    assert not is_sketch or [name for name in wanted if not says_no_more(wanted[name], CATALOG.katas[name])] == []
    assert nvcc_says(wanted, tmp_path, lack_no_header=is_sketch) == []


def says_no_more(text: str, kata: Kata) -> bool:
    """Whether a text includes what the kata's solution includes, and all words of its code are the solution's: then it
    lacks no header, since the solution compiles."""
    solution = kata.solution_path.read_text()
    words, known = (set(re.findall(r"\w+", " ".join(code_of(each)))) for each in (text, solution))
    return unit.includes_of(text) == unit.includes_of(solution) and words <= known


@pytest.mark.parametrize(
    ("old", "new", "fact"),
    [
        ('#include "kata.cuh"\n', '#include "kata.cuh"\n__global__ void k(const half* x);\n', "half"),
        ("float* y, int n", "float* y, long n", "relu_f32"),
        ("// TODO(1)", "x[0] = nothing; // TODO(1)", "nothing"),
        ("\n}\n", "\n", 'brace|end of file|"}"'),
    ],
)
def test_what_does_not_compile_is_found(old: str, new: str, fact: str, tmp_path: Path) -> None:
    """A missing header, another signature than the launcher's, an unknown name, a brace."""
    text = start.sketch_of(CATALOG.katas["relu_f32"])
    assert old in text
    (said,) = nvcc_says({"relu_f32": text.replace(old, new)}, tmp_path)
    assert re.search(fact, said), said


# -- a learner's file --------------------------------------------------------------------------------------------------


def kata_in(clone: Path, name: str) -> Kata:
    return load_catalog(clone).katas[name]


def start_of(clone: Path, name: str, *options: str) -> tuple[int, str]:
    done = run(clone, "-m", "grader", "start", name, *options)
    return done.returncode, done.stdout + done.stderr


def test_a_started_kata_is_graded_in_the_folder_of_work_by_every_face(clone: Path) -> None:
    kata = kata_in(clone, "relu_f32")
    code, said = start_of(clone, "relu_f32", "--blank")
    assert code == 0 and has(said, "work/relu/relu_f32.cu", "blank", "kata grade relu_f32")
    assert kata.own_path == kata.work_path and kata.work_path.read_text() == start.blank_of(kata)
    assert has(run(clone, "-m", "grader", "grade", "relu_f32").stdout, "not started")
    kata.work_path.write_text(kata.solution_path.read_text())
    for arguments in (("-m", "grader", "grade"), ("-m", "pytest", "-q", "exercises/relu/relu_f32.cu")):
        named = ("relu_f32",) if "grade" in arguments else ()
        assert run(clone, *arguments, *named, "--device", "sim").returncode == 0
    assert pytest_run(clone, "work", "--device", "sim", "-q").returncode == 0
    grades = progress.load(clone).grades("relu_f32")
    assert [grade.start for grade in grades] == ["blank"] * 3 and all(grade.passed for grade in grades)
    assert skeleton.is_pristine(kata.skeleton_path.read_text(), skeleton.skeleton_of(kata))
    assert has(run(clone, "-m", "grader", "list", "relu_f32").stdout, "passed from a blank")
    record = json.loads(run(clone, "-m", "grader", "show", "relu_f32", "--json").stdout)
    assert record["start"] == "blank" and record["passed_from"] == ["blank"] and record["file"] == str(kata.work_path)


def test_a_begun_file_is_kept(clone: Path) -> None:
    kata = kata_in(clone, "relu_f32")
    assert start_of(clone, "relu_f32")[0] == 0
    assert start_of(clone, "relu_f32", "--sketch")[0] == 0  # what was untouched is replaced
    kata.work_path.write_text("mine")
    code, said = start_of(clone, "relu_f32", "--blank")
    assert code == 1 and has(said, "begun", "--again") and kata.work_path.read_text() == "mine"
    assert start_of(clone, "relu_f32", "--blank", "--again")[0] == 0
    assert [path.read_text() for path in kata.work_path.parent.glob("*.bak")] == ["mine"]
    assert kata.work_path.read_text() == start.blank_of(kata)
    kata.work_path.write_text("again")
    done = run(clone, "-m", "grader", "reset", "relu_f32")
    assert done.returncode == 0 and kata.work_path.read_text() == skeleton.skeleton_of(kata)
    assert sorted(path.read_text() for path in kata.work_path.parent.glob("*.bak")) == ["again", "mine"]


def test_what_was_edited_in_exercises_is_moved_when_the_kata_is_started(clone: Path) -> None:
    kata = kata_in(clone, "relu_f32")
    kata.skeleton_path.write_text("mine")
    code, said = start_of(clone, "relu_f32", "--blank")
    assert code == 1 and has(said, "work/relu/relu_f32.cu", "begun") and kata.work_path.read_text() == "mine"
    assert kata.skeleton_path.read_text() == skeleton.skeleton_of(kata)


@pytest.mark.parametrize("command", [("update",), ("start", "relu_f32", "--blank")])
def test_a_carried_file_is_a_skeletons_also_after_an_older_blank(clone: Path, command: tuple[str, ...]) -> None:
    """A milestone asks for a blank file: an older start must not stand in for that of the file."""
    kata = kata_in(clone, "relu_f32")
    progress.keep_start(kata, start.BLANK)
    kata.skeleton_path.write_text(kata.solution_path.read_text())
    run(clone, "-m", "grader", *command)
    assert kata.own_path == kata.work_path and kata.work_path.read_text() == kata.solution_path.read_text()
    assert progress.load(clone).started_from("relu_f32") == start.SKELETON


def test_a_file_that_is_there_already_keeps_its_start(clone: Path) -> None:
    kata = kata_in(clone, "relu_f32")
    progress.keep_start(kata, start.BLANK)
    for place in (kata.work_path, kata.skeleton_path):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("mine")
    assert start.carry(kata) == start.Taken(kata.work_path, is_new=False)
    assert skeleton.is_pristine(kata.skeleton_path.read_text(), skeleton.skeleton_of(kata))


def test_starts_are_kept_in_an_export(clone: Path, tmp_path: Path) -> None:
    start_of(clone, "relu_f32", "--sketch")
    exported = tmp_path / "p.jsonl"
    assert run(clone, "-m", "grader", "progress", "--export", str(exported)).returncode == 0
    assert run(clone, "-m", "grader", "progress", "--import", str(exported)).returncode == 0
    assert progress.load(clone).started_from("relu_f32") == "sketch"
    exported.write_text(exported.read_text().replace('"sketch"', '"outline"'))
    done = run(clone, "-m", "grader", "progress", "--import", str(exported))
    assert done.returncode == 2 and has(done.stderr, "start", "outline")


# -- an update ---------------------------------------------------------------------------------------------------------


def git(place: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    names = ("-c", "user.name=learner", "-c", "user.email=learner@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *names, *arguments], cwd=place, check=check, capture_output=True, text=True)


@pytest.fixture
def upstream(clone: Path) -> Path:
    """A repository whose last commit changes half of the skeletons that the learner has edited."""
    (clone / ".gitignore").write_text((ROOT / ".gitignore").read_text())
    git(clone, "init", "-q", "-b", "main")
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "as it was")
    return clone


def learner_of(upstream: Path, tmp_path: Path) -> Catalog:
    """A clone of the old commit with 20 katas solved in exercises/; upstream goes on meanwhile."""
    git(tmp_path, "clone", "-q", str(upstream), "learner")
    catalog = load_catalog(tmp_path / "learner")
    for kata in SOLVED:
        mine = catalog.katas[kata.name]
        mine.skeleton_path.write_text(mine.solution_path.read_text())
    for kata in SOLVED[::2]:
        for path in (upstream / part / kata.family / f"{kata.name}.cu" for part in ("exercises", "solutions")):
            path.write_text(f"// Edited since.\n{path.read_text()}")
    git(upstream, "commit", "-q", "-a", "-m", "texts")
    return catalog


def assert_all_are_there(catalog: Catalog) -> None:
    for kata in SOLVED:
        mine = catalog.katas[kata.name]
        assert mine.own_path == mine.work_path and mine.work_path.read_bytes() == kata.solution_path.read_bytes()
    assert git(catalog.root, "status", "--porcelain").stdout == ""
    assert not list((catalog.root / "work").rglob("*.bak"))


def test_update_then_pull_loses_none_of_twenty_katas(upstream: Path, tmp_path: Path) -> None:
    catalog = learner_of(upstream, tmp_path)
    assert git(catalog.root, "pull", "-q", "--ff-only", check=False).returncode != 0  # git refuses: the edits would go
    moved = json.loads(run(catalog.root, "-m", "grader", "update", "--json").stdout)
    assert set(moved) == {kata.name for kata in SOLVED}
    git(catalog.root, "pull", "-q", "--ff-only")
    assert_all_are_there(catalog)
    name = SOLVED[2].name
    assert pytest_run(catalog.root, f"exercises/{SOLVED[2].family}/{name}.cu", "--device", "sim").returncode == 0
    assert run(catalog.root, "-m", "grader", "update").returncode == 0
    assert_all_are_there(catalog)


@pytest.mark.parametrize("way", ["stash", "commit"])
def test_work_is_taken_from_a_stash_or_a_commit(upstream: Path, tmp_path: Path, way: str) -> None:
    """For clones that cannot pull because they have edits, and no `kata update` before they pull."""
    catalog = learner_of(upstream, tmp_path)
    if way == "stash":
        git(catalog.root, "stash", "-q")
        commit = "stash@{0}"
    else:
        git(catalog.root, "checkout", "-q", "-b", "mine")
        git(catalog.root, "commit", "-q", "-a", "-m", "my work")
        git(catalog.root, "checkout", "-q", "main")
        commit = "mine"
    git(catalog.root, "pull", "-q", "--ff-only")
    done = run(catalog.root, "-m", "grader", "update", "--from", commit)
    assert done.returncode == 0 and has(done.stdout, "20 files", SOLVED[0].name)
    assert_all_are_there(catalog)
    first, second = (catalog.katas[kata.name].work_path for kata in SOLVED[:2])
    first.write_text("edited since")
    for _ in range(2):  # the second time, all is there
        said = json.loads(run(catalog.root, "-m", "grader", "update", "--from", commit, "--json").stdout)
        assert said[SOLVED[1].name] == str(second) and said[SOLVED[0].name] != str(first)
    assert first.read_text() == "edited since"
    (kept,) = (catalog.root / "work").rglob("*.bak")
    assert kept.read_bytes() == SOLVED[0].solution_path.read_bytes()
    wrong = run(catalog.root, "-m", "grader", "update", "--from", "nothing")
    assert wrong.returncode == 2 and has(wrong.stderr, "git stash list")


def test_a_second_file_of_a_kata_is_kept_beside_the_first(clone: Path) -> None:
    kata = kata_in(clone, "relu_f32")
    kata.work_path.parent.mkdir(parents=True)
    kata.work_path.write_text("first")
    kata.skeleton_path.write_text("second")
    done = run(clone, "-m", "grader", "update")
    assert done.returncode == 0 and kata.work_path.read_text() == "first"
    assert [path.read_text() for path in kata.work_path.parent.glob("*.bak")] == ["second"]
