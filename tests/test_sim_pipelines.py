"""Whole kernels as Hopper's libraries build them: right on every schedule, and wrong where one step is missing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import passed_before
import pytest
from facts import has
from sim_kernels.harness import HERE, line_of, open_device, run, wanted

from grader.devices import Buffer, Outcome
from grader.devices.sim import SimDevice

pytestmark = passed_before.GRADER

SOURCE = HERE / "pipelines.cu"
TILE = 64
M, N, K = 256, 128, 3 * TILE
QUERIES, KEYS = 4 * TILE, 4 * TILE
Array = npt.NDArray[np.generic]


@pytest.fixture(scope="module")
def device() -> SimDevice:
    return open_device(SOURCE)


def buffer(name: str, values: Array) -> Buffer:
    kind = "f16" if values.itemsize == 2 else "f32"
    return Buffer(name, "in", kind, values.itemsize, (values.size,), values.tobytes(), 0)


def whole(low: int, high: int, shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(sum(shape)).integers(low, high, shape)


A, B = whole(-2, 3, (M, K)).astype(np.float16), whole(-2, 3, (N, K)).astype(np.float16)
SCALES = whole(1, 4, (K // TILE, N)).astype(np.float32)  # of each column, in each step along k
QUERY, KEY, VALUE = (
    np.random.default_rng(seed).normal(size=(rows, TILE)).astype(np.float16)
    for seed, rows in enumerate((QUERIES, KEYS, KEYS))
)


def product(device: SimDevice, launcher: str, seed: int) -> Outcome:
    scales = [buffer("scales", SCALES)] if launcher.startswith("clustered") else []
    return run(device, launcher, buffer("a", A), buffer("b", B), *scales, wanted("c", "f16", M * N), M, N, K, seed=seed)


def attention(device: SimDevice, launcher: str, seed: int) -> Outcome:
    arguments = [buffer(name, values) for name, values in zip("qkv", (QUERY, KEY, VALUE), strict=True)]
    return run(device, launcher, *arguments, wanted("out", "f32", QUERIES * TILE), QUERIES, KEYS, seed=seed)


def expected_product(launcher: str) -> Array:
    """Whole numbers that f16 has."""
    a, b = A.astype(np.float32).reshape(M, -1, TILE), B.astype(np.float32).reshape(N, -1, TILE)
    scales = SCALES if launcher.startswith("clustered") else np.ones_like(SCALES)
    made: Array = np.einsum("msk,nsk,sn->mn", a, b, scales)
    return made


def got_product(done: Outcome) -> Array:
    return np.frombuffer(done.outputs["c"], np.float16).astype(np.float32).reshape(M, N)


@pytest.mark.parametrize("launcher", ["persistent", "pingpong", "clustered"])
def test_right_for_every_seed(device: SimDevice, launcher: str, right_seeds: range) -> None:
    expected = expected_product(launcher)
    for seed in right_seeds:
        done = product(device, launcher, seed)
        assert not done.findings, (seed, done.findings)
        assert (got_product(done) == expected).all(), seed


@pytest.mark.parametrize("launcher", ["attention", "forward"])
def test_attention_is_right_for_every_seed(device: SimDevice, launcher: str, right_seeds: range) -> None:
    for seed in right_seeds:
        done = attention(device, launcher, seed)
        assert not done.findings, (seed, done.findings)
        assert is_attention(done), seed


def is_attention(done: Outcome) -> bool:
    scores = np.exp(QUERY.astype(np.float64) @ KEY.astype(np.float64).T)
    expected = scores @ VALUE.astype(np.float64) / scores.sum(1, keepdims=True)
    got = np.frombuffer(done.outputs["out"], np.float32).reshape(QUERIES, TILE)
    return np.allclose(got, expected, atol=2e-3)


def test_who_expects_the_bytes_is_who_copies(device: SimDevice, wrong_seeds: range) -> None:
    """Lane 0 expects the bytes that the elected lane copies: right where that is lane 0, which PTX does not promise."""
    for seed in wrong_seeds:
        done = attention(device, "forward_first_expects", seed)
        if seed % 2 == 0:
            assert not done.findings and is_attention(done), (seed, done.findings)
            continue
        (found,) = done.findings
        assert found.kind == "deadlock", (seed, found)
        assert has(found.message, "mbarrier", "lacks 1 arrival", "8192 bytes", "elect.sync", "last lane"), found
        assert line_of(SOURCE, "forward_wait") in (found.line, *found.callers), (seed, found)


# launcher -> the line's markers, facts in the message
WRONG: dict[str, tuple[list[str], list[str]]] = {
    "persistent_one_parity": (
        ["persistent_load", "persistent_load_b", "multiplies", "persistent_wait"],
        ["wgmma", "memory["],
    ),
    "persistent_no_fence": (["persistent_store"], ["fence.proxy.async", "memory["]),
    "persistent_store_reads": (["stores_matrix"], ["may still read", "memory[", "wait_group.read"]),
    "clustered_no_last_lap": (["clustered_free"], ["shared memory of block rank", "exit"]),
    "attention_converts_early": (["packed"], ["operand of the wgmma", "wgmma.wait_group"]),
}


@pytest.mark.parametrize("launcher", WRONG)
def test_misuse_is_found(device: SimDevice, launcher: str, wrong_seeds: range) -> None:
    markers, facts = WRONG[launcher]
    call = attention if launcher.startswith("attention") else product
    for seed in wrong_seeds:
        (found,) = call(device, launcher, seed).findings
        assert found.kind == "race" and has(found.message, *facts), (seed, found)
        assert found.line in [line_of(SOURCE, marker) for marker in markers], (seed, found)


def test_sums_of_the_tile_before_show(device: SimDevice, wrong_seeds: range) -> None:
    expected = expected_product("persistent")
    for seed in wrong_seeds:
        done = product(device, "persistent_keeps_sums", seed)
        assert not done.findings and (got_product(done) != expected).any()
