"""import torch, without the parts of it that no baseline needs: they take more than half of the seconds.

Those parts are imported when one of their names is first used, as they would have been. What they do to others when
they are imported (shapes for tensors without data, docs) happens then, too. A torch that cannot be imported so is
imported as always.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

LATER = (
    "torch._lobpcg",
    "torch._meta_registrations",
    "torch.ao",
    "torch.distributions",
    "torch.func",
    "torch.hub",
    "torch.masked",
    "torch.nested",
    "torch.nn.intrinsic",
    "torch.nn.qat",
    "torch.nn.quantizable",
    "torch.nn.quantized",
    "torch.optim",
    "torch.profiler",
    "torch.quantization",
    "torch.testing",
)


def import_torch() -> None:
    """Raises what importing torch raises; and what this module may be wrong about: then only a new process helps."""
    threading.Thread(target=_load_libraries, daemon=True).start()  # while the interpreter imports what torch needs
    with contextlib.suppress(Exception):
        import numpy  # noqa: F401
        import typing_extensions  # noqa: F401
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        import torch  # noqa: F401
    finally:
        finder.closed = True


def _load_libraries() -> None:
    """torch's own, which it loads by itself where that fails."""
    with contextlib.suppress(Exception):
        found = importlib.util.find_spec("torch")
        assert found is not None and found.origin is not None
        folder = Path(found.origin).parent / "lib"
        ctypes.CDLL(str(folder / "libtorch_global_deps.so"), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(folder / "libtorch_python.so"))


class _Finder(MetaPathFinder):
    """Finds the parts that are for later, until it is closed."""

    def __init__(self) -> None:
        self.closed = False

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if self.closed or not name.startswith("torch."):
            return None
        for part in _above(name):  # of a part's own parts, each needs the whole
            _finish(sys.modules.get(part))
        if name not in LATER:
            return None
        found = PathFinder.find_spec(name, path, target)
        if found is not None and found.loader is not None:
            found.loader = _Later(found.loader)
        return found


def _above(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        if name in LATER:
            yield name


class _Later(Loader):
    """Leaves a module empty until one of its names is used."""

    def __init__(self, loader: Loader) -> None:
        self._loader, self._lock = loader, threading.RLock()

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        def of(name: str) -> Any:
            if name in ("__path__", "__file__", "__wrapped__"):  # who asks only looks what kind of module it is
                raise AttributeError(name)
            self.finish(module)
            return getattr(module, name)

        module.__dict__["__getattr__"] = of

    def finish(self, module: ModuleType) -> None:
        """Import it now, if that has not begun."""
        with self._lock:
            if module.__dict__.pop("__getattr__", None) is not None:
                self._loader.exec_module(module)


def _finish(module: ModuleType | None) -> None:
    if module is not None and isinstance(loader := getattr(module.__spec__, "loader", None), _Later):
        loader.finish(module)
