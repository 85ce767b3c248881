"""`kata estimate`: bytes, operations, bound and time of a kata on paper, checked and then derived."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from grader.commands import lookups
from grader.content.catalog import Kata
from grader.fault import Fault
from grader.judge.cards import CARDS
from grader.learner import progress
from grader.output.console import Commands, examples, one_kata, open_catalog, say_json, warn
from grader.output.terminal import line_width, painted, plain
from grader.output.verdict_text import display_path
from grader.practice import estimates, quantity
from grader.practice.estimates import BY_NAME, FURTHER, QUESTIONS, Estimate, EstimateError, Question
from grader.practice.quantity import QuantityError
from grader.system.processes import leaving_nothing

WIDTH = 120  # characters of a line
LABEL = 14  # characters of a row's label


@dataclass(frozen=True)
class Answer:
    """What the learner says, and what is right."""

    question: Question
    given: float | str
    right: float | str

    @property
    def is_right(self) -> bool:
        return estimates.is_right(self.question, self.given, self.right)

    def record(self) -> dict[str, Any]:
        return {"given": self.given, "right": self.right, "within": self.question.within, "is_right": self.is_right}


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "estimate",
        help="estimate bytes, operations, bound and time of a kata on paper, and see the derivation",
        description="Estimate what a kata needs before you write it: compulsory bytes, operations, arithmetic "
        "intensity, what bounds it, its time on a card. Without answers as options, it asks for each; an empty line "
        "leaves one out, and it also asks about the solution's kernels with --kernel. Bytes and operations may be off "
        "by 1 %, for rounding, the intensity by 2 %, counters by 5 %, the time by 20 %. The time is compared with "
        "the measured one where solutions/speeds.json has it, and else with the least time by the roofline. Answers "
        "have units, such as 64MB, 1.2 GFLOP or 35us, or are formulas of sizes, such as 3 * 4 * n. Exit code 0: all "
        "right, 1: not, 2: the command is at fault.",
        epilog=examples(
            "kata estimate elementwise_f32",
            "kata estimate sgemm_naive_f32 --card A100 --bytes '4 * (M*K + K*N + M*N)' --bound compute --time 7ms",
            "kata estimate mat_trans_f32_tiled --sectors 7420 --occupancy 100%",
        ),
    )
    parser.add_argument("name", metavar="KATA")
    parser.add_argument("--card", default="H200", metavar="CARD", help=", ".join(card.name for card in CARDS))
    for question in (*QUESTIONS, *FURTHER):
        said = f"{question.asks}; {quantity.EXAMPLES[question.kind]}".replace("%", "%%")
        parser.add_argument(f"--{question.name}", metavar=question.kind.upper(), help=said)
    parser.add_argument(
        "--kernel", action="store_true", help="also ask for occupancy, sectors, wavefronts, instructions"
    )
    parser.add_argument("--json", action="store_true", help="as a JSON object; without answers, the question")
    parser.set_defaults(command=_estimate)


@leaving_nothing()
def _estimate(options: argparse.Namespace) -> int:
    catalog = open_catalog()
    kata = one_kata(catalog, options.name, "`kata estimate`")
    if refusal := lookups.refusal([kata], "estimate"):
        raise EstimateError(refusal)
    of = estimates.estimate(catalog, kata, options.card)
    said = {name: text for name in BY_NAME if (text := getattr(options, name)) is not None}
    if options.json and not said:
        say_json({**_facts(of), "questions": {name: question.asks for name, question in BY_NAME.items()}})
        return 0
    if not options.json:
        print(f"{kata.name}: {of.spec.computes}")
        _say(estimates.task(of, kernels=options.kernel or not said.keys().isdisjoint(each.name for each in FURTHER)))
    asked = [*QUESTIONS, *(FURTHER if options.kernel else ())]
    given = {name: _read(of, BY_NAME[name], text) for name, text in said.items()} or _asked(of, asked)
    answers = list(_answers(of, given))
    if not answers:
        print("Nothing was estimated.", file=sys.stderr)
        return 1
    warn(progress.keep_practice(kata, progress.ESTIMATE, of.card.name, _result(answers), _in_short(answers)))
    names = [each.question.name for each in answers]
    rows = [*estimates.derivation(of), *estimates.further(of, names, known=_knows_solution(kata))]
    if options.json:
        record = {each.question.name: each.record() for each in answers}
        say_json({**_facts(of), "answers": record, "derivation": dict(rows)})
    else:
        _say_answers(answers)
        _say(rows)
        print(f"  {'read':<{LABEL}}{display_path(kata.lesson_path)}")
    return 0 if all(each.is_right for each in answers) else 1


def _answers(of: Estimate, given: Mapping[str, float | str]) -> Iterator[Answer]:
    """What was said next to what is right. What this machine cannot find out is left out, and said."""
    for name, value in given.items():
        try:
            yield Answer(BY_NAME[name], value, of.right(name))
        except Fault as error:
            warn(f"{name} is left out: {error}")


def _read(of: Estimate, question: Question, text: str) -> float | str:
    """Raises QuantityError. A formula has the sizes of the shape that the question is about."""
    return quantity.read(text, question.kind, of.sizes_for(question))


def _knows_solution(kata: Kata) -> bool:
    """Whether the learner has passed the kata, or has had its solution shown."""
    try:
        history = progress.load(kata.root)
    except progress.ProgressError:
        return False  # a warning has said so
    return history.passed(kata.name) is not None or history.solution_seen(kata.name) is not None


def _result(answers: Iterable[Answer]) -> str:
    return "pass" if all(each.is_right for each in answers) else "wrong answer"


def _in_short(answers: Iterable[Answer]) -> str:
    return ", ".join(f"{each.question.name} {'right' if each.is_right else 'wrong'}" for each in answers)


def _facts(of: Estimate) -> dict[str, Any]:
    return {
        "kata": of.kata.name,
        "card": of.card.name,
        "sizes": dict(of.sizes),
        "task": dict(estimates.task(of, kernels=True)),
    }


def _asked(of: Estimate, questions: Iterable[Question]) -> dict[str, float | str]:
    """The answers that are typed, each once it can be read. The end of the input ends the questions."""
    found: dict[str, float | str] = {}
    for question in questions:
        try:
            while question.name not in found:
                text = input(f"{question.asks} ({quantity.EXAMPLES[question.kind]}): ")
                if not text.strip():
                    break
                try:
                    found[question.name] = _read(of, question, text)
                except QuantityError as error:
                    print(f"  {plain(str(error))}")
        except EOFError:
            print()
            return found
    return found


def _say_answers(answers: Iterable[Answer]) -> None:
    print()
    for each in answers:
        kind, word = each.question.kind, painted("right", "green") if each.is_right else painted("wrong", "red")
        given, right = (value if isinstance(value, str) else quantity.shown(value, kind) for value in _both(each))
        print(f"  {each.question.name:<{LABEL}}{given:>16}   {word}{'' if each.is_right else f': {right}'}{_off(each)}")
    print()


def _both(each: Answer) -> tuple[float | str, float | str]:
    return each.given, each.right


def _off(each: Answer) -> str:
    """How far an estimate is off, where that says something."""
    if isinstance(each.given, str) or isinstance(each.right, str) or not each.right:
        return ""
    off = 100 * (each.given / each.right - 1)
    return f", {abs(off):.3g} % {'above' if off > 0 else 'below'}" if abs(off) >= 0.05 else ""


def _say(rows: Iterable[tuple[str, str]]) -> None:
    for label, words in rows:
        for place, line in enumerate(_wrapped(words)):
            print(f"  {label if place == 0 else '':<{LABEL}}{plain(line)}")


def _wrapped(words: str) -> Iterator[str]:
    yield from textwrap.wrap(words, max(20, min(WIDTH, line_width(WIDTH)) - LABEL - 2), break_on_hyphens=False)
