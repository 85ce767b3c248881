"""The way of an input element through memory: from the engine's two calls to the clue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy
import passed_before
import pytest
from facts import has
from sim_kernels.harness import HERE, LIMITS, given, line_of, open_device, wanted
from test_diagnosis import of_sum

from grader.content.catalog import Kata
from grader.content.spec import Exact, Size, Tensor
from grader.devices import Call, Outcome, Scalar
from grader.devices.counters import Route, RouteSite, Trail, TrailStep, Writer
from grader.devices.sim import SimDevice
from grader.judge.case import Case, CaseKey
from grader.judge.diagnosis import diagnose
from grader.judge.lab import Lab, judged
from grader.judge.probes import probe
from grader.judge.routes import by_lines, only_way, two_ways
from grader.judge.target import Element, Part, target_of
from grader.judge.trails import ways

pytestmark = passed_before.REPOSITORY

TRAILS = HERE / "trails.cu"


@pytest.fixture(scope="module")
def device() -> Iterator[SimDevice]:
    yield open_device(TRAILS)


def trail(device: SimDevice, launcher: str, changed: int, *, n: int = 64, focus: int = 0) -> Trail:
    """Of x[changed], in a call with n elements, to y[focus]."""

    def call(number: int) -> Outcome:
        x = [1.0 + i for i in range(n)]
        x[changed] += 16 * (number == 2)
        buffers = (given("x", "f32", x), wanted("y", "f32", n))
        scalars = (Scalar("n", "int", n),)
        return device.call(Call(launcher, buffers, scalars, limits=LIMITS, watch=(("y", focus),), trail=number))

    assert call(1).trail == Trail()
    found = call(2).trail
    assert found is not None
    return found


def told(steps: tuple[TrailStep, ...]) -> list[tuple[str, str, int | None, int]]:
    """Of each step what it does, where, on which line, in which thread."""
    return [(step.access, step.place, step.by.line, (step.by.thread or (-1,))[0]) for step in steps]


def test_each_place_that_an_element_comes_to(device: SimDevice) -> None:
    put, take = (line_of(TRAILS, f"swapped_{which}") for which in ("put", "take"))
    found = trail(device, "swapped", 43)
    assert told(found.steps) == [
        ("read", "x[43]", put, 43),
        ("write", "tile[43]", put, 43),
        ("read", "tile[43]", take, 42),
        ("write", "y[42]", take, 42),
    ]
    assert not found.parted and not found.blind
    assert told(trail(device, "swapped", 41).steps)[1:] == [("write", "tile[41]", put, 41)]


def test_a_copy_is_written_when_it_lands(device: SimDevice) -> None:
    put, take = (line_of(TRAILS, f"copied_{which}") for which in ("put", "take"))
    assert told(trail(device, "copied", 6).steps) == [
        ("write", "tile[6]", put, 1),
        ("read", "tile[6]", take, 7),
        ("write", "y[7]", take, 7),
    ]


def test_the_lanes_that_read_a_place_are_told(device: SimDevice) -> None:
    found = trail(device, "not_taken", 5, n=64)
    taken = next(step for step in found.steps if step.place == "warp_sums[0]" and step.access == "read")
    assert (taken.by.line, taken.lanes, taken.together) == (line_of(TRAILS, "take"), 1, False)
    assert taken.by.callers == (line_of(TRAILS, "not_taken"),)


def test_calls_that_go_different_ways_are_said_to_be_parted(device: SimDevice) -> None:
    assert trail(device, "in_two_ways", 0).parted
    assert not trail(device, "in_two_ways", 40).parted


def by(trail: Trail) -> list[tuple[str, int | None, tuple[int, ...], int]]:
    """Of each site of the route what it does, on which line, called from where, and how often it reads the element."""
    return [(site.access, site.by.line, site.by.callers, site.beginnings) for site in trail.route.sites]


def test_the_lines_through_registers(device: SimDevice) -> None:
    read, call, write, helper = (
        line_of(TRAILS, marker) for marker in ("computed_read", "computed_call", "computed_write", "scaled")
    )
    found = trail(device, "computed", 42, focus=41)
    assert by(found)[0] == ("read", read, (), 1)
    assert ("result", helper, (call,), 0) in by(found)
    assert by(found)[-1] == ("write", write, (), 0)
    assert found.route.reached and found.route.paths == 1


def test_how_often_an_element_is_in_a_sum(device: SimDevice) -> None:
    once, again = (line_of(TRAILS, f"read_{which}") for which in ("once", "again"))
    found = trail(device, "read_twice", 0)
    assert [line for _, line, _, beginnings in by(found) if beginnings] == [once, again]
    assert found.route.paths == 2
    assert trail(device, "read_twice", 3).route.paths == 1


def test_of_a_product_of_matrices_no_route_is_told(device: SimDevice) -> None:
    found = trail(device, "product", 0, n=32)
    assert found.steps and found.route == Route()


# -- the clue --------------------------------------------------------------------------------------------------------


def path(device: SimDevice, launcher: str, n: int, *, copies: bool = False, about: str = "path") -> str:
    """What is said of the way of the elements that a wrong answer lacks, or has and must not."""
    kata = Kata(name=launcher, family="mine", level="easy", elem="f32", root=Path("/nowhere"))
    spec = of_sum()
    if copies:
        spec = of_sum(outputs=(Tensor("y", ("n",)),), reference=lambda x, sizes: x + 0, tolerance=Exact())

    def call(wanted_call: Call) -> Outcome:
        return device.call(replace(wanted_call, launcher=launcher))

    lab = Lab(kata, spec, call, LIMITS, steady=True, text=TRAILS.read_text())
    case = Case(kata, spec, CaseKey.of(spec, {"n": n}, spec.values[0].name, 1))
    outcome = lab.run(case)
    assert outcome is not None
    one = judged(case, outcome)
    assert one.wrong
    return "\n".join(clue.text for clue in probe(lab, one) if clue.about == about)


def test_a_place_that_no_thread_reads(device: SimDevice) -> None:
    put, called, take = (line_of(TRAILS, marker) for marker in ("put", "not_taken", "take"))
    words = path(device, "not_taken", 128)
    assert (
        words
        == f"x[96] is in warp_sums[3], which line {put} (called on line {called}) writes, and no thread reads it there"
    )
    assert f"line {take}" not in words


def test_an_element_that_is_read_and_put_nowhere(device: SimDevice) -> None:
    words = path(device, "not_put", 128)
    line = line_of(TRAILS, "not_put")
    assert (
        words
        == f"block (0,0,0) thread (96,0,0) reads x[96] on line {line}; nothing that is written to memory depends on it"
    )


def test_a_place_between_two_kernels_that_no_thread_reads(device: SimDevice) -> None:
    line = line_of(TRAILS, "between_blocks")
    assert (
        path(device, "between_blocks", 128)
        == f"x[96] is in scratch[3], which line {line} writes, and no thread reads it there"
    )


def test_a_place_in_global_memory_where_shared_memory_is_not_all_seen(device: SimDevice) -> None:
    line = line_of(TRAILS, "in_clusters")
    words = path(device, "in_clusters", 128)
    assert has(words, f"x[96] is in scratch[3], which line {line} writes in block (3,0,0)", "y[0], does not read it")


def test_an_element_that_no_thread_reads(device: SimDevice) -> None:
    assert path(device, "not_read", 100) == "no thread reads x[99]"


def test_an_element_that_is_read_for_the_answer_and_lost_after_that(device: SimDevice) -> None:
    words = path(device, "dropped", 128)
    assert has(words, "x[96] is in warp_sums[3]", f"line {line_of(TRAILS, 'dropped')} reads", "y[0] does not depend")


def test_an_element_in_the_place_of_another(device: SimDevice) -> None:
    put, take = (line_of(TRAILS, f"swapped_{which}") for which in ("put", "take"))
    words = path(device, "swapped", 64, copies=True)
    assert has(words, f"x[40] gets to y[41] through tile[40], which line {put} writes and line {take} reads")
    assert has(words, f"x[41] is in tile[41], which line {put} writes, and no thread reads it there")


def test_what_the_index_of_an_element_is_that_does_not_belong(device: SimDevice) -> None:
    read = line_of(TRAILS, "swapped_put")
    words = path(device, "swapped", 64, copies=True, about="index")
    assert words == f"where line {read} reads x[40]: i = threadIdx.x = 40, on line {read - 1}"


def test_an_element_that_is_read_twice(device: SimDevice) -> None:
    once, again = (line_of(TRAILS, f"read_{which}") for which in ("once", "again"))
    assert path(device, "read_twice", 64) == f"x[0] is read 2 times for y[0]: on line {once} and on line {again}"


def test_an_element_that_comes_in_two_ways(device: SimDevice) -> None:
    put, take, own = (line_of(TRAILS, f"two_ways_{which}") for which in ("put", "take", "sum"))
    words = path(device, "two_ways", 32)
    assert words == f"x[0] gets to y[0] in two ways: by lines {own}, {put} and {take}, and by line {own}"


def test_the_lines_of_an_element_that_does_not_belong(device: SimDevice) -> None:
    read, call, write, helper = (
        line_of(TRAILS, marker) for marker in ("computed_read", "computed_call", "computed_write", "scaled")
    )
    words = path(device, "computed", 64, copies=True)
    assert words == f"x[42] gets to y[41] by lines {read}, {call}, {helper} (called on line {call}) and {write}"


def way(device: SimDevice, launcher: str, n: int, reference: Callable[..., numpy.ndarray], part: Element) -> str:
    """What is said of an element's way to the first wrong element."""
    spec = of_sum(outputs=(Tensor("y", ("n",)),), reference=reference, tolerance=Exact())
    kata = Kata(name=launcher, family="mine", level="easy", elem="f32", root=Path("/nowhere"))
    lab = Lab(kata, spec, lambda call: device.call(replace(call, launcher=launcher)), LIMITS, steady=True)
    case = Case(kata, spec, CaseKey.of(spec, {"n": n}, spec.values[0].name, 1))
    outcome = lab.run(case)
    assert outcome is not None
    target = target_of(lab, judged(case, outcome))
    return "\n".join(clue.text for clue in ways(target, [part]))


def test_a_formula_is_told_with_the_line_where_the_way_ends(device: SimDevice) -> None:
    def without(x: numpy.ndarray, sizes: Mapping[str, int]) -> numpy.ndarray:
        return (x.sum() - x[96:97].sum()).reshape(1)

    sizes = {"n": Size(97, 128)}
    spec = of_sum(near_misses={"without x[96]": without}, sizes=sizes, named_sizes=({"n": 97}, {"n": 128}))
    kata = Kata(name="not_put", family="mine", level="easy", elem="f32", root=Path("/nowhere"))
    lab = Lab(kata, spec, lambda call: device.call(replace(call, launcher="not_put")), LIMITS, steady=True)
    clues = {each.about: each for each in diagnose(lab, CaseKey.of(spec, {"n": 128}, spec.values[0].name, 1))[1]}
    assert "without x[96]" in clues["formula"].text
    assert clues["path"].line == line_of(TRAILS, "not_put")


def test_an_element_that_other_blocks_keep(device: SimDevice) -> None:
    def total(x: numpy.ndarray, sizes: Mapping[str, int]) -> numpy.ndarray:
        return numpy.where(numpy.arange(len(x)) < 1, x.sum(), 0 * x)

    put, take = (line_of(TRAILS, marker) for marker in ("half_sum", "each_half"))
    words = way(device, "each_half", 128, total, Element("x", 96, Part.LACKING))
    assert has(
        words, f"x[96] is in halves[1], which line {put} writes, which line {take} reads in block (1,0,0), and not"
    )


def test_the_lines_of_an_element_that_counts_by_another_factor(device: SimDevice) -> None:
    read, call, write, helper = (
        line_of(TRAILS, marker) for marker in ("computed_read", "computed_call", "computed_write", "scaled")
    )

    def other(x: numpy.ndarray, sizes: Mapping[str, int]) -> numpy.ndarray:
        return numpy.where(numpy.arange(len(x)) == 41, 3 * numpy.roll(x, -1), x)

    words = way(device, "computed", 64, other, Element("x", 42, Part.WEIGHED))
    assert words == f"x[42] gets to y[41] by lines {read}, {call}, {helper} (called on line {call}) and {write}"


# -- lines in words --------------------------------------------------------------------------------------------------


def site(line: int, *callers: int, access: str = "result", beginnings: int = 0, file: str = "mine.cu") -> RouteSite:
    return RouteSite(access, "", beginnings, Writer("kernel", file, line, callers=callers))


def test_a_helper_is_told_with_the_line_that_calls_it() -> None:
    of = Route((site(4), site(7, 30), site(8, 12, 31), site(9, 12, 31), site(1, 33, file="kata.cuh")), reached=True)
    assert by_lines(only_way(of, "mine.cu")) == "lines 4, 7 (called on line 30), 8 to 9 (called on line 31) and 33"


def test_what_all_lines_are_called_from_is_left_out() -> None:
    of = Route((site(4, 50), site(7, 30, 50), site(9, 50)), reached=True)
    assert by_lines(only_way(of, "mine.cu")) == "lines 4, 7 (called on line 30) and 9"


def test_of_many_lines_the_first_and_the_last_are_told() -> None:
    assert by_lines([str(line) for line in range(1, 10)]) == "lines 1, 2, 3, 4, ..., 8 and 9"


def test_of_two_ways_a_helper_is_told_where_its_call_is_not() -> None:
    sites = (site(4), site(7, 30), site(30), site(8, 12), site(5))
    assert (
        two_ways(Route(sites, ((0, 1, 2, 4), (0, 3, 4))), "mine.cu") == "by line 30, and by line 8 (called on line 12)"
    )


def test_of_several_ends_only_what_all_ways_have_is_told() -> None:
    sites = (site(4, access="read"), site(5), site(6), site(7, access="write"))
    assert only_way(Route(sites, ((0, 1, 3), (0, 1, 2))), "mine.cu") == ["4", "5"]
    assert only_way(Route(sites, ((0, 3), (0, 1, 2))), "mine.cu") == []
    assert only_way(Route(sites), "mine.cu") == []


def test_a_device_that_follows_nothing_is_not_asked(device: SimDevice) -> None:
    kata = Kata(name="mine", family="mine", level="easy", elem="f32", root=Path("/nowhere"))
    asked: list[int] = []

    def call(wanted_call: Call) -> Outcome:
        asked.append(wanted_call.trail)
        return device.call(replace(wanted_call, launcher="not_taken"))

    lab = Lab(kata, of_sum(), call, LIMITS)
    case = Case(kata, of_sum(), CaseKey.of(of_sum(), {"n": 128}, "normal", 1))
    outcome = lab.run(case)
    assert outcome is not None
    assert [clue.about for clue in probe(lab, judged(case, outcome))] == ["probe"] and not any(asked)
