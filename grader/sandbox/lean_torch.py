"""import torch, without the parts of it that no baseline needs: they take half of its seconds.

When a name of one of those parts is first used, or torch imports anything more, all of them are imported, in the order
in which torch does it. From then on torch is as always. Where it cannot be imported like this, another process must
import all of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import sys
import threading
from collections.abc import Iterable, Sequence
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

LATER = (
    "torch._higher_order_ops",
    "torch._meta_registrations",
    "torch.ao",
    "torch.compiler",
    "torch.distributions",
    "torch.export",
    "torch.func",
    "torch.masked",
    "torch.nested",
    "torch.nn.intrinsic",
    "torch.nn.qat",
    "torch.nn.quantizable",
    "torch.nn.quantized",
    "torch.optim",
    "torch.profiler",
    "torch.quantization",
)
# What torch takes from there as names of its own: functions, which import the part when they are called.
CALLED = {"torch._higher_order_ops": ("cond", "while_loop"), "torch.func": ("vmap",)}


def import_torch() -> None:
    """Raises what importing torch raises, and what goes wrong because of this module."""
    threading.Thread(target=_load_libraries, daemon=True).start()  # while the interpreter imports what torch needs
    with contextlib.suppress(Exception):
        import numpy  # noqa: F401
        import typing_extensions  # noqa: F401
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    import torch  # noqa: F401

    finder.is_imported = True


def _load_libraries() -> None:
    """torch's own, which it loads by itself where that fails."""
    with contextlib.suppress(Exception):
        found = importlib.util.find_spec("torch")
        assert found is not None and found.origin is not None
        folder = Path(found.origin).parent / "lib"
        ctypes.CDLL(str(folder / "libtorch_global_deps.so"), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(folder / "libtorch_python.so"))


class _Finder(MetaPathFinder):
    """Finds the parts that are for later, until one of them is used."""

    def __init__(self) -> None:
        self.is_imported = self._finishes = False  # torch, but for them; all of it
        self._lock = threading.RLock()
        self._left: list[tuple[ModuleType, Loader]] = []

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith("torch."):
            return None
        self.need(name)
        if self.is_imported or name not in LATER:
            return None
        found = PathFinder.find_spec(name, path, target)
        if found is not None and found.loader is not None:
            found.loader = _Later(found.loader, self)
        return found

    def leave(self, module: ModuleType, loader: Loader) -> None:
        """Leave a module empty for now."""

        def of(name: str) -> Any:
            if name in ("__path__", "__file__", "__wrapped__"):  # who asks only looks what kind of module it is
                raise AttributeError(name)
            if name in CALLED.get(module.__name__, ()):
                return partial(self._call, module, name)
            self.need(f"{module.__name__}.{name}")
            return getattr(module, name)

        module.__dict__["__getattr__"] = of
        self._left.append((module, loader))

    def need(self, name: str) -> None:
        """Import what must be there before what has this name: while torch is imported only the part that it is in."""
        with self._lock:
            if self.is_imported and not self._finishes:
                self._finishes = True
                self._import(self._left)
                self._left.clear()
            else:
                self._import([each for each in self._left if name.startswith(f"{each[0].__name__}.")])

    def _import(self, parts: Iterable[tuple[ModuleType, Loader]]) -> None:
        for module, loader in [*parts]:
            if module.__dict__.pop("__getattr__", None) is not None:  # it has not begun
                loader.exec_module(module)

    def _call(self, module: ModuleType, name: str, *arguments: Any, **more: Any) -> Any:
        self.need(f"{module.__name__}.{name}")
        return getattr(module, name)(*arguments, **more)


class _Later(Loader):
    """A module's loader that leaves it empty."""

    def __init__(self, loader: Loader, finder: _Finder) -> None:
        self._loader, self._finder = loader, finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._finder.leave(module, self._loader)
