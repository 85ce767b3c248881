"""Family folder -> Spec: what a family computes, on which shapes and values, and how close is right.

A spec is data and three small functions. It never sees the learner's code, and the learner's process never sees it.
Numpy is only touched when a case is made, so that reading a spec costs nothing.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from grader.content.catalog import Kata
from grader.content.dtype import DTYPES, Dtype
from grader.content.formulas import side_by_side, tiled
from grader.fault import Fault

if TYPE_CHECKING:
    from numpy import ndarray

# A prime: no row, tile or block is as long, so that none can be taken for another.
PERIOD = 4_194_301
PART = 1 << 20  # elements of a fill that one thread works out

Sizes = Mapping[str, int]


class SpecError(Fault):
    """A family's spec is broken; the message says where and how to fix it."""


class Rng:
    """A seeded source of values. Every method returns float64 or int64, to be rounded to the tensor's dtype."""

    def __init__(self, seed: int) -> None:
        import numpy

        self._source = numpy.random.Generator(numpy.random.PCG64(seed))

    def normal(self, shape: Sequence[int], *, mean: float = 0.0, std: float = 1.0) -> ndarray:
        return self.repeated(shape, lambda n: self._source.standard_normal(n) * std + mean)

    def uniform(self, shape: Sequence[int], low: float, high: float) -> ndarray:
        return self.repeated(shape, lambda n: self._source.random(n) * (high - low) + low)

    def integers(self, shape: Sequence[int], low: int, high: int) -> ndarray:
        """Whole numbers in [low, high], both included, int64."""
        return self.repeated(shape, lambda n: self._source.integers(low, high, n, endpoint=True))

    def choice(self, shape: Sequence[int], values: Sequence[float]) -> ndarray:
        """Each element one of ``values``, float64."""
        return self.repeated(shape, lambda n: self._source.choice([float(value) for value in values], n))

    def repeated(self, shape: Sequence[int], draw: Callable[[int], ndarray]) -> ndarray:
        """What ``draw(count)`` gives, up to PERIOD elements of it; a longer array repeats them, which saves seconds."""
        count = prod(shape)
        drawn = draw(min(count, PERIOD))
        if count > PERIOD:
            drawn = tiled(drawn, count)
        return drawn.reshape(tuple(shape))

    @property
    def state(self) -> Mapping[str, Any]:
        """Where it is: what comes next follows from it."""
        return self._source.bit_generator.state

    @state.setter
    def state(self, state: Mapping[str, Any]) -> None:
        self._source.bit_generator.state = state


Fill = Callable[[Rng, tuple[int, ...], Sizes], "ndarray"]
"""Makes one input: (rng, shape, sizes) -> array of that shape."""


@dataclass(frozen=True)
class Periodic:
    """A fill of one draw that repeats after PERIOD elements: of any shape, one period says all of it."""

    draw: Callable[[Rng, tuple[int, ...]], ndarray]

    def __call__(self, rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        return self.draw(rng, shape)


def normal(*, mean: float = 0.0, std: float = 1.0) -> Fill:
    """Normal draws. A mean away from zero shows kernels that return a part of a sum or nothing at all."""
    return Periodic(lambda rng, shape: rng.normal(shape, mean=mean, std=std))


def integers(low: int, high: int) -> Fill:
    """Whole numbers in [low, high]: small ones are exact in every float dtype, so sums of them are too."""
    return Periodic(lambda rng, shape: rng.integers(shape, low, high))


def doubled(fill: Fill, *, axis: int = -1) -> Fill:
    """The second half along ``axis`` repeats the first. Its products with what is ``cancelling`` cancel.

    It comes in the same order: a kernel that goes through it backwards is seen.
    """
    return _in_halves(fill, axis, 1.0, 0.0)


def cancelling(fill: Fill, *, axis: int = -1) -> Fill:
    """The second half along ``axis`` is minus the first, each element changed by up to 3 %.

    A sum along that axis is then small beside its terms. Its bound allows only for the rounding of the sum itself: a
    partial sum that is stored in fewer bits is outside of it, and so is a neutral element that is not neutral.
    """
    return _in_halves(fill, axis, -1.0, 2.0**-5)


def _in_halves(fill: Fill, axis: int, sign: float, change: float) -> Fill:
    def both_halves(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        drawn = fill(rng, shape, sizes)
        along = numpy.moveaxis(drawn, axis, 0)
        count = len(along) // 2
        first, second = along[:count], along[len(along) - count :]
        factor = rng.uniform(first.shape, -change, change)

        def part(rows: slice) -> None:
            factor[rows] += 1.0
            factor[rows] *= first[rows]
            numpy.copyto(second[rows], numpy.multiply(factor[rows], sign, out=factor[rows]), casting="unsafe")

        step = max(1, PART * count // max(1, first.size))
        side_by_side(part, [(slice(at, at + step),) for at in range(0, count, step)])
        return drawn

    return both_halves


def edge_values(*, std: float = 4.0, at_end: bool = True) -> Fill:
    """Normal draws with one element in four replaced by inf, nan, a zero of either sign, a denormal or a huge value.

    The finite ones exist in f16 too: 6e-8 is its smallest denormal, 65504 its largest number. ``at_end``: of three
    or more the last are -inf, inf and nan, since code of their own works on what is left behind the last whole vector.
    """
    hard = (float("inf"), float("-inf"), float("nan"), 0.0, -0.0, 6.0e-8, -6.0e-8, 65504.0, -65504.0, 1.0)

    def fill(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
        import numpy

        plain = rng.normal(shape, std=std)
        values = numpy.where(rng.integers(shape, 0, 3) > 0, plain, rng.choice(shape, hard))
        if at_end and values.size >= 3:
            values.reshape(-1)[-3:] = (-numpy.inf, numpy.inf, numpy.nan)
        return values

    return fill


@dataclass(frozen=True)
class InputKind:
    """One named way to fill the inputs: one Fill for all of them, or one by name.

    ``exact`` asks for the exact answer: for whole numbers small enough that no partial result is rounded.
    """

    name: str
    fill: Fill | Mapping[str, Fill]
    exact: bool = False

    def for_input(self, name: str) -> Fill:
        return self.fill if callable(self.fill) else self.fill[name]


@dataclass(frozen=True)
class Tensor:
    """A launcher's pointer argument. ``dtype`` is a name of content/dtype.py, or "elem" or "acc" for the kata's own.

    ``shape`` names sizes; ``align`` is what the base pointer promises, in bytes. ``unsliced`` says of an input that
    every slice of the outputs needs all of it, also where it has the size that the spec's ``slice_dim`` names.
    """

    name: str
    shape: tuple[str | int, ...]
    dtype: str = "elem"
    align: int = 16
    unsliced: bool = False

    def extent(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in self.shape)

    def elements(self, sizes: Sizes) -> int:
        return prod(self.extent(sizes))


@dataclass(frozen=True)
class Size:
    """One integer that shapes are made of: drawn from [min, max], in steps of the kata's multiple where it has one."""

    min: int
    max: int


@dataclass(frozen=True)
class Parameter:
    """A scalar argument that is not a size, such as an epsilon, with the value that the family fixes for it."""

    name: str
    ctype: Literal["int", "int64_t", "float", "double"]
    value: int | float


@dataclass(frozen=True)
class Exact:
    """Integers, copies, single operations: the reference rounded once to the output's dtype, nothing else.

    ``signed_zeros``: -0 is another answer than 0, as where elements are moved. Any nan stands for any other.
    """

    signed_zeros: bool = False


def growth(terms: int) -> float:
    """g(k) = min(k, 8 sqrt k): by how many roundoffs a sum of ``terms`` terms may be off, of the sum of their sizes."""
    return min(terms, 8 * sqrt(terms))


@dataclass(frozen=True)
class Accumulated:
    """Sums and products: |y - ref| <= c (u_out (|ref| + tiny_out) + growth(k) u_acc magnitude).

    ``terms`` gives k, the length of the longest sum; ``magnitude`` gives the same sum over absolute values, so that
    cancellation is allowed for. The bound is Higham's (Accuracy and Stability, 3.1 and 4.2), its factor k held
    down by the square root that rounding errors of random sign show. c = 4 leaves room for other orders of summation.
    """

    terms: Callable[[Sizes], int]
    magnitude: Callable[..., ndarray | tuple[ndarray, ...]]  # like Spec.reference, of absolute values
    c: float = 4.0


@dataclass(frozen=True)
class Rounded:
    """Codes of computed numbers, as a quantizer stores them: |z - ref| <= c u_acc magnitude for a z that rounds to y.

    So two neighbouring codes are right where the reference is that close to the tie between them, and one is elsewhere.
    The reference must not be rounded to the output's dtype. ``magnitude`` is as in Accumulated.
    """

    magnitude: Callable[..., ndarray | tuple[ndarray, ...]]
    c: float = 4.0


@dataclass(frozen=True)
class Operations:
    """What `kata estimate` counts. One for each +, -, *, /, comparison, maximum and function of ``formula``.

    A sum of n terms counts n. Signs, indices, conversions and what is done once per row or call do not count. ``per``
    says how many that are, and which. ``count`` gives their number for a shape; None: ``flops`` of the spec. ``moved``
    says in words what the spec's ``min_bytes`` counts, where a tensor is not moved once and whole.
    """

    formula: str
    per: str
    count: Callable[[Sizes], int] | None = None
    moved: str = ""


@dataclass(frozen=True)
class Spec:
    """What a family computes. All callables work on the CPU, in the grader's own process.

    ``reference`` gets the inputs, as the kernel saw them, as keyword arguments by name (floats as float64, integers
    as int64, numpy arrays) and the sizes in ``sizes``; it returns float64 or int64, one array for each output.
    ``named_sizes`` are the shapes that every grade tries, smallest first: 0, 1, primes, one before and one past a
    vector, a warp, a block, a tile. ``large`` are tried on a GPU only.
    An output with the name of an input is the same memory: the launcher gets one pointer, which holds the input before
    the call and the output after it. ``reference`` gets the input.
    ``work`` estimates the instructions that all threads together execute for a shape; a grade on the simulator
    leaves out shapes above its budget.
    ``min_bytes`` gives the fewest bytes that a launcher can move, from the sizes and the bytes of an output's element;
    without it every tensor is moved once.
    ``flops`` gives the floating-point operations of a shape, for kernels that are bound by these.
    ``operations`` are those of the formula, for an estimate on paper; katas with a speed have them.
    ``slice_dim`` names the size along which a slice of the outputs needs only the same slice of the inputs that have
    this size, but for those that are ``unsliced``, and all of every other input; it is a dimension of every output.
    Large answers are judged by slices. Where it matters which rows a slice has, ``reference_takes_rows`` gives
    reference and magnitude their indices as ``rows``, or None for all.
    ``sampled`` is True where a row of the answer takes so long that of a timed call only some are worked out, however
    small the answer is.
    ``batch`` names the sizes that come first in every output, and in every input that has them: the answer for one
    index of them needs nothing of another. Large answers are worked out for a few of them at a time.
    ``baselines`` are what speed is measured against, by the name that difficulty.yaml uses: a function that gets all
    tensors by name, on the GPU, and returns what is timed. It runs in the child process and is never asked for values.
    ``small_shared`` is the most shared memory, in bytes, that a block gets on the small cards of a grade on the
    simulator, for katas whose launchers ask how much there is; 0: as much as on the full card.
    ``computed`` has the names of the outputs in the order in which they are computed; empty: their own order.
    ``near_misses`` are usual mistakes: in words what is computed instead, as "without eps", and a function like
    ``reference`` that computes it. A wrong answer that equals one of them, and no other, is said to.
    ``deterministic`` is False where the order of float atomics may change the last bits from call to call, as the kata
    means it: nothing is said of it. ``repeatable`` is True where the headers ask for the same bits in every call.
    """

    computes: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    sizes: Mapping[str, Size]
    values: tuple[InputKind, ...]
    reference: Callable[..., ndarray | tuple[ndarray, ...]]
    tolerance: Exact | Accumulated | Rounded
    named_sizes: tuple[Sizes, ...]
    work: Callable[[Sizes], int]
    large: tuple[Sizes, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    deterministic: bool = True
    repeatable: bool = False
    min_bytes: Callable[[Sizes, int], int] | None = None
    flops: Callable[[Sizes], int] | None = None
    operations: Operations | None = None
    slice_dim: str | None = None
    sampled: bool = False
    batch: tuple[str, ...] = ()
    reference_takes_rows: bool = False
    small_shared: int = 0
    computed: tuple[str, ...] = ()
    near_misses: Mapping[str, Callable[..., ndarray | tuple[ndarray, ...]]] = field(default_factory=dict)
    baselines: Mapping[str, Callable[..., Callable[[], object]]] = field(default_factory=dict)

    @property
    def updated(self) -> frozenset[str]:
        """The names of the inputs that the launcher overwrites: those that an output has, too."""
        return frozenset(tensor.name for tensor in self.inputs) & {tensor.name for tensor in self.outputs}

    @property
    def sliced(self) -> tuple[Tensor, ...]:
        """The outputs, and the inputs of which a slice of the outputs needs only the same slice."""
        inputs = (tensor for tensor in self.inputs if self.slice_dim in tensor.shape and not tensor.unsliced)
        return (*self.outputs, *inputs)

    @property
    def written(self) -> tuple[Tensor, ...]:
        """The outputs that have memory of their own."""
        return tuple(tensor for tensor in self.outputs if tensor.name not in self.updated)

    def dtype(self, tensor: Tensor, kata: Kata) -> Dtype:
        """The dtype of one of this family's tensors in one kata."""
        name = {"elem": kata.elem, "acc": kata.acc or kata.elem}.get(tensor.dtype, tensor.dtype)
        return DTYPES[name]

    def signature(self, kata: Kata) -> str:
        """The launcher as C declares it: ``void square_f32(const float* x, float* y, int n, cudaStream_t stream)``."""
        pointers = [
            f"{'' if tensor.name in self.updated else 'const '}{self.dtype(tensor, kata).ctype}* {tensor.name}"
            for tensor in self.inputs
        ]
        pointers += [f"{self.dtype(tensor, kata).ctype}* {tensor.name}" for tensor in self.written]
        sizes = [f"int {name}" for name in self.sizes]
        scalars = [f"{parameter.ctype} {parameter.name}" for parameter in self.parameters]
        return f"void {kata.name}({', '.join([*pointers, *sizes, *scalars, 'cudaStream_t stream'])})"

    def headers(self, kata: Kata) -> tuple[str, ...]:
        """CUDA headers that the signature needs."""
        tensors = (*self.inputs, *self.outputs)
        return tuple(sorted({header for tensor in tensors if (header := self.dtype(tensor, kata).header)}))


_LOADED: dict[Path, dict[str | None, Spec]] = {}


def load_spec(kata: Kata) -> Spec:
    """What a kata computes: ``SPECS[kata.name]`` of its family's spec file where that has one, else its ``SPEC``.

    Raises SpecError where there is neither.
    """
    return find_spec(kata.spec_path, kata.name)


def find_spec(path: Path, name: str) -> Spec:
    """What the kata ``name`` computes, from its family's spec file. Raises SpecError as load_spec does."""
    path = path.resolve()
    if path not in _LOADED:
        _LOADED[path] = _read_specs(path)
    found = _LOADED[path]
    if name not in found and None not in found:
        raise SpecError(f"{path}: defines neither SPEC nor SPECS[{name!r}]. Add one of them, from grader.content.spec.")
    return found.get(name) or found[None]


def _read_specs(path: Path) -> dict[str | None, Spec]:
    """The family's spec under None, and by their names those of the katas that compute something else."""
    if not path.is_file():
        raise SpecError(f"{path}: missing. A family needs this file with a SPEC; see another family's for the form.")
    module_spec = importlib.util.spec_from_file_location(f"kata_spec_{path.stem}", path)
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module
    module_spec.loader.exec_module(module)
    specs: dict[str | None, Spec] = dict(getattr(module, "SPECS", {}))
    if isinstance(spec := getattr(module, "SPEC", None), Spec):
        specs[None] = spec
    if not specs:
        raise SpecError(f"{path}: defines no SPEC. Add `SPEC = Spec(...)` from grader.content.spec.")
    for spec in specs.values():
        _validate(spec, path)
    return specs


def _validate(spec: Spec, path: Path) -> None:
    for tensor in (*spec.inputs, *spec.outputs):
        for dim in tensor.shape:
            if isinstance(dim, str) and dim not in spec.sizes:
                known = ", ".join(spec.sizes)
                raise SpecError(f"{path}: tensor {tensor.name} has dimension {dim!r}; the sizes are: {known}.")
        if tensor.dtype not in (*DTYPES, "elem", "acc"):
            known = ", ".join(("elem", "acc", *DTYPES))
            raise SpecError(f"{path}: tensor {tensor.name} has dtype {tensor.dtype!r}; known: {known}.")
    for name in spec.updated:
        before, after = (next(each for each in of if each.name == name) for of in (spec.inputs, spec.outputs))
        if before != after:
            raise SpecError(f"{path}: input and output {name} are the same memory. Give both the same shape and dtype.")
    for shape in (*spec.named_sizes, *spec.large):
        if set(shape) != set(spec.sizes):
            raise SpecError(f"{path}: shape {dict(shape)} must name exactly the sizes {list(spec.sizes)}.")
    if spec.slice_dim is not None and any(tensor.shape.count(spec.slice_dim) != 1 for tensor in spec.outputs):
        raise SpecError(f"{path}: rows is {spec.slice_dim!r}, which must be one dimension of every output.")
    if not spec.named_sizes or not spec.values:
        raise SpecError(f"{path}: named_sizes and values must each have at least one entry.")
