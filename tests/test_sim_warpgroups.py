"""wgmma on the simulator: layouts, types and pipelines are right, and its hazards are found."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import passed_before
import pytest
from facts import has
from sim_kernels.harness import HERE, line_of, open_device, run, unpack, wanted

from grader.devices import Buffer, Outcome
from grader.devices.sim import SimDevice

pytestmark = passed_before.GRADER

SOURCE = HERE / "warpgroups.cu"
M, N, K = 128, 64, 64 * 8
Array = npt.NDArray[np.generic]


@pytest.fixture(scope="module")
def device() -> SimDevice:
    return open_device(SOURCE)


def whole(shape: tuple[int, ...], dtype: type = np.float16, *, low: int = -4, high: int = 5) -> Array:
    """Small whole numbers: their products and sums are exact in every type."""
    return np.random.default_rng(sum(shape)).integers(low, high, shape).astype(dtype)


def buffer(name: str, values: Array) -> Buffer:
    kinds = {2: "u16", 4: "u32", 1: "u16"}
    data = values.tobytes()
    size = max(values.itemsize, 2)
    return Buffer(name, "in", kinds[values.itemsize], size, (len(data) // size,), data, 0)


A, B = whole((M, K)), whole((N, K))


def ring(device: SimDevice, launcher: str, seed: int, *, forgive_copies: bool = False) -> Outcome:
    arguments = buffer("a", A), buffer("b", B), wanted("c", "f32", M * N), M, N, K
    return run(device, launcher, *arguments, seed=seed, forgive_copies=forgive_copies)


def test_a_ring_is_right_for_every_seed(device: SimDevice, right_seeds: range) -> None:
    expected = A.astype(np.float32) @ B.astype(np.float32).T
    for seed in right_seeds:
        done = ring(device, "ring", seed)
        assert not done.findings, (seed, done.findings)
        assert (np.array(unpack("f32", done.outputs["c"])).reshape(M, N) == expected).all()


# launcher -> kinds, the line's markers, facts in the message
WRONG: dict[str, tuple[set[str], list[str], list[str]]] = {
    "ring_no_wait": ({"race"}, ["ring_read", "ring_load_a"], ["wgmma", "wgmma.wait_group"]),
    "ring_wait_one": ({"race"}, ["ring_read"], ["accumulator", "wgmma.wait_group"]),
    "ring_released_early": ({"race"}, ["ring_load_a"], ["may still read", "tiles["]),
    "ring_zeroed_late": ({"race"}, ["ring_zero", "ring_zero_if"], ["wgmma.fence"]),
    "ring_never_set": ({"uninitialised"}, ["ring_multiply"], ["nothing has set", "scale-d is 1"]),
    "ring_no_fence": ({"race"}, ["ring_multiply"], ["wgmma.fence"]),
    "ring_three_warps": ({"deadlock"}, [], ["warp", "warpgroup"]),
    "ring_one_warp_waits": ({"race"}, ["ring_read"], ["accumulator", "wgmma.wait_group"]),
    "ring_left_out": ({"deadlock"}, ["ring_last_wait"], ["warp 3", "warpgroup", "all four warps"]),
}


@pytest.mark.parametrize("launcher", WRONG)
def test_misuse_is_found(device: SimDevice, launcher: str, wrong_seeds: range) -> None:
    kinds, markers, facts = WRONG[launcher]
    for seed in wrong_seeds:
        found = ring(device, launcher, seed).findings
        assert len(found) == 1 and found[0].kind in kinds, (seed, found)
        assert has(found[0].message, *facts)
        assert not markers or found[0].line in [line_of(SOURCE, marker) for marker in markers], (seed, found)


def test_the_wait_that_is_too_weak_is_named(device: SimDevice) -> None:
    """Its line, what it leaves in flight, and which group the product is in; where there was none, that."""
    wait = f"the last wait, on line {line_of(SOURCE, 'ring_wait')}, leaves the newest group in flight"
    for launcher in ("ring_wait_one", "ring_one_warp_waits"):
        [found] = ring(device, launcher, 0).findings
        assert has(found.message, wait, "this product is in the newest one"), found
    said = [each.message for seed in range(8) for each in ring(device, "ring_no_wait", seed).findings]
    assert not any("newest" in each for each in said)
    assert all("no wait has come since" in each for each in said if "accumulator" in each)


@pytest.mark.parametrize("launcher", ["ring_no_wait", "ring_wait_one", "ring_zeroed_late", "ring_released_early"])
def test_of_code_close_to_its_source_registers_are_forgiven_and_shared_memory_is_not(
    device: SimDevice, launcher: str
) -> None:
    found = ring(device, launcher, 0, forgive_copies=True).findings
    assert not any("register" in each.message or "accumulator" in each.message for each in found)
    assert bool(found) == (launcher != "ring_wait_one")  # which has no other mistake


def test_who_releases_a_stage_early_is_told_what_was_waited_for(device: SimDevice, wrong_seeds: range) -> None:
    """The thread that fills the stage again is another: it waits for a barrier, and not for the product."""
    for seed in wrong_seeds:
        [found] = ring(device, "ring_released_early", seed).findings
        assert has(found.message, "its warpgroup", "barrier") and "first" not in found.message
        wait, init, arrival = (
            f"line {line_of(SOURCE, marker)}" for marker in ("ring_wait_empty", "ring_init_empty", "ring_early_arrival")
        )
        assert has(found.phases[0], "last wait", wait, "phase 0 of empty[", "1 of 1 arrival", init)
        assert has(found.phases[0], f"1 on {arrival} by thread (0,0,0)", "before the wgmma", "waited for")


def test_who_waits_for_a_phase_that_was_over_is_told_so(device: SimDevice) -> None:
    """The stage was given back, so the copy may begin; the product reads it again without having waited for that."""
    wait, copy = (f"line {line_of(SOURCE, marker)}" for marker in ("ring_wait_full", "ring_load_a"))
    found = [each for seed in range(6) for each in ring(device, "ring_old_phase", seed).findings]
    assert {each.kind for each in found} == {"race"}
    first = [each for each in found if "was over" in each.message]
    assert first
    for each in first:
        assert line_of(SOURCE, "ring_wait_full") in (each.line, *each.callers)
        assert has(each.message, "waits for phase 0 of full[", f"the wait on {wait} had been for it", copy, "phase 1")
        assert "wait_group" not in each.message


def test_a_product_that_comes_before_the_write_is_a_race(device: SimDevice, wrong_seeds: range) -> None:
    """A warp that sleeps writes what the product has read: these are not called bytes that no thread has written."""
    arguments = buffer("a", whole((64, 16))), buffer("b", whole((64, 16))), wanted("c", "f32", 64 * 64)
    for seed in wrong_seeds:
        [found] = run(device, "late_write", *arguments, seed=seed).findings
        assert found.kind == "race" and line_of(SOURCE, "late_multiply") in (found.line, *found.callers), found
        assert has(found.message, "tile_b", "wgmma", "before thread (128,0,0)", f"line {line_of(SOURCE, 'late_write')}")


@pytest.mark.parametrize("launcher", ["ring_wrong_stride", "ring_wrong_step"])
def test_wrong_descriptors_show(device: SimDevice, launcher: str, wrong_seeds: range) -> None:
    """Nothing tells a wrong descriptor from a right one but the answer, or bytes that no thread wrote."""
    expected = A.astype(np.float32) @ B.astype(np.float32).T
    for seed in wrong_seeds:
        done = ring(device, launcher, seed)
        got = np.array(unpack("f32", done.outputs["c"])).reshape(M, N)
        assert done.findings or (got != expected).any()


@pytest.mark.parametrize("mode", [0, 2])
def test_offsets_of_the_other_major_dimension_show(device: SimDevice, mode: int, wrong_seeds: range) -> None:
    a, b = whole((64, 16)), whole((64, 16))
    arguments = buffer("a", a), buffer("b", b), wanted("c", "f32", 64 * 64)
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    for seed in wrong_seeds:
        done = run(device, "layout_wrong_major", *arguments, mode, 1, seed=seed)
        assert done.findings or (np.array(unpack("f32", done.outputs["c"])).reshape(64, 64) != expected).any()


@pytest.mark.parametrize("by_rows", [0, 1])
@pytest.mark.parametrize("mode", range(4))
def test_layouts(device: SimDevice, mode: int, by_rows: int) -> None:
    a, b = whole((64, 16)), whole((64, 16))
    done = run(device, "layout", buffer("a", a), buffer("b", b), wanted("c", "f32", 64 * 64), mode, by_rows)
    assert not done.findings, done.findings
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    assert (np.array(unpack("f32", done.outputs["c"])).reshape(64, 64) == expected).all()


def test_a_product_of_what_threads_wrote_needs_a_proxy_fence(device: SimDevice, wrong_seeds: range) -> None:
    a, b = whole((64, 16)), whole((64, 16))
    for seed in wrong_seeds:
        arguments = buffer("a", a), buffer("b", b), wanted("c", "f32", 64 * 64)
        (found,) = run(device, "layout_no_fence", *arguments, 1, 0, seed=seed).findings
        assert found.kind == "race" and has(found.message, "fence.proxy.async", "tile_a[")
        assert found.line == line_of(SOURCE, "layout_multiply")


def test_registers(device: SimDevice, wrong_seeds: range) -> None:
    a, b = whole((128, 16)), whole((2, 16, 16))
    arguments = buffer("a", a), buffer("b", b), wanted("c", "f32", 128 * 16)
    expected = np.concatenate([a[t * 64 : t * 64 + 64].astype(np.float32) @ b[t].astype(np.float32).T for t in (0, 1)])
    for seed in wrong_seeds:
        done = run(device, "registers", *arguments, seed=seed)
        assert not done.findings, done.findings
        assert (np.array(unpack("f32", done.outputs["c"])).reshape(128, 16) == expected).all()
        (found,) = run(device, "registers_early", *arguments, seed=seed).findings
        assert found.kind == "race" and has(found.message, "accumulator")
        assert found.line == line_of(SOURCE, "registers_early")


def test_operands_in_registers_stay_until_they_are_read(device: SimDevice, wrong_seeds: range) -> None:
    a, b = whole((2 * 64, 16)), whole((16, 16))
    for seed in wrong_seeds:
        (found,) = run(
            device, "overwritten", buffer("a", a), buffer("b", b), wanted("c", "f32", 1024), 2, seed=seed
        ).findings
        assert found.kind == "race" and has(found.message, "operand", "wgmma", "wgmma.wait_group")
        assert has(found.message, f"line {line_of(SOURCE, 'overwritten_multiply')}")


def test_a_group_without_a_product_may_be_open_at_the_end(device: SimDevice, wrong_seeds: range) -> None:
    a, b = whole((64, 16)), whole((16, 16))
    arguments = buffer("a", a), buffer("b", b), wanted("c", "f32", 64 * 16)
    done = run(device, "empty_group", *arguments)
    assert not done.findings and not any(unpack("f32", done.outputs["c"])), done.findings
    for seed in wrong_seeds:
        (found,) = run(device, "unfinished", *arguments, seed=seed).findings
        assert found.kind == "race" and has(found.message, "exits", "wgmma.wait_group")
        assert found.line == line_of(SOURCE, "unfinished_last")


def test_a_warpgroup_begins_at_a_multiple_of_four_warps(device: SimDevice, wrong_seeds: range) -> None:
    for seed in wrong_seeds:
        (found,) = run(device, "shifted", wanted("c", "f32", 160), seed=seed).findings
        assert found.kind == "deadlock" and has(found.message, "warpgroup")


def as_fp8(values: Array, bias: int, mantissa: int) -> Array:
    """Whole numbers from -4 to 4 as bytes of e4m3 or e5m2."""
    powers = [int(np.log2(v)) for v in range(1, 5)]
    codes = [0, *(((p + bias) << mantissa) + int((v / 2**p - 1) * 2**mantissa) for v, p in enumerate(powers, 1))]
    made = [codes[abs(int(v))] | (128 if v < 0 else 0) for v in values.ravel()]
    return np.array(made, dtype=np.uint8).reshape(values.shape)


def types() -> dict[str, tuple[Array, Array, Array]]:
    """launcher -> a, b as their bytes, and the product"""
    made: dict[str, tuple[Array, Array, Array]] = {}
    for name, depth in [("f16", 16), ("bf16", 16), ("tf32", 8), ("e4m3", 32), ("e5m2", 32), ("s8", 32)]:
        a, b = whole((64, depth), np.float32), whole((8, depth), np.float32)
        if name == "s8":
            b = np.abs(b)
        product = a @ b.T * (-1 if name == "bf16" else 1)
        convert = {
            "f16": lambda v: v.astype(np.float16),
            "bf16": lambda v: (v.view(np.uint32) >> 16).astype(np.uint16),
            "tf32": lambda v: v,
            "e4m3": lambda v: as_fp8(v, 7, 3),
            "e5m2": lambda v: as_fp8(v, 7, 3),
            "s8": lambda v: v.astype(np.int8),
        }[name]
        left = as_fp8(a, 15, 2) if name == "e5m2" else convert(a)
        made[f"type_{name}"] = (left, convert(b), product.astype(np.int32) if name == "s8" else product)
    return made


TYPES = types()


@pytest.mark.parametrize("launcher", TYPES)
def test_types(device: SimDevice, launcher: str) -> None:
    a, b, product = TYPES[launcher]
    done = run(device, launcher, buffer("a", a), buffer("b", b), wanted("c", "u32", 64 * 8), 0)
    assert not done.findings, done.findings
    got = np.array(unpack("u32", done.outputs["c"]), dtype=np.uint32).view(product.dtype)
    assert (got.reshape(64, 8) == product).all()


# launcher -> how many registers a thread has at the launch, as ptxas of CUDA 13.0 reports; those of the block
POOLS = {"pool_too_small": (128, 32768), "pool_of_parts_too_small": (168, 43008)}


@pytest.mark.parametrize("launcher", ["pool", "pool_alone", "pool_alone_most", "pool_of_parts", *POOLS])
def test_registers_are_a_pool_of_the_block(device: SimDevice, launcher: str, wrong_seeds: range) -> None:
    values = whole((256,), np.float32)
    for seed in wrong_seeds:
        done = run(device, launcher, buffer("a", values), wanted("c", "f32", 256), seed=seed)
        if launcher not in POOLS:
            assert not done.findings, done.findings
            continue
        each, total = POOLS[launcher]
        (found,) = done.findings
        assert found.kind == "deadlock" and has(found.message, "registers", f"{each} for each", str(total)), found
        assert found.line == line_of(SOURCE, "pool_take")


def test_a_dependent_launch_waits_for_the_one_before(device: SimDevice) -> None:
    values = whole((128,), np.float32)
    arguments = buffer("a", values), wanted("c", "f32", 128)
    done = run(device, "dependent", *arguments)
    assert not done.findings and (np.array(unpack("f32", done.outputs["c"])) == 2 * values).all()
    (found,) = run(device, "dependent_too_early", *arguments).findings
    assert found.kind == "race" and has(found.message, "c[0]", "launch before", "cudaGridDependencySynchronize")
    assert found.line == line_of(SOURCE, "dependent_read")
