"""A wrong output row that must be a weighted mean of rows of an input -> the weights that the launcher gives them.

Attention is such a mean: O = P V, where P comes of Q and K. V has a single 1 in each of its rows, in another column for
each row: then a row of O holds its weights themselves. Four experiments follow each other, and the first whose weights
are not the reference's gives the clue: equal logits show which rows are missing, or do not belong; one larger logit
shows sums that are not rescaled to a new maximum; logits that all differ show which logit a row's weight was made of;
logits of one column of K each show which columns are in the products.

A kernel that computes something else says so: what it makes of V = 1 is not the sum of the weights that were read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, prod
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.judge.lab import place
from grader.judge.target import Element, Observed, Part, Target, floats, range_words

if TYPE_CHECKING:
    from numpy import ndarray

READS = 6  # calls, at most, that show all weights of one experiment
CLOSE = 0.02  # of a weight, as a share: a weight may be rounded to bfloat16 or half
APART, KINDS = 0.06, 41  # of two logits that can be told from each other, and how many of them there are
LOGIT, LOGIT_ERROR = 2.0, 0.003  # of some columns alone; as a share
MANY = 4  # rows, from which on a rule for all logits is told from chance
NOT_RESCALED = "a sum made with a smaller maximum is not rescaled"
RISES = (1.0, 2.0)  # of one logit above all others
RANGES = 3  # that a clue lists
SMALL = 1e-5  # a weight that is none
Make = Callable[[Mapping[str, "ndarray"]], "ndarray | None"]


@dataclass(frozen=True)
class Mixture:
    """Output row = weights @ rows of ``values``. ``weighing`` are the other inputs that are numbers."""

    target: Target
    values: Tensor
    weighing: tuple[Tensor, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.extent(self.target.case.sizes))

    @property
    def rows(self) -> int:
        return prod(self.shape[:-1])

    @property
    def width(self) -> int:
        return self.shape[-1]

    @property
    def row(self) -> int:
        """The row of the output that is asked about."""
        return self.target.flat // self.width

    @property
    def words(self) -> str:
        return _row_words(self.target.name, place(self.target.shape[:-1], self.row))

    def of_rows(self, rows: Sequence[int]) -> str:
        return range_words(self.values.name, self.shape[:-1], rows, "*")

    def filled(self, number: float) -> dict[str, ndarray]:
        """The other inputs, all the same number."""
        import numpy

        return {each.name: numpy.full(each.extent(self.target.case.sizes), number) for each in self.weighing}

    def weights(self, make: Make, base: Mapping[str, ndarray], rows: Sequence[int]) -> ndarray | None:
        """The weight of each of these rows of the values in the output row."""
        found = self.weights_of_all(make, base, rows, self.row)
        return None if found is None else found[0]

    def weights_of_all(
        self, make: Make, base: Mapping[str, ndarray], rows: Sequence[int], only: int | None = None
    ) -> ndarray | None:
        """The weight of each of these rows of the values in every row of the output, or in one alone: a line for each
        row of the output."""
        import numpy

        asked = slice(None) if only is None else slice(only, only + 1)
        found = numpy.zeros((1 if only is not None else prod(self.target.shape[:-1]), len(rows)))
        for first in range(0, len(rows), self.width):
            part = rows[first : first + self.width]
            values = numpy.zeros((self.rows, self.width))
            values[list(part), range(len(part))] = 1.0
            answer = make({**base, self.values.name: values})
            if answer is None:
                return None
            found[:, first : first + self.width] = answer.reshape(-1, self.width)[asked, : len(part)]
        return found if bool(numpy.isfinite(found).all()) else None

    def both(self, base: Mapping[str, ndarray], rows: Sequence[int]) -> tuple[ndarray, ndarray] | None:
        """The weights (got, expected)."""
        want = self.weights(self.target.reference, base, rows)
        got = None if want is None else self.weights(self.target.answer, base, rows)
        return None if got is None or want is None else (got, want)


def mixture(target: Target) -> Iterator[Observed]:
    """At most one clue."""
    mean = _mixture_of(target)
    if mean is None or -(-mean.rows // mean.width) > READS:
        return
    everything = range(mean.rows)
    base = mean.filled(0.0)
    if (pair := mean.both(base, everything)) is None:
        return
    if (words := _columns(mean, base, pair)) or not _adds_up(mean, base, pair):
        if words:
            yield Observed(words)
        return
    if words := _members(mean, *pair):
        yield Observed(words, target, tuple(_strangers(mean, *pair)))
        return
    keys = [row for row in everything if pair[1][row] > SMALL]
    if len(keys) < 2 or not _same(*pair):
        return
    scorers = [each for each in mean.weighing if _scores(mean, each, keys)]
    if len(scorers) != 1:
        return
    for of in (_rescaled, _logits):
        if (words := of(mean, scorers[0], keys)) is not None:
            if words:
                yield Observed(words)
            return


# -- whether it is one -----------------------------------------------------------------------------------------------


def _mixture_of(target: Target) -> Mixture | None:
    """None where the reference is not the mean of rows of an input, with the others at 0."""
    import numpy

    output = next(tensor for tensor in target.lab.spec.outputs if tensor.name == target.name)
    numbers = floats(target)
    for values in numbers:
        others = tuple(each for each in numbers if each is not values)
        if not others or len(output.shape) < 2 or values.shape[-1:] != output.shape[-1:] or values.shape == (1,):
            continue
        found = Mixture(target, values, others)
        if len(found.shape) < 2 or found.width < 2:
            continue
        base, rng = found.filled(0.0), numpy.random.default_rng(5)
        columns = numpy.arange(found.width) + 1.0
        made = target.reference({**base, values.name: numpy.broadcast_to(columns, found.shape)})
        rows = made.reshape(-1, found.width)
        is_mean = bool((numpy.isclose(rows, columns) | (rows == 0)).all()) and bool(rows[found.row].any())
        if not is_mean:
            continue
        one, two = (rng.choice((-3.0, -1.0, 1.0, 2.0), found.shape) for _ in range(2))
        parts = [target.reference({**base, values.name: each}) for each in (one, two, one + two)]
        if numpy.allclose(parts[0] + parts[1], parts[2], atol=1e-6):
            return found
    return None


def _scores(mean: Mixture, tensor: Tensor, keys: Sequence[int]) -> bool:
    """Whether rows of this input, which has one for each of the values, decide on their weights."""
    import numpy

    if tuple(tensor.extent(mean.target.case.sizes)) != mean.shape:
        return False
    base = mean.filled(1.0)
    raised = base[tensor.name].reshape(-1, mean.width)
    raised[keys[-1]] += 0.25
    weights = mean.weights(mean.target.reference, base, keys)
    if weights is None or not bool((weights > 0).all()):
        return False
    return bool(numpy.allclose(weights[:-1], weights[0])) and weights[-1] > 1.1 * weights[0]


def _columns(mean: Mixture, base: Mapping[str, ndarray], pair: tuple[ndarray, ndarray]) -> str | None:
    """An output column that is made of another column of the values."""
    import numpy

    numbers = numpy.arange(mean.width) + 1.0
    answer = mean.target.answer({**base, mean.values.name: numpy.broadcast_to(numbers, mean.shape)})
    whole = mean.target.answer({**base, mean.values.name: numpy.ones(mean.shape)})
    if answer is None or whole is None:
        return None
    got, total = (each.reshape(-1, mean.width)[mean.row] for each in (answer, whole))
    if not bool((abs(total - 1) < CLOSE).all()) or not bool(numpy.isfinite(got).all()):
        return None
    found = numpy.rint(got)
    wrong = numpy.flatnonzero(found != numbers)
    if not wrong.size or not bool((abs(got - found) <= 0.2).all() and (found >= 1).all()):
        return None
    if bool((found > mean.width).any()):
        return None
    said = [
        f"column {each} of {mean.words} is made of column {int(found[each]) - 1} of {mean.values.name}"
        for each in wrong[:2]
    ]
    return "; ".join(said) + ("; and more" if wrong.size > 2 else "")


def _adds_up(mean: Mixture, base: Mapping[str, ndarray], pair: tuple[ndarray, ndarray]) -> bool:
    """Whether the row that V = 1 gives is the sum of the weights that were read."""
    import numpy

    answer = mean.target.answer({**base, mean.values.name: numpy.ones(mean.shape)})
    if answer is None:
        return False
    row = answer.reshape(-1, mean.width)[mean.row]
    return bool(numpy.isfinite(row).all() and (abs(row - pair[0].sum()) <= CLOSE * (abs(row) + SMALL)).all())


def _same(got: ndarray, want: ndarray) -> bool:
    return bool((abs(got - want) <= CLOSE * want + SMALL).all())


# -- equal logits ----------------------------------------------------------------------------------------------------


def _members(mean: Mixture, got: ndarray, want: ndarray) -> str | None:
    """Which rows have no weight, one that they must not have, or several; else by how many the sum is divided."""
    import numpy

    members = want > SMALL
    if not bool((got >= -SMALL).all()) or not members.any():
        return None
    if not bool((got > SMALL).any()):
        return f"no row of {mean.values.name} has a weight in {mean.words}"
    unit = _unit(got, members)
    times = numpy.rint(got / unit).astype(int)
    if not bool((abs(got - times * unit) <= CLOSE * got + SMALL).all()):
        return None
    count, number = 1 / unit, int(members.sum())
    said = []
    for rows, words in (
        (numpy.flatnonzero(members & (times == 0)), "is not in the sum for"),
        (numpy.flatnonzero(~members & (times > 0)), "is added to"),
        (numpy.flatnonzero(members & (times > 1)), "counts {} times in"),
    ):
        for first, last in _runs(rows, times):
            end = ", and does not belong there" if words == "is added to" else ""
            about = mean.of_rows(range(first, last + 1))
            said.append(f"{about} {words.format(times[first])} {mean.words}{end}")
    if said:
        divided = round(count)
        if abs(count - divided) <= CLOSE and divided == number and int(times.sum()) != number:
            said = [*said[:RANGES], f"the sum of the weights still counts {number}"]
        return "; ".join(said[: RANGES + 1])
    if abs(count - 1) <= CLOSE and number > 1:
        return f"{mean.words}: where all logits are 0, each weight is 1, not 1/{number}: no sum divides them"
    if abs(count - round(count)) <= CLOSE * count and round(count) != number and number * CLOSE < 1:
        off = "too many" if round(count) > number else "too few"
        words = f"where all logits are 0, the weights are 1/{round(count)}, not 1/{number}"
        return f"{mean.words}: {words}: their sum counts {abs(round(count) - number)} {off}"
    return None


def _unit(got: ndarray, members: ndarray) -> float:
    """The weight of one row, of some that are not 0."""
    import numpy

    own = got[(got > SMALL) & members]
    return float(numpy.median(own)) if own.size else float(got[got > SMALL].min())


def _strangers(mean: Mixture, got: ndarray, want: ndarray) -> Iterator[Element]:
    """The first row that has a weight and must not, the first that has none and must, the first that has several: the
    element of each in the target's column."""
    import numpy

    members, present = want > SMALL, got > SMALL
    times = numpy.rint(got / _unit(got, members)).astype(int) if bool(present.any()) else numpy.ones(len(got), int)
    for rows, part in (
        (~members & present, Part.FOREIGN),
        (members & ~present, Part.LACKING),
        (members & (times > 1), Part.REPEATED),
    ):
        if bool(rows.any()):
            row = int(rows.argmax())
            flat = row * mean.width + mean.target.flat % mean.width
            yield Element(mean.values.name, flat, part, int(times[row]))


def _runs(rows: ndarray, times: ndarray) -> list[tuple[int, int]]:
    """Rows that follow each other and count equally often: the first and the last of each range."""
    found: list[tuple[int, int]] = []
    for row in rows.tolist():
        if found and found[-1][1] + 1 == row and times[row] == times[found[-1][0]]:
            found[-1] = (found[-1][0], row)
        else:
            found.append((row, row))
    return found


# -- one larger logit ------------------------------------------------------------------------------------------------


def _with_logits(mean: Mixture, scorer: Tensor, logits: Mapping[int, float]) -> dict[str, ndarray]:
    """Inputs for which the rows have these logits, and all others 0: a row of the scorer is one number throughout."""
    base = mean.filled(1.0)
    table = base[scorer.name].reshape(-1, mean.width)
    table[:] = 0.0
    for row, logit in logits.items():
        table[row] = logit / mean.width
    for each in mean.weighing:
        if each is not scorer:
            base[each.name] *= mean.width**0.5  # 1 / sqrt(width) is taken off again, if the reference has it
    return base


def _rescaled(mean: Mixture, scorer: Tensor, keys: Sequence[int]) -> str | None:
    """Rows that keep the weight which they had before a larger logit came. Empty where rows of the output that must
    have the same weights have not: then no rule for one of them is the cause."""
    for late in (keys[-1], keys[0]):
        pairs = []
        for rise in RISES:
            pair = mean.both(_with_logits(mean, scorer, {late: rise}), keys)
            if pair is None:
                return None
            pairs.append(pair)
            if _same(*pair):
                break
        if len(pairs) == len(RISES):
            # A lower logit leaves the maximum as it is. Rescaling cannot be the cause of what is wrong then, too.
            lower = mean.both(_with_logits(mean, scorer, {late: -RISES[0]}), keys)
            if lower is None:
                return None
            if _same(*lower) and (words := _kept(mean, keys, late, pairs)):
                return words if _alike(mean, scorer, keys, late) else ""
            if all(_same(got, got.mean() + 0 * got) for got, _ in (*pairs, lower)):
                which = f"the weight of {mean.of_rows([late])} in {mean.words}"
                return f"{which} does not depend on {_name(scorer, mean, late)}"
    return None


def _alike(mean: Mixture, scorer: Tensor, keys: Sequence[int], late: int) -> bool:
    """Whether every row of the output that must have the same weights as the row has these, too, or the right ones. A
    sum that is not rescaled does not depend on the row; what another row's weights got into does."""
    base = _with_logits(mean, scorer, {late: RISES[0]})
    got, want = (mean.weights_of_all(make, base, keys) for make in (mean.target.answer, mean.target.reference))
    if got is None or want is None:
        return False
    own = got[mean.row]
    rows = [row for row in range(len(want)) if _same(want[row], want[mean.row])]
    return all(_same(got[row], own) or _same(got[row], want[row]) for row in rows)


def _kept(mean: Mixture, keys: Sequence[int], late: int, pairs: Sequence[tuple[ndarray, ndarray]]) -> str | None:
    """``pairs``: weights (got, expected) where the logit of ``late`` is above the others, once for each of RISES."""
    import numpy

    place_of = list(keys).index(late)
    sets, sums = [], []
    for rise, (got, want) in zip(RISES, pairs, strict=True):
        if got[place_of] <= SMALL:
            return None
        off = got / want / (got[place_of] / want[place_of])  # beside the row with the larger logit
        kept, fine = abs(off - exp(rise)) <= 2 * CLOSE * exp(rise), abs(off - 1) <= 2 * CLOSE
        if not bool((kept | fine).all()):
            return None
        sets.append(numpy.flatnonzero(kept).tolist())
        # The divisor, in units of the largest weight, has 1 in place of exp(-rise) for so many rows.
        right = 1 + (len(keys) - 1) * exp(-rise)
        sums.append((1 / got[place_of] - right) / (1 - exp(-rise)))
    above = f"where only the logit of {mean.of_rows([late])} is 1 above the others"
    if sets[0] and sets[0] == sets[1]:
        rows = [keys[each] for each in sets[0]]
        ranges = [f"{mean.of_rows(range(a, b + 1))}" for a, b in _runs(numpy.array(rows), numpy.zeros(mean.rows))]
        which = ", ".join(ranges[:RANGES]) + (", ..." if len(ranges) > RANGES else "")
        words = f"{above}, the weight of {which} in {mean.words} is e times too large beside it"
        return f"{words}: {NOT_RESCALED}"
    whole = round(sums[0])
    if sets == [[], []] and 1 <= whole < len(keys) and all(abs(each - whole) <= 0.1 + CLOSE * whole for each in sums):
        words = f"the divisor of {mean.words} counts {whole} of the {len(keys)} weights e times too large"
        return f"{above}, {words}: {NOT_RESCALED}"
    return None


# -- logits that differ ----------------------------------------------------------------------------------------------


def _labels(rows: Sequence[int], turn: int) -> list[float]:
    """A logit for each row, further apart the larger they are; two turns tell all rows apart."""
    digits = [(17 * row if turn == 0 else row // KINDS + 7 * row + 3) % KINDS for row in rows]
    return [APART * each + 0.0006 * each * each for each in digits]


def _scale(mean: Mixture, scorer: Tensor, keys: Sequence[int]) -> float | None:
    """The factor of all logits, if they have one and it is not 1. Small logits, since large ones would hide others."""
    import numpy

    rows = range(mean.rows)
    small = [each / 8 for each in _labels(rows, 0)]
    pair = mean.both(_with_logits(mean, scorer, dict(zip(rows, small, strict=True))), keys)
    if pair is None or not bool((pair[0] > SMALL).all()):
        return None
    y, x = (numpy.log(each) - numpy.log(each).mean() for each in pair)
    if float(abs(x).max()) < APART / 2:
        return None
    slope = float((x * y).sum() / (x * x).sum())
    fits = bool((abs(y - slope * x) <= 0.004 + CLOSE * abs(slope * x)).all())
    return slope if fits and slope > 0.01 and abs(slope - 1) > 0.02 else None


def _logits(mean: Mixture, scorer: Tensor, keys: Sequence[int]) -> str | None:
    """Columns that the products lack; else a factor that all logits have; else another row's logit."""
    scale = _scale(mean, scorer, keys)
    if scale is None:
        return _paired(mean, scorer, keys) or _products(mean, scorer, keys)
    if words := _products(mean, scorer, keys):
        return words
    return f"{mean.words}: all logits are {scale:.4g} times what they must be" if len(keys) >= MANY else None


def _paired(mean: Mixture, scorer: Tensor, keys: Sequence[int]) -> str | None:
    """Which row's logit made the weight of each row."""
    import numpy

    rows = range(mean.rows)
    if mean.rows > KINDS * KINDS:
        return None
    candidates: list[set[int]] = [set(rows) for _ in keys]
    for turn in range(2):
        logits = _labels(rows, turn)
        pair = mean.both(_with_logits(mean, scorer, dict(zip(rows, logits, strict=True))), keys)
        if pair is None or not bool((pair[0] > SMALL).all()):
            return None
        got, want = pair
        known = numpy.log(want) - numpy.array([logits[key] for key in keys])
        near = _matches(numpy.log(got) - known.mean(), numpy.array(logits))
        if near is None:
            return None
        candidates = [a & b for a, b in zip(candidates, near, strict=True)]
    wrong = [(key, each) for key, each in zip(keys, candidates, strict=True) if key not in each]
    if not wrong or any(len(each) != 1 for _, each in wrong):
        return None
    said = [
        f"{mean.of_rows([key])} has the weight that {_name(scorer, mean, min(each))} makes, "
        f"not {_name(scorer, mean, key)}"
        for key, each in wrong
    ]
    return f"{mean.words}: " + "; ".join(said[:2]) + ("; and more" if len(said) > 2 else "")


def _matches(found: ndarray, logits: ndarray) -> list[set[int]] | None:
    """The rows whose logit each of these is. Where the sum of the weights is another one, all are off by one number."""
    import numpy

    def at(shift: float) -> list[set[int]]:
        return [set(numpy.flatnonzero(abs(logits - each - shift) < APART / 4).tolist()) for each in found]

    if all(near := at(0.0)):
        return near
    fitting = [near for shift in sorted({*(logits - found[0]).tolist()}) if all(near := at(shift))]
    return fitting[0] if len(fitting) == 1 and len(found) >= MANY else None


def _name(scorer: Tensor, mean: Mixture, row: int) -> str:
    return range_words(scorer.name, mean.shape[:-1], [row], "*")


# -- logits of some columns alone ------------------------------------------------------------------------------------


def _products(mean: Mixture, scorer: Tensor, keys: Sequence[int]) -> str | None:
    """Columns that are not in the products of rows of Q and K, or several times: found by halving."""
    import numpy

    counts, todo, reads = numpy.ones(mean.width, dtype=int), [(0, mean.width)], 0
    while todo:
        now, todo = todo[: len(keys) - 1], todo[len(keys) - 1 :]
        base = _with_logits(mean, scorer, {})
        table = base[scorer.name].reshape(-1, mean.width)
        for key, (first, last) in zip(keys[1:], now, strict=False):
            table[key, first:last] = LOGIT / (last - first)
        reads += 1
        pair = mean.both(base, keys) if reads <= 2 * READS else None
        if pair is None or not bool((pair[0] > SMALL).all()):
            return None
        got, want = (numpy.log(each / each[0]) for each in pair)
        if bool((abs(got[len(now) + 1 :]) > 2 * CLOSE).any()):
            return None
        if bool((want[1 : len(now) + 1] < 0.1).any()):
            return None
        for times, (first, last) in zip((got[1:] / numpy.where(want[1:] > 0, want[1:], 1)).tolist(), now, strict=False):
            if abs(times - 1) <= LOGIT_ERROR:
                continue
            if abs(times) <= LOGIT_ERROR:
                counts[first:last] = 0
            elif last - first > 1:
                todo += [(first, (first + last) // 2), ((first + last) // 2, last)]
            elif abs(times - round(times)) > CLOSE or times < 0:
                return None
            else:
                counts[first] = round(times)
    return _columns_words(mean, counts)


def _columns_words(mean: Mixture, counts: ndarray) -> str | None:
    """``counts``: how often each column is in the products. None where all are equally often."""
    import numpy

    if len(set(counts.tolist())) == 1:
        return None
    said = []
    for first, last in _runs(numpy.flatnonzero(counts != 1), counts):
        which = f"columns {first} to {last}" if last > first else f"column {first}"
        missing = ("are" if last > first else "is") + " not in"
        many = f"count{'' if last > first else 's'} {counts[first]} times in"
        said.append(f"{which} {many if counts[first] else missing}")
    names = " and ".join(each.name for each in mean.weighing)
    return f"{'; '.join(said[:RANGES])} the products of rows of {names} for {mean.words}"


def _row_words(name: str, index: Sequence[int]) -> str:
    return f"{name}[{', '.join(map(str, index))}, *]"
