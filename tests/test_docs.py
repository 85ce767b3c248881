"""docs/: what its pages name is there, and the driver for profilers calls a kata."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from browser import view

from grader.content.catalog import load_catalog
from grader.content.spec import load_spec

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parent.parent
DRIVER = ROOT / "docs" / "profile_kata.py"
KATAS = load_catalog(ROOT).katas
PAGES = sorted((ROOT / "docs").glob("*.md"))
# What is spoken of as a kata: a word in backticks that begins as a family's katas do and has their dtype in it.
KATA_NAME = re.compile(r"`((?:[a-z]+_)+(?:f16|f32|bf16)\w*)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_katas_and_files_that_there_are(page: Path) -> None:
    text = page.read_text()
    assert set(KATA_NAME.findall(text)) <= set(KATAS)
    for name in re.findall(r"(?:docs|solutions|exercises|grader)/[\w/.]*\w", text):
        assert (ROOT / name).exists(), name
    for name, sizes in re.findall(r"(?:profile_kata\.py|kata grade) (\w+) ((?:\w+=\d+ ?)*)", text):
        assert name in KATAS
        assert {pair.split("=")[0] for pair in sizes.split()} in (set(load_spec(KATAS[name]).sizes), set()), name


@pytest.mark.parametrize(
    "arguments",
    [
        ("elementwise_f16x8_pack", "n=1001"),
        ("sgemm_naive_f32", "K=5", "M=33", "N=32", "--calls", "2"),
        ("histogram_i32", "n=100", "bins=7"),  # a size that no input's shape tells
    ],
)
def test_the_driver_calls_a_kata(arguments: tuple[str, ...]) -> None:
    runpy.run_path(str(DRIVER))["main"]([*arguments, "--solution"], device="cpu")


# README.md and every page: links lead somewhere

EVERY_PAGE = (ROOT / "README.md", *PAGES, *sorted((ROOT / "exercises").glob("*/README.md")))
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def anchors(text: str) -> set[str]:
    """What GitHub makes of a page's headings, and the places that are named in HTML."""
    plain = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", plain, re.MULTILINE)
    named = re.findall(r'<a id="([^"]+)"></a>', plain)
    return {*named, *(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)}


def dead_links(page: Path) -> list[str]:
    text = page.read_text()
    plain = re.sub(r"^( *)```.*?^\1```|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)
    dead = []
    for link in LINK.findall(plain):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not link.startswith("http") and not (
            target.exists() and (not anchor or anchor in anchors(target.read_text()))
        ):
            dead.append(link)
    return dead


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One heading\n[a](page.md#one-heading) [b](gone.md) ![c\nd](page.md#two) `[e](code.md)` [f](#one-heading)\n"
        '<a id="place"></a>\n[g](#place) [h](#no-place)\n```\n<a id="no-place"></a>\n```\n'
    )
    assert dead_links(page) == ["gone.md", "page.md#two", "#no-place"]


def test_the_picture_of_look_back_is_what_its_script_draws() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "lookback.py"))
    assert (ROOT / "docs" / "lookback.svg").read_text() == script["picture"]()
    assert script["table"]() in (ROOT / "exercises" / "scan" / "README.md").read_text()


# docs/glossary.md

GLOSSARY = ROOT / "docs" / "glossary.md"
ENTRY = re.compile(
    r"^\*\*(?P<term>[^*]+)\*\*: (?P<definition>.*?)\s\(\[\w+\]\((?P<file>[^)#]+)#(?P<anchor>[^)]+)\)\)$", re.DOTALL
)
# The terms that lessons, hints and questions may use without a word of explanation.
TERMS = """
    arithmetic intensity, roofline, latency hiding, memory-level parallelism, instruction-level parallelism, occupancy,
    wave, wave quantization, tail effect, sector, transaction, wavefront, swizzle, spilling, grid-stride loop, thread
    coarsening, persistent kernel, predication, warp specialization, acquire, release, scope, fence, happens-before,
    block tile, warp tile, register blocking, fragment, mainloop, epilogue, software pipelining, double buffering,
    multistage, split-K, stream-K, online softmax, rescaling, log-sum-exp, cluster, block rank, split barrier,
    distributed shared memory, mbarrier, TMA, tensor map, box, bulk group, im2col, multicast, warpgroup, wgmma, proxy
    fence, scan, stream compaction, segmented scan, decoupled look-back, ticket, ballot, matrix descriptor, core matrix,
    full and empty barriers, cross-entropy, label smoothing
"""


def section(text: str, anchor: str) -> str:
    """A heading's text up to the next heading of its rank; nothing where no heading has the anchor."""
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    return next((part for part in parts if anchors(part.partition("\n")[0]) == {anchor}), "")


def glossary_faults(page: Path) -> list[str]:
    """Terms that are not in their section, that are there twice, or that have not one to three sentences."""
    faults, seen = [], set()
    for paragraph in re.split(r"\n\n", page.read_text().strip()):
        if not paragraph.startswith("**"):
            continue
        entry = ENTRY.match(paragraph)
        if entry is None:
            faults.append(f"no definition with a link: {paragraph[:40]}")
            continue
        term = entry["term"].partition(" (")[0]
        lesson = page.parent / entry["file"]
        words = " ".join(section(lesson.read_text(), entry["anchor"]).split()).lower() if lesson.is_file() else ""
        stem = r"spill" if term == "spilling" else re.escape(term.lower())
        if not re.search(rf"\b{stem}", words):
            faults.append(f"not in its section: {term}")
        if not 1 <= len(re.findall(r"[.!?](?:\s|$)", entry["definition"])) <= 3:
            faults.append(f"not one to three sentences: {term}")
        if term in seen:
            faults.append(f"twice: {term}")
        seen.add(term)
    return faults


def test_every_term_of_the_glossary_is_shown_where_it_says() -> None:
    assert glossary_faults(GLOSSARY) == []
    terms = {term.partition(" (")[0] for term in re.findall(r"^\*\*([^*]+)\*\*: ", GLOSSARY.read_text(), re.MULTILINE)}
    assert terms == {" ".join(term.split()) for term in TERMS.split(",")}


def test_a_term_that_its_section_does_not_use_is_found(tmp_path: Path) -> None:
    (tmp_path / "lesson.md").write_text("# A\n\n## One thing\n\nA block\ntile.\n\n## Two\n\nA fence.\n")
    right = "**block tile**: What a block computes. ([a](lesson.md#one-thing))"
    page = tmp_path / "glossary.md"
    page.write_text(f"# Glossary\n\n{right}\n")
    assert glossary_faults(page) == []
    wrong = [
        "**fence**: It orders. ([a](lesson.md#one-thing))",
        "**scope**: Who. ([a](lesson.md#gone))",
        "**tile**: One. Two. Three. Four. ([a](lesson.md#one-thing))",
        "**sector**: 32 bytes.",
    ]
    page.write_text("\n\n".join([right, right, *wrong]))
    assert glossary_faults(page) == [
        "twice: block tile",
        "not in its section: fence",
        "not in its section: scope",
        "not one to three sentences: tile",
        "no definition with a link: **sector**: 32 bytes.",
    ]


# docs/first_kata.svg

SESSION = ROOT / "docs" / "first_kata.svg"


def shown(svg: str) -> list[str]:
    """The picture's lines, but for how long anything took."""
    lines = ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    return [re.sub(r"\d+\.\d s$", "some s", line) for line in lines]


def test_the_first_kata_is_as_the_picture_shows_it() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "first_kata.py"))
    fresh = script["drawing"](list(script["timed"](script["session"]())))
    assert shown(SESSION.read_text()) == shown(fresh), (
        f"{SESSION.name} does not show what is said now; write it again: python docs/first_kata.py"
    )
    text = "\n".join(shown(fresh))
    assert "out of bounds" in text and "pass on sim" in text and text.index("out of bounds") < text.index("pass on sim")
    assert "docs/first_kata.svg" in (ROOT / "README.md").read_text()


def test_the_picture_loads_nothing_and_fits_its_frame(browser: Browser, tmp_path: Path) -> None:
    svg = SESSION.read_text()
    assert set(re.findall(r"https?://[\w./]+", svg)) == {"http://www.w3.org/2000/svg"} and "<script" not in svg
    (tmp_path / "page.html").write_text(f"<!doctype html><body style='margin:0'>{svg}</body>")
    with view(browser, tmp_path / "page.html") as seen:
        width, last = seen.page.evaluate(
            "[document.querySelector('svg').getBoundingClientRect().right,"
            " Math.max(...[...document.querySelectorAll('text')].map(text => text.getBoundingClientRect().right))]"
        )
        assert last < width and seen.complaints == [] and seen.requests == []
        seen.page.emulate_media(reduced_motion="reduce")
        opacity = seen.page.eval_on_selector_all("svg g", "all => all.map(line => getComputedStyle(line).opacity)")
        assert set(opacity) == {"1"}


def test_the_budgets_of_flash_attention_are_current_as_far_as_arithmetic_goes() -> None:
    """What ptxas says needs nvcc, and its version: `python docs/flash_budgets.py` writes the page."""
    budgets = runpy.run_path(str(ROOT / "docs" / "flash_budgets.py"))
    told = [
        line.strip("| ").split(" | ") for line in budgets["PAGE"].read_text().splitlines() if line.startswith("| `")
    ]
    right = [budgets["cells"](path, source) for path in budgets["katas"]() for source in budgets["sources"](path)]
    assert [row[: budgets["ARITHMETIC"]] for row in told] == right, "run: python docs/flash_budgets.py"


def test_the_pictures_of_hopper_copy_are_current() -> None:
    pictures = runpy.run_path(str(ROOT / "docs" / "hopper_copy.py"))["PICTURES"]
    for name, draw in pictures.items():
        assert (ROOT / "docs" / name).read_text() == draw(), "run: python docs/hopper_copy.py"


def test_the_swizzle_in_the_picture_is_that_of_the_address() -> None:
    """Bits 4 to 6 of an address become their xor with bits 7 to 9, on all bytes of a tile."""
    picture = runpy.run_path(str(ROOT / "docs" / "hopper_copy.py"))
    for byte in range(1024):
        row, chunk = byte // 128, byte // 16 % 8
        assert (byte ^ (byte >> 3 & 0x70)) // 16 % 8 == picture["place_of"](row, chunk)


def test_two_blocks_of_255_registers_fit_an_sm() -> None:
    blocks_of_an_sm = runpy.run_path(str(ROOT / "docs" / "flash_budgets.py"))["blocks_of_an_sm"]
    assert blocks_of_an_sm(4, 255, 64 * 1024) == 2  # by registers: 8192 for a warp
    assert blocks_of_an_sm(4, 128, 85 * 1024) == 2  # by shared memory
    assert blocks_of_an_sm(8, 32, 0) == 8  # by warps
