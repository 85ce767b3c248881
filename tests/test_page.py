"""`kata report`: what its page says, and how it looks in a browser: in the dark, on a phone, of a stranger's names."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import DESK, PHONE, absent, view
from demo_learner import CARD, live
from facts import has
from sim_kernels.harness import HERE, given, open_device, wanted
from test_faces import make_clone, run

from grader.content.catalog import Catalog, load_catalog
from grader.content.source_file import digest_of
from grader.devices import Call, Scalar
from grader.devices.counters import Access
from grader.learner import progress
from grader.learner.state import states
from grader.output.speeds import SpeedsError
from grader.pages import document, paragraph
from grader.pages.accesses import ideal_wavefronts, sectors_of, wavefronts_of
from grader.pages.card import card, in_a_line, standing
from grader.pages.code import coloured
from grader.pages.graph import LOOKS, look_of, places_of
from grader.pages.markup import Markup, tag
from grader.pages.points import of_the_learner, of_the_solutions
from grader.verdict import format_sizes as sizes_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DRAWN = "mat_trans_f32_tiled"
LEGIBLE = 8.5  # pixels, the least size of text in a drawing


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a learner's clone, their data, and the page that was written of them."""
    place = tmp_path_factory.mktemp("learner")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KATA_DATA", str(place / "data"))
        live(make_clone(place))
        done = report(place, "--kata", DRAWN, "-o", str(place / "page.html"))
    assert done == (0, f"{place / 'page.html'}: written\n")
    return place


@pytest.fixture(autouse=True)
def data(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KATA_DATA", str(place / "data"))


@pytest.fixture
def page(place: Path) -> Path:
    return place / "page.html"


@pytest.fixture
def catalog(place: Path) -> Catalog:
    return load_catalog(place / "clone")


def report(place: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Exit code and output; what went wrong where something did."""
    done = run(place / "clone", "-m", "grader", "report", *arguments, **environment)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout if done.returncode == 0 else done.stdout + done.stderr


# In the browser


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_it_is_whole_on_every_screen(browser: Browser, page: Path, tmp_path: Path, width: int, dark: bool) -> None:
    with view(browser, page, width=width, dark=dark) as seen:
        assert seen.shoot(tmp_path / f"{width}.png").startswith(b"\x89PNG")
        seen.page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        assert (seen.complaints, seen.requests) == ([], [])
        assert seen.sticking_out() == []
        assert seen.small_text(LEGIBLE) == []
        paper, ink = (
            seen.page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("backgroundColor", "color")
        )
        assert (brightness(paper) < brightness(ink)) == dark


def brightness(colour: str) -> int:
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


def test_the_graph_has_every_kata_and_every_edge(browser: Browser, page: Path, catalog: Catalog) -> None:
    with view(browser, page) as seen:
        first = seen.page.eval_on_selector_all(".graph > .lane h3 a", "all => all.map(link => link.textContent)")
        seen.page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        names = seen.page.eval_on_selector_all(".graph .node", "all => all.map(node => node.dataset.kata)")
        edges = seen.page.eval_on_selector_all(
            "[data-from]", "all => all.map(edge => [edge.dataset.from, edge.dataset.to])"
        )
        boxes = seen.page.eval_on_selector_all(
            ".graph .node .shape",
            "all => all.map(node => node.getBoundingClientRect()).map(box => [box.x, box.y, box.width])",
        )
    assert sorted(names) == sorted(catalog.katas) and first[:2] == ["first_steps", "elementwise"]
    assert "softmax" in first and "fused" not in first  # begun, and not
    assert sorted(map(tuple, edges)) == sorted(
        (name, kata.name) for kata in catalog.katas.values() for name in kata.requires
    )
    assert all(abs(a[0] - b[0]) >= 20 or abs(a[1] - b[1]) >= 20 for a, b in combinations(boxes, 2))


def test_a_chosen_kata_lights_what_leads_to_it(browser: Browser, page: Path, catalog: Catalog) -> None:
    name = "relu_f16x2"
    before, todo = {name}, [name]
    while todo:
        new = set(catalog.katas[todo.pop()].requires) - before
        before, todo = before | new, [*todo, *new]
    after = {kata.name for kata in catalog.katas.values() if name in kata.requires}
    with view(browser, page) as seen:
        lit = ".node.lit", "all => all.map(node => node.dataset.kata)"
        seen.page.click(f"[data-kata={name}]")
        assert set(seen.page.eval_on_selector_all(*lit)) == before | after
        assert name in seen.page.inner_text(".said")
        assert seen.page.locator(".across path").count() > 0
        seen.page.click(".said a")
        seen.page.wait_for_function(f"document.getElementById('kata-{name}').closest('details').open")
        seen.page.keyboard.press("Escape")
        assert seen.page.eval_on_selector_all(*lit) == [] and seen.page.inner_text(".said") == ""


def test_numbers_of_a_roofline_do_not_cover_each_other(browser: Browser, page: Path) -> None:
    with view(browser, page) as seen:
        seen.page.evaluate("for (const each of document.querySelectorAll('#roofline details')) each.open = true")
        charts = seen.page.evaluate(
            """() => [...document.querySelectorAll('#roofline figure svg')].map((svg) =>
              [...svg.querySelectorAll('g text')].map((text) => text.getBoundingClientRect())
              .map((box) => [box.left, box.top + 3, box.right, box.bottom - 3]))"""
        )
    assert len(charts) == 2 and all(len(boxes) > 12 for boxes in charts)  # the learner's, and the solutions'
    for boxes in charts:
        for a, b in combinations(boxes, 2):
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], (a, b)


def test_it_can_be_printed(browser: Browser, page: Path, tmp_path: Path) -> None:
    with view(browser, page) as seen:
        assert seen.page.pdf(path=tmp_path / "page.pdf").startswith(b"%PDF")
        seen.page.emulate_media(media="print")
        assert seen.page.locator("nav").is_hidden() and seen.page.locator(".graph").is_visible()


NASTY = "\"'><script>document.title='had'</script><img src=http://example.org/x onerror=document.title='had'>"


def test_names_are_text_wherever_they_come_from(browser: Browser, place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "data", tmp_path / "data")
    event = {"id": "x", "time": "2026-05-01T10:00:00+00:00", "kata": NASTY, "what": "grade", "device": NASTY}
    words = {"verdict": NASTY, "baseline": NASTY, "sizes": NASTY, "card": NASTY, "summary": NASTY}
    numbers = {
        "ratio": 0.5,
        "low": 0.4,
        "high": 0.6,
        "time_s": 1e-3,
        "bytes_moved": 1e9,
        "flops": 1e12,
        "peak_bytes_s": 1e12,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KATA_DATA", str(tmp_path / "data"))
        assert progress.import_lines([json.dumps({**event, **words, **numbers})], place / "clone") == 1
        assert report(place, "--no-pictures", "-o", str(tmp_path / "page.html"))[0] == 0
    with view(browser, tmp_path / "page.html") as seen:
        assert (seen.complaints, seen.requests, seen.sticking_out()) == ([], [], [])
        assert seen.page.title() == "CUDA katas: progress"
        assert seen.page.locator("script").count() == 1 and seen.page.locator("img").count() == 0
        assert seen.page.inner_text("#roofline").count(NASTY) >= 2


def test_no_other_script_may_run(browser: Browser, tmp_path: Path) -> None:
    hole = Markup("<script>document.title = 'had'</script>")
    (tmp_path / "page.html").write_text(document("safe", [paragraph(hole)]))
    with view(browser, tmp_path / "page.html") as seen:
        assert seen.page.title() == "safe" and any("Content Security Policy" in words for words in seen.complaints)


# What it says


def test_it_needs_no_other_file(page: Path) -> None:
    text = page.read_text()
    assert set(re.findall(r"https?://[\w./]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|url\(|<link|<iframe|src=", text)


def test_it_has_the_figures_of_the_learner(page: Path, place: Path, catalog: Catalog) -> None:
    known = progress.load(place / "clone")
    passed = sum(state.passed is not None for state in states(catalog, known).values())
    text = page.read_text()
    assert f"<b>{passed} of {len(catalog.katas)}</b>" in text and 80 < passed < len(catalog.katas)
    timed = [event for event in known.events if event.ratio is not None]
    for event in timed:
        assert f"{100 * (event.low or 0):.1f} to {100 * (event.high or 0):.1f}" in text
    assert f"Your kernels on {CARD}" in text and "more charts" in text


def test_every_drawing_is_said_in_words(page: Path) -> None:
    drawings = re.findall(r"<svg[^>]*>", page.read_text())
    assert len(drawings) > 60
    assert [drawing for drawing in drawings if "aria-label" not in drawing and "aria-hidden" not in drawing] == []


def test_a_learner_who_has_done_nothing_is_told_how_to_begin(place: Path, tmp_path: Path, browser: Browser) -> None:
    code, _ = report(place, "-o", str(tmp_path / "page.html"), KATA_DATA=str(tmp_path / "none"))
    text = (tmp_path / "page.html").read_text()
    assert code == 0 and has(text, "no grade", "cannot draw")
    assert has(text, "reference solutions", "NVIDIA H200", "not yours")
    with view(browser, tmp_path / "page.html", width=PHONE) as seen:
        assert (seen.complaints, seen.sticking_out()) == ([], [])


def test_a_kata_that_does_not_pass_is_not_drawn(place: Path, tmp_path: Path) -> None:
    code, said = report(place, "--kata", "swish_f32", "-o", str(tmp_path / "page.html"))
    assert code == 1 and "written" in said
    assert re.search(r"^swish_f32: not started: \d TODO", said, re.MULTILINE)
    assert re.search(r"swish_f32: not started: \d TODO", (tmp_path / "page.html").read_text())


def test_pictures_of_what_was_passed_last_need_not_be_possible(place: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KATA_DATA", str(tmp_path / "data"))
        event = {"id": "x", "time": "2026-05-01T10:00:00+00:00", "kata": "relu_f32", "what": "grade", "verdict": "pass"}
        digest = digest_of(place / "clone/exercises/relu/relu_f32.cu")
        progress.import_lines([json.dumps({**event, "digest": digest})], place / "clone")
        done = run(
            place / "clone", "-m", "grader", "report", "-o", str(tmp_path / "page.html"), KATA_NVCC="/nowhere/nvcc"
        )
    assert done.returncode == 0 and has(done.stderr, "kata: ", "memory accesses", "KATA_NVCC")
    text = (tmp_path / "page.html").read_text()
    assert re.search(NONE_DRAWN, text)
    assert re.search(r"1 kata[^<]*2026-05-01", text) and re.search(r"<b>1</b><span>day\b", text)


def test_it_is_opened_in_the_browser_or_said_that_there_is_none(place: Path, tmp_path: Path) -> None:
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\nexit ${{STATUS:-0}}\n')
    program.chmod(0o755)
    page = tmp_path / "page.html"
    arguments = ("-m", "grader", "report", "--no-pictures", "--open", "-o", str(page))
    done = run(place / "clone", *arguments, BROWSER=f"{program} %s", PATH="")
    assert done.returncode == 0 and done.stderr == ""
    assert (tmp_path / "opened").read_text() == f"{page.as_uri()}\n"
    done = run(place / "clone", *arguments, BROWSER=f"{program} %s", PATH="", STATUS="1")
    assert done.returncode == 0 and has(done.stderr, "kata: ", "browser", str(page))
    assert len(done.stderr.splitlines()) == 1


def test_solutions_are_drawn_only_by_name(place: Path, tmp_path: Path) -> None:
    code, said = report(place, "--solutions", "-o", str(tmp_path / "page.html"))
    assert code == 2 and "--kata" in said and not (tmp_path / "page.html").exists()


def test_numbers_may_be_absurd(place: Path, tmp_path: Path) -> None:
    event = {"time": "2026-05-01T10:00:00+00:00", "kata": "relu_f32", "what": "grade", "card": "c"}
    absurd = [0.0, -1.0, 1e-300, 1e300]
    lines = [
        json.dumps({**event, "id": str(number), **dict.fromkeys(NUMBERS, number), "kata": f"k{number}"})
        for number in absurd
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KATA_DATA", str(tmp_path / "data"))
        progress.import_lines(lines, place / "clone")
        assert report(place, "--no-pictures", "-o", str(tmp_path / "page.html"))[0] == 0


NONE_DRAWN = r"(?i)no kata[^<.]* drawn"
NUMBERS = ("ratio", "low", "high", "time_s", "bytes_moved", "flops", "peak_bytes_s", "peak_flops_s")


def test_by_default_the_kata_passed_last_is_drawn_if_its_file_is_as_it_was(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KATA_DATA", str(tmp_path / "data"))
        done = run(place / "clone", "-m", "grader", "grade", "elementwise_f32", "--device", "sim")
        assert done.returncode == 0
        report(place, "-o", str(out))
        assert re.search(r"Line 17: \w+ of a\b", out.read_text())
        file = place / "clone/exercises/elementwise/elementwise_f32.cu"
        text = file.read_text()
        file.write_text(text + "// changed since\n")
        report(place, "-o", str(out))
        file.write_text(text)
    assert re.search(NONE_DRAWN, out.read_text())


def test_a_page_that_cannot_be_written_leaves_the_old_one(place: Path, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    for name in ("old", "nowhere/page.html"):
        code, said = report(place, "--no-pictures", "-o", str(tmp_path / name))
        assert code == 2 and has(said, "cannot be written", name)
    assert [item.name for item in tmp_path.iterdir()] == ["old"]


# The parts


def test_a_tag_escapes_all_but_markup() -> None:
    assert tag("b", "<i>&", Markup("<br>"), title="\"<'") == '<b title="&quot;&lt;&#x27;">&lt;i&gt;&amp;<br></b>'
    assert tag("rect", x=1 / 3, y=2.0, class_="a", data_from=None) == '<rect x="0.33" y="2" class="a"></rect>'


def test_states_differ_without_their_colours(page: Path) -> None:
    legend = re.search(r'<ul class="legend">.*?</ul>', page.read_text())
    assert legend is not None
    style = (Path(tag.__code__.co_filename).parent / "page.css").read_text()
    shapes = {look: re.search(rf'is-{look}"><svg[^>]*><(\w+)', legend[0])[1] for look in LOOKS}  # type: ignore[index]
    assert len({shapes["passed"], shapes["failed"], shapes["written"]}) == 3
    for look in ("open", "closed"):  # circles, too, but hollow, and one of them dashed
        assert f".is-{look} .shape {{ fill: var(--paper)" in style
    assert "dasharray" in style.partition(".is-closed .shape")[2].partition("}")[0]


def test_words_can_be_read_on_their_paper() -> None:
    style = (Path(tag.__code__.co_filename).parent / "page.css").read_text()
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w{6})", part)) for part in re.split("prefers-color-scheme", style, maxsplit=1)
    )
    for colours in (light, {**light, **dark}):
        pairs = [(ink, paper) for ink in ("ink", "quiet", "accent", "worse") for paper in ("paper", "soft")]
        for ink, paper in (*pairs, ("on-passed", "passed"), ("on-failed", "failed")):
            assert contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper, colours[ink])
        for part in ("comment", "string", "keyword", "cuda", "number"):
            for paper in ("paper", "soft"):
                assert contrast(colours[f"c-{part}"], colours[paper]) >= 4.5, (part, paper)
        for mark in ("passed", "failed", "closed"):  # WCAG 1.4.11
            assert contrast(colours[mark], colours["soft"]) >= 3.0, mark


def contrast(one: str, other: str) -> float:
    """WCAG 2.1's contrast ratio."""

    def luminance(colour: str) -> float:
        parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
        red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_edges_of_a_lane_go_to_the_right(catalog: Catalog) -> None:
    for katas in catalog.by_family.values():
        places = places_of(katas)
        assert len(set(places.values())) == len(katas)
        for kata in katas:
            assert all(places[name][0] < places[kata.name][0] for name in kata.requires if name in places)


def test_looks_are_those_of_the_states(place: Path, catalog: Catalog) -> None:
    found = {name: look_of(state) for name, state in states(catalog, progress.load(place / "clone")).items()}
    assert (found["softmax_f32x4"], found["elu_f32"], found["relu_f32"]) == ("failed", "written", "passed")
    assert (found["swish_f32"], found["swish_f16x8_pack"]) == ("open", "closed")


def test_the_roofline_has_what_was_measured_last(place: Path, catalog: Catalog) -> None:
    known = progress.load(place / "clone")
    (points,) = of_the_learner(catalog, known).values()
    assert {point.kata for point in points} == {event.kata for event in known.events if event.time_s}
    point = next(point for point in points if point.kata == "sgemm_naive_f32")
    last = [event for event in known.events if event.kata == point.kata][-1]
    assert point.flops == 2 * 4096**3 and point.time_s == last.time_s and 0 < point.share < 1
    assert point.intensity == pytest.approx(2 * 4096**3 / (3 * 4 * 4096**2))


def test_the_solutions_stand_where_the_table_puts_them(catalog: Catalog) -> None:
    known, points = of_the_solutions(catalog)
    assert known is not None and "NVIDIA H200" in known.about and known.peaks.source
    assert {(point.kata, point.sizes) for point in points} == {(row.kata, sizes_of(row.sizes)) for row in known.rows}
    for point in points:
        first = next(row for row in known.rows if (row.kata, sizes_of(row.sizes)) == (point.kata, point.sizes))
        peak = point.peak_flops_s if point.flops else point.peak_bytes_s
        assert peak == (known.peaks.flops_s[point.dtype] if point.flops else known.peaks.bytes_s)
        # The share is of a rounded table, to 1 %, and the rate has three digits.
        assert first.peak_share is not None and abs(point.rate / peak - first.peak_share) < 0.0051 * (1 + point.share)


def test_a_published_row_that_its_spec_does_not_know_is_left_out(catalog: Catalog, tmp_path: Path) -> None:
    before = {(point.kata, point.sizes) for point in of_the_solutions(catalog)[1]}
    found = json.loads((catalog.root / "solutions/speeds.json").read_text())
    katas = {item["kata"]: item for item in found["katas"]}
    first = katas["hgemm_mma_cublas_nn"]["measurements"][0]
    first["sizes"] = {"L" if name == "M" else name: size for name, size in first["sizes"].items()}
    katas["sgemv_k1024_f32x4_block"]["kata"] = "sgemv_gone"
    file = tmp_path / "solutions/speeds.json"
    file.parent.mkdir()
    file.write_text(json.dumps(found))
    after = {(point.kata, point.sizes) for point in of_the_solutions(replace(catalog, root=tmp_path))[1]}
    assert {name for name, _ in before - after} == {"hgemm_mma_cublas_nn", "sgemv_k1024_f32x4_block"} and after < before
    assert of_the_solutions(replace(catalog, root=tmp_path / "nowhere")) == (None, [])
    file.write_text("[]")
    with pytest.raises(SpeedsError, match=r"speeds\.json"):
        of_the_solutions(replace(catalog, root=tmp_path))


def test_a_card_has_the_figures_and_nothing_else(
    browser: Browser, place: Path, catalog: Catalog, tmp_path: Path
) -> None:
    known = progress.load(place / "clone")
    found = standing(catalog, states(catalog, known), known)
    assert found.passed == sum(count for count, _ in found.levels.values()) and found.passed > 80
    assert found.katas == sum(of for _, of in found.levels.values()) == len(catalog.katas)
    assert has(in_a_line(found), f"{found.passed} of {len(catalog.katas)}", found.last, f"{found.days} days")
    (tmp_path / "me.svg").write_text(card(found))
    with view(browser, tmp_path / "me.svg") as seen:
        assert (seen.complaints, seen.requests) == ([], [])
        boxes = seen.page.evaluate(
            """() => [...document.querySelectorAll('text')].map((text) => text.getBoundingClientRect())
            .map((box) => [box.left, box.top + 3, box.right, box.bottom - 3])"""
        )
    assert len(boxes) == 3 + 2 * len(found.levels)
    assert all(a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1] for a, b in combinations(boxes, 2))
    assert max(box[2] for box in boxes) <= 480


def test_a_card_of_a_learner_who_has_done_nothing(place: Path, tmp_path: Path) -> None:
    code, said = report(place, "--line", "--card", str(tmp_path / "me.svg"), KATA_DATA=str(tmp_path / "none"))
    assert code == 0 and has(said, "me.svg", "0 of") and "Last" not in said
    assert [item.name for item in tmp_path.iterdir() if item.suffix] == ["me.svg"]


CODE = 'if (i < n && x[i] < 0x1Fu) y[i] = "a // <b>"[0]; // a "comment"\n#include <cuda_fp16.h>\n/* for'


def test_colours_change_no_text() -> None:
    spans = re.findall(r'<span class="c-(\w+)">(.*?)</span>', coloured(CODE), re.DOTALL)
    assert [(name, unescape(text)) for name, text in spans] == [
        ("keyword", "if"),
        ("number", "0x1Fu"),
        ("string", '"a // <b>"'),
        ("number", "0"),
        ("comment", '// a "comment"'),
        ("before", "#include"),
        ("cuda", "cuda_fp16"),
        ("comment", "/* for"),
    ]
    assert unescape(re.sub("</?span[^>]*>", "", coloured(CODE))) == CODE


# Pictures


@pytest.mark.parametrize("launcher", ["strided", "offset", "broadcast", "vector", "pairs", "asynchronous", "atomics"])
def test_a_picture_counts_as_the_simulator_does(launcher: str) -> None:
    device = open_device(HERE / "counters.cu")
    buffers = (given("x", "f32", [1.0] * 4096), wanted("y", "f32", 4096))
    counted = device.call(Call(launcher, buffers, (Scalar("n", "int", 1),), counters=True)).counters
    assert counted is not None
    (kernel,) = counted.kernels
    accesses = kernel.samples
    warps = 3 if launcher == "atomics" else 1
    assert warps * sum(len(sectors_of(access)) for access in accesses if access.buffer) == kernel.sectors
    wavefronts = [access for access in accesses if access.buffer is None]
    assert sum(map(len, map(wavefronts_of, wavefronts))) == kernel.wavefronts
    assert sum(map(ideal_wavefronts, wavefronts)) == kernel.ideal_wavefronts


def an_access(at: Sequence[int | None], operation: str) -> Access:
    """Of 4 bytes of shared memory a lane."""
    return Access(1, 4, 0, 0, 4, 32, operation, None, (0, 0, 0), tuple(at))


def test_lanes_that_want_one_word_share_a_wavefront_but_for_atomics() -> None:
    read, atomic = (an_access([8] * 32, operation) for operation in ("read", "atomic"))
    assert wavefronts_of(read) == [{2: list(range(32))}]
    assert [wavefront[2] for wavefront in wavefronts_of(atomic)] == [[lane] for lane in range(32)]


def test_the_bank_picture_of_a_column(page: Path) -> None:
    text = page.read_text()
    assert re.search(r"32 lanes[^<]* 32 wavefronts[^<]* 1 ", text)
    assert re.search(r"32 lanes[^<]* 1 wavefront;[^<]*no bank conflict", text)
    assert re.search(r"32 lanes[^<]* 4 sectors", text)


# What looks


def test_where_no_page_can_be_looked_at_tests_are_skipped_but_not_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KATA_CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no browser"):
        absent("no browser")
    monkeypatch.setenv("KATA_CI", "1")
    with pytest.raises(pytest.fail.Exception, match="CI must look"):
        absent("no browser")


def test_a_view_finds_what_is_wrong_with_a_page(browser: Browser, tmp_path: Path) -> None:
    body = '<p style="width:2000px">far</p><svg width="90"><text y="9" font-size="5">small</text></svg><img src="http://a.example/x">'
    (tmp_path / "page.html").write_text(f"<body>{body}<script>nothing()</script></body>")
    with view(browser, tmp_path / "page.html", width=PHONE) as seen:
        assert [words[0] for words in seen.sticking_out()] == ["P.null"]
        assert [words[0] for words in seen.small_text(LEGIBLE)] == ["small"]
        assert seen.requests == ["http://a.example/x"] and any(
            "nothing is not defined" in words for words in seen.complaints
        )
