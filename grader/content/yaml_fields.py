"""A YAML file -> values that know their line, and records of fields that are read by a table.

Every error names file, line, subject and the fix. It is of the reader's own class, so that the reader of each kind of
file has one.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times faster


@dataclass(frozen=True)
class Value:
    """One YAML node, what to call it in an error, and the error's class."""

    node: Any
    file: Path
    subject: str
    fault: type[Exception]

    @property
    def line(self) -> int:
        return int(self.node.start_mark.line) + 1

    def error(self, problem: str) -> Exception:
        return self.fault(f"{self.file}:{self.line}: {self.subject}: {problem}")

    def named(self, subject: str) -> Value:
        return Value(self.node, self.file, subject, self.fault)

    def items(self) -> Iterator[tuple[str, Value, Value]]:
        """(key, the key's own value for errors, the value) of a mapping. A key that comes twice is an error."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.error(f"expected `key: value` lines, found {self._found()}. Indent them below it.")
        lines: dict[str, int] = {}
        for key_node, value_node in self.node.value:
            key = Value(key_node, self.file, self.subject, self.fault)
            name = key.scalar(str, "a name")
            if name in lines:
                raise key.error(f"{name!r} is there twice, first on line {lines[name]}. Remove or rename one of them.")
            lines[name] = key.line
            named = key.named(f"{self.subject}: {name}")
            yield name, named, Value(value_node, self.file, named.subject, self.fault)

    def elements(self) -> list[Value]:
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.error(f"expected a list, found {self._found()}. Write it in brackets: [...].")
        return [Value(node, self.file, self.subject, self.fault) for node in self.node.value]

    def scalar(self, kind: type | tuple[type, ...], expected: str) -> Any:
        value = self._plain()
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.error(f"expected {expected}, found {self._found()}. Write {expected} there.")
        return value

    def _plain(self) -> Any:
        if not isinstance(self.node, yaml.ScalarNode):
            return None
        return self.node.value if self.node.tag == "tag:yaml.org,2002:str" else _number(self.node.tag, self.node.value)

    def _found(self) -> str:
        if isinstance(self.node, yaml.ScalarNode):
            return repr(self.node.value) if self.node.value else "nothing"
        return "a list" if isinstance(self.node, yaml.SequenceNode) else "a mapping"


@functools.cache
def _number(tag: str, text: str) -> Any:
    """What YAML makes of a scalar that is not a string. A constructor is dear: there is one for each text."""
    try:
        return yaml.SafeLoader("").construct_object(yaml.ScalarNode(tag, text))
    except (yaml.YAMLError, ValueError):
        return None


Read = Callable[[Value], Any]
MANY = 1000  # the end of a range of counts that has no upper limit


@dataclass(frozen=True)
class Field:
    """How one field of a record is read, and what it is where it is left out."""

    read: Read
    default: Any = None
    required: bool = False


def words(value: Value) -> str:
    """Text, one space between its words however its lines are broken."""
    text = value.scalar(str, "words, in quotes if YAML takes them for something else")
    if not text.strip():
        raise value.error("is empty. Write some words there.")
    return " ".join(text.split())


def number(least: float, most: float) -> Read:
    """A number above ``least``, up to ``most``."""

    def read(value: Value) -> float:
        expected = f"a number above {least:g}, up to {most:g}"
        found = value.scalar((int, float), expected)
        if not least < found <= most:
            raise value.error(f"{found} is out of range. Write {expected}.")
        return float(found)

    return read


def several(read: Read, counts: range, noun: str) -> Read:
    """A list of so many values; an error says which of them it is about."""

    def read_all(value: Value) -> tuple[Any, ...]:
        items = value.elements()
        if len(items) not in counts:
            raise value.error(f"has {len(items)} {noun}. Write {_as_words(counts)}.")
        return tuple(read(item.named(f"{value.subject}: number {place}")) for place, item in enumerate(items, 1))

    return read_all


def _as_words(counts: range) -> str:
    if len(counts) == 1:
        return str(counts[0])
    return f"at least {counts[0]}" if counts[-1] >= MANY - 1 else f"{counts[0]} to {counts[-1]}"


def one_of(known: Sequence[str]) -> Read:
    def read(value: Value) -> str:
        text = value.scalar(str, f"one of {', '.join(known)}")
        if text not in known:
            raise value.error(f"unknown value {text!r}.{close_to(text, known)} Use one of {', '.join(known)}.")
        return str(text)

    return read


def record(value: Value, fields: Mapping[str, Field]) -> dict[str, Any]:
    """The fields of one mapping, each read by its row; unknown and missing ones are errors."""
    found: dict[str, Any] = {}
    for name, key, item in value.items():
        if name not in fields:
            raise key.error(f"unknown field.{close_to(name, fields)} Known fields: {', '.join(fields)}.")
        found[name] = fields[name].read(item)
    for name, row in fields.items():
        if row.required and name not in found:
            raise value.named(f"{value.subject}: {name}").error(f"missing. Add a line `{name}: ...`.")
        found.setdefault(name, row.default)
    return found


@functools.lru_cache(maxsize=8)
def _composed(text: str) -> Any:
    """The node that is a whole text. A family's katas ask for its files one after the other, and YAML is slow."""
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def root_value(file: Path, subject: str, fault: type[Exception], purpose: str) -> Value | None:
    """The value that is the whole file, or None where the file is empty. ``purpose``: what the file must do."""
    try:
        node = _composed(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise fault(f"{file}: cannot be read ({error.strerror}). {purpose}") from None
    except UnicodeDecodeError:
        raise fault(f"{file}: is not UTF-8 text. Save it as UTF-8.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise fault(f"{file}:{line}: not valid YAML: {error.problem}. Fix it there or just above.") from None
    except yaml.YAMLError as error:
        raise fault(f"{file}: not valid YAML: {' '.join(str(error).split())}. Fix it.") from None
    return None if node is None else Value(node, file, subject, fault)


def close_to(name: str, known: Iterable[str]) -> str:
    """`` Did you mean ...?`` for an unknown name, or an empty text if no known name is close."""
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(close)}?" if close else ""
