"""A learner's file is read whatever stands in its place, or refused at once."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from facts import all_of

from grader.content.source_file import LARGEST_BYTES, is_helper, read_source


def test_a_file_is_read_up_to_the_largest_size(tmp_path: Path) -> None:
    place = tmp_path / "a.cu"
    place.write_bytes(b"x" * LARGEST_BYTES)
    assert read_source(place) == b"x" * LARGEST_BYTES


@pytest.mark.parametrize("size", [LARGEST_BYTES + 1, 1_100_000, 40 << 30])
def test_a_larger_one_is_refused_with_two_numbers_that_differ(tmp_path: Path, size: int) -> None:
    place = tmp_path / "a.cu"
    place.touch()
    os.truncate(place, size)
    with pytest.raises(OSError) as caught:
        read_source(place)
    assert re.findall(r"\d[\d,]*", caught.value.strerror) == [f"{size:,}", f"{LARGEST_BYTES:,}"]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (os.mkfifo, "not a regular file"),
        (os.mkdir, "directory"),
        (lambda place: os.symlink(place, place), "symbolic links"),
        (lambda place: os.symlink("/dev/zero", place), "not a regular file"),
    ],
    ids=["pipe", "folder", "link to itself", "device"],
)
def test_what_is_no_file_is_refused(tmp_path: Path, make: object, why: str) -> None:
    assert callable(make)
    make(tmp_path / "a.cu")
    with pytest.raises(OSError, match=all_of(why)):
        read_source(tmp_path / "a.cu")


HELPERS = """\
__device__ __forceinline__ void load(
    float* to, const float* from) {
    asm volatile("..."
                 : "r"(to));
}
__device__ float one(float x) { return x; }

__global__ void tiny(float* y) {
    *y = 1;
}

__device__ void long_one(float* y) {
    int a = 1;
    int b = 2;

    int c = 3;
    int d = 4;
    int e = 5;
    int f = 6;
    *y = a + b + c + d + e + f;
}
"""


def test_short_functions_are_helpers_but_for_kernels() -> None:
    lines = range(1, len(HELPERS.splitlines()) + 1)
    assert [number for number in lines if is_helper(HELPERS, number) and HELPERS.splitlines()[number - 1].strip()] == [
        *range(1, 7)
    ]
    assert not is_helper(HELPERS, 0) and not is_helper(HELPERS, 99)
