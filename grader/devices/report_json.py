"""JSON that a device reports <-> frozen dataclasses. An object must have exactly the fields of its class."""

from __future__ import annotations

import collections.abc
import functools
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from grader.devices.counters import KEYS

T = TypeVar("T")


class ReportError(ValueError):
    """A report is not what its class says; the message names the place in it and the problem."""


def decode(kind: type[T], value: object, place: str) -> T:
    """A value of JSON as a dataclass, and all that is in it as the annotations of its fields say.

    A field may be absent only where it has a default. ``place`` says in an error what the value is.
    """
    found: T = _object(kind, value, place)
    return found


def _object(kind: Any, value: object, place: str) -> Any:
    if not isinstance(value, Mapping):
        raise _unexpected(kind, value, place)
    known = _fields(kind)
    if unknown := [key for key in value if key not in known]:
        raise ReportError(f"{place} of {kind.__name__}: unknown key {unknown[0]!r}")
    if missing := [key for key, (_, _, needed) in known.items() if needed and key not in value]:
        raise ReportError(f"{place} of {kind.__name__}: no key {missing[0]!r}")
    found = {known[key][0]: _decoded(known[key][1], item, f"{place}: {key}") for key, item in value.items()}
    return kind(**found)


def encode(value: object) -> Any:
    """Dataclasses, and what is in them, as JSON: ``decode`` makes the same of it again."""
    if is_dataclass(value):
        return {_key(item.name): encode(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {name: encode(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value


def _key(name: str) -> str:
    return KEYS.get(name, name)


@functools.cache
def _fields(kind: Any) -> dict[str, tuple[str, Any, bool]]:
    """Key -> (name of the field, its type, whether it must be there)."""
    hints = get_type_hints(kind)
    return {
        _key(item.name): (item.name, hints[item.name], item.default is MISSING and item.default_factory is MISSING)
        for item in fields(kind)
    }


def _decoded(kind: Any, value: object, place: str) -> Any:
    """A value as an annotation says: a class, ``X | None``, tuple[X, ...], tuple[X, Y, Z] or Mapping[str, X]."""
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _object(kind, value, place)
    if origin in (Union, types.UnionType):
        (only,) = (each for each in inner if each is not type(None))
        return None if value is None else _decoded(only, value, place)
    if origin is tuple and isinstance(value, (list, tuple)):
        each = [inner[0]] * len(value) if inner[-1] is Ellipsis else list(inner)
        if len(each) == len(value):
            return tuple(_decoded(one, item, place) for one, item in zip(each, value, strict=True))
    if origin is collections.abc.Mapping and isinstance(value, Mapping):
        return {name: _decoded(inner[1], item, f"{place}: {name}") for name, item in value.items()}
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise _unexpected(kind, value, place)
    return value


def _unexpected(kind: Any, value: object, place: str) -> ReportError:
    return ReportError(f"{place}: {str(value)[:80]!r} is not {getattr(kind, '__name__', kind)}")
