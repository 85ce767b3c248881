"""Tracks: each is walked from its first kata to its last, and teaches what its katas need; levels fit the answers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import passed_before
import pytest
from facts import has
from test_faces import ROOT, run

from grader.content.catalog import CatalogError, load_catalog
from grader.content.start import BLANK, SKELETON
from grader.content.tracks import COLLECTION, SCREEN, load_tracks, problems, section_length, track_of
from grader.learner import progress
from grader.learner.progress import GRADE, Event, History
from grader.learner.state import PASSED, State, next_ones, states
from grader.learner.way import Way, candidates
from grader.maintain import levels

pytestmark = passed_before.REPOSITORY

CATALOG = load_catalog(ROOT)
TRACKS = load_tracks(CATALOG)
STEPS = len(TRACKS["interview"].steps)
BLANKS = sum(step.blank for step in TRACKS["interview"].steps)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KATA_DATA", str(tmp_path / "data"))


def fresh() -> dict[str, State]:
    """The states of a learner who has done nothing; drills and core alike are open as their `requires` say."""
    return dict(states(CATALOG, History()))


def passes(known: dict[str, State], name: str, start: str) -> None:
    """The learner passes a kata: the states become those of this history."""
    before = known[name].progress.events
    facts = {"time": "2026-03-31T12:00:00+00:00", "what": GRADE, "verdict": "pass", "start": start}
    known.update(states(CATALOG, History((*before, Event(id=str(len(before)), kata=name, **facts)))))


@pytest.mark.parametrize("name", [name for name in TRACKS if name != COLLECTION])
def test_a_track_is_walked_from_first_to_last(name: str) -> None:
    known, track = fresh(), TRACKS[name]
    way = Way(track, known)
    for place, step in enumerate(track.steps):
        assert way.next == step and way.done == place
        passes(known, step.kata.name, SKELETON)
        if step.blank:
            assert way.next == step, "a milestone is due from a blank file"
            passes(known, step.kata.name, BLANK)
    assert way.next is None and way.done == len(track.steps)
    assert way.milestones == (sum(step.blank for step in track.steps),) * 2


def test_the_whole_collection_is_walked_core_before_drills() -> None:
    known, walked = fresh(), []
    while (found := next_ones([known[kata.name] for kata in TRACKS[COLLECTION].katas])) != []:
        walked.append(found[0].kata)
        passes(known, walked[-1].name, SKELETON)
    assert {kata.name for kata in walked} == set(CATALOG.katas)
    names = [kata.name for kata in walked]
    for before, after in (
        ("reduce_interleaved_f32", "block_all_reduce_f32_f32"),
        ("decode_attention_kv_cache_f16", "flash_attn_mma_stages_split_kv"),
        ("histogram_i32", "block_all_reduce_f32_f32"),
    ):
        assert names.index(before) < names.index(after)
    families = list(dict.fromkeys(kata.family for kata in CATALOG.katas.values()))
    assert families.index("reduce") < families.index("block_all_reduce")


def test_every_kata_of_the_catalogue_is_after_what_it_needs() -> None:
    seen: set[str] = set()
    for kata in TRACKS[COLLECTION].katas:
        assert seen >= set(kata.requires), kata.name
        seen.add(kata.name)


def test_tracks_teach_what_their_katas_need() -> None:
    assert problems(CATALOG) == []
    assert 35 <= len(TRACKS["interview"].steps) <= 45
    for track in TRACKS.values():
        assert track.afterwards and (track.name == COLLECTION or any(step.blank for step in track.steps))


def test_every_link_is_at_most_a_screen_and_names_its_idea() -> None:
    """The section that a link leads to has words: a heading alone teaches nothing."""
    for track in TRACKS.values():
        for step in track.steps:
            for link in step.read:
                length = section_length(link, ROOT)
                assert length is not None and 2 < length <= SCREEN, link


@pytest.mark.parametrize(
    ("old", "new", "facts"),
    [
        ("      - sgemv_k128_f32x4_unrolled\n", "", ("sgemv_k1024_f32x4_block", "leaves out")),
        ("      - elementwise_f32x4\n", "      - elementwise_f33\n", ("elementwise_f33", "elementwise_f32")),
        ("README.md#f16x2", "README.md#f16x99", ("f16x99", "nowhere")),
        ("hgemm/README.md#ldmatrix", "hgemm/README.md#interview-questions", ("more than a screen",)),
        ("{blank: true}", "{blanc: true}", ("blanc", "blank")),
        ("{blank: true}", "{blank: false}", ("leave the field out",)),
        ("      - nms\n", "", ("nms_f32", "family")),
        (
            "      - elementwise_f32\n      - elementwise_f32x4\n",
            "      - elementwise_f32x4\n      - elementwise_f32\n",
            ("move it",),
        ),
        ("  interview:\n", "  interview:\n    colour: red\n", ("colour",)),
        ("minutes: {easy: 15,", "minutes: {", ("easy", "missing")),
        ("      - relu\n", "      - relu\n      - relu_f32\n", ("earlier line",)),
    ],
)
def test_a_slip_in_a_track_is_named(old: str, new: str, facts: tuple[str, ...], tmp_path: Path) -> None:
    text = (ROOT / "tracks.yaml").read_text()
    assert old in text
    for part in ("exercises", "docs"):
        (tmp_path / part).symlink_to(ROOT / part)
    (tmp_path / "tracks.yaml").write_text(text.replace(old, new, 1))
    try:
        said = "\n".join(problems(replace(CATALOG, root=tmp_path)))
    except CatalogError as error:
        said = str(error)
    assert has(said, "tracks.yaml", *facts)


def test_next_status_and_report_follow_the_chosen_track(clone: Path) -> None:
    def kata(*arguments: str) -> str:
        done = run(clone, "-m", "grader", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert json.loads(kata("next", "--json"))["name"] == "scale_f32"
    first = kata("next")
    assert has(first, "kata start scale_f32", "work/first_steps/scale_f32.cu")
    assert "exercises/first_steps/scale" not in first
    assert has(kata("next", "--track", "interview"), "elementwise_f32", f"interview, step 1 of {STEPS}")
    events = [{"kata": name, "start": SKELETON} for name in ("elementwise_f32", "elementwise_f32x4")]
    lines = [{"id": str(at), "time": "2026-01-01T00:00:00+00:00", "what": "grade", "verdict": "pass", **event}
             for at, event in enumerate(events)]  # fmt: skip
    progress.import_lines(map(json.dumps, lines), clone)
    text = kata("next")
    assert has(text, "elementwise_f16x8_pack", f"step 3 of {STEPS}", "README.md#f16x8", "elementwise_f16x8")
    record = json.loads(kata("next", "--json"))
    assert record["track"]["done"] == 2 and record["read"] and not record["blank"]
    assert has(kata("status"), "track interview", f"2 of {STEPS}", f"0 of {BLANKS}")
    assert json.loads(kata("status", "--json"))["track"]["name"] == "interview"
    kata("report", "--no-pictures", "-o", "page.html")
    page = (clone / "page.html").read_text()
    assert has(page, "Your track: interview", f"2 of {STEPS}") and page.count(" aside") >= len(CATALOG.katas) - STEPS
    assert json.loads(kata("next", "--track", COLLECTION, "--json"))["name"] == "scale_f32"
    assert json.loads(kata("status", "--json"))["track"] is None
    wrong = run(clone, "-m", "grader", "next", "--track", "interviews")
    assert wrong.returncode == 2 and has(wrong.stderr, "'interviews'", "interview", "training")


def test_a_milestone_asks_for_a_blank(clone: Path) -> None:
    steps = track_of(load_catalog(clone), "interview").steps
    due = next(step for step in steps if step.blank)
    names = [step.kata.name for step in steps[: steps.index(due) + 1]]
    lines = [
        {
            "id": name,
            "time": "2026-01-01T00:00:00+00:00",
            "what": "grade",
            "verdict": "pass",
            "kata": name,
            "start": SKELETON,
        }
        for name in names
    ]
    progress.import_lines(map(json.dumps, lines), clone)
    text = run(clone, "-m", "grader", "next", "--track", "interview").stdout
    assert has(text, due.kata.name, f"kata start {due.kata.name} --blank", "milestone")
    assert run(clone, "-m", "grader", "start", due.kata.name, "--blank").returncode == 0
    begun = run(clone, "-m", "grader", "next").stdout
    assert has(begun, f"work/{due.kata.family}/{due.kata.name}.cu", "kata grade") and "kata start" not in begun
    blank = {**lines[-1], "id": "blank", "start": BLANK}
    progress.import_lines([json.dumps(blank)], clone)
    after = json.loads(run(clone, "-m", "grader", "next", "--json").stdout)
    assert after["name"] == steps[steps.index(due) + 1].kata.name


def test_a_finished_track_says_what_one_can_do() -> None:
    known = fresh()
    for step in TRACKS["training"].steps:
        passes(known, step.kata.name, BLANK)
    event = Event(id="1", time="2026-01-01T00:00:00+00:00", kata="", what="track", summary="training")
    left = candidates(CATALOG, known, History((event,)))
    assert Way(TRACKS["training"], known).next is None and left and left[0].word != PASSED


# -- levels ------------------------------------------------------------------------------------------------------------


def test_levels_fit_the_answers() -> None:
    assert levels.problems(CATALOG) == []
    katas = CATALOG.katas
    for kata in katas.values():
        if re.search(r"_swizzle_q(k|kv)?$", kata.name) and levels.answer_size(kata) <= 3:
            assert kata.level == "medium", kata.name
    assert katas["sgemv_k32_f32"].level == "medium" and katas["layer_norm_backward_f32"].level == "hard"


@pytest.mark.parametrize(
    ("name", "level", "bound"),
    [
        ("dot_product_f16_f32", "hard", "medium at most"),
        ("sgemv_k32_f32", "hard+", "hard at most"),
        ("layer_norm_backward_f32", "medium", "hard at least"),
    ],
)
def test_a_level_that_does_not_fit_is_named(name: str, level: str, bound: str) -> None:
    katas = {**CATALOG.katas, name: replace(CATALOG.katas[name], level=level)}
    (problem,) = levels.problems(replace(CATALOG, katas=katas))
    assert has(problem, name, level, bound)
