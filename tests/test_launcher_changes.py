"""A launcher's text and what it launched -> the numbers that are changed, and the lines that they are computed on."""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import replace

import pytest
from facts import has

from grader.devices import Buffer, Call, HostChange, Poison, Scalar
from grader.devices.counters import Launched
from grader.judge.launcher_changes import (
    ADD,
    BLOCK,
    BYTES,
    GRID,
    MULTIPLY,
    PARAMETER,
    SCALE,
    SET,
    SHARED,
    TAKE,
    LauncherChange,
    launcher_changes,
    roomier,
)

TEXT = """
template <typename T>
__global__ void scale_kernel(const T* x, T* y, int rows, int cols, float a) {
    y[threadIdx.x] = x[threadIdx.x] * a;
}

KATA_EXPORT void scale(const float* x, float* y, int rows, int cols, float a, cudaStream_t stream) {
    const int blocks = (rows - 1) / 256 + 1;
    size_t bytes = cols;
    cudaMemsetAsync(y, 0, rows * cols, stream);
    const CUtensorMap x_map = matrix_map(x, rows, cols, 8, 16);
    scale_kernel<float><<<blocks, 256, bytes, stream>>>(
        x, y, rows, cols, a);
}
"""
LINES = {name: TEXT[: TEXT.index(word)].count("\n") + 1 for name, word in (
    ("blocks", "const int blocks"), ("bytes", "size_t"), ("memset", "cudaMemset"), ("map", "const CUtensorMap"),
    ("launch", "<<<"), ("arguments", "x, y, rows, cols, a);"), ("kernel", "y[threadIdx"),
)}  # fmt: skip
KERNEL = "scale_kernel"
LAUNCHED = (Launched("scale_kernel<float>", (1, 1, 1), (256, 1, 1), 8),)
TYPES = {"scale_kernel<float>": ("u64", "u64", "u32", "u32", "f32")}
CALL = Call(
    "scale",
    (
        Buffer("x", "in", "f32", 4, (700, 9), bytes(4 * 700 * 9)),
        Buffer("y", "out", "f32", 4, (700, 9), Poison(165, 4 * 700 * 9)),
    ),
    (Scalar("rows", "int", 700), Scalar("cols", "int", 9), Scalar("a", "float", 0.25)),
)


def proposed(own: Collection[int] | None = None, text: str = TEXT) -> list[LauncherChange]:
    lines = range(1, 99) if own is None else own
    return list(launcher_changes(text, lines, LAUNCHED, TYPES, CALL))


def those(*numbers: HostChange) -> list[LauncherChange]:
    """The changes that make these numbers of the call others, and no more."""
    made = ((each, each.change(CALL)) for each in proposed())
    return [each for each, call in made if call is not None and call.host == numbers]


def the_one(*numbers: HostChange) -> LauncherChange:
    found = those(*numbers)
    assert found, numbers
    return found[0]


def of_launch(place: int, how: int, number: int) -> HostChange:
    return HostChange(KERNEL, place, how, number)


def bits(value: float) -> int:
    (found,) = struct.unpack("<I", struct.pack("<f", value))
    return int(found)


def test_a_number_has_the_line_of_its_last_assignment() -> None:
    more = the_one(of_launch(GRID, ADD, 1))
    assert more.line == LINES["blocks"]
    assert the_one(of_launch(SHARED, MULTIPLY, 4)).line == LINES["bytes"]
    assert the_one(of_launch(PARAMETER + 3, ADD, -1)).line == LINES["arguments"]


def test_blocks_follow_from_the_sizes_of_each_case() -> None:
    blocks = the_one(of_launch(GRID, SET, 88))
    assert has(blocks.words, "grid", "ceil(rows / 8)")  # with the largest divisor that gives so many
    made = blocks.change(Call("scale", CALL.buffers, (Scalar("rows", "int", 9), *CALL.scalars[1:])))
    assert made is not None and made.host == (of_launch(GRID, SET, 2),)


@pytest.mark.parametrize(("step", "shared"), [("256", False), ("gridDim.x * 256", True)])
def test_blocks_that_share_the_work_are_not_too_many(step: str, shared: bool) -> None:
    text = TEXT.replace("    y[threadIdx.x] =", f"    for (int i = 0; i < rows; i += {step})\n    y[threadIdx.x] =")
    launched = (replace(LAUNCHED[0], grid=(3, 1, 1)),)
    words = [each.words for each in launcher_changes(text, range(1, 99), launched, TYPES, CALL)]
    found = [each for each in words if "one block:" in each]
    assert len(found) == (not shared) and all(each.endswith("each does what one of them must do") for each in found)


def test_arguments_of_one_type_are_exchanged() -> None:
    sizes = the_one(of_launch(PARAMETER + 2, TAKE, PARAMETER + 3), of_launch(PARAMETER + 3, TAKE, PARAMETER + 2))
    assert has(sizes.words, "arguments 3 and 4", "exchanged")
    assert those(of_launch(PARAMETER, TAKE, PARAMETER + 1), of_launch(PARAMETER + 1, TAKE, PARAMETER))
    assert not those(of_launch(PARAMETER + 1, TAKE, PARAMETER + 2), of_launch(PARAMETER + 2, TAKE, PARAMETER + 1))


def test_a_whole_number_and_a_float_are_exchanged() -> None:
    both = the_one(of_launch(PARAMETER + 2, SET, 700), of_launch(PARAMETER + 4, SET, bits(0.25)))
    assert has(both.words, "argument 3", "rows", "argument 5", "is a")


def test_a_float_gets_a_factor_or_is_another_function() -> None:
    assert has(the_one(of_launch(PARAMETER + 4, SCALE, bits(1 / 3))).words, "divided by sqrt(cols)")
    assert has(the_one(of_launch(PARAMETER + 4, SET, bits(4.0))).words, "1 / a")
    logit_scale = the_one(of_launch(PARAMETER + 4, SET, bits(1.4426950408889634 / 3)))
    assert has(logit_scale.words, "log2(e) / sqrt(cols)")


def test_bytes_lack_their_sizeof() -> None:
    fill = the_one(HostChange("cudaMemsetAsync", BYTES, MULTIPLY, 4))
    assert fill.line == LINES["memset"]


def test_an_output_begins_at_0() -> None:
    [zeros] = [each for each in proposed(text=TEXT.replace("cudaMemsetAsync(y", "fill(y")) if each.line is None]
    made = zeros.change(CALL)
    assert made is not None and [each.role for each in made.buffers] == ["in", "updated"]
    assert made.buffers[1].data == bytes(4 * 700 * 9) and has(zeros.words, "y is set to 0")


def test_an_output_that_a_line_sets_in_part_is_not_said_to_be_set_by_none() -> None:
    assert not [each for each in proposed() if each.line is None]
    set_, rest = "    cudaMemsetAsync(y, 0, rows * cols, stream);\n", "        x, y, rows, cols, a);\n"
    later = TEXT.replace(set_, "").replace(rest, f"{rest}{set_}")
    [zeros] = [each for each in proposed(text=later) if each.line is None]
    assert zeros.words == "y is set to 0 before the first kernel, which line 13 does later"


def test_a_memset_of_elements_for_bytes_says_how_many_it_sets() -> None:
    call = replace(CALL, buffers=(CALL.buffers[0], replace(CALL.buffers[1], data=Poison(165, 4 * 9))))
    text = TEXT.replace("rows * cols, stream", "cols, stream")
    made = [each.words for each in launcher_changes(text, range(1, 99), LAUNCHED, TYPES, call)]
    assert "cudaMemsetAsync is about 4 times as many bytes: `cols` is 9 of the 36 bytes of y" in made
    assert "cudaMemsetAsync is about 2 times as many bytes" in made  # 18 are no whole buffer


def test_a_tensor_map_has_rows_and_columns() -> None:
    exchanged = the_one(
        HostChange("cuTensorMapEncodeTiled", 0, TAKE, 1), HostChange("cuTensorMapEncodeTiled", 1, TAKE, 0)
    )
    assert exchanged.line == LINES["map"] and has(exchanged.words, "x_map", "exchanged")


def test_only_the_learners_lines_are_changed() -> None:
    assert not proposed({LINES["kernel"]})
    assert {each.line for each in proposed({LINES["blocks"]})} == {LINES["blocks"]}


def test_a_memset_is_of_another_size_or_one_element_more() -> None:
    sized = the_one(HostChange("cudaMemsetAsync", BYTES, SET, 4 * 9))
    assert sized.line == LINES["memset"] and has(sized.words, "cudaMemsetAsync", "cols elements of 4 bytes")
    assert has(the_one(HostChange("cudaMemsetAsync", BYTES, ADD, 4)).words, "4 more bytes")


def test_warps_are_counted_as_threads() -> None:
    """The variable is set on a line that is not the learner's, and given on one that is."""
    text = TEXT.replace("blocks, 256, bytes", "blocks, warps, bytes").replace(
        "size_t bytes", "int warps = 2; size_t bytes"
    )
    launched = (Launched("scale_kernel<float>", (1, 1, 1), (2, 1, 1), 8),)
    found = [*launcher_changes(text, {LINES["launch"]}, launched, TYPES, CALL)]
    made = [(each.line, each.words) for each in found if (call := each.change(CALL)) and call.host == (
        of_launch(BLOCK, MULTIPLY, 32),)]  # fmt: skip
    assert [line for line, _ in made] == [LINES["launch"]] and has(made[0][1], "block", "32 times")
    assert not [each for each in proposed() if has_host(each, of_launch(BLOCK, MULTIPLY, 32))]  # of 256 threads


def has_host(change: LauncherChange, number: HostChange) -> bool:
    made = change.change(CALL)
    return made is not None and number in made.host


def test_more_shared_memory_has_the_line_that_computes_its_constant() -> None:
    text = TEXT.replace("KATA_EXPORT", "constexpr int BYTES = 4 * 256;\nKATA_EXPORT", 1).replace(", bytes,", ", BYTES,")
    launched = (Launched("scale_kernel<float>", (1, 1, 1), (256, 1, 1), 1024),)
    [more] = roomier(text, range(1, 99), launched, TYPES)
    assert more.line == text[: text.index("constexpr")].count("\n") + 1 and has(more.words, "more than 1024 bytes")
    assert has_host(more, of_launch(SHARED, ADD, 384)) and more.is_shared(CALL)
    assert not those(of_launch(BLOCK, SET, 32))[0].is_shared(CALL)
