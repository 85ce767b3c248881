"""A YAML file -> values that know their line, and records of fields that are read by a table.

Every error names file, line, subject and the fix. It is of the reader's own class, so that the reader of each kind of
file has one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from grader.content.yaml_text import MAPPING, OTHER, SEQUENCE, STRING, Node, YamlError, nodes


class Value(NamedTuple):
    """One node of a YAML file, what to call it in an error, and the error's class."""

    node: Node
    file: Path
    subject: str
    fault: type[Exception]

    def __hash__(self) -> int:
        """The node itself counts, not what is in it: a text that is read again has the same nodes."""
        return hash((id(self.node), self.subject))

    @property
    def line(self) -> int:
        return int(self.node[0])

    def error(self, problem: str) -> Exception:
        return self.fault(f"{self.file}:{self.line}: {self.subject}: {problem}")

    def named(self, subject: str) -> Value:
        return Value(self.node, self.file, subject, self.fault)

    def items(self) -> Iterator[tuple[str, Value, Value]]:
        """(key, the key's own value for errors, the value) of a mapping. A key that comes twice is an error."""
        if self.node[1] != MAPPING:
            raise self.error(f"expected `key: value` lines, found {self._found()}. Indent them below it.")
        file, subject, fault = self.file, self.subject, self.fault
        lines: dict[str, int] = {}
        for key, node in self.node[2]:
            name = key[2] if key[1] == STRING else Value(key, file, subject, fault).scalar(str, "a name")
            if name in lines:
                problem = f"{name!r} is there twice, first on line {lines[name]}. Remove or rename one of them."
                raise Value(key, file, subject, fault).error(problem)
            lines[name] = key[0]
            named = f"{subject}: {name}"
            yield name, Value(key, file, named, fault), Value(node, file, named, fault)

    def elements(self) -> list[Value]:
        if self.node[1] != SEQUENCE:
            raise self.error(f"expected a list, found {self._found()}. Write it in brackets: [...].")
        return [Value(node, self.file, self.subject, self.fault) for node in self.node[2]]

    def scalar(self, kind: type | tuple[type, ...], expected: str) -> Any:
        value = self._plain()
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.error(f"expected {expected}, found {self._found()}. Write {expected} there.")
        return value

    @property
    def written(self) -> str | None:
        """A scalar as it is written; None of a list and of a mapping."""
        return self.node[2] if self.node[1] in (STRING, OTHER) else None

    def _plain(self) -> Any:
        return self.node[2] if self.node[1] == STRING else self.node[3] if self.node[1] == OTHER else None

    def _found(self) -> str:
        if (text := self.written) is not None:
            return repr(text) if text else "nothing"
        return "a list" if self.node[1] == SEQUENCE else "a mapping"


def mapping(pairs: Iterable[tuple[int, str, str]], file: Path, subject: str, fault: type[Exception]) -> Value:
    """The value that a mapping of strings would be: a line, a key and its text each."""
    return Value(
        [1, MAPPING, [[[line, STRING, key], [line, STRING, text]] for line, key, text in pairs]], file, subject, fault
    )


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


def root_value(file: Path, subject: str, fault: type[Exception], purpose: str) -> Value | None:
    """The value that is the whole file, or None where the file is empty. ``purpose``: what the file must do."""
    try:
        node = nodes(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise fault(f"{file}: cannot be read ({error.strerror}). {purpose}") from None
    except UnicodeDecodeError:
        raise fault(f"{file}: is not UTF-8 text. Save it as UTF-8.") from None
    except YamlError as error:
        if error.line is None:
            raise fault(f"{file}: not valid YAML: {error}. Fix it.") from None
        raise fault(f"{file}:{error.line}: not valid YAML: {error}. Fix it there or just above.") from None
    return None if node is None else Value(node, file, subject, fault)


def close_to(name: str, known: Iterable[str]) -> str:
    """`` Did you mean ...?`` for an unknown name, or an empty text if no known name is close."""
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(close)}?" if close else ""
