"""Graded CUDA kernel katas. ``from grader import load`` makes a kata a function of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grader.notebook.launcher import KataError as KataError
    from grader.notebook.launcher import load as load

__all__ = ["KataError", "load"]


def load_ipython_extension(shell: Any) -> None:
    """What ``%load_ext grader`` calls: ``%%kata NAME`` then grades a cell."""
    from grader.notebook import magic

    magic.register(shell)


def __getattr__(name: str) -> Any:
    """What a notebook asks for, imported on first use, because it imports torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from grader.notebook import launcher
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from grader.fault import NoTorch

        how = "`make torch` or `pip install torch` installs it; `%%kata` grades without it"
        raise NoTorch(f"grader.{name} needs torch, and it is not installed: {how}.") from None
    return getattr(launcher, name)
