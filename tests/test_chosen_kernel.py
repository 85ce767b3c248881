"""A wide access that is misaligned, and the text of a file -> the launcher's test that let the kernel run."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import passed_before
import pytest
from facts import has

from grader.devices import Buffer, Call, Finding, Poison, Scalar
from grader.judge.chosen_kernel import of_choice
from grader.verdict import Clue, Kind

pytestmark = passed_before.REPOSITORY

CALL = Call(
    "f",
    (Buffer("x", "in", "f16", 2, (8,), b"\0" * 16), Buffer("y", "out", "f16", 2, (8,), Poison(1, 16))),
    (Scalar("T", "int", 2), Scalar("F", "int", 4)),
)
MESSAGE = "reads 16 bytes at x[4]: the address is 8 bytes past a multiple of 16"
IN_BRANCHES = dedent(
    """\
    template <typename Pack>
    __global__ void kernel(const half* x, half* y, int F) { y[0] = x[0]; }
    template <typename Pack>
    void launch(const half* x, half* y, int T, int F, cudaStream_t stream) {
        kernel<Pack><<<T, 32, 0, stream>>>(x, y, F);
    }
    KATA_EXPORT void f(const half* x, half* y, int T, int F, cudaStream_t stream) {
        bool aligned = false;
        aligned = 2 * F % 8 == 0;
        if (aligned) {
            launch<uint4>(x, y, T, F, stream);
        } else {
            launch<half>(x, y, T, F, stream);
        }
    }
    """
)
LAUNCHED_IN_BRANCHES = dedent(
    """\
    template <typename Pack>
    __global__ void kernel(const half* x, half* y, int F) { y[0] = x[0]; }
    KATA_EXPORT void f(const half* x, half* y, int T, int F, cudaStream_t stream) {
        if (F % 2 == 0) {
            kernel<uint4><<<T, 32, 0, stream>>>(x, y, F);
        } else {
            kernel<half><<<T, 32, 0, stream>>>(x, y, F);
        }
    }
    """
)
IN_A_TERNARY = dedent(
    """\
    template <typename Pack>
    __global__ void kernel(const half* x, half* y, int F) { y[0] = x[0]; }
    KATA_EXPORT void f(const half* x, half* y, int T, int F, cudaStream_t stream) {
        const auto chosen =
            F % 2 != 0 ? kernel<half> : kernel<uint4>;
        chosen<<<T, 32, 0, stream>>>(x, y, F);
    }
    """
)


def told(text: str, is_right: Callable[[int, int], bool], kernel: str = "kernel<uint4>") -> list[Clue]:
    finding = Finding("misaligned", MESSAGE, kernel=kernel, file="kata.cu", line=2, buffer="x", index=4)
    return of_choice(text, finding, CALL, lambda sizes: is_right(sizes["T"], sizes["F"]))


@pytest.mark.parametrize(
    ("text", "facts", "line"),
    [
        (IN_BRANCHES, ("2 * F % 8 == 0", "true", "line 9"), 9),
        (LAUNCHED_IN_BRANCHES, ("F % 2 == 0", "true", "line 4"), 4),
        (IN_A_TERNARY, ("F % 2 != 0", "false", "line 5"), 5),
    ],
)
def test_the_test_that_leaves_out_a_size_is_named(text: str, facts: tuple[str, ...], line: int) -> None:
    (clue,) = told(text, lambda T, F: F % 8 == 0)
    assert has(clue.text, "kernel<uint4>", *facts, "F = 8", "16") and (clue.about, clue.line) == ("chosen", line)


def test_no_test_is_named_where_the_kernel_may_be_at_fault() -> None:
    assert told(IN_BRANCHES, lambda T, F: False) == []  # wrong at all sizes
    assert told(IN_BRANCHES, lambda T, F: True) == []  # right at a multiple of either size
    assert told(IN_BRANCHES, lambda T, F: F % 8 == 0, kernel="kernel<half>") == []  # which the test does not choose
    changed = IN_BRANCHES.replace("F % 8", "F % 8 == 0 && where() ")
    assert told(changed, lambda T, F: F % 8 == 0) == []  # whose value is not known
    twice = IN_BRANCHES.replace("    if (al", "    if (T > 9) aligned = false;\n    if (al")
    assert all(clue.line != 9 for clue in told(twice, lambda T, F: F % 8 == 0))


POINTERS = dedent(
    """\
    template <int N, class R, class A>
    __global__ void kernel(int n, R* r, const A* a) {
        reinterpret_cast<Pack<R, N>*>(r)[0] = widened(reinterpret_cast<const Pack<A, N>*>(a)[0]);
    }
    template <int N, class R, class A>
    static void launch(cudaStream_t stream, int n, R* to, const A* from) {
        const bool aligned = reinterpret_cast<uintptr_t>(from) % sizeof(Pack<A, N>) == 0;
        if (!aligned) return launch<N / 2>(stream, n, to, from);
        void (*const chosen)(int, R*, const A*) = kernel<N, R, A>;
        chosen<<<1, 32, 0, stream>>>(n, to, from);
    }
    """
)


def told_of_pointers(text: str, kind: Kind = Kind.MISALIGNED) -> list[Clue]:
    finding = Finding(kind.value, MESSAGE, kernel="kernel<4, half, float>", file="kata.cu", line=3)
    return of_choice(text, finding, CALL, lambda sizes: True)


def test_the_pointer_whose_alignment_is_not_tested_is_named() -> None:
    text = POINTERS.replace(" = widened(reinterpret_cast<const Pack<A, N>*>(a)[0])", " = widened(a, 0)")
    (clue,) = told_of_pointers(text)
    assert has(clue.text, "line 7", "`from`", "`to`") and (clue.about, clue.line) == ("chosen", 7)
    assert told_of_pointers(text, Kind.RACE) == []
    assert told_of_pointers(POINTERS) == []  # the access may go through either
    assert told_of_pointers(text.replace("(from) %", "(to) %")) == []
    assert told_of_pointers(text.replace("aligned =", "aligned = is_aligned(to) &&")) == []
    assert told_of_pointers(text.replace("reinterpret_cast<uintptr_t>(from) % sizeof(Pack<A, N>) == 0", "n > 3")) == []
