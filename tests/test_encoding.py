"""Numbers <-> the bits of a dtype: torch, which has all of them, agrees."""

from __future__ import annotations

import numpy
import pytest
import torch

from grader.content.dtype import DTYPES, Dtype
from grader.judge import encoding
from grader.judge.encoding import decode, encode

FLOATS = [dtype for dtype in DTYPES.values() if dtype.is_float]
ODD = [
    0.0,
    -0.0,
    numpy.inf,
    -numpy.inf,
    numpy.nan,
    448.0,
    463.9,
    464.0,
    480.0,
    57344.0,
    61439.0,
    61440.0,
    65504.0,
    65520.0,
]
SMALL = [2.0**-9, 2.0**-10, 1.0001 * 2.0**-10, 2.0**-16, 2.0**-17, 2.0**-24, 2.0**-25, 1e-40, 2.0**-133, 2.0**-134]


def by_torch(values: numpy.ndarray, dtype: Dtype) -> numpy.ndarray:
    """torch rounds to float first, so it gets what is a float already."""
    return torch.from_numpy(values).float().to(getattr(torch, dtype.torch_name)).double().numpy()


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
def test_rounding_is_torchs(dtype: Dtype) -> None:
    source = numpy.random.default_rng(1)
    drawn = source.standard_normal(100_000) * 10.0 ** source.integers(-45, 39, 100_000)
    values = numpy.concatenate([drawn, ODD, SMALL]).astype(numpy.float32).astype(numpy.float64)
    ours, theirs = decode(encode(values, dtype), dtype), by_torch(values, dtype)
    if dtype.name == "fp8_e4m3":  # versions of torch make nan of what is too large, or the largest number
        fits = numpy.isnan(values) | (abs(values) < 464)
        assert (abs(ours[~fits]) == 448).all()
        ours, theirs = ours[fits], theirs[fits]
    numpy.testing.assert_array_equal(ours, theirs)
    numbers = ~numpy.isnan(ours)
    numpy.testing.assert_array_equal(numpy.signbit(ours[numbers]), numpy.signbit(theirs[numbers]))


@pytest.mark.parametrize("name", ["f16", "bf16", "fp8_e4m3", "fp8_e5m2"])
def test_every_pattern_of_bits_comes_back(name: str) -> None:
    dtype = DTYPES[name]
    raw = numpy.arange(256**dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype.storage)
    values = decode(raw, dtype)
    numpy.testing.assert_array_equal(values, torch.from_numpy(raw).view(getattr(torch, dtype.torch_name)).double())
    numbers = ~numpy.isnan(values)
    assert encode(values[numbers], dtype).tobytes() == raw[numbers].tobytes()


def test_a_half_is_rounded_once() -> None:
    """Through float, this would be rounded up to a tie, and then to the even neighbour above."""
    value = 1 + 2.0**-11 + 2.0**-40
    assert encode(numpy.array([value]), DTYPES["f16"]).tolist() == [1 + 2.0**-10]
    assert encode(numpy.array([1 + 2.0**-11]), DTYPES["f16"]).tolist() == [1.0]
    bf16 = decode(encode(numpy.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8]), DTYPES["bf16"]), DTYPES["bf16"])
    assert bf16.tolist() == [1 + 2.0**-7, 1.0]


@pytest.mark.parametrize("changed", [None, 0, 1000, 2999])
def test_what_repeats_is_encoded_once_and_is_the_same(changed: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one number of the last repetition, or of the first, is another."""
    monkeypatch.setattr(encoding, "PERIOD", 700)
    monkeypatch.setattr(encoding, "BLOCK", 100)
    values = numpy.resize(numpy.random.default_rng(1).standard_normal(700), (3000,))
    if changed is not None:
        values[changed] = 7.5
    encoded = []
    before = encoding._encoded
    monkeypatch.setattr(encoding, "_encoded", lambda part, dtype: encoded.append(part.size) or before(part, dtype))
    got = encode(values.reshape(30, 100), DTYPES["bf16"])
    assert got.shape == (30, 100) and got.tobytes() == before(values, DTYPES["bf16"]).tobytes()
    assert sum(encoded) == (700 if changed is None else 3000)


@pytest.mark.parametrize("name", ["i8", "u8", "i32", "i64"])
def test_whole_numbers_come_back(name: str) -> None:
    dtype = DTYPES[name]
    limits = numpy.iinfo(dtype.storage)
    values = numpy.array([limits.min, limits.max, 0, 1], dtype=numpy.int64)
    assert decode(encode(values, dtype), dtype).tolist() == values.tolist()
