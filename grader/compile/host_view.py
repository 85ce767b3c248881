"""A file's text -> what of it the host's compiler compiles: files with the same host view have the same launchers.

The body of a function for the device alone is not part of it. cudafe++ parses such a body and leaves it out of what it
gives to g++; cicc parses it too, and refuses what cudafe++ refuses. Where it is not clear what a body is, it stays in
the view: a file then looks like no other, and is compiled as a whole.
"""

from __future__ import annotations

import re

from grader.content.functions import Code, Function, without_comments

_DEVICE = re.compile(r"\b__(?:global|device)__\b")
# In the head of a function whose body may matter to the host: it is for the host too, or its type or its value follows
# from its body, or a macro stands where it may say that.
_HOST = re.compile(
    r"host|HOST|\b(?:constexpr|consteval|auto|decltype|friend|requires|operator)\b|\b_*[A-Z][A-Z0-9_]+\s+[A-Za-z_]"
)
# Braces that do not look like braces, or that may be none.
_UNCLEAR = re.compile(
    r"R\"|<[%:]|[%:]>|\?\?|\\\r?\n|^[ \t]*(?:#|%:)[ \t]*(?!include\b|pragma[ \t]+unroll\b)\S", re.MULTILINE
)
_QUOTE = re.compile("[\"']")


def host_view(text: str) -> str:
    """The text without comments and blank lines, and without the bodies of functions for the device alone."""
    code = Code(text)
    if _UNCLEAR.search(text) or _QUOTE.search(code.text) or any(each.end > len(text) for each in code.functions):
        return text
    plain, parts, done = without_comments(text), [], 0
    for each in filter(_is_for_device_alone, code.functions):
        if "include" in plain[each.begin : each.end]:  # what the file reads is the host's, too
            continue
        parts.append(plain[done : each.begin + 1])
        done = each.end - 1
    lines = "".join([*parts, plain[done:]]).splitlines()
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _is_for_device_alone(function: Function) -> bool:
    return bool(_DEVICE.search(function.head)) and not _HOST.search(function.head)
