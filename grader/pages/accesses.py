"""Counters of the simulator -> pictures of how a warp reaches into memory: sectors by lane, and banks by wavefront.

A picture is of one access, as a warp issued it: the first that the first warp of the first block made at that
instruction. The figures beside the lines are of the whole launch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

from grader.content.source_file import Source
from grader.devices.counters import Access, LineCounters
from grader.output.verdict_text import headline
from grader.pages import paragraph, section
from grader.pages.code import coloured
from grader.pages.markup import Markup, Row, drawing, join, label, line, rect, table, tag
from grader.verdict import Grade, format_sizes

SECTOR, BANKS, LANES, WORD = 32, 32, 32, 4  # bytes, banks, lanes, bytes
CELL, BAND, LEFT, RIGHT, TOP = 10.0, 13.0, 74.0, 40.0, 18.0  # pixels: across, down, around the cells
MOST_BANDS = 40  # sectors, or wavefronts, that a picture shows
MOST_PICTURES = 8  # of a kernel
FEW = SECTOR // 2  # bytes used of a sector: no more than that is waste

NOTHING = (
    "No kata is drawn. `kata report --kata NAME` runs your file on the simulator and draws how its warps reach into "
    "memory; without --kata that is done for the kata that you passed last, while its file is as it was then."
)


def sectors_of(access: Access) -> dict[int, list[tuple[int, int, int]]]:
    """Sector -> (lane, first byte in it, bytes) of every lane that uses it, in the order of the sectors."""
    found: dict[int, list[tuple[int, int, int]]] = {}
    for lane, at in access.lanes:
        for sector in range(at // SECTOR, (at + access.bytes - 1) // SECTOR + 1):
            first, end = max(at, sector * SECTOR), min(at + access.bytes, (sector + 1) * SECTOR)
            found.setdefault(sector, []).append((lane, first - sector * SECTOR, end - first))
    return dict(sorted(found.items()))


def wavefronts_of(access: Access) -> list[dict[int, list[int]]]:
    """What is served at once: for every wavefront, bank -> the lanes it serves.

    Lanes that want the same word of a bank share a wavefront, but for atomics.
    """
    wavefronts: list[dict[int, list[int]]] = []
    for first in range(0, LANES, access.together):
        banks: dict[int, dict[tuple[int, int], list[int]]] = {}
        for lane, at in access.lanes:
            if not first <= lane < first + access.together:
                continue
            for word in range(at // WORD, (at + access.bytes - 1) // WORD + 1):
                alone = lane if access.operation == "atomic" else -1
                banks.setdefault(word % BANKS, {}).setdefault((word, alone), []).append(lane)
        depth = max(map(len, banks.values()), default=0)
        served = {bank: list(words.values()) for bank, words in banks.items()}
        wavefronts += [{bank: sets[turn] for bank, sets in served.items() if turn < len(sets)} for turn in range(depth)]
    return wavefronts


def ideal_wavefronts(access: Access) -> int:
    return len({lane // access.together for lane, _ in access.lanes})


# The section


def into_memory(counted: Sequence[Grade]) -> Markup:
    """For each grade that counted: the lines that cost most, and pictures of their accesses."""
    parts = [part for grade in counted for part in _kata(grade)]
    words = paragraph(
        "Counted by the simulator. Global memory is moved in sectors of 32 bytes; shared memory serves one word of "
        "each of its 32 banks at once, in wavefronts. What is orange is more than it need be.",
        class_="quiet",
    )
    return section("memory", "Reaching into memory", *((words, *parts) if parts else (paragraph(NOTHING),)))


def _kata(grade: Grade) -> Iterator[Markup]:
    counters = next((verdict.counters for verdict in grade.verdicts if verdict.counters), None)
    name = tag("a", grade.kata.name, href=f"#kata-{grade.kata.name}")
    if counters is None:
        yield tag("h3", name)
        words = headline(grade) if not grade.passed else f"{grade.kata.name}: nothing was counted"
        yield paragraph(f"{words}. Only what passes on the simulator is drawn.")
        return
    for kernel in counters.call.kernels:
        yield tag("h3", name, f": {kernel.kernel} at {format_sizes(counters.sizes)}")
        yield _lines(grade.source, kernel.lines)
        pictures = [_picture(grade.source, several) for several in _chosen(kernel.samples, kernel.lines)]
        yield tag("div", *pictures, class_="pictures")


def _lines(source: Source, lines: Iterable[LineCounters]) -> Markup:
    head = ("", "", "sectors a request", "best", "wavefronts an access", "best")
    rows = []
    for item in lines:
        if not item.requests and not item.accesses:
            continue
        sectors = _each(item.sectors, item.ideal_sectors, item.requests)
        wavefronts = _each(item.wavefronts, item.ideal_wavefronts, item.accesses)
        rows.append(
            Row(f"line {item.line}", (tag("code", coloured(source.line(item.line)[:90])), *sectors, *wavefronts))
        )
    return table(head, rows)


def _each(cost: int, ideal: int, requests: int) -> tuple[Markup | str, str]:
    """How many a request, and how many would do."""
    if not requests:
        return "-", "-"
    each = f"{cost / requests:.3g}"
    is_high = cost > 1.05 * ideal
    figure = tag("span", f"{each} !", class_="high", title="more than it need be") if is_high else each
    return figure, f"{ideal / requests:.3g}"


def _chosen(samples: Iterable[Access], lines: Sequence[LineCounters]) -> list[list[Access]]:
    """Accesses that differ only in their place, grouped; the most costly lines first, without single lanes."""
    order = [item.line for item in lines]
    group: dict[tuple[Any, ...], list[Access]] = {}
    for access in samples:
        if len(access.lanes) < 2:
            continue
        kind = (order.index(access.line), access.operation, access.buffer or "", access.bytes)
        group.setdefault(kind, []).append(access)
    return [group[key] for key in sorted(group)][:MOST_PICTURES]


def _picture(source: Source, group: Sequence[Access]) -> Markup:
    """The worst access of a group."""
    is_shared = group[0].buffer is None
    worst = max(group, key=lambda access: len(wavefronts_of(access) if is_shared else sectors_of(access)))
    what = "shared memory" if is_shared else worst.buffer
    several = f", the worst of {len(group)} such instructions" if len(group) > 1 else ""
    heading = f"Line {worst.line}: {worst.operation} of {what}, {worst.bytes} bytes per lane{several}"
    drawn, words = _banks(worst, heading) if is_shared else _sectors(worst, heading)
    code = tag("code", coloured(source.line(worst.line)[:90]))
    return tag("figure", tag("h3", heading), code, drawn, tag("figcaption", words))


def _sectors(access: Access, heading: str) -> tuple[Markup, str]:
    """Lanes across, the sectors that they touch down; what is filled is used."""
    sectors = sectors_of(access)
    distinct = {at for _, at in access.lanes}
    best = -(-len(distinct) * access.bytes // SECTOR)
    bands, y, last = [], TOP, None
    for sector, uses in list(sectors.items())[:MOST_BANDS]:
        if last is not None and sector != last + 1:
            bands.append(label(f"{sector - last - 1} between", LEFT - 4, y + 9, anchor="end", class_="quiet"))
            y += BAND
        bands.append(_band(access, sector, uses, y, len(sectors) > best))
        y, last = y + BAND, sector
    if len(sectors) > MOST_BANDS:
        bands.append(label(f"and {len(sectors) - MOST_BANDS} sectors more", LEFT, y + 11, class_="quiet"))
        y += BAND
    verdict = "as few as can be" if len(sectors) <= best else f"{best} would do"
    words = f"{_plural(access.lanes, 'lane')} touch {_plural(sectors, 'sector')}; {verdict}."
    return drawing(f"{heading}. {words}", _width(), y + 4, _across("lane"), *bands, class_="picture"), words


def _band(access: Access, sector: int, uses: Sequence[tuple[int, int, int]], y: float, is_more: bool) -> Markup:
    """One sector: which of its bytes which lane uses, and how many are used at all."""
    used = len({byte for _, first, count in uses for byte in range(first, first + count)})
    is_waste = is_more and used <= FEW
    paint = "worse" if is_waste else "used"
    cells = [
        rect(LEFT + CELL * lane, y + BAND * first / SECTOR, CELL - 0.5, max(1.5, (BAND - 1) * count / SECTOR), paint)
        for lane, first, count in uses
    ]
    first = (sector * SECTOR - access.begin) // max(1, access.itemsize)
    name = label(f"{access.buffer}[{first}]", LEFT - 4, y + 10, anchor="end", class_="quiet")
    share = label(f"{used} B", LEFT + CELL * LANES + 4, y + 10, class_="high-text" if is_waste else None)
    return join((rect(LEFT, y, CELL * LANES, BAND - 1, "sector"), *cells, name, share))


def _banks(access: Access, heading: str) -> tuple[Markup, str]:
    """Banks across, wavefronts down; a cell is filled where a bank has a word to give in that wavefront."""
    wavefronts, best = wavefronts_of(access), ideal_wavefronts(access)
    bands = [_wavefront(turn, wavefront, turn >= best) for turn, wavefront in enumerate(wavefronts[:MOST_BANDS])]
    height = TOP + BAND * len(bands) + 4
    if len(wavefronts) > MOST_BANDS:
        bands.append(label(f"and {len(wavefronts) - MOST_BANDS} wavefronts more", LEFT, height + 8, class_="quiet"))
        height += BAND
    verdict = "as few as can be: no bank conflict" if len(wavefronts) <= best else f"{best} would do"
    words = f"{_plural(access.lanes, 'lane')} served in {_plural(wavefronts, 'wavefront')}; {verdict}."
    return drawing(f"{heading}. {words}", _width(), height, _across("bank"), *bands, class_="picture"), words


def _wavefront(turn: int, wavefront: Mapping[int, Sequence[int]], is_more: bool) -> Markup:
    y = TOP + BAND * turn
    cells = []
    for bank in range(BANKS):
        lanes = wavefront.get(bank)
        inside = [tag("title", f"bank {bank}: lane {', '.join(map(str, lanes))}")] if lanes else []
        paint = "cell" if not lanes else "worse" if is_more else "used"
        cells.append(rect(LEFT + CELL * bank, y, CELL - 0.5, BAND - 1, paint, *inside))
    return join((label(f"wavefront {turn + 1}", LEFT - 4, y + 10, anchor="end", class_="quiet"), *cells))


def _plural(things: Sized, noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def _width() -> float:
    return LEFT + CELL * LANES + RIGHT


def _across(name: str) -> Markup:
    """The scale over the cells."""
    marks = [label(name, LEFT - 4, TOP - 6, anchor="end", class_="quiet")]
    for lane in (0, 8, 16, 24, 31):
        x = LEFT + CELL * (lane + 0.5)
        marks += [label(str(lane), x, TOP - 6, anchor="middle", class_="quiet"), line(x, TOP - 4, x, TOP - 1, "axis")]
    return join(marks)
