"""Source -> the shapes of its arrays in shared memory, as far as they can be read without a compiler.

A finding names an element of an array, and PTX knows of the array no more than its bytes. What cannot be read here is
said to be unknown; the engine takes no shape that does not fit the bytes.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

MOST = 1 << 20  # no size of an array is larger
LONGEST = 200  # characters of an expression


@dataclass(frozen=True)
class SharedArray:
    """``itemsize`` is in bytes; None, there and in ``sizes``: not known. ``sizes`` is empty where it is extern."""

    name: str
    itemsize: int | None
    sizes: tuple[int | None, ...]


_BYTES = {
    1: "bool char int8_t uint8_t __nv_fp8_e4m3 __nv_fp8_e5m2",
    2: "short int16_t uint16_t half __half nv_bfloat16 __nv_bfloat16",
    4: "int unsigned float int32_t uint32_t half2 __half2 nv_bfloat162 __nv_bfloat162 char4 uchar4",
    8: "double long size_t int64_t uint64_t float2 int2 uint2",
    16: "float4 int4 uint4 double2",
}
_SIZES = {name: size for size, names in _BYTES.items() for name in names.split()}
_IGNORED = {"signed", "volatile", "const", "static", "std"}

# All bounded: a file of any contents is read in a moment.
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_ALIGNED = r"(?:alignas|__align__)\s{0,9}\([^()]{0,99}(?:\([^()]{0,99}\)[^()]{0,99})?\)"
_DECLARED = re.compile(
    rf"(?P<extern>extern )?__shared__\s{{1,9}}(?:{_ALIGNED}\s{{0,9}})?"
    r"(?P<type>[\w:\s]{1,99}?)\s{0,9}\b(?P<arrays>\w{1,99}\s{0,9}\[[^;{}]{0,999});"
)
_ARRAY = re.compile(r"(\w+)\s*((?:\[[^\[\]]*\]\s*)+)")
_CONSTANT = re.compile(
    r"\b(?:constexpr|const)\s+(?:[\w:]{1,99}\s+){1,4}(?P<all>\w{1,99}\s*=[^;{}]{0,999});"
    r"|^[ \t]*#[ \t]*define[ \t]+(?P<name>\w+)[ \t]+(?P<value>.{1,99})$",
    re.MULTILINE,
)
_SIZEOF = re.compile(r"sizeof\s*\(([\w:\s]+)\)")


def shared_arrays(source: str) -> Iterator[SharedArray]:
    """Every declaration of an array; only its type is known where the launch decides its bytes."""
    text = _COMMENT.sub(" ", source)
    constants = _constants(text)
    for declared in _DECLARED.finditer(text):
        for name, brackets in _ARRAY.findall(declared["arrays"]):
            sizes = re.findall(r"\[([^\[\]]*)\]", brackets)
            values = tuple(_positive(_value(size, constants)) for size in sizes)
            yield SharedArray(name, _itemsize(declared["type"]), () if declared["extern"] else values)


def _itemsize(words: str) -> int | None:
    names = [name for name in re.findall(r"\w+", words) if name not in _IGNORED]
    if len(names) == 2 and names[0] in ("unsigned", "long"):  # unsigned char, long long
        return _SIZES.get(names[1])
    return _SIZES.get(names[0]) if len(names) == 1 else None


def _positive(value: int | None) -> int | None:
    return value if value is not None and 0 < value < MOST else None


def _constants(text: str) -> dict[str, int | None]:
    """Names with their values, in the order of the text; None where a name has several."""
    found: dict[str, int | None] = {}
    for item in _CONSTANT.finditer(text):
        pairs = re.findall(r"(\w+)\s*=\s*([^,]*)", item["all"]) if item["all"] else [(item["name"], item["value"])]
        for name, expression in pairs:
            value = _value(expression, found)
            found[name] = value if found.get(name, value) == value else None
    return found


_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _value(expression: str, constants: Mapping[str, int | None]) -> int | None:
    """What an expression of numbers and constants comes to; None where it has anything else in it."""
    if len(expression) > LONGEST:
        return None
    plain = _SIZEOF.sub(lambda match: str(_itemsize(match[1]) or "unknown"), expression)
    plain = re.sub(r"\b(\d+)[uUlL]+\b", r"\1", plain).replace("/", "//").strip()
    try:
        return _worked_out(ast.parse(plain, mode="eval").body, constants)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _worked_out(node: ast.expr, constants: Mapping[str, int | None]) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = (_worked_out(side, constants) for side in (node.left, node.right))
        if left is not None and right is not None and abs(left) < MOST and abs(right) < MOST:
            return _OPERATORS[type(node.op)](left, right)
    return None
