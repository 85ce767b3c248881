"""Spec + sizes + values + seed -> Case: the inputs a kernel gets and the answer it must give.

The reference sees the inputs after they were rounded to the kata's dtype, in float64, on a copy of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from grader.content.catalog import Kata
from grader.content.dtype import DTYPES, Dtype
from grader.content.formulas import side_by_side, tiled
from grader.content.spec import PERIOD, Exact, InputKind, Periodic, Rng, Rounded, Sizes, Spec, Tensor, growth
from grader.devices import Buffer, Call, Card, Contents, Limits, Poison, Role, Scalar
from grader.devices.contents import negated, number_of, replaced, rotation, seed_of
from grader.judge.encoding import decode, encode, has_negative, stored
from grader.judge.recent import OneAtATime, Recent, once
from grader.system.processes import available_bytes
from grader.system.stages import stage
from grader.verdict import format_sizes

if TYPE_CHECKING:
    from hypothesis import strategies
    from numpy import ndarray

SEEDS = 1 << 16
LARGE_ELEMENTS, SLICE_ELEMENTS = 1 << 20, 1 << 17  # of an output that is worked out slice by slice, of a slice
ROW_LEAST = 4  # of a slice along the last axis: for one element, all of a line of memory is read
SHORT_RUN = 8  # rows that follow each other, on average: picked one by one
GROUP_ELEMENTS = 1 << 18  # of the largest input: in float64 they stay in a processor's cache
PERIODS_BYTES = 64 << 20  # of draws that are kept: all large shapes of a family have the same
KEPT_BYTES = 64 << 20  # of inputs and answers of earlier cases, each at most KEPT_EACH_BYTES
KEPT_EACH_BYTES = KEPT_BYTES // 16
# Larger ones, which only a GPU gets, have a share of the memory that is available, and at most so many bytes.
KEPT_LARGE_SHARE, KEPT_LARGE_BYTES = 16, 2 << 30


@dataclass(frozen=True)
class CaseKey:
    """What names a case: sizes in the spec's order, the name of the values, the seed that they are drawn with.

    ``card`` is the simulated card that it runs on; None: the full one.
    """

    sizes: tuple[tuple[str, int], ...]
    values: str
    seed: int
    card: Card | None = None

    @staticmethod
    def of(spec: Spec, sizes: Sizes, values: str, seed: int) -> CaseKey:
        """The sizes put in the spec's order."""
        return CaseKey(tuple((name, sizes[name]) for name in spec.sizes), values, seed)

    def __str__(self) -> str:
        return format_sizes(dict(self.sizes))


def shapes(
    kata: Kata,
    spec: Spec,
    *,
    most: Mapping[str, int] | None = None,
    values: str | None = None,
    card: Card | None = None,
    work_limit: int,
) -> strategies.SearchStrategy[CaseKey]:
    """All shapes that the spec and the kata's multiples allow, up to ``most`` where given and the limit of work."""
    from hypothesis import strategies as st

    def size(name: str) -> strategies.SearchStrategy[int]:
        allowed, step = spec.sizes[name], kata.multiples.get(name, 1)
        top = min(allowed.max, (most or {}).get(name, allowed.max))
        return st.integers(-(-allowed.min // step), max(top // step, -(-allowed.min // step))).map(lambda k: k * step)

    names = [values] if values else [named.name for named in spec.values]
    drawn = st.builds(
        CaseKey,
        st.tuples(*(st.tuples(st.just(name), size(name)) for name in spec.sizes)),
        st.sampled_from(names),
        st.integers(0, SEEDS - 1),
        st.just(card),
    )
    return drawn.filter(lambda shape: spec.work(dict(shape.sizes)) <= work_limit)


def allowed(kata: Kata, sizes: Mapping[str, int]) -> bool:
    """Whether the kata's launcher may be called with these sizes."""
    return all(sizes[name] % step == 0 for name, step in kata.multiples.items())


def largest_within(kata: Kata, spec: Spec, work_limit: float) -> Mapping[str, int] | None:
    """The named sizes with the most work that the kata's launcher takes and that stay within the limit; None: none."""
    fits = [sizes for sizes in spec.named_sizes if allowed(kata, sizes) and spec.work(sizes) <= work_limit]
    return max(fits, key=spec.work, default=None)


@dataclass(frozen=True)
class Expected:
    """The right answer for one output: ``value`` in float64 or int64, ``bound`` the largest error that passes."""

    tensor: Tensor
    dtype: Dtype
    value: ndarray
    bound: ndarray | None  # None: the reference rounded to the output's dtype, and nothing else
    signed_zeros: bool = False  # whether a zero must have the reference's sign
    before_rounding: bool = False  # whether the bound is about the number that was rounded to the output's dtype


@dataclass(frozen=True)
class Key:
    """``parts`` are the identities of functions and values of a spec, which lives as long as what is kept by them."""

    shape: CaseKey
    dtypes: tuple[tuple[Tensor, str], ...]
    parts: tuple[int, ...]
    takes_rows: bool


@dataclass(frozen=True)
class _Worked:
    """What was worked out for a case. Nobody writes to it."""

    spec: Spec
    inputs: Mapping[str, ndarray]
    expected: tuple[Expected, ...]

    @property
    def bytes(self) -> int:
        answers = [array for item in self.expected for array in (item.value, item.bound) if array is not None]
        return sum(array.nbytes for array in (*self.inputs.values(), *answers))


# Other files of a family meet the same cases.
_KEPT: Recent[Key, _Worked] = Recent(KEPT_BYTES, lambda worked: worked.bytes)
_AT_WORK: OneAtATime[Key] = OneAtATime()  # of several grades one works a case out, and the others wait


@once
def _kept_large() -> tuple[Recent[Key, _Worked], int]:
    """Those that are too large for the others, and how many bytes each may have."""
    most = min(KEPT_LARGE_BYTES, available_bytes() // KEPT_LARGE_SHARE)
    return Recent(most, lambda worked: worked.bytes), most // 4


class Case:
    """One shape with its inputs drawn. The answer is worked out when it is first asked for."""

    def __init__(
        self,
        kata: Kata,
        spec: Spec,
        shape: CaseKey,
        inputs: Mapping[str, ndarray] | None = None,
        rows: ndarray | None = None,
    ) -> None:
        """``inputs`` are drawn where they are not given; ``rows`` says of a part which of the whole's rows it has."""
        self.kata, self.spec, self.shape = kata, spec, shape
        self.sizes = dict(shape.sizes)
        self._values = next(named for named in spec.values if named.name == shape.values)
        self._given = inputs
        self._rows = rows
        self._about = {"sizes": self.sizes, **({"rows": rows} if spec.reference_takes_rows else {})}

    @cached_property
    def inputs(self) -> Mapping[str, ndarray]:
        """Each input in the storage of its dtype, contiguous."""
        if self._given is not None:
            return self._given
        with stage("inputs"), _AT_WORK.of(self.key):
            known = self._known()
            return self._drawn() if known is None else known.inputs

    def _known(self) -> _Worked | None:
        return _KEPT.get(self.key) or _kept_large()[0].get(self.key)

    def _drawn(self) -> dict[str, ndarray]:
        rng = Rng(self.shape.seed)
        return {tensor.name: self._draw(tensor, self._values, rng) for tensor in self.spec.inputs}

    @cached_property
    def key(self) -> Key:
        """All that inputs and answer are worked out from: the same for many katas of a family."""
        tensors = (*self.spec.inputs, *self.spec.outputs, Tensor("", (), "acc"))
        dtypes = tuple((tensor, self.spec.dtype(tensor, self.kata).name) for tensor in tensors)
        parts = (self.spec.reference, self.spec.tolerance, self._values)
        return Key(replace(self.shape, card=None), dtypes, tuple(map(id, parts)), self.spec.reference_takes_rows)

    def _draw(self, tensor: Tensor, values: InputKind, rng: Rng) -> ndarray:
        import numpy

        extent, dtype = tensor.extent(self.sizes), self.spec.dtype(tensor, self.kata)
        fill = values.for_input(tensor.name)
        if isinstance(fill, Periodic) and prod(extent) > PERIOD:
            return tiled(_period(fill, rng, dtype), prod(extent)).reshape(extent)
        drawn = fill(rng, extent, self.sizes)
        return numpy.ascontiguousarray(encode(drawn.reshape(extent), dtype))

    def _wide(self) -> dict[str, ndarray]:
        """Copies of the inputs in float64 or int64, which nothing may write to."""
        wide = {
            tensor.name: decode(self.inputs[tensor.name], self.spec.dtype(tensor, self.kata))
            for tensor in self.spec.inputs
        }
        for value in wide.values():
            value.flags.writeable = False
        return wide

    @cached_property
    def expected(self) -> tuple[Expected, ...]:
        if self._given is not None:
            return self._worked_out()
        with stage("references"), _AT_WORK.of(self.key):
            known = self._known()
            if known is None:
                known = _Worked(self.spec, self.inputs, self._worked_out())
                large, most = _kept_large()
                if known.bytes <= KEPT_EACH_BYTES:
                    _KEPT.keep(self.key, known)
                elif known.bytes <= most:
                    large.keep(self.key, known)
        return known.expected

    def answers(self) -> tuple[ndarray, ...]:
        """What each output must be, in float64 or int64, without what it may be off by: for small inputs."""
        import numpy

        wide = self._wide()
        with numpy.errstate(all="ignore"):
            found = _several(self.spec.reference(**wide, **self._about))
        return tuple(
            value.reshape(tensor.extent(self.sizes)) for tensor, value in zip(self.spec.outputs, found, strict=True)
        )

    @stage("references")
    def _worked_out(self) -> tuple[Expected, ...]:
        """At once, or a large one in groups of the batch, or slice by slice; several at the same time."""
        import numpy

        if (groups := self._groups()) is not None:
            return self._of_batch(side_by_side(Case._worked_out, groups))
        if (slices := self._slices()) is not None:
            return joined(side_by_side(lambda rows: self.part(rows)._worked_out(), slices), self.spec.slice_dim)
        wide = self._wide()
        with numpy.errstate(all="ignore"):  # inf and nan among the inputs are meant
            return self._judgeable(_several(self.spec.reference(**wide, **self._about)), wide)

    def _slices(self) -> list[tuple[ndarray]] | None:
        """The rows of each slice of the outputs; None where they are small, or cannot be had slice by slice."""
        import numpy

        name = self.spec.slice_dim
        if name is None or self._rows is not None:
            return None
        rows, sliced = self.sizes[name], [tensor.elements(self.sizes) for tensor in self.spec.sliced]
        least = ROW_LEAST if any(tensor.shape[-1] == name for tensor in self.spec.sliced) else 1
        step = max(least, SLICE_ELEMENTS * rows // max(1, *sliced))
        if max(sliced) < LARGE_ELEMENTS or step >= rows:
            return None
        others = sum(tensor.elements(self.sizes) for tensor in self.spec.inputs if tensor not in self.spec.sliced)
        if others * (rows // step) > 2 * (sum(sliced) + others):  # each slice needs them again
            return None
        return [(numpy.arange(first, min(first + step, rows)),) for first in range(0, rows, step)]

    def _groups(self) -> list[tuple[Case]] | None:
        """The case cut along its batch, which is taken as one dimension; None where it is small or has none."""
        count = prod(self.sizes[name] for name in self.spec.batch)
        step = max(1, GROUP_ELEMENTS * count // max([1, *(array.size for array in self.inputs.values())]))
        return None if step >= count else [(self._group(at, min(at + step, count)),) for at in range(0, count, step)]

    def _group(self, first: int, last: int) -> Case:
        batch, inputs = self.spec.batch, dict(self.inputs)
        ones = (1,) * (len(batch) - 1)
        for tensor in self.spec.inputs:
            if tensor.shape[: len(batch)] == batch:
                rest = inputs[tensor.name].shape[len(batch) :]
                cut = inputs[tensor.name].reshape(-1, *rest)[first:last]
                inputs[tensor.name] = cut.reshape(*ones, last - first, *rest)
        cut_to = {**dict.fromkeys(batch, 1), batch[-1]: last - first}
        sizes = tuple((name, cut_to.get(name, count)) for name, count in self.shape.sizes)
        return Case(self.kata, self.spec, replace(self.shape, sizes=sizes), inputs, self._rows)

    def _of_batch(self, groups: list[tuple[Expected, ...]]) -> tuple[Expected, ...]:
        def whole(item: Expected) -> Expected:
            extent = item.tensor.extent(self.sizes)
            bound = None if item.bound is None else item.bound.reshape(extent)
            return replace(item, value=item.value.reshape(extent), bound=bound)

        return tuple(map(whole, joined(groups, self.spec.batch[-1])))

    def _judgeable(self, values: tuple[ndarray, ...], wide: Mapping[str, ndarray]) -> tuple[Expected, ...]:
        bounds = self._bounds(values, wide)
        tolerance = self.spec.tolerance
        signed = isinstance(tolerance, Exact) and tolerance.signed_zeros
        before = isinstance(tolerance, Rounded)
        return tuple(
            Expected(
                tensor,
                self.spec.dtype(tensor, self.kata),
                value.reshape(tensor.extent(self.sizes)),
                bound,
                signed,
                before,
            )
            for tensor, value, bound in zip(self.spec.outputs, values, bounds, strict=True)
        )

    def _bounds(self, values: tuple[ndarray, ...], wide: Mapping[str, ndarray]) -> list[ndarray | None]:
        tolerance = self.spec.tolerance
        if isinstance(tolerance, Exact) or self._values.exact:
            return [None] * len(values)
        magnitudes = _several(tolerance.magnitude(**wide, **self._about))
        accumulator = self.spec.dtype(Tensor("", (), "acc"), self.kata).roundoff
        if isinstance(tolerance, Rounded):
            return [tolerance.c * accumulator * magnitude for magnitude in magnitudes]
        terms = tolerance.terms(self.sizes)
        bounds: list[ndarray | None] = []
        for tensor, value, magnitude in zip(self.spec.outputs, values, magnitudes, strict=True):
            out = self.spec.dtype(tensor, self.kata)
            rounding = out.roundoff * (abs(value) + out.tiny)
            bounds.append(tolerance.c * (rounding + growth(terms) * accumulator * magnitude))
        return bounds

    def in_call(self, secret: int, call: int) -> Case:
        """The same with the contents of a timing run's nth call: see grader/devices/contents.py."""
        import numpy

        inputs, seed = {}, seed_of(secret, call)
        for position, (name, value) in enumerate(self.inputs.items()):
            number, flat = number_of(seed, position), value.reshape(-1)
            turned = numpy.roll(flat, -(rotation(number) // value.itemsize))
            if name in self.replaced:
                places, sources = replaced(number, flat.size)
                turned[places] = flat[sources]
            if name in self.negated:
                first, last = negated(number, flat.size)
                turned.view(numpy.uint8).reshape(-1, value.itemsize)[first:last, -1] ^= 0x80  # the sign, in any format
            inputs[name] = turned.reshape(value.shape)
        return Case(self.kata, self.spec, self.shape, inputs)

    @property
    def replaced(self) -> tuple[str, ...]:
        """The inputs of the kata's own elements: timed calls get other values there."""
        return tuple(tensor.name for tensor in self.spec.inputs if tensor.dtype == "elem")

    @cached_property
    def negated(self) -> tuple[str, ...]:
        """Those of them that have values of both signs: timed calls get some with the other sign there."""
        dtype = DTYPES[self.kata.elem]
        return tuple(name for name in self.replaced if dtype.is_float and has_negative(self.inputs[name], dtype))

    def part(self, rows: ndarray) -> Case:
        """Only these rows of the outputs, by the indices of the spec's ``rows``, with the inputs that they need."""
        name = self.spec.slice_dim
        assert name is not None
        inputs = dict(self.inputs)
        for tensor in self.spec.inputs:
            for dim, size in enumerate(tensor.shape):
                if size == name and not tensor.unsliced:
                    inputs[tensor.name] = taken(inputs[tensor.name], rows, dim)
        sizes = tuple((size, rows.size if size == name else count) for size, count in self.shape.sizes)
        return Case(self.kata, self.spec, replace(self.shape, sizes=sizes), inputs, rows)

    def call(self, *, nth: int, limits: Limits, watch: tuple[tuple[str, int], ...] = ()) -> Call:
        """The nth call on this case: same contents, other pointers, another order of warps and blocks."""
        updated = self.spec.updated
        buffers = [
            self._buffer(tensor, "updated" if tensor.name in updated else "in", nth) for tensor in self.spec.inputs
        ]
        buffers += [self._buffer(tensor, "out", nth) for tensor in self.spec.written]
        scalars = [Scalar(name, "int", size) for name, size in self.shape.sizes]
        scalars += [Scalar(item.name, item.ctype, item.value) for item in self.spec.parameters]
        seed = self.shape.seed * 2 + nth
        card = self.shape.card
        return Call(self.kata.name, tuple(buffers), tuple(scalars), seed=seed, limits=limits, watch=watch, card=card)

    def tensors(self, outputs: Mapping[str, Contents]) -> dict[str, ndarray]:
        """All tensors of a call by name, in float64 or int64."""
        found = self._wide()
        for tensor in self.spec.outputs:
            dtype = self.spec.dtype(tensor, self.kata)
            found[tensor.name] = decode(stored(outputs[tensor.name], dtype), dtype).reshape(tensor.extent(self.sizes))
        return found

    def _buffer(self, tensor: Tensor, role: Role, nth: int) -> Buffer:
        import numpy

        dtype, extent = self.spec.dtype(tensor, self.kata), tensor.extent(self.sizes)
        data: Contents | Poison
        if role != "out":
            data = self.inputs[tensor.name].reshape(-1).view(numpy.uint8).data  # the array's own memory
        else:
            data = Poison(dtype.poison, prod(extent) * dtype.itemsize)
        position = [item.name for item in (*self.spec.inputs, *self.spec.outputs)].index(tensor.name)
        offset = tensor.align * (2 * ((position + nth) % 3) + 1)  # an odd multiple: aligned to this and to no more
        return Buffer(tensor.name, role, dtype.name, dtype.itemsize, extent, data, offset)


_PERIODS: Recent[tuple[Periodic, str, str], tuple[ndarray, Mapping[str, Any]]] = Recent(
    PERIODS_BYTES, lambda drawn: drawn[0].nbytes
)


def _period(fill: Periodic, rng: Rng, dtype: Dtype) -> ndarray:
    """One period of a draw as the dtype stores it. It is not written to."""
    key = (fill, dtype.name, str(rng.state))
    period, rng.state = _PERIODS.get_or_make(key, lambda: (encode(fill(rng, (PERIOD,), {}), dtype), rng.state))
    return period


def taken(array: ndarray, rows: ndarray, axis: int) -> ndarray:
    """The array's rows along an axis, in order. Those that follow each other are cut out, not picked: along the last
    axis numpy would pick element by element."""
    import numpy

    runs = numpy.split(rows, numpy.flatnonzero(numpy.diff(rows) != 1) + 1) if rows.size else []
    if not runs or len(runs) > max(1, rows.size // SHORT_RUN):
        return array.take(rows, axis=axis)
    along = array.swapaxes(0, axis)
    cuts = [along[int(run[0]) : int(run[-1]) + 1].swapaxes(0, axis) for run in runs]
    return cuts[0] if len(cuts) == 1 else numpy.concatenate(cuts, axis)


def joined(slices: Sequence[tuple[Expected, ...]], name: str | None) -> tuple[Expected, ...]:
    """Each output, of all its slices along the size called ``name``."""
    import numpy

    def whole(parts: tuple[Expected, ...]) -> Expected:
        axis = parts[0].tensor.shape.index(str(name))
        bounds = [part.bound for part in parts if part.bound is not None]
        value = numpy.concatenate([part.value for part in parts], axis)
        return replace(parts[0], value=value, bound=numpy.concatenate(bounds, axis) if bounds else None)

    return tuple(map(whole, zip(*slices, strict=True)))


def _several(value: ndarray | tuple[ndarray, ...]) -> tuple[ndarray, ...]:
    return value if isinstance(value, tuple) else (value,)
