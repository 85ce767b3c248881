"""YAML text -> its nodes, as lists of plain values, kept in the cache folder.

To import a YAML parser and to parse difficulty.yaml takes longer than all else that `kata list` does. So what a text
says is kept under the text's digest: another text has another one. Nothing depends on what is kept.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

from grader.storage import cache

# A node is [line from 1, its kind, its content]. A mapping's content are pairs of nodes, a list's are nodes, and a
# scalar's is its text. A scalar that is not a string has a fourth: the number or the like; None: what is neither.
MAPPING, SEQUENCE, STRING, OTHER = range(4)
Node = list[Any]

FORM = b"1"  # of what is kept: another number where a node looks otherwise
MOST_KEPT = 500  # texts; a clone has about 150


class YamlError(Exception):
    """The text is not valid YAML; ``line`` from 1, or None where the parser does not say."""

    def __init__(self, problem: str, line: int | None) -> None:
        super().__init__(problem)
        self.line = line


@functools.lru_cache(maxsize=8)
def nodes(text: str) -> Node | None:
    """The node that is a whole text, None where it is empty. Raises YamlError.

    A family's katas ask for its files one after the other.
    """
    place = _place(text)
    if place is not None:
        with contextlib.suppress(OSError, ValueError):
            digest, _, body = place.read_bytes().partition(b"\n")
            if digest == _digest(body):
                kept: Node | None = json.loads(body)
                return kept
    found, is_tree = _parsed(text)
    if place is not None and is_tree:
        with contextlib.suppress(OSError):
            _keep(place, json.dumps(found, separators=(",", ":")).encode())
    return found


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(FORM + data).hexdigest().encode()


def _place(text: str) -> Path | None:
    """Where the nodes of a text are kept. None: nowhere, as the cache folder cannot be used."""
    try:
        return cache.cache_folder() / "yaml" / _digest(text.encode())[:32].decode()
    except cache.CacheError:
        return None


def _keep(place: Path, body: bytes) -> None:
    place.parent.mkdir(exist_ok=True)
    staged = place.with_name(f"{place.name}.{os.getpid()}-{threading.get_ident()}")
    staged.write_bytes(_digest(body) + b"\n" + body)
    staged.replace(place)
    kept = [*place.parent.iterdir()]
    if len(kept) > MOST_KEPT:
        for old in sorted(kept, key=lambda path: path.stat().st_mtime)[: MOST_KEPT // 2]:
            old.unlink(missing_ok=True)


def _parsed(text: str) -> tuple[Node | None, bool]:
    """The node that is a whole text, and whether it is a tree: an alias names a node again, perhaps from within it."""
    import yaml

    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)  # libyaml's is ten times faster
        try:
            node, plain = loader.get_single_node(), _Plain(yaml)
            return (None if node is None else plain.node(node)), not plain.shared
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(str(error.problem), mark.line + 1 if mark else 1) from None
    except yaml.YAMLError as error:
        raise YamlError(" ".join(str(error).split()), None) from None


class _Plain:
    """The parser's nodes -> nodes."""

    def __init__(self, yaml: Any) -> None:
        self._yaml = yaml
        self._made: dict[int, Node] = {}  # by the id of the parser's node
        self.shared = False  # whether one of them was met again
        self._value = functools.cache(self._constructed)  # a constructor is dear: there is one for each text

    def node(self, node: Any) -> Node:
        line = node.start_mark.line + 1
        if isinstance(node, self._yaml.ScalarNode):
            if node.tag == "tag:yaml.org,2002:str":
                return [line, STRING, node.value]
            return [line, OTHER, node.value, self._value(node.tag, node.value)]
        if (known := self._made.get(id(node))) is not None:
            self.shared = True
            return known
        self._made[id(node)] = found = [line, SEQUENCE, []]
        if isinstance(node, self._yaml.SequenceNode):
            found[2] += map(self.node, node.value)
        else:
            found[1:] = MAPPING, [[self.node(key), self.node(value)] for key, value in node.value]
        return found

    def _constructed(self, tag: str, text: str) -> Any:
        """What YAML makes of a scalar that is not a string."""
        try:
            found = self._yaml.SafeLoader("").construct_object(self._yaml.ScalarNode(tag, text))
        except (self._yaml.YAMLError, ValueError):
            return None
        return found if isinstance(found, (bool, int, float)) else None
