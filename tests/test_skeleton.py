"""A skeleton is its solution without the answers; a slip in the markers is named; a learner's file never raises."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from pathlib import Path

import passed_before
import pytest
from facts import all_of, has
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grader.content import skeleton
from grader.content.catalog import Catalog, find_root, load_catalog
from grader.content.skeleton import SkeletonError, Todo

pytestmark = passed_before.REPOSITORY

SOLUTION = """\
// relu_f32: y = max(x, 0)
#include "kata.cuh"

__global__ void relu_f32_kernel(const float* x, float* y, int n) {
    // TODO(1): Give every element one thread, and make sure that
    //   neighbours in a warp touch neighbours in memory. (~1 line)
    // the flat index
    const int idx = blockIdx.x * blockDim.x + threadIdx.x;

    // END TODO(1)
    // TODO(2): Write the result; threads past n must touch nothing. (~2 lines)
    if (idx < n) {
        y[idx] = fmaxf(x[idx], 0.0f);
    }
    // END TODO(2)
}
"""
SKELETON = """\
// relu_f32: y = max(x, 0)
#include "kata.cuh"

__global__ void relu_f32_kernel(const float* x, float* y, int n) {
    // TODO(1): Give every element one thread, and make sure that
    //   neighbours in a warp touch neighbours in memory. (~1 line)
    // END TODO(1)
    // TODO(2): Write the result; threads past n must touch nothing. (~2 lines)
    // END TODO(2)
}
"""
FIRST = "Give every element one thread, and make sure that neighbours in a warp touch neighbours in memory. (~1 line)"
SECOND = "Write the result; threads past n must touch nothing. (~2 lines)"


def test_derive_removes_the_answers_and_nothing_else() -> None:
    assert skeleton.derive(SOLUTION) == SKELETON
    assert skeleton.only_adds_lines(SKELETON, SOLUTION)


def test_derive_keeps_every_byte_of_the_rest() -> None:
    odd = SOLUTION.replace("relu_f32: y", "relu_f32:\x0c\u2028 y\t").rstrip("\n")
    assert skeleton.derive(odd) == SKELETON.replace("relu_f32: y", "relu_f32:\x0c\u2028 y\t").rstrip("\n")
    assert skeleton.derive(SOLUTION.replace("\n", "\r\n")) == SKELETON.replace("\n", "\r\n")


def test_only_adds_lines_sees_a_changed_a_lost_and_a_moved_line() -> None:
    lines = SOLUTION.split("\n")
    changed = SOLUTION.replace("const float* x", "float* x")
    lost = "\n".join(lines[:1] + lines[2:])
    moved = "\n".join([lines[1], lines[0], *lines[2:]])
    assert not any(skeleton.only_adds_lines(SKELETON, other) for other in (changed, lost, moved))


def test_todos_of_a_skeleton_and_of_its_solution() -> None:
    assert skeleton.todos(SKELETON) == (Todo(1, FIRST, 5, True, 7), Todo(2, SECOND, 8, True, 9))
    assert skeleton.todos(SOLUTION) == (Todo(1, FIRST, 5, False, 10), Todo(2, SECOND, 11, False, 15))


END = "    // END TODO(1)\n"
LEARNERS = {
    # case: (what the learner made of END TODO(1)'s line, whether TODO(1) is empty, TODOs left)
    "blank lines": ("\n   \t\n" + END, True, 2),
    "comments": ("// hm\n/* what\n now? */  // and then\n" + END, True, 2),
    "unfinished comment": ("/* idx = 1;\n" + END, True, 2),
    "one statement": ("int idx = 0;\n" + END, False, 2),
    "a statement after a comment": ("/* x */ int idx = 0;  // index\n" + END, False, 2),
    "indented text below the TODO": ("    //    more of my own words\n" + END, True, 2),
    "END deleted": ("int idx = 0;\n", False, 2),
    "END deleted, no answer": ("", False, 2),
    "END of another number": ("// END TODO(7)\n", False, 2),
    "END twice": (END + END, True, 2),
    "marker reformatted": ("//END  todo( 1 )\n", True, 2),
    "another TODO of their own": ("// TODO(3): mine\nint idx;\n// END TODO(3)\n" + END, False, 3),
    "huge number": ("// TODO(99999999999999999999): x\n" + END, True, 2),
    "null and broken bytes": ("\0\ufffd\n" + END, False, 2),
}


@pytest.mark.parametrize("case", LEARNERS)
def test_todos_of_a_file_that_a_learner_mangled(case: str) -> None:
    replacement, empty, count = LEARNERS[case]
    found = skeleton.todos(SKELETON.replace(END, replacement))
    assert len(found) == count, found
    assert (found[0].number, found[0].empty) == (1, empty)
    assert found[-1].number == 2 and found[-1].empty


PIECES = ["// TODO(1): a\n", "// END TODO(1)\n", "// TODO(", "//   x\n", "*/", "/*", "\n", "x;", "\r"]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is slow to draw
@given(st.lists(st.sampled_from(PIECES)))
def test_nothing_that_is_made_of_markers_raises(parts: list[str]) -> None:
    found = skeleton.todos("".join(parts))
    assert [todo.line for todo in found] == sorted({todo.line for todo in found})


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary())
def test_no_bytes_raise(data: bytes) -> None:
    text = data.decode("utf-8", errors="replace")
    skeleton.todos(text)
    assert skeleton.is_pristine(text, text)


def test_read_takes_any_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.cu"
    path.write_bytes(b"\x7fELF\x00\xff// TODO(1): a\n")
    assert "TODO(1)" in skeleton.read(path)


@pytest.mark.parametrize(
    ("text", "pristine"),
    [
        (SKELETON, True),
        (SKELETON.replace("\n", "\r\n"), True),
        (SKELETON.replace("    ", "\t").rstrip(), True),
        (SKELETON.replace("int n) {", "int n)\n{"), True),
        (SKELETON.replace(END, "// mine\n" + END), False),
        (SOLUTION, False),
        ("", False),
    ],
)
def test_is_pristine(text: str, pristine: bool) -> None:
    assert skeleton.is_pristine(text, SKELETON) is pristine


@pytest.mark.parametrize(
    ("text", "only_answers"),
    [
        (SKELETON, True),
        (SOLUTION, True),
        (SKELETON.replace(END, "    int mine;\n    // and why\n\n" + END), True),
        (SKELETON.replace("int n", "long n"), False),  # stale, not started
        (SOLUTION.replace("int n", "long n"), False),
        (SKELETON.replace(END, ""), False),
        (SOLUTION.replace(END, "    // END TODO(9)\n"), False),
        ("// a note\n" + SKELETON, False),
        (SKELETON + "// a note", False),
        (SKELETON.replace("\n", "\r\n"), False),
        ("", False),
    ],
)
def test_only_answers(text: str, only_answers: bool) -> None:
    assert skeleton.only_answers(text, SKELETON) is only_answers


ANSWER = SOLUTION[SOLUTION.index("    if (idx < n)") : SOLUTION.index("    // END TODO(2)")]
SLIPS = {
    # case: (text to replace, by what, line of the error, parts of the message)
    "no END": ("    // END TODO(2)\n", "", 11, ["TODO(2)", "no end", "`// END TODO(2)`"]),
    "END before the next TODO is missing": (END, "", 10, ["TODO(2)", "inside TODO(1)", "`// END TODO(1)`"]),
    "nested": ("    // the flat", "    // TODO(2): x (~1 line)\n    // the flat", 7, ["TODO(2)", "inside TODO(1)"]),
    "END of another number": ("END TODO(1)", "END TODO(2)", 10, ["END TODO(2)", "TODO(1)", "equal"]),
    "END alone": ("    // TODO(2): Write", "    // Write", 15, ["END TODO(2)", "nothing"]),
    "begins at 2": ("TODO(1)", "TODO(2)", 5, ["TODO(2)", "TODO(1)", "must"]),
    "descends": ("TODO(2)", "TODO(1)", 11, ["TODO(1)", "TODO(2)", "renumber"]),
    "skips a number": ("TODO(2)", "TODO(3)", 11, ["TODO(3)", "TODO(2)", "must"]),
    "unnumbered": ("// TODO(2):", "// TODO:", 11, ["malformed", "'// TODO: Write"]),
    "no colon": ("// TODO(2):", "// TODO(2)", 11, ["malformed"]),
    "no text": (": " + SECOND, ":", 11, ["malformed"]),
    "no space": ("// TODO(2):", "//TODO(2):", 11, ["malformed"]),
    "not alone on its line": ("#include", "int x; // TODO(1): x (~1 line)\n#include", 2, ["malformed", "itself"]),
    "END unnumbered": ("// END TODO(2)", "// END TODO", 15, ["malformed", "'// END TODO'"]),
    "small letters": ("// TODO(2):", "// todo(2):", 11, ["malformed"]),
    "no size": ("nothing. (~2 lines)", "nothing.", 11, ["TODO(2)", "no size", "`(~3 lines)`"]),
    "size in the middle": ("nothing. (~2 lines)", "(~2 lines) nothing.", 11, ["TODO(2)", "no size"]),
    "four lines of text": ("memory. (~1 line)", "memory.\n//   a\n//   b (~1 line)", 5, ["4 lines", "3"]),
    "no answer": (ANSWER, "    // no\n", 11, ["TODO(2)", "no answer"]),
}  # fmt: skip


@pytest.mark.parametrize("case", SLIPS)
def test_slips_in_a_solution(case: str) -> None:
    old, new, line, parts = SLIPS[case]
    text = SOLUTION.replace(old, new)
    assert text != SOLUTION
    with pytest.raises(SkeletonError) as caught:
        skeleton.derive(text, "relu_f32.cu")
    message = str(caught.value)
    assert message.startswith(f"relu_f32.cu:{line}: "), message
    assert has(message, *parts)


def test_a_solution_without_any_todo() -> None:
    with pytest.raises(SkeletonError, match=all_of("x.cu:1: ", "no TODO")):
        skeleton.derive("int x;\n", "x.cu")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    for folder in ("exercises", "solutions"):
        (tmp_path / folder / "relu").mkdir(parents=True)
    (tmp_path / "exercises/relu/test_relu.py").write_text("SPEC = None\n")
    for name in ("relu_f32", "relu_f16"):
        (tmp_path / f"solutions/relu/{name}.cu").write_text(SOLUTION)
    entry = "{level: easy, elem: f32}"
    (tmp_path / "difficulty.yaml").write_text(f"relu:\n  about: a ladder\n  relu_f32: {entry}\n  relu_f16: {entry}\n")
    return load_catalog(tmp_path, missing_skeletons=True)


def test_write_all_writes_what_is_missing_or_stale(catalog: Catalog) -> None:
    first, second = catalog.katas.values()
    assert skeleton.stale(catalog) == (first, second)
    assert skeleton.write_all(catalog) == (first.skeleton_path, second.skeleton_path)
    assert skeleton.stale(catalog) == ()
    assert first.skeleton_path.read_text() == SKELETON
    second.skeleton_path.write_text(SOLUTION.replace("int n", "long n"))
    assert skeleton.stale(catalog) == (second,)
    assert skeleton.write(first) is False and skeleton.write(second) is True
    assert skeleton.stale(catalog) == ()
    assert sorted(path.name for path in first.skeleton_path.parent.iterdir()) == [
        "relu_f16.cu",
        "relu_f32.cu",
        "test_relu.py",
    ]


def test_reset_keeps_what_the_learner_wrote(catalog: Catalog) -> None:
    kata = catalog.katas["relu_f32"]
    path = kata.skeleton_path
    assert skeleton.reset(kata) is None and path.read_text() == SKELETON
    assert skeleton.reset(kata) is None
    for name, work in (("relu_f32.cu.1.bak", b"my first try"), ("relu_f32.cu.2.bak", b"my second \xff")):
        path.write_bytes(work)
        assert skeleton.reset(kata) == path.with_name(name)
        assert path.read_text() == SKELETON and path.with_name(name).read_bytes() == work
    assert len(load_catalog(catalog.root, missing_skeletons=True).katas) == 2


def test_a_reset_that_cannot_be_written_is_one_sentence_and_loses_nothing(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    kata = catalog.katas["relu_f32"]
    path = kata.skeleton_path
    path.mkdir()
    with pytest.raises(SkeletonError, match=all_of("relu_f32.cu: ", "Is a directory")):
        skeleton.reset(kata)
    path.rmdir()
    path.write_text("my first try")
    before = sorted(path.parent.iterdir())

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for owner, name in ((os, "fsync"), (Path, "replace")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, full)
            with pytest.raises(SkeletonError, match=all_of("relu_f32.cu: ", "No space left")):
                skeleton.reset(kata)
        assert path.read_text() == "my first try" and sorted(path.parent.iterdir()) == before


def test_reset_keeps_a_file_that_cannot_be_read(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    kata = catalog.katas["relu_f32"]
    kata.skeleton_path.write_text("mine")

    def refused(path: Path) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(skeleton, "read", refused)
        kept = skeleton.reset(kata)
    assert kept is not None and kept.read_text() == "mine" and kata.skeleton_path.read_text() == SKELETON


def test_a_solution_that_cannot_be_read(catalog: Catalog) -> None:
    kata = catalog.katas["relu_f32"]
    kata.solution_path.write_bytes(b"// \xff")
    with pytest.raises(SkeletonError, match=all_of("relu_f32.cu: ", "UTF-8", "byte 3")):
        skeleton.write(kata)
    kata.solution_path.unlink()
    with pytest.raises(SkeletonError, match=all_of("relu_f32.cu", "No such file")):
        skeleton.write(kata)
    assert not kata.skeleton_path.exists()


def test_the_solutions_of_this_collection_derive() -> None:
    """Their skeletons on disk may hold a learner's work; what they are derived from may not be malformed."""
    for kata in load_catalog(find_root(Path(__file__).parent)).katas.values():
        derived = skeleton.skeleton_of(kata)
        found = skeleton.todos(derived)
        assert found and all(todo.empty for todo in found), kata.name
        assert not any(todo.empty for todo in skeleton.todos(skeleton.read(kata.solution_path))), kata.name


# Only a type or an intrinsic differs from the rung before, and it stands outside the answers.
SAME_ANSWERS = {
    "warp_reduce_sum_fp8_e5m2_f16",
    "warp_reduce_sum_i8_i32",
    "warp_reduce_sum_i32_i32",
    "block_all_reduce_fp8_e5m2_f16",
}


def _answers(solution: str) -> list[str]:
    """The lines that the skeleton lacks, without their indentation."""
    kept = iter(skeleton.derive(solution).split("\n"))
    awaited = next(kept, None)
    answers = []
    for line in solution.split("\n"):
        if line == awaited:
            awaited = next(kept, None)
        else:
            answers.append(line.strip())
    return answers


def test_a_rung_asks_for_what_is_new_in_it() -> None:
    """Where the answers are those of the rung that its header continues, these pass and nothing is learnt."""
    katas = load_catalog(find_root(Path(__file__).parent)).katas
    for name, kata in katas.items():
        solution = skeleton.read(kata.solution_path)
        before = re.search(r"^// New +over (\w+)", solution, re.MULTILINE)
        if before and before[1] in katas and name not in SAME_ANSWERS:
            assert _answers(solution) != _answers(skeleton.read(katas[before[1]].solution_path)), name


def test_no_answer_is_committed() -> None:
    """What is on disk may hold a learner's work; what the collection hands out may not."""
    root = find_root(Path(__file__).parent)
    changed = ["git", "-C", str(root), "diff", "--name-only", "--relative", "HEAD", "--", "exercises", "solutions"]
    try:
        unlike = set(subprocess.run(changed, capture_output=True, text=True, check=True).stdout.splitlines())
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a clone of a repository")
    for kata in load_catalog(root).katas.values():
        places = {str(path.relative_to(root)) for path in (kata.skeleton_path, kata.solution_path)}
        if not places & unlike:
            assert skeleton.read(kata.skeleton_path) == skeleton.skeleton_of(kata), kata.name
