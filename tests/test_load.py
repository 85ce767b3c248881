"""from grader import load: a kata as a function of tensors, with errors that are sentences."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from facts import all_of
from patience import wait_for_the_end_of
from test_faces import solve

from grader import KataError, load
from grader.content.catalog import CatalogError, load_catalog
from grader.learner import progress
from grader.notebook.launcher import Graded, Launcher

ROOT = Path(__file__).resolve().parent.parent
KATAS = load_catalog(ROOT).katas


@pytest.fixture
def clone(clone: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """It is also the working directory."""
    monkeypatch.chdir(clone)
    return clone


@pytest.fixture(scope="module")
def add() -> Launcher:
    return load("elementwise_f32", solution=True, device="cpu")


def test_importing_the_package_imports_nothing_of_it() -> None:
    script = "import sys, grader; print([name for name in sys.modules if name.startswith(('grader.', 'torch'))])"
    said = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


def test_a_name_that_the_package_lacks_is_an_attribute_error() -> None:
    import grader

    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        grader.lode  # noqa: B018


def test_it_is_a_function_of_tensors(add: Launcher) -> None:
    a, b = torch.randn(1000), torch.randn(1000)
    assert torch.equal(add(a, b), a + b) and torch.equal(add(b=b, a=a), a + b)
    assert torch.equal(add(a[::2], b[::2]), a[::2] + b[::2])
    assert torch.equal(add(a.requires_grad_(), b), a.detach() + b)
    assert add(torch.empty(0), torch.empty(0)).shape == (0,)


def test_an_input_that_is_updated_keeps_what_it_holds_unless_it_is_out() -> None:
    gradient = load("ce_backward_bf16", solution=True, device="cpu")
    x, target, g = torch.randn(3, 21).bfloat16(), torch.tensor([0, 20, 7]), torch.ones(3)
    lse, before = x.float().logsumexp(1), x.clone()
    wanted = x.float().softmax(1) - torch.nn.functional.one_hot(target, 21)
    assert torch.allclose(gradient(x, target, lse, g).float(), wanted, atol=1e-2) and torch.equal(x, before)
    gradient(x, target, lse, g, out=x)
    assert torch.allclose(x.float(), wanted, atol=1e-2)


def test_sizes_and_parameters_have_names() -> None:
    count = load("histogram_i32", solution=True, device="cpu")
    values = torch.randint(0, 17, (501,), dtype=torch.int32)
    wanted = values.bincount(minlength=17).int()
    assert torch.equal(count(values, 17), wanted) and torch.equal(count(values, bins=17), wanted)
    assert str(inspect.signature(count)) == "(a, bins, *, out=None)"
    with pytest.raises(KataError, match=all_of("'bins'", "histogram_i32(a, bins)")):
        count(values)
    with pytest.raises(KataError, match=all_of("bins", "whole number", "'many'")):
        count(values, "many")


def test_out_is_filled_and_returned(add: Launcher) -> None:
    a, out = torch.randn(33), torch.empty(33)
    assert add(a, a, out=out) is not None and torch.equal(out, a + a)
    for bad, said in (
        (torch.empty(34), all_of("c", "[n] f32", "n=33", "[34]")),
        (torch.empty(33).half(), all_of("c", "torch.float16")),
        ((out, out), all_of("out", "1", "(c)", "2")),
        (torch.empty(66)[::2], all_of("out", "c", "contiguous")),
        (torch.empty(34)[1:], all_of("begin", "multiple")),
        ([7], all_of("tensor", "int")),
    ):
        with pytest.raises(KataError, match=said):
            add(a, a, out=bad)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((torch.ones(3), torch.ones(4)), all_of("elementwise_f32", "b", "[n] f32", "n=3", "[4]")),
        ((torch.ones(3), torch.ones(3).half()), all_of("b", "[n] f32", "[3]", "torch.float16")),
        ((torch.ones(3, 1), torch.ones(3)), all_of("a", "[n] f32", "[3, 1]")),
        ((torch.ones(3), [1.0, 2.0, 3.0]), all_of("b", "[n] f32", "tensor", "list")),
        ((torch.ones(3), torch.ones(3, device="meta")), all_of("b", "meta", "a", "cpu")),
        ((torch.ones(3, device="meta"),) * 2, all_of("CPU", "CUDA")),
        ((torch.ones(3),), all_of("'b'")),
        ((torch.ones(3),) * 3, all_of("too many", "argument")),
    ],
)
def test_wrong_arguments_are_one_sentence(add: Launcher, arguments: tuple[object, ...], said: str) -> None:
    with pytest.raises(KataError, match=said):
        add(*arguments)


def test_multiples_are_asked_for() -> None:
    kata = next(kata for kata in KATAS.values() if kata.family == "hgemm" and kata.multiples and not kata.libraries)
    name, step = next(iter(kata.multiples.items()))
    launcher = Launcher(kata, kata.solution_path)  # not compiled for this
    inputs = [torch.zeros([1] * len(tensor.shape), dtype=torch.float16) for tensor in launcher.spec.inputs]
    with pytest.raises(KataError, match=all_of(name, f"multiple of {step}", "1")):
        launcher(*inputs)


def test_it_says_what_it_is(add: Launcher) -> None:
    assert repr(add).startswith("<elementwise_f32(a, b) -> c from ") and repr(add).endswith("elementwise_f32.cu>")
    assert (
        add.__doc__ is not None
        and "a        [n] f32 (torch.float32)" in add.__doc__
        and add.spec.computes in add.__doc__
    )
    for kata in KATAS.values():
        assert Launcher(kata, kata.solution_path).__doc__


def test_an_edit_is_taken_by_reload_and_not_before(clone: Path) -> None:
    path = solve(clone, "elementwise_f32")
    launcher, a = load("elementwise_f32", device="cpu"), torch.ones(5)
    assert launcher.source == path
    path.write_text(path.read_text().replace("a[idx] + b[idx]", "a[idx] - b[idx]"))
    assert launcher(a, a).tolist() == [2.0] * 5 and launcher.edited
    assert launcher.reload() is launcher and launcher(a, a).tolist() == [0.0] * 5 and not launcher.edited
    path.write_text(path.read_text().replace("a[idx] - b[idx]", "a[idx] -"))
    with pytest.raises(KataError, match="does not compile"):
        launcher.reload()
    with pytest.raises(KataError, match="does not compile"):
        launcher(a, a)


def test_what_is_not_compiled_yet_and_edited_is_not_mixed_up(clone: Path) -> None:
    path = solve(clone, "elementwise_f32")
    launcher = load("elementwise_f32", device="cpu")
    launcher.close()
    path.write_text(path.read_text() + "// edited\n")
    with pytest.raises(KataError, match=all_of("edited", "reload()")):
        launcher(torch.ones(1), torch.ones(1))


def test_errors_say_what_where_and_nothing_of_ours(clone: Path) -> None:
    with pytest.raises(KataError, match=all_of("not started", "exercises/relu/relu_f32.cu")):
        load("relu_f32", device="cpu")
    path = solve(clone, "elementwise_f32", ("if (idx < n)", "if (idx <= n)"))
    with pytest.raises(KataError) as caught:
        load("elementwise_f32", device="cpu")(torch.ones(3), torch.ones(3))
    line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if "idx <= n" in text)
    assert re.search(r"out of bounds: reads [ab]\[3\]", str(caught.value))
    shown = caught.value._render_traceback_()
    assert f"(exercises/elementwise/elementwise_f32.cu:{line})" in shown[0] and "if (idx <= n)" in shown[1]
    path.write_text(path.read_text().replace("if (idx <= n)", "if (idx <= n"))
    with pytest.raises(KataError, match=rf"does not compile: .*\(exercises/elementwise/elementwise_f32.cu:{line}\)"):
        load("elementwise_f32", device="cpu")
    path.unlink()
    assert "Traceback" not in str(caught.value)
    with pytest.raises(CatalogError):
        load("elementwise_f32", device="cpu")


def test_what_cannot_be_loaded() -> None:
    with pytest.raises(CatalogError, match="relu_f32"):
        load("relu_f33")
    with pytest.raises(KataError, match=all_of("'histogram'", "one kata")):
        load("histogram")
    with pytest.raises(KataError, match=all_of("file", "solution")):
        load("relu_f32", file="x.cu", solution=True)
    with pytest.raises(KataError, match=all_of("nowhere.cu")):
        load("relu_f32", file="nowhere.cu", device="cpu")
    with pytest.raises(KataError, match=all_of("device", "'cpu'", "'cuda'")):
        load("relu_f32", device="gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_cuda_is_one_sentence() -> None:
    with pytest.raises(KataError, match="NVIDIA GPU"):
        load("relu_f32", solution=True, device="cuda")


def test_any_file_can_be_loaded(tmp_path: Path) -> None:
    text = KATAS["elementwise_f32"].solution_path.read_text().replace("a[idx] + b[idx]", "a[idx] * b[idx]")
    (tmp_path / "mine.cu").write_text(text)
    a = torch.randn(9)
    assert torch.equal(load("elementwise_f32", file=tmp_path / "mine.cu", device="cpu")(a, a), a * a)


def test_grading_shows_text_and_keeps_progress(clone: Path) -> None:
    path = solve(clone, "elementwise_f32")
    launcher = load("elementwise_f32", device="cpu")
    graded = launcher.grade(device="sim")
    assert isinstance(graded, Graded) and graded.passed
    assert repr(graded).startswith("elementwise_f32: pass on sim sm_90a (")
    path.write_text(path.read_text().replace("a[idx] + b[idx]", "a[idx] - b[idx]"))
    wrong = launcher.grade(device="sim")  # the file as it is now
    assert not wrong.passed and repr(wrong).startswith("elementwise_f32: wrong answer: ") and "expected" in repr(wrong)
    assert [event.verdict for event in progress.load(clone).events] == ["pass", "wrong answer"]
    assert load("elementwise_f32", solution=True, device="cpu").grade(device="sim").passed
    assert len(progress.load(clone).events) == 2


def test_nothing_is_left_behind() -> None:
    script = (
        "import os, torch; from grader import load\n"
        "add = load('elementwise_f32', solution=True, device='cpu'); add(torch.ones(3), torch.ones(3))\n"
        "print(open(f'/proc/self/task/{os.getpid()}/children').read())"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    (child,) = done.stdout.split()
    wait_for_the_end_of([int(child)])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_on_cuda_tensors_it_runs_on_the_current_stream() -> None:
    add = load("elementwise_f32x4", solution=True)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        a, b = torch.randn(1_000_003, device="cuda"), torch.randn(1_000_003, device="cuda")
        c, out = add(a, b), torch.empty_like(a)
        sliced = add(a[1:], b[1:], out=out[:-1])  # a slice is not aligned: it is copied
    stream.synchronize()
    assert torch.equal(c, a + b) and torch.equal(sliced, (a + b)[1:])
    with pytest.raises(KataError, match=all_of("b", "cpu", "a", "cuda")):
        add(a, b.cpu())
