"""A part of an expression -> others for it where a lane's registers, or the elements of a vector, are gone over in the
wrong way: a quotient for a remainder, two registers of an operand exchanged, the upper of two rows alone.

Each is words, text and rank, as the edits of expressions are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Way = tuple[str, str, int]
POWERS = (2, 4, 8, 16, 32)
LIKELY_POWERS = (2, 4, 8)  # lanes or registers that have something in common
WARP = 32
REGISTERS = 4  # of an operand of mma, or of a tile of its sums
_MEMBER = re.compile(r"\b(\w+)\.x\b")
_TOO_MANY = 3  # vectors in one product


def of_quotient(left: str, sign: str, right: str) -> Iterator[Way]:
    """``lane_id % 8`` is ``lane_id / 4``: lanes that have a row in common follow each other, or are a stride apart."""
    own, other = f"{left} {sign} {right}", "/" if sign == "%" else "%"
    for by in POWERS:
        fits = not right.isdigit() or int(right) * by == WARP  # as many rows as there are lanes of one
        rank = 1 if fits and by in LIKELY_POWERS else 2 if by in LIKELY_POWERS else 4
        yield f"`{own}` is `{left} {other} {by}`", f"({left}) {other} {by}", rank


def exchanged_bits(lane: str) -> str:
    """The lane of the third matrix of ldmatrix for one of the second, and the reverse: bits 3 and 4 are exchanged."""
    return f"({lane} & ~24) | ({lane} << 1 & 16) | ({lane} >> 1 & 8)"


def lanes_instead(own: str) -> Iterator[Way]:
    """The first or the last distance of the shuffles of a loop."""
    yield from ((f"`{own}` is `{by}`", str(by), 0) for by in POWERS[::-1] if str(by) != own)


def of_bits(base: str, own: str) -> Iterator[Way]:
    """Which bits of a row's number a swizzle takes: ``row / 2 % 4``, ``row % 8``."""
    for by in (1, 2, 4):
        for many in LIKELY_POWERS:
            text = f"{base} / {by} % {many}" if by > 1 else f"{base} % {many}"
            if text != own:
                yield f"`{own}` is `{text}`", f"({base}) / {by} % {many}", 1


def of_counter(own: str, counter: str, step: str, divisor: str) -> Iterator[Way]:
    """A counter of elements in the place of one of rounds, as in what alternates."""
    if step not in ("", "1"):
        yield f"`{own}` is `{counter} / {step} % {divisor}`", f"({counter}) / ({step}) % ({divisor})", 0


def of_neighbour(own: str, by: str) -> Iterator[Way]:
    """``__shfl_up_sync`` gives a lane that has no neighbour so far below it its own value (CUDA C++ Programming Guide,
    Warp Shuffle Functions)."""
    yield f"`{own}` is 0 in lanes below `{by}`", f"(threadIdx.x % {WARP} >= ({by})) * {own}", 1


def nearest_bit(sign: str, left: str, right: str) -> Iterator[Way]:
    """The lowest lane of a ballot in the place of the highest, or the reverse."""
    lowest, highest = re.fullmatch(r"__ffs\((.*)\)", left), re.fullmatch(r"__clz\((.*)\)", right)
    if sign == "-" and right == "1" and lowest is not None:
        yield f"`{left} - 1` is `31 - __clz({lowest[1]})`", f"31 - __clz({lowest[1]})", 1
    if sign == "-" and highest is not None:
        yield f"`{left} - {right}` is `__ffs({highest[1]}) - 1`", f"__ffs({highest[1]}) - 1", 1


def accurate(sign: str, left: str, right: str) -> Iterator[Way]:
    """The function that keeps the digits of a small number where 1 is subtracted."""
    found = re.fullmatch(r"_*expf\(([^()]*)\)", left)
    if sign == "-" and right in ("1.0f", "1.f", "1") and found is not None:
        yield f"`{left} - {right}` is `expm1f({found[1]})`", f"expm1f({found[1]})", 1


def of_register(name: str, rank: int) -> Iterator[Way]:
    """The place of one of four registers: the second and the third exchanged, or two and two."""
    yield f"`{name}` is `{name} % 2 * 2 + {name} / 2`", f"({name}) % 2 * 2 + ({name}) / 2", rank
    for by in (1, 2):
        yield f"`{name}` is `{name} ^ {by}`", f"({name}) ^ {by}", 3


def of_row(row: str, counter: str) -> Iterator[Way]:
    """A lane's sums are those of a row and of the one 8 below, two and two."""
    term = f"{counter} / 2 % 2 * 8"
    yield f"`{row}` is `{row} + {term}`", f"({row}) + ({term})", 1


def all_lanes(target: str, value: str, counter: str, step: str) -> Iterator[Way]:
    """What is added of one element is added of each that a step of the loop goes over."""
    every = re.sub(rf"\[{counter}\]", f"[{counter} + kata_j]", value)
    if every != value and not re.search(rf"\b{counter}\b(?! \+ kata_j\])", every):
        words = f"`{target} += ...` adds the elements from `{counter}` to `{counter} + {step} - 1`, not the first alone"
        yield words, f"for(int kata_j=0;kata_j<int({step});++kata_j){{{target}+={every};}}", 1


def all_members(target: str, value: str, members: str) -> Iterator[Way]:
    """What is added of a vector's ``.x`` is added of its other members, too."""
    vectors = {*_MEMBER.findall(value)}
    if not vectors or len(vectors) > _TOO_MANY or re.search(r"\.[yzw]\b", value):
        return
    terms = [_MEMBER.sub(lambda found, each=each: f"{found[1]}.{each}", value) for each in members]  # type: ignore[misc]
    every = "".join(f"{target}+={term};" for term in terms)
    others = ", ".join(f"`.{each}`" for each in members[1:])
    yield f"`{target} += ...` adds what {others} have, too", f"{{{every}}}", 3


def of_two_rows(first: str, second: str, counter: str) -> str:
    """Which of two numbers, of a row and of the one 8 below, belongs to a sum."""
    return f"({counter} / 2 % 2 == 0 ? {first} : {second})"
