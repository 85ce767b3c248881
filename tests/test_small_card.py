"""A card with few multiprocessors: what hangs there is a deadlock, and what a launcher learns of one card stays there.

The kernels are those of near_misses.cu: right where all of their blocks run at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import passed_before
import pytest
from sim_kernels.harness import HERE, given, open_device, unpack, wanted
from test_check import Arrays, FakeSandbox, broken, run, spec

from grader.content.catalog import load_catalog
from grader.content.spec import load_spec
from grader.devices import Call, Card, Finding, Outcome, Scalar
from grader.devices.sim import SimDevice
from grader.judge.search import SMALL_CARDS, SearchBudget, budget_for
from grader.verdict import Kind

pytestmark = passed_before.REPOSITORY

NEAR_MISSES = HERE / "near_misses.cu"
N = 257
SMALL = SearchBudget(examples=10, shrink_work=1 << 40, small_cards=True)
FEW, ENOUGH = Card(2, 1), Card(2, 2)  # run two blocks at a time, and four


@pytest.fixture(scope="module")
def device() -> SimDevice:
    return open_device(NEAR_MISSES)


def launch(device: SimDevice, launcher: str, card: Card | None, seed: int = 0) -> Outcome:
    buffers = (given("x", "f32", [float(i % 17) for i in range(N)]), wanted("y", "f32", N))
    return device.call(Call(launcher, buffers, (Scalar("n", "int", N),), seed=seed, card=card))


def line_with(text: str) -> int:
    (number,) = (at for at, line in enumerate(NEAR_MISSES.read_text().splitlines(), 1) if text in line)
    return number


@pytest.mark.parametrize("seed", range(8))
def test_barrier_of_more_blocks_than_the_card_runs_is_a_deadlock(device: SimDevice, seed: int) -> None:
    (found,) = launch(device, "phases_with_grid_barrier", FEW, seed).findings
    assert (found.kind, found.kernel, found.line) == (
        "deadlock", "phases_with_grid_barrier_kernel", line_with("while (*(volatile unsigned int*)&arrived")
    )  # fmt: skip
    assert found.block is not None and "2 blocks of the grid cannot start" in found.message


def test_same_blocks_pass_where_all_run_at_once() -> None:
    """On a device of its own: blocks that hung leave their counters behind."""
    fresh = open_device(NEAR_MISSES)
    for card in (ENOUGH, None):
        assert [launch(fresh, "phases_with_grid_barrier", card, seed).findings for seed in range(8)] == [()] * 8


def test_wait_for_the_block_before_hangs_in_some_orders(device: SimDevice) -> None:
    kinds = {tuple(found.kind for found in launch(device, "chain_of_blocks", FEW, seed).findings) for seed in range(32)}
    assert kinds == {(), ("deadlock",)}


def test_lock_passes_on_any_card(device: SimDevice) -> None:
    fresh = open_device(NEAR_MISSES)
    for seed in range(8):
        outcome = launch(fresh, "lock_of_blocks", FEW, seed)
        assert outcome.findings == () and unpack("f32", outcome.outputs["y"])[0] == 2 * (0 + 1 + 2 + 3)


def test_call_after_it_has_the_full_card_again(device: SimDevice) -> None:
    launch(device, "release_and_acquire", FEW)
    assert launch(device, "release_and_acquire", None).findings == ()


# -- which cases run on one ------------------------------------------------------------------------------------------


@dataclass
class Processes(FakeSandbox):
    """A sandbox whose launcher asks what card it is on where ``asks``, and keeps the first answer of its process."""

    asks: bool = False
    cards: list[set[Card | None]] = field(default_factory=lambda: [set()])  # of the calls of each process

    def call(self, call: Call) -> Outcome:
        self.cards[-1].add(call.card)
        return replace(super().call(call), asked_card=self.asks)

    def close(self) -> None:
        self.cards.append(set())


def add(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
    return {"c": inputs["a"] + inputs["b"]}


def tried(sandbox: FakeSandbox) -> dict[int, set[bool]]:
    """Size -> whether it ran on a small card, for the named sizes."""
    found: dict[int, set[bool]] = {int(sizes["n"]): set() for sizes in spec().named_sizes}
    for call in sandbox.calls:
        size = int(call.scalars[0].value)
        if size in found:
            found[size].add(call.card is not None)
    return found


def test_some_of_the_named_shapes_run_on_small_cards_of_all_kinds() -> None:
    sandbox = Processes(add)
    assert run(sandbox, budget=SMALL).passed
    on_small = [sizes for sizes in tried(sandbox).values() if True in sizes]
    assert 3 <= len(on_small) <= 5 and tried(sandbox)[999] == {True, False}
    assert len({call.card for call in sandbox.calls}) >= 3, "two or three multiprocessors, and the full card"
    assert len(sandbox.cards) == 1, "one process does for a launcher that does not ask"


def test_no_small_card_unless_the_budget_says_so() -> None:
    sandbox = Processes(add)
    assert run(sandbox, budget=replace(SMALL, small_cards=False)).passed
    assert {call.card for call in sandbox.calls} == {None}
    assert budget_for("sim").small_cards and not budget_for("gpu").small_cards


def test_launcher_that_asks_is_tried_on_either_card_with_every_named_shape() -> None:
    sandbox = Processes(add, asks=True)
    assert run(sandbox, budget=SMALL).passed
    assert all(where == {True, False} for size, where in tried(sandbox).items() if size > 0)
    assert all(len(cards) == 1 for cards in sandbox.cards[:-1]), "no process has two cards"


def test_the_card_of_a_launcher_that_asks_seldom_changes() -> None:
    """Each change costs a process, which takes more time than a small shape."""
    sandbox = Processes(add, asks=True)
    assert run(sandbox, the_spec=spec(named_sizes=tuple({"n": n} for n in range(1, 40))), budget=SMALL).passed
    assert SMALL_CARDS < len(sandbox.cards) <= SMALL_CARDS + 2


def fails_on_small(call: Call, outcome: Outcome, sizes: dict[str, Any]) -> Outcome:
    found = Finding("deadlock", "waits", file="f.cu", line=3)
    return replace(outcome, findings=(found,)) if call.card is not None and sizes["n"] > 30 else outcome


def test_verdict_says_on_which_small_card_it_fails() -> None:
    verdict = run(Processes(add, bug=fails_on_small), budget=SMALL)
    assert verdict.kind is Kind.DEADLOCK and verdict.card is not None and "SMs" in verdict.card
    assert verdict.sizes == {"n": 31}


def test_what_fails_on_the_full_card_too_is_said_of_that() -> None:
    always = Processes(broken(lambda n: n >= 2).answer)
    verdict = run(always, budget=SMALL)
    assert (verdict.kind, verdict.card, verdict.sizes) == (Kind.WRONG_ANSWER, None, {"n": 2})


def test_failure_on_a_small_card_is_tried_there_first_the_next_time(tmp_path: Path) -> None:
    kept = tmp_path / "failed.json"
    first = run(Processes(add, bug=fails_on_small), budget=SMALL, last_failure=kept)
    again = Processes(add, bug=fails_on_small)
    verdict = run(again, budget=SMALL, last_failure=kept)
    assert str(again.calls[0].card) == first.card == verdict.card


def test_same_cards_for_the_same_seed() -> None:
    def cards(seed: int) -> list[Card | None]:
        sandbox = Processes(add)
        run(sandbox, budget=replace(SMALL, seed=seed))
        return [call.card for call in sandbox.calls]

    assert cards(3) == cards(3) != cards(4)


def test_every_spec_with_less_shared_memory_has_a_kata_that_asks() -> None:
    catalog = load_catalog(HERE.parent.parent)
    for each in catalog.katas.values():
        if load_spec(each).small_shared:
            assert "cudaDevAttrMaxSharedMemory" in each.solution_path.read_text(), each.name
