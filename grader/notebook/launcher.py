"""Kata + file -> Launcher: a Python function of tensors that calls the file's launcher.

On CPU tensors it runs on the simulator, in the sandbox's child process, so that a wrong kernel is an error and not a
crash; on CUDA tensors in this process, on the current stream. What is loaded stays what it is until ``reload``.
"""

from __future__ import annotations

import atexit
import ctypes
import inspect
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from grader.compile.build import Build, CompileFailure, Request, Target, build
from grader.compile.toolchain import find_gpu, find_toolchain
from grader.content import start
from grader.content.catalog import Kata, find_root, load_catalog
from grader.content.source_file import digest_of, source_of
from grader.content.spec import Spec, Tensor, load_spec
from grader.devices import CTYPES, INSTRUCTIONS, SIM_ARCH, Buffer, Call, Finding, Limits, Role, Scalar
from grader.devices.sim import engine_library
from grader.grade import grade
from grader.learner import progress
from grader.notebook.graded import Graded
from grader.options import Options
from grader.output.verdict_text import display_path
from grader.sandbox.parent import Program, Sandbox
from grader.storage import cache

LIMITS = Limits(instructions=6 * INSTRUCTIONS)


class KataError(RuntimeError):
    """A kata cannot be called so, does not compile, or a finding stopped it; the message says what and where."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message, not the way to it."""
        return str(self).splitlines()


def load(name: str, *, file: str | Path | None = None, solution: bool = False, device: str | None = None) -> Launcher:
    """A kata as a function of tensors: the learner's file, compiled; or its ``solution``, or any other ``file``.

    It is compiled at once for ``device``: "cpu" (the simulator), "cuda", or by default the GPU where there is one; for
    the other when it is first called there. Raises KataError, with the compiler's words where it does not compile.
    """
    catalog = load_catalog(find_root())
    katas = catalog.select([name])
    if len(katas) != 1:
        raise KataError(f"load is for one kata, but {name!r} names {len(katas)}: {', '.join(k.name for k in katas)}")
    if file is not None and solution:
        raise KataError("load takes a file or the solution, not both")
    if device not in (None, "cpu", "cuda"):
        raise KataError(f"device must be 'cpu' or 'cuda', it is {device!r}")
    (kata,) = katas
    own = kata.solution_path if solution else kata.own_path
    launcher = Launcher(kata, Path(file) if file is not None else own)
    launcher.compile(device or ("cpu" if find_gpu() is None else "cuda"))
    return launcher


class Launcher:
    """One kata as a function of tensors: inputs, then sizes that no input's shape tells, then further parameters.

    It allocates its outputs, or fills those given as ``out`` (a tensor, or a tuple of them), and returns them. An input
    that the launcher updates in place is copied to its output first; it keeps what it holds unless it is ``out``.
    """

    def __init__(self, kata: Kata, source: Path) -> None:
        self.kata, self.source = kata, source
        self.spec: Spec = load_spec(kata)
        self.__name__ = kata.name
        self.__doc__ = "\n".join(_description(kata, self.spec))
        self.__signature__ = _signature(self.spec)
        self._read = source_of(source)
        self._sandbox: Sandbox | None = None
        self._library: ctypes.CDLL | None = None
        _LAUNCHERS.add(self)

    def __repr__(self) -> str:
        return f"<{self.kata.name}{_call(self.spec)} from {display_path(self.source)}>"

    def __call__(self, *arguments: Any, out: Any = None, **named: Any) -> Any:
        inputs, sizes, scalars = self.bind(self._in_order(arguments, named))
        device = self._device(inputs)
        outputs = self.empty(sizes, device) if out is None else self._given(out, sizes, device)
        for name in self.spec.updated:
            outputs[name].copy_(inputs[name])
        run = self._run_on_gpu if device.type == "cuda" else self._run_on_simulator
        run(inputs, outputs, scalars)
        return self.results(outputs)

    @property
    def edited(self) -> bool:
        """Is there something else in the file by now than what is loaded?"""
        return digest_of(self.source) != self._read.digest

    def reload(self) -> Launcher:
        """Take what is in the file now; it is compiled for the devices for which it was."""
        devices = [name for name, used in (("cpu", self._sandbox), ("cuda", self._library)) if used is not None]
        self.close()
        self._read = source_of(self.source)
        for device in devices or ["cpu" if find_gpu() is None else "cuda"]:
            self.compile(device)
        return self

    def grade(self, *, device: str = "auto", thorough: bool = False, seed: int = 0, speed: bool = False) -> Graded:
        """Grade the file as it is now, as `kata grade` does; kept as progress where it is the learner's own.

        Not timed by default: this process may be using the GPU itself. ``device`` is "auto", "gpu" or "sim".
        """
        options = Options(device, thorough, seed, speed=speed)
        graded = grade(self.kata, options, source=self.source)
        if warning := progress.keep_grade(graded):
            print(f"kata: {warning}")
        return Graded(graded)

    def compile(self, device: str) -> None:
        """Make the file ready for "cpu" or "cuda". Raises KataError."""
        if device == "cuda":
            self._on_gpu()
        else:
            self._on_simulator()

    def close(self) -> None:
        """End the simulator's child process; the next call starts another."""
        if self._sandbox is not None:
            self._sandbox.close()
        self._sandbox = self._library = None

    # -- arguments -------------------------------------------------------------------------------------------------

    def _in_order(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """All arguments by position. Raises KataError where they are too many, too few or unknown."""
        try:
            bound = self.__signature__.bind(*arguments, **named)
        except TypeError as error:
            raise KataError(f"{self.kata.name}: {error}; call it as {self.kata.name}{_call(self.spec)}") from None
        bound.apply_defaults()
        return tuple(value for name, value in bound.arguments.items() if name != "out")

    def bind(self, arguments: tuple[Any, ...]) -> tuple[dict[str, torch.Tensor], dict[str, int], list[Scalar]]:
        """Inputs, sizes and scalars of one call. Raises KataError for a tensor of another dtype or shape."""
        inputs = dict(zip((tensor.name for tensor in self.spec.inputs), arguments, strict=False))
        sizes: dict[str, int] = {}
        for tensor in self.spec.inputs:
            self._match(tensor, inputs[tensor.name], sizes)
            inputs[tensor.name] = inputs[tensor.name].detach().contiguous()
        rest = list(arguments[len(self.spec.inputs) :])
        for name in self.spec.sizes:
            if name not in sizes:
                sizes[name] = self._size(name, rest.pop(0))
        for name, step in self.kata.multiples.items():
            if sizes[name] % step:
                raise KataError(f"{self.kata.name}: {name} must be a multiple of {step}, it is {sizes[name]}")
        for name, size in self.spec.sizes.items():
            if sizes[name] < size.min:
                raise KataError(f"{self.kata.name}: {name} must be at least {size.min}, it is {sizes[name]}")
        scalars = [Scalar(name, "int", sizes[name]) for name in self.spec.sizes]
        scalars += [
            Scalar(item.name, item.ctype, value) for item, value in zip(self.spec.parameters, rest, strict=True)
        ]
        return inputs, sizes, scalars

    def _size(self, name: str, value: Any) -> int:
        try:
            return int(value)
        except (TypeError, ValueError):
            raise KataError(f"{self.kata.name}: {name} must be a whole number, it is {value!r}") from None

    def _match(self, tensor: Tensor, value: Any, sizes: dict[str, int]) -> None:
        wanted = f"{self.kata.name}: {tensor.name} must be {_form(tensor, self.kata, self.spec)}"
        if not isinstance(value, torch.Tensor):
            raise KataError(f"{wanted}, it is not a tensor but {type(value).__name__}")
        if value.dtype != self._dtype(tensor) or value.dim() != len(tensor.shape):
            raise KataError(f"{wanted}, it is {list(value.shape)} {value.dtype}")
        for dim, length in zip(tensor.shape, value.shape, strict=True):
            known = dim if isinstance(dim, int) else sizes.setdefault(dim, length)
            if known != length:
                raise KataError(f"{wanted} with {dim}={known}, it is {list(value.shape)}")

    def _dtype(self, tensor: Tensor) -> torch.dtype:
        found: torch.dtype = getattr(torch, self.spec.dtype(tensor, self.kata).torch_name)
        return found

    def _device(self, inputs: Mapping[str, torch.Tensor]) -> torch.device:
        """Where all inputs are."""
        (first, value), *others = inputs.items()
        for name, other in others:
            if other.device != value.device:
                raise KataError(f"{self.kata.name}: {name} is on {other.device}, {first} on {value.device}")
        if value.device.type not in ("cpu", "cuda"):
            raise KataError(f"{self.kata.name}: {first} is on {value.device}; it must be on the CPU or a CUDA device")
        return value.device

    def _given(self, out: Any, sizes: dict[str, int], device: torch.device) -> dict[str, torch.Tensor]:
        """The outputs that the caller gave."""
        tensors = self.spec.outputs
        values = (out,) if isinstance(out, torch.Tensor) else tuple(out)
        if len(values) != len(tensors):
            names = ", ".join(tensor.name for tensor in tensors)
            raise KataError(f"{self.kata.name}: out must have {len(tensors)} tensors ({names}), it has {len(values)}")
        for tensor, value in zip(tensors, values, strict=True):
            self._match(tensor, value, dict(sizes))
            where = f"{self.kata.name}: out for {tensor.name}"
            if value.device != device:
                raise KataError(f"{where} is on {value.device}, the inputs on {device}")
            if not value.is_contiguous() or value.data_ptr() % tensor.align:
                raise KataError(f"{where} must be contiguous and begin at a multiple of {tensor.align} bytes")
        return {tensor.name: value.detach() for tensor, value in zip(tensors, values, strict=True)}

    def empty(self, sizes: Mapping[str, int], device: torch.device) -> dict[str, torch.Tensor]:
        """Outputs of a call with these sizes."""
        return {
            tensor.name: torch.empty(tensor.extent(sizes), dtype=self._dtype(tensor), device=device)
            for tensor in self.spec.outputs
        }

    @staticmethod
    def results(outputs: Mapping[str, torch.Tensor]) -> Any:
        values = tuple(outputs.values())
        return values[0] if len(values) == 1 else values

    # -- calling ---------------------------------------------------------------------------------------------------

    def _run_on_simulator(
        self, inputs: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor], scalars: list[Scalar]
    ) -> None:
        spec = self.spec
        buffers = [
            _buffer(tensor, "updated" if tensor.name in spec.updated else "in", self._name(tensor), inputs[tensor.name])
            for tensor in spec.inputs
        ]
        buffers += [_buffer(tensor, "out", self._name(tensor), outputs[tensor.name]) for tensor in spec.written]
        call = Call(self.kata.name, tuple(buffers), tuple(scalars), limits=LIMITS)
        outcome = self._on_simulator().call(call)
        if outcome.findings:
            raise self._stopped(outcome.findings[0])
        for name, output in outputs.items():
            if output.numel():
                raw = torch.frombuffer(bytearray(outcome.outputs[name]), dtype=torch.uint8)
                output.copy_(raw.view(output.dtype).reshape(output.shape))

    def _run_on_gpu(
        self, inputs: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor], scalars: list[Scalar]
    ) -> None:
        with torch.cuda.device(next(iter(inputs.values())).device):
            library = self._on_gpu()
            given = [
                outputs[tensor.name]
                if tensor.name in self.spec.updated
                else _aligned(inputs[tensor.name], tensor.align)
                for tensor in self.spec.inputs
            ]
            written = [outputs[tensor.name] for tensor in self.spec.written]
            pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (*given, *written)]
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            values = [CTYPES[scalar.ctype](scalar.value) for scalar in scalars]
            getattr(library, self.kata.name)(*pointers, *values, stream)
            refused = library.kata_take_error()
        if refused is not None:
            raise KataError(f"{self.kata.name}: launch failed: {refused.decode()}")

    def _name(self, tensor: Tensor) -> str:
        return self.spec.dtype(tensor, self.kata).name

    def _stopped(self, finding: Finding) -> KataError:
        return KataError(f"{self.kata.name}: {finding.kind}: {finding.message}{self._at(finding.line)}")

    def _at(self, line: int | None) -> str:
        """Where in the file: its name and line, and below it the line's text."""
        if line is None:
            return ""
        return f" ({display_path(self.source)}:{line})\n    {self._read.line(line)}".rstrip()

    def _on_simulator(self) -> Sandbox:
        if self._sandbox is None:
            built = self._built(Target("sim", SIM_ARCH))
            engine = engine_library(cache.cache_folder())
            self._sandbox = Sandbox("sim")
            self._sandbox.load(Program("sim", SIM_ARCH, built.library, built.ptx, built.source, engine))
        return self._sandbox

    def _on_gpu(self) -> ctypes.CDLL:
        if self._library is None:
            gpu = find_gpu()
            if gpu is None:
                raise KataError("no NVIDIA GPU was found for CUDA tensors; `kata doctor` says why")
            self._library = ctypes.CDLL(str(self._built(Target("gpu", gpu.arch)).library))
            self._library.kata_take_error.restype = ctypes.c_char_p
        return self._library

    def _built(self, target: Target) -> Build:
        name = self.kata.name
        if problem := source_of(self.source).problem or self._read.problem:
            raise KataError(f"{name}: {display_path(self.source)} cannot be read ({problem})")
        if self.edited:
            raise KataError(f"{name}: {display_path(self.source)} was edited since it was loaded; call reload()")
        if start.is_untouched(self.kata, self._read.text):
            raise KataError(
                f"{name}: not started: fill in the TODOs of {display_path(self.source)}, then load it again"
            )
        built = build(Request(self.kata, self.spec, self._read, target), find_toolchain())
        if isinstance(built, CompileFailure):
            raise KataError(f"{name}: {built.kind}: {built.message}{self._at(built.line)}")
        return built


def _aligned(value: torch.Tensor, align: int) -> torch.Tensor:
    """The tensor, or a copy where it begins elsewhere than kernels may expect: a slice of another, say."""
    return value if value.data_ptr() % align == 0 else value.clone()


def _buffer(tensor: Tensor, role: Role, dtype: str, value: torch.Tensor) -> Buffer:
    data = value.flatten().view(torch.uint8).numpy().tobytes() if value.numel() else b""
    return Buffer(tensor.name, role, dtype, value.element_size(), tuple(value.shape), data)


# -- how a launcher is called, in words ------------------------------------------------------------------------------


def sizes_to_give(spec: Spec) -> list[str]:
    """Sizes that no input's shape tells."""
    known = {dim for tensor in spec.inputs for dim in tensor.shape}
    return [name for name in spec.sizes if name not in known]


def _signature(spec: Spec) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    found = [inspect.Parameter(name, kind) for name in (*(item.name for item in spec.inputs), *sizes_to_give(spec))]
    found += [inspect.Parameter(item.name, kind, default=item.value) for item in spec.parameters]
    return inspect.Signature([*found, inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None)])


def _call(spec: Spec) -> str:
    """``(a, b, eps=1e-05) -> c``"""
    names = [item.name for item in spec.inputs] + sizes_to_give(spec)
    names += [f"{item.name}={item.value}" for item in spec.parameters]
    return f"({', '.join(names)}) -> {', '.join(item.name for item in spec.outputs)}"


def _form(tensor: Tensor, kata: Kata, spec: Spec) -> str:
    """``[M, K] f32``"""
    return f"[{', '.join(map(str, tensor.shape))}] {spec.dtype(tensor, kata).name}"


def _description(kata: Kata, spec: Spec) -> Iterator[str]:
    """What a launcher computes, from what; a line each."""
    yield f"{kata.name}{_call(spec)}"
    yield ""
    yield spec.computes
    yield ""
    for title, tensors in (("takes", spec.inputs), ("returns", spec.outputs)):
        for tensor in tensors:
            dtype = spec.dtype(tensor, kata).torch_name
            yield f"  {title:<8} {tensor.name:<8} {_form(tensor, kata, spec)} (torch.{dtype})"
    for name in sizes_to_give(spec):
        yield f"  takes    {name:<8} int"
    for item in spec.parameters:
        yield f"  takes    {item.name:<8} {item.ctype}, {item.value} unless given"
    for name, step in kata.multiples.items():
        yield f"  {name} must be a multiple of {step}"


_LAUNCHERS: weakref.WeakSet[Launcher] = weakref.WeakSet()


@atexit.register
def _close() -> None:
    for launcher in _LAUNCHERS:
        launcher.close()
