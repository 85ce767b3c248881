"""What a person types for a quantity -> a number: ``64MB``, ``1.2 GFLOP``, ``35us``, ``25%``, or ``3 * 4 * n``."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping

from grader.fault import Fault

_TENS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_TWOS = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_WORDS = {"memory": "memory", "bandwidth": "memory", "bytes": "memory", "compute": "compute", "operations": "compute"}


def _units(prefixes: Mapping[str, float], names: tuple[str, ...]) -> dict[str, float]:
    return {prefix + name: factor for prefix, factor in prefixes.items() for name in names}


# Kind of quantity -> its units, each with its factor, and how to write one.
UNITS: Mapping[str, Mapping[str, float]] = {
    "bytes": _units({**_TENS, **_TWOS}, ("", "B", "byte", "bytes")),
    "operations": _units(_TENS, ("", "FLOP", "FLOPs", "FLOPS", "flop", "flops", "OP", "op", "ops")),
    "intensity": {"": 1.0, "FLOP/B": 1.0, "flop/b": 1.0, "FLOP/byte": 1.0},
    "time": _SECONDS,
    "share": {"": 1.0, "%": 0.01},
    "count": _TENS,
}
EXAMPLES: Mapping[str, str] = {
    "bytes": "805MB, 0.8 GB, 512MiB or 3 * 4 * n",
    "operations": "1.2 GFLOP, 67M or 2 * M * N * K",
    "intensity": "0.083 or 1/12",
    "time": "35us, 0.2 ms",
    "share": "75% or 0.75",
    "count": "29,106, 29.1k or 3 * ((n + 7) // 8)",
    "bound": "memory or compute",
}
_NUMBER = re.compile(r"(?P<number>(?:\d{1,3}(?:,\d{3})+|\d+)?\.?\d*(?:[eE][+-]?\d+)?)\s*(?P<unit>[A-Za-zµμ%/]*)")
_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


class QuantityError(Fault):
    """What was typed is not a quantity of the wanted kind; the message says how to write one."""


def read(text: str, kind: str, sizes: Mapping[str, int]) -> float | str:
    """The number, in bytes, operations, seconds or ones; of a bound, the word. ``sizes`` may stand in a formula.

    Raises QuantityError.
    """
    words = text.strip()
    if kind == "bound":
        words = words.lower().removesuffix("bound").rstrip(" -")
        found = next((word for name, word in _WORDS.items() if words and name.startswith(words)), None)
        if found is None:
            raise _error(text, kind, {})
        return found
    number = _with_unit(words, UNITS[kind])
    if number is None and kind != "time":
        number = _formula(words.replace("^", "**"), sizes)
    if number is None or not 0 <= number < math.inf:
        raise _error(text, kind, {} if kind == "time" else sizes)
    return number


def _with_unit(words: str, units: Mapping[str, float]) -> float | None:
    match = _NUMBER.fullmatch(words)
    if match is None or match["unit"] not in units:
        return None
    try:
        return float(match["number"].replace(",", "")) * units[match["unit"]]
    except ValueError:
        return None


def _formula(words: str, sizes: Mapping[str, int]) -> float | None:
    """The value of a formula of numbers, sizes and + - * / // **; None for anything else."""
    try:
        return _value(ast.parse(words, mode="eval").body, sizes)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, OverflowError, RecursionError, TypeError):
        return None


def _value(node: ast.expr, sizes: Mapping[str, int]) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.Name):
        return float(sizes[node.id])
    if isinstance(node, ast.BinOp):
        return float(_OPERATORS[type(node.op)](_value(node.left, sizes), _value(node.right, sizes)))
    raise ValueError


def _error(text: str, kind: str, sizes: Mapping[str, int]) -> QuantityError:
    what = {"bound": "what bounds a kernel", "share": "a share", "count": "a count", "time": "a time"}
    said = what.get(kind, f"a number of {kind}" if kind != "intensity" else "an intensity")
    names = f" A formula may have {', '.join(sizes)}." if sizes else ""
    return QuantityError(f"{text.strip()!r} is not {said}. Write it as {EXAMPLES[kind]}.{names}")


def shown(value: float, kind: str) -> str:
    """A value with its unit, to three or four digits."""
    if kind == "time":
        unit = next((name for name in ("s", "ms", "us") if value >= _SECONDS[name]), "ns")
        return f"{value / _SECONDS[unit]:.4g} {unit}"
    if kind == "share":
        return f"{100 * value:.4g} %"
    if kind in ("bytes", "operations"):
        prefix = next((each for each in ("T", "G", "M", "k") if value >= _TENS[each]), "")
        return f"{value / _TENS[prefix]:.4g} {prefix}{'B' if kind == 'bytes' else 'FLOP'}"
    return f"{value:,.0f}" if kind == "count" else f"{value:.4g}"
