"""Built kata -> torch operator: ``torch.ops.kata.<name>`` on CPU tensors (simulator) and CUDA tensors.

``import grader.ops`` defines one operator for every kata of the clone; a kata is compiled when it is first called.
On CPU tensors the launcher runs in the sandbox's child process, so that a wrong kernel is an error and not a crash.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Mapping
from functools import cache as remembered
from pathlib import Path
from typing import Any

import torch

from grader import cache
from grader.build import Build, CompileFailure, Request, Target, build
from grader.catalog import Kata, find_root, load_catalog
from grader.devices import CTYPES, Buffer, Call, Role, Scalar
from grader.grade import SIM_ARCH
from grader.sandbox import Program, Sandbox
from grader.spec import Spec, Tensor, load_spec
from grader.toolchain import find_gpu, find_toolchain

CALL_LIMIT_S = 60.0
_SANDBOXES: list[Sandbox] = []
_LIBRARY: Any = torch.library.Library("kata", "DEF")  # type: ignore[no-untyped-call]


class KataError(RuntimeError):
    """A kata's launcher could not be called, or a finding of the simulator stopped it."""


def schema(kata: Kata, spec: Spec) -> str:
    """The operator's schema: inputs, sizes that no input's shape tells, other parameters with their defaults."""
    known = {dim for tensor in spec.inputs for dim in tensor.shape}
    arguments = [f"Tensor {tensor.name}" for tensor in spec.inputs]
    arguments += [f"int {name}" for name in spec.sizes if name not in known]
    for parameter in spec.parameters:
        kind = "int" if parameter.ctype.startswith("int") else "float"
        arguments.append(f"{kind} {parameter.name}={parameter.value}")
    results = ", ".join(["Tensor"] * len(spec.outputs))
    return f"{kata.name}({', '.join(arguments)}) -> " + (results if len(spec.outputs) == 1 else f"({results})")


_OPERATORS: dict[str, _Operator] = {}


def register(root: Path | None = None, *, solutions: bool = False) -> None:
    """Define the operators of a clone; ``solutions`` calls the reference solutions instead of the learner's files.

    Calling it again changes which files the operators call.
    """
    for kata in load_catalog(root or find_root()).katas.values():
        source = kata.solution_path if solutions else kata.skeleton_path
        defined = kata.name in _OPERATORS
        _OPERATORS[kata.name] = _Operator(kata, load_spec(kata), source)
        if not defined:
            _define(kata.name, schema(kata, _OPERATORS[kata.name].spec))


def _define(name: str, text: str) -> None:
    _LIBRARY.define(text)
    _LIBRARY.impl(name, lambda *arguments: _OPERATORS[name].on_cpu(*arguments), "CPU")
    _LIBRARY.impl(name, lambda *arguments: _OPERATORS[name].on_cuda(*arguments), "CUDA")
    _LIBRARY.impl(name, lambda *arguments: _OPERATORS[name].on_meta(*arguments), "Meta")


class _Operator:
    """One kata as a function of tensors."""

    def __init__(self, kata: Kata, spec: Spec, source: Path) -> None:
        self.kata, self.spec, self.source = kata, spec, source

    def on_meta(self, *arguments: Any) -> Any:
        inputs, sizes, _ = self._bind(arguments)
        return self._results(self._empty(sizes, next(iter(inputs.values())).device))

    def on_cpu(self, *arguments: Any) -> Any:
        inputs, sizes, scalars = self._bind(arguments)
        outputs = self._empty(sizes, torch.device("cpu"))
        buffers = [_buffer(tensor, "in", self._name(tensor), inputs[tensor.name]) for tensor in self.spec.inputs]
        buffers += [_buffer(tensor, "out", self._name(tensor), outputs[tensor.name]) for tensor in self.spec.outputs]
        call = Call(self.kata.name, tuple(buffers), tuple(scalars), time_limit_s=CALL_LIMIT_S)
        outcome = self._sandbox(self.source.read_bytes()).call(call)
        if outcome.findings:
            finding = outcome.findings[0]
            where = f" ({self.source.name}:{finding.line})" if finding.line is not None else ""
            raise KataError(f"{self.kata.name}: {finding.kind}: {finding.message}{where}")
        for name, output in outputs.items():
            if output.numel():
                raw = torch.frombuffer(bytearray(outcome.outputs[name]), dtype=torch.uint8)
                output.copy_(raw.view(output.dtype).reshape(output.shape))
        return self._results(outputs)

    def on_cuda(self, *arguments: Any) -> Any:
        inputs, sizes, scalars = self._bind(arguments)
        device = next(iter(inputs.values())).device
        with torch.cuda.device(device):
            library = self._library(self.source.read_bytes())
            outputs = self._empty(sizes, device)
            pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (*inputs.values(), *outputs.values())]
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            values = [CTYPES[scalar.ctype](scalar.value) for scalar in scalars]
            getattr(library, self.kata.name)(*pointers, *values, stream)
            refused = library.kata_take_error()
        if refused is not None:
            raise KataError(f"{self.kata.name}: launch failed: {refused.decode()}")
        return self._results(outputs)

    def _name(self, tensor: Tensor) -> str:
        return self.spec.dtype(tensor, self.kata).name

    def _bind(self, arguments: tuple[Any, ...]) -> tuple[dict[str, torch.Tensor], dict[str, int], list[Scalar]]:
        """Inputs, sizes and scalars of one call. Raises KataError for a tensor of another dtype or shape."""
        inputs = dict(zip((tensor.name for tensor in self.spec.inputs), arguments, strict=False))
        sizes: dict[str, int] = {}
        for tensor in self.spec.inputs:
            self._match(tensor, inputs[tensor.name], sizes)
            inputs[tensor.name] = inputs[tensor.name].contiguous()
        rest = list(arguments[len(self.spec.inputs) :])
        for name in self.spec.sizes:
            if name not in sizes:
                sizes[name] = int(rest.pop(0))
        for name, step in self.kata.multiples.items():
            if sizes[name] % step:
                raise KataError(f"{self.kata.name}: {name} must be a multiple of {step}, it is {sizes[name]}")
        scalars = [Scalar(name, "int", sizes[name]) for name in self.spec.sizes]
        scalars += [
            Scalar(item.name, item.ctype, value) for item, value in zip(self.spec.parameters, rest, strict=True)
        ]
        return inputs, sizes, scalars

    def _match(self, tensor: Tensor, value: torch.Tensor, sizes: dict[str, int]) -> None:
        wanted = f"{self.kata.name}: {tensor.name} must be [{', '.join(map(str, tensor.shape))}] {self._name(tensor)}"
        dtype = getattr(torch, self.spec.dtype(tensor, self.kata).torch_name)
        if value.dtype != dtype or value.dim() != len(tensor.shape):
            raise KataError(f"{wanted}, it is {list(value.shape)} {value.dtype}")
        for dim, length in zip(tensor.shape, value.shape, strict=True):
            known = dim if isinstance(dim, int) else sizes.setdefault(dim, length)
            if known != length:
                raise KataError(f"{wanted} with {dim}={known}, it is {list(value.shape)}")

    def _empty(self, sizes: Mapping[str, int], device: torch.device) -> dict[str, torch.Tensor]:
        return {
            tensor.name: torch.empty(
                tensor.extent(sizes),
                dtype=getattr(torch, self.spec.dtype(tensor, self.kata).torch_name),
                device=device,
            )
            for tensor in self.spec.outputs
        }

    @staticmethod
    def _results(outputs: Mapping[str, torch.Tensor]) -> Any:
        values = tuple(outputs.values())
        return values[0] if len(values) == 1 else values

    def _built(self, target: Target) -> Build:
        built = build(Request(self.kata, self.spec, self.source, target), find_toolchain())
        if isinstance(built, CompileFailure):
            where = f" ({self.source.name}:{built.line})" if built.line is not None else ""
            raise KataError(f"{self.kata.name}: does not compile: {built.message}{where}")
        return built

    @remembered  # noqa: B019 - operators live as long as the process
    def _sandbox(self, text: bytes) -> Sandbox:
        """The child process for this content of the file."""
        from grader.devices.sim import engine_library

        built = self._built(Target("sim", SIM_ARCH))
        sandbox = Sandbox("sim")
        sandbox.load(
            Program("sim", SIM_ARCH, built.library, built.ptx, built.source, engine_library(cache.cache_folder()))
        )
        _SANDBOXES.append(sandbox)
        return sandbox

    @remembered  # noqa: B019
    def _library(self, text: bytes) -> ctypes.CDLL:
        gpu = find_gpu()
        if gpu is None:
            raise KataError("a CUDA tensor was given, but no NVIDIA GPU was found; `kata doctor` says why")
        library = ctypes.CDLL(str(self._built(Target("gpu", gpu.arch)).library))
        library.kata_take_error.restype = ctypes.c_char_p
        return library


def _buffer(tensor: Tensor, role: Role, dtype: str, value: torch.Tensor) -> Buffer:
    data = value.flatten().view(torch.uint8).numpy().tobytes() if value.numel() else b""
    return Buffer(tensor.name, role, dtype, value.element_size(), tuple(value.shape), data)


@atexit.register
def _close() -> None:
    for sandbox in _SANDBOXES:
        sandbox.close()


register()
