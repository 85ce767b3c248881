"""mbarrier: one thread takes a barrier through its phases and writes down every answer.

A state is opaque, so it is only shown by what pending_count and test_wait say of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from program import Program, lines

_SETUP = "mov.u32 %r1, tile; cvt.u64.u32 %d1, %r1; cvta.shared.u64 %d1, %d1;"
ANSWERS = 12  # at most


class _Story:
    """Lines on the barrier A, with one answer of four bytes after the other."""

    def __init__(self, form: str) -> None:
        self.form, self.body, self.answers = form, [_SETUP], 0
        words = form.split(".")
        self.own = "%r1" if any(word.startswith("shared") for word in words) else "%d1"
        self.has_state = "shared::cluster" not in words  # an arrival there returns none

    def do(self, *instructions: str) -> _Story:
        self.body += [f"{instruction};" for instruction in instructions]
        return self

    def form_on(self, result: str = "", operand: str = "") -> _Story:
        """The form itself, with its result before and its operand behind the address."""
        result = "_, " if result.startswith("%d") and not self.has_state else f"{result}, " if result else ""
        return self.do(f"{self.form} {result}[{self.own}]{operand}")

    def init(self, count: int) -> _Story:
        return self.do(f"mbarrier.init.shared::cta.b64 [%r1], {count}")

    def arrive(self, state: str = "%d9", operand: str = "") -> _Story:
        return self.do(f"mbarrier.arrive.shared::cta.b64 {state}, [%r1]{operand}")

    def answer(self, register: str) -> _Story:
        self.do(f"st.global.b32 [%out+{4 * self.answers}], {register}")
        self.answers += 1
        return self

    def pending(self, state: str) -> _Story:
        return self.do(f"mbarrier.pending_count.b64 %r3, {state}").answer("%r3")

    def ended(self, state: str) -> _Story:
        """Whether the phase of the state has ended."""
        return self.do(f"mbarrier.test_wait.shared::cta.b64 %p1, [%r1], {state}", "selp.u32 %r3, 1, 0, %p1").answer(
            "%r3"
        )

    def parities(self) -> _Story:
        """Whether the phases of either parity have ended."""
        for parity in (0, 1):
            self.do(f"mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], {parity}", "selp.u32 %r3, 1, 0, %p1")
            self.answer("%r3")
        return self

    def truth(self) -> _Story:
        return self.do("selp.u32 %r3, 1, 0, %p1").answer("%r3")

    def program(self) -> Program:
        assert self.answers <= ANSWERS, self.form
        return Program(self.form, lines(*self.body), tail=4 * ANSWERS, shared=8, threads=1)


def initialise(form: str) -> Iterator[Program]:
    story = _Story(form).form_on(operand=", 2").arrive("%d2").pending("%d2").ended("%d2").parities()
    yield story.arrive("%d3").pending("%d3").ended("%d2").parities().program()


def invalidate(form: str) -> Iterator[Program]:
    story = _Story(form).init(5).arrive("%d2").pending("%d2").form_on().init(1).arrive("%d3")
    yield story.pending("%d3").ended("%d3").parities().program()


def expect(form: str) -> Iterator[Program]:
    story = _Story(form).init(1).form_on(operand=", 32").arrive("%d2").ended("%d2").parities()
    for _ in range(2):
        story.do("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16").ended("%d2")
    yield story.parities().program()


def complete(form: str) -> Iterator[Program]:
    story = _Story(form).init(1).do("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 48").arrive("%d2")
    story.form_on(operand=", 16").ended("%d2").form_on(operand=", 32")
    yield story.ended("%d2").parities().program()


def arrive(form: str) -> Iterator[Program]:
    """Three arrivals end a phase: one, then two at once, then one and two again."""
    story = _Story(form).init(3).form_on("%d2").parities().form_on("%d3", ", 2").parities()
    if story.has_state:
        story.pending("%d2").pending("%d3").ended("%d2").ended("%d3")
    yield story.form_on("%d4", ", 1").parities().form_on("%d4", ", 2").parities().program()


def arrive_early(form: str) -> Iterator[Program]:
    """noComplete: never the last arrival of a phase."""
    story = _Story(form).init(5).form_on("%d2", ", 2").pending("%d2").form_on("%d3", ", 1").pending("%d3")
    story.ended("%d2").arrive("%d4", ", 2").pending("%d4").ended("%d2")
    yield story.arrive("%d5").pending("%d5").parities().program()


def arrive_expecting(form: str) -> Iterator[Program]:
    story = _Story(form).init(2).form_on("%d2", ", 16").parities().arrive("%d3").parities()
    story.do("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16").parities()
    yield (story.pending("%d2").ended("%d2") if story.has_state else story).program()


def drop(form: str) -> Iterator[Program]:
    """The next phase expects as many fewer."""
    early = ".noComplete" in form
    story = (
        _Story(form)
        .init(4)
        .form_on("%d2", ", 1" if early else "")
        .parities()
        .arrive("%d3", ", 3")
        .pending("%d3")
        .parities()
    )
    story.arrive("%d4", ", 2").pending("%d4").parities().arrive("%d5")
    yield story.pending("%d5").parities().program()


def wait(form: str) -> Iterator[Program]:
    """Before and after the end of a phase, and in the next one."""
    timed = ", 100" if ".try_wait" in form else ""
    story = _Story(form).init(2)
    for phase in (0, 1):
        own = [f", {parity}" for parity in (0, 1)] if ".parity" in form else [f", %d{2 + 2 * phase}"]
        story.arrive(f"%d{2 + 2 * phase}")
        for operand in own:
            story.form_on("%p1", operand).truth()
        story.arrive(f"%d{3 + 2 * phase}")
        for operand in own:
            story.form_on("%p1", operand + timed).truth()
    yield story.program()


def pending_count(form: str) -> Iterator[Program]:
    story = _Story(form).init(4)
    for count in (1, 2, 1, 3):
        story.arrive("%d2", f", {count}").do(f"{form} %r3, %d2").answer("%r3")
    yield story.program()


PROGRAMS = {
    "mbarrier.init.": initialise,
    "mbarrier.inval.": invalidate,
    "mbarrier.expect_tx.": expect,
    "mbarrier.complete_tx.": complete,
    "mbarrier.arrive.": arrive,
    "mbarrier.arrive.noComplete.": arrive_early,
    "mbarrier.arrive.expect_tx.": arrive_expecting,
    "mbarrier.arrive_drop.": drop,
    "mbarrier.test_wait.": wait,
    "mbarrier.try_wait.": wait,
    "mbarrier.pending_count.": pending_count,
}
