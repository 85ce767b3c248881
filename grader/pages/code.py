"""CUDA C++ -> the same text with what each part is: comments, texts, numbers, keywords, CUDA's own words."""

from __future__ import annotations

import re

from grader.pages.markup import Markup, join, tag

_KEYWORDS = (
    "alignas asm auto bool break case char class const constexpr continue default delete do double else enum extern "
    "false float for if inline int int8_t int16_t int32_t int64_t long namespace new nullptr operator private public "
    "return short signed size_t sizeof static static_assert static_cast reinterpret_cast struct switch template this "
    "true typedef typename uint8_t uint16_t uint32_t uint64_t union unsigned using void volatile while"
)
_CUDA = r"__\w+|threadIdx|blockIdx|blockDim|gridDim|warpSize|cuda\w+|KATA_\w+|half2?|float[234]|int[234]|uint[234]|dim3"
_PARTS = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|(?P<string>\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])+')"
    r"|(?P<before>^[ \t]*#[ \t]*\w+)"
    r"|(?P<number>\b(?:0[xX][\da-fA-F']+|\d[\d']*\.?\d*(?:[eE][+-]?\d+)?)[fFuUlL]*)"
    rf"|(?P<cuda>\b(?:{_CUDA})\b|<<<|>>>)"
    rf"|(?P<keyword>\b(?:{'|'.join(_KEYWORDS.split())})\b)",
    re.DOTALL | re.MULTILINE,
)


def coloured(text: str) -> Markup:
    """The text with spans around its parts; what is in no part stays as it is."""
    parts: list[Markup | str] = []
    end = 0
    for found in _PARTS.finditer(text):
        parts += [text[end : found.start()], tag("span", found[0], class_=f"c-{found.lastgroup}")]
        end = found.end()
    return join([*parts, text[end:]])
