"""JSON that a device reports <-> frozen dataclasses. An object must have exactly the fields of its class."""

from __future__ import annotations

import collections.abc
import functools
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from grader.devices.counters import KEYS

T = TypeVar("T")
Place = tuple[str, ...]  # where a value stands, from the outside in
Decoder = Callable[[object, Place], Any]


class ReportError(ValueError):
    """A report is not what its class says; the message names the place in it and the problem."""


def decode(kind: type[T], value: object, place: str) -> T:
    """A value of JSON as a dataclass, and all that is in it as the annotations of its fields say.

    A field may be absent only where it has a default. ``place`` says in an error what the value is.
    """
    of_kind: Any = kind
    found: T = _decoder(of_kind)(value, (place,))
    return found


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


@functools.cache
def _decoder(kind: Any) -> Decoder:
    """For an annotation: a class, ``X | None``, tuple[X, ...], tuple[X, Y, Z] or Mapping[str, X]."""
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _of_object(kind)
    if origin in (Union, types.UnionType):
        (only,) = (_decoder(each) for each in inner if each is not type(None))
        return lambda value, place: None if value is None else only(value, place)
    if origin is tuple:
        return _of_tuple(kind, [_decoder(each) for each in inner if each is not Ellipsis], inner[-1] is Ellipsis)
    if origin is collections.abc.Mapping:
        return _of_mapping(kind, _decoder(inner[1]))
    return _of_class(kind)


def _of_object(kind: Any) -> Decoder:
    known = {key: (name, _decoder(its), needed) for key, (name, its, needed) in _fields(kind).items()}
    needed = [key for key, (_, _, is_needed) in known.items() if is_needed]

    def decoded(value: object, place: Place) -> Any:
        if not isinstance(value, Mapping):
            raise _unexpected(kind, value, place)
        if unknown := [key for key in value if key not in known]:
            raise ReportError(f"{_words(place)} of {kind.__name__}: unknown key {unknown[0]!r}")
        if missing := [key for key in needed if key not in value]:
            raise ReportError(f"{_words(place)} of {kind.__name__}: no key {missing[0]!r}")
        return kind(**{known[key][0]: known[key][1](item, (*place, key)) for key, item in value.items()})

    return decoded


def _of_tuple(kind: Any, each: Sequence[Decoder], is_any_length: bool) -> Decoder:
    def decoded(value: object, place: Place) -> Any:
        if not isinstance(value, (list, tuple)) or not (is_any_length or len(value) == len(each)):
            raise _unexpected(kind, value, place)
        if is_any_length:
            return tuple([each[0](item, place) for item in value])
        return tuple([one(item, place) for one, item in zip(each, value, strict=True)])

    return decoded


def _of_mapping(kind: Any, each: Decoder) -> Decoder:
    def decoded(value: object, place: Place) -> Any:
        if not isinstance(value, Mapping):
            raise _unexpected(kind, value, place)
        return {name: each(item, (*place, name)) for name, item in value.items()}

    return decoded


def _of_class(kind: Any) -> Decoder:
    def decoded(value: object, place: Place) -> Any:
        if type(value) is kind:
            return value
        if kind is float and type(value) is int:
            return float(value)
        raise _unexpected(kind, value, place)

    return decoded


def _words(place: Place) -> str:
    return ": ".join(place)


def _unexpected(kind: Any, value: object, place: Place) -> ReportError:
    return ReportError(f"{_words(place)}: {str(value)[:80]!r} is not {getattr(kind, '__name__', kind)}")
