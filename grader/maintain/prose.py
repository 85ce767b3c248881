"""A file of the repository -> the passages of prose in it, each with its line numbers.

Prose is text that people read: paragraphs, comments, docstrings, messages, hints. Code is not prose, and neither are
tables that are generated from other files.
"""

from __future__ import annotations

import io
import re
import tokenize
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

C_FILES = (".cu", ".cuh", ".cpp", ".h")
# Blocks of Markdown that are not prose of their own file: generated tables, and quotations of what not to write.
_SKIP, _SKIP_END = re.compile(r"<!-- (?:\w+: written by|quoted\b)"), "<!-- end -->"
_BLANKED = re.compile(r"`[^`]*`|\]\([^)]*\)|<[/\w][^>]*>")
_NEW_PARAGRAPH = re.compile(r"\s*(?:[*+-]|\d+\.)\s|#|\||<|>")
_C_TOKEN = re.compile(
    r"//(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/|R\"(?P<tag>\w*)\((?P<raw>.*?)\)(?P=tag)\""
    r"|\"(?P<string>(?:\\.|[^\"\\\n])*)\"|'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
_LITERAL = re.compile(r"(?P<prefix>\w*)(?P<quote>\"\"\"|'''|\"|')(?P<body>.*)(?P=quote)", re.DOTALL)


@dataclass(frozen=True)
class Passage:
    """Lines that belong together, as (number in the file, words). ``whole``: it consists of whole sentences."""

    lines: tuple[tuple[int, str], ...]
    whole: bool = False

    @cached_property
    def text(self) -> str:
        return " ".join(words for _, words in self.lines)

    def line_at(self, offset: int) -> int:
        """The number of the line that ``text[offset]`` stands in."""
        starts, start = [], 0
        for _, words in self.lines:
            starts.append(start)
            start += len(words) + 1
        return self.lines[bisect_right(starts, offset) - 1][0]


def passages(path: Path, text: str) -> Iterator[Passage]:
    """The prose of one file, by the kind of file that its name says."""
    if path.suffix == ".md":
        return _markdown(text)
    if path.suffix == ".py":
        return _python(text)
    if path.suffix in (".yaml", ".yml"):
        return _yaml(text)
    return _c(text)


def wide_lines(path: Path, text: str, most: int) -> Iterator[int]:
    """The numbers of prose lines with more than ``most`` columns. Tables and code are free; ruff looks at Python."""
    if path.suffix == ".py":
        return
    lines = text.split("\n")
    for number in dict.fromkeys(number for passage in passages(path, text) for number, _ in passage.lines):
        line = lines[number - 1]
        if len(line) > most and not line.startswith("|"):
            yield number


def _markdown(text: str) -> Iterator[Passage]:
    """Paragraphs and list items; a table's rows and headings one by one."""
    paragraph: list[tuple[int, str]] = []
    for number, line in _outside_code(text):
        if paragraph and (not line.strip() or _NEW_PARAGRAPH.match(line)):
            yield _blanked(paragraph, whole=True)
            paragraph = []
        if line.startswith(("|", "#")):
            yield _blanked([(number, line)])
        elif line.strip():
            paragraph.append((number, line.strip()))
    if paragraph:
        yield _blanked(paragraph, whole=True)


def _outside_code(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) of Markdown; an empty line in place of code and of what is skipped."""
    fenced = skipped = False
    for number, line in enumerate(text.split("\n"), 1):
        fence = line.lstrip().startswith("```")
        begins = bool(_SKIP.match(line))
        code = fenced or fence or skipped or begins or line.startswith("    ")
        fenced ^= fence
        skipped = (skipped or begins) and line != _SKIP_END
        yield number, "" if code else line


def _blanked(lines: Sequence[tuple[int, str]], whole: bool = False) -> Passage:
    """Inline code becomes one long word, a link's address and a tag become blanks: all of the same length."""
    text = "\n".join(words for _, words in lines)
    for span in _BLANKED.findall(text):
        filler = "`" if span.startswith("`") else " "
        text = text.replace(span, re.sub(r"[^\n]", filler, span), 1)
    return Passage(tuple(zip((number for number, _ in lines), text.split("\n"), strict=True)), whole)


def _python(text: str) -> Iterator[Passage]:
    """Comments, docstrings and other strings. Neighbouring ones are one passage."""
    run: list[tuple[int, str]] = []
    kind = ""
    for token_kind, number, source in _python_tokens(text):
        if run and (token_kind != kind or (kind == "comment" and number != run[-1][0] + 1)):
            yield Passage(tuple(run))
            run = []
        kind = token_kind
        if kind == "comment":
            run.append((number, source.lstrip("# ")))
        elif kind == "string" and (literal := _LITERAL.fullmatch(source)):
            body = literal["body"].split("\n")
            run += [(number + place, words.strip()) for place, words in enumerate(body)]
    if run:
        yield Passage(tuple(run))


def _python_tokens(text: str) -> Iterator[tuple[str, int, str]]:
    """("comment", "string" or "code", line, source). An f-string is one string, as it is before Python 3.12."""
    lines = text.split("\n")
    begin: tuple[int, int] | None = None
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        if name == "FSTRING_START":
            begin = begin or token.start
            depth += 1
        elif name == "FSTRING_END":
            depth -= 1
            if depth == 0 and begin is not None:
                yield "string", begin[0], _between(lines, begin, token.end)
                begin = None
        elif depth == 0 and token.type in (tokenize.COMMENT, tokenize.STRING):
            yield ("comment" if token.type == tokenize.COMMENT else "string"), token.start[0], token.string
        elif depth == 0 and token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.NEWLINE):
            yield "code", token.start[0], ""


def _between(lines: Sequence[str], begin: tuple[int, int], end: tuple[int, int]) -> str:
    if begin[0] == end[0]:
        return lines[begin[0] - 1][begin[1] : end[1]]
    middle = lines[begin[0] : end[0] - 1]
    return "\n".join([lines[begin[0] - 1][begin[1] :], *middle, lines[end[0] - 1][: end[1]]])


def _c(text: str) -> Iterator[Passage]:
    """Comments and string literals of C++. Neighbouring comments are one passage, and so are neighbouring literals."""
    run: list[tuple[int, str]] = []
    kind, end = "", 0
    for token in _C_TOKEN.finditer(text):
        token_kind, words = _c_words(token)
        between = text[end : token.start()]
        if run and (token_kind != kind or between.strip() or between.count("\n") > 1):
            yield Passage(tuple(run))
            run = []
        kind, end = token_kind, token.end()
        number = text.count("\n", 0, token.start()) + 1
        run += [(number + place, line.strip(" *")) for place, line in enumerate(words.split("\n"))] if kind else []
    if run:
        yield Passage(tuple(run))


def _c_words(token: re.Match[str]) -> tuple[str, str]:
    if token["line"] is not None:
        return "comment", token["line"].strip("/ ")
    if token["block"] is not None:
        return "comment", token["block"]
    words = token["string"] if token["raw"] is None else token["raw"]
    return ("", "") if words is None else ("string", words)


def _yaml(text: str) -> Iterator[Passage]:
    """Each list item and each field is a passage."""
    run: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if run and re.match(r"\s*(?:- |[\w-]+:|$)", line):
            yield Passage(tuple(run))
            run = []
        if line.strip():
            run.append((number, re.sub(r"^\s*(?:#|- )?\s*(?:[\w-]+:(?= |$))?\s*(?:>-|\|)?[\"']?", "", line)))
    if run:
        yield Passage(tuple(run))


def files(root: Path) -> Iterable[Path]:
    """Every file with prose that users and maintainers read.

    Solutions stand for their skeletons, which have the same text. docs/voice*.yaml lists words that are to be avoided.
    """
    yield root / "README.md"
    yield from (path for name in ("docs", "exercises", "solutions", "grader") for path in _below(root / name))
    yield root / "difficulty.yaml"


def _below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        skeleton = path.suffix == ".cu" and folder.name == "exercises"
        listed = folder.name == "docs" and path.suffix == ".yaml"
        if path.suffix in (".md", ".py", ".yaml", *C_FILES) and not skeleton and not listed:
            yield path
