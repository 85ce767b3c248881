"""Kernels with one planted bug, and attempts to fool the grader -> the verdict that each must get.

Every file of tests/wrong_kernels and tests/exploits says in its header what is wrong with it and what must be found:

    // Wrong: what is wrong, in words
    // Kata: the kata that it is graded as
    // Sim: a verdict's kind, or several: the reason why there are several. Or not shown: the reason
    // Gpu: the same for a GPU, where `pass` among the kinds means that luck decides
    // Line: // BUG            (the verdict must name a line that is marked so)
    // Sizes: n=257            (the smallest failing shape, which the search must reach)
    // Timed: yes            (graded on a GPU with its speed, where it does what is wrong)
    // Says: regular expression (found in the summary, the pattern, or what stands for an element's value)

A bug that a device does not show must pass there: if it ever does not, the header is out of date.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import unhurried
from facts import has

from conftest import Gap
from grader import grade as pipeline
from grader.catalog import Kata, load_catalog
from grader.grade import Grade, Options, grade, prepare
from grader.report import explanation
from grader.skeleton import skeleton_of
from grader.spec import Accumulated, load_spec
from grader.toolchain import find_gpu
from grader.verdict import Kind, Verdict

ROOT = Path(__file__).resolve().parent.parent
KATAS = load_catalog(ROOT).katas
FOLDERS = ("wrong_kernels", "exploits")
DEVICES = ("sim", "gpu")
NOT_SHOWN = "not shown"
MARK = "// BUG"
GAP = 4.0  # a wrong answer is off by this many times what is allowed, or more
ROOM = 0.5  # of what is allowed, a right answer uses no more
SCREEN = 40  # lines

# Said of files that are not kernels at all, or of speed, which only a GPU has.
OTHER_KINDS = {Kind.PASS, Kind.NOT_STARTED, Kind.TOO_SLOW, Kind.INCONCLUSIVE}

_FIELD = re.compile(r"^// (Wrong|Kata|Sim|Gpu|Line|Sizes|Timed|Says): (.+)$")


@dataclass(frozen=True)
class Expected:
    """What a device must say: one of ``kinds``; ``reason`` says why there are several, or why it is a pass."""

    kinds: tuple[Kind, ...]
    reason: str | None


@dataclass(frozen=True)
class WrongKernel:
    """One file with the verdicts that it must get."""

    path: Path
    header: Mapping[str, str]

    @property
    def kata(self) -> Kata:
        return KATAS[self.header["Kata"]]

    def expected(self, device: str) -> Expected:
        kinds, _, reason = self.header[device.capitalize()].partition(": ")
        if kinds == NOT_SHOWN:
            return Expected((Kind.PASS,), reason)
        return Expected(tuple(Kind(kind) for kind in kinds.split(" | ")), reason or None)

    @property
    def sizes(self) -> dict[str, int] | None:
        pairs = [pair.split("=") for pair in self.header.get("Sizes", "").split(", ") if pair]
        return {name: int(value) for name, value in pairs} or None

    @property
    def marked_lines(self) -> tuple[int, ...]:
        lines = self.path.read_text().splitlines()
        return tuple(number for number, line in enumerate(lines, 1) if line.endswith(MARK) and not _FIELD.match(line))


def read_header(path: Path) -> WrongKernel:
    """The comment lines that a file begins with, as fields."""
    fields: dict[str, str] = {}
    for line in path.read_text().splitlines():
        match = _FIELD.match(line)
        if match is None:
            break
        fields[match[1]] = match[2].strip()
    return WrongKernel(path, fields)


# The first test of each device waits until all files are compiled for it, for minutes: that time is
# nobody's to limit. (nvcc has a limit of its own, file by file.)
pytestmark = pytest.mark.timeout(func_only=True)

WRONG = [read_header(path) for folder in FOLDERS for path in sorted((ROOT / "tests" / folder).glob("*/*.cu"))]
BY_NAME = {f"{wrong.path.parent.name}/{wrong.path.stem}": wrong for wrong in WRONG}

# What may leave something behind for the file that is graded next.
SPOILERS = (
    "elementwise_f32/kernel-traps",
    "elementwise_f32/kernel-never-ends",
    "elementwise_f32/host-reads-a-device-pointer",
    "elementwise_f32/exits-with-0",
    "elementwise_f32/eats-64-gb",
    "elementwise_f32/leaves-a-child-behind",
)


@pytest.fixture(scope="session")
def gpu() -> None:
    if find_gpu() is None:
        pytest.skip("no NVIDIA GPU on this machine")


@pytest.fixture(scope="session", params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """A device that is there, with the files of all chosen tests built for it in one go."""
    name: str = request.param
    if name == "gpu" and find_gpu() is None:
        pytest.skip("no NVIDIA GPU on this machine")
    here = [item for item in request.session.items if item.path == Path(__file__) and hasattr(item, "callspec")]
    wrong, katas = (
        [item.callspec.params[key] for item in here if key in item.callspec.params] for key in ("wrong", "kata")
    )
    terminal = request.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and len(here) > SCREEN:
        terminal.write_line(
            f"\n{len(wrong)} wrong kernels and {len(katas)} solutions are compiled for {name} where they are not"
        )
    prepare([(item.kata, item.path) for item in wrong], Options(device=name))
    prepare([(kata, kata.solution_path) for kata in katas], _as_solution(name))
    return name


def _as_solution(device: str) -> Options:
    """As solutions are always graded: the builds are those that `kata dev check` and `pytest --solutions` use."""
    return Options(device=device, speed=False, warnings_are_errors=True)


@pytest.fixture(autouse=True)
def own_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes that failed here are no learner's: they are neither taken from a learner's nor left among them."""
    monkeypatch.setattr(pipeline, "_memory", lambda kata: tmp_path / "failed" / kata.name)


_GRADES: dict[tuple[str, Path], Grade] = {}


def graded(wrong: WrongKernel, device: str) -> Grade:
    """The grade of a file on a device, made once in a run."""
    key = (device, wrong.path)
    if key not in _GRADES:
        options = Options(device=device, speed="Timed" in wrong.header)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pipeline, "effort_for", unhurried.effort_for)  # Sizes: say how small a shape it must find
            _GRADES[key] = grade(wrong.kata, options, source=wrong.path)
    return present(_GRADES[key])


def present(result: Grade) -> Grade:
    """Skips the test where the machine lacks what the kata needs."""
    if result.verdict.lacks_library:
        pytest.skip(result.verdict.summary)
    return result


# -- the headers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", BY_NAME.values(), ids=BY_NAME)
def test_header_is_complete(wrong: WrongKernel) -> None:
    assert {"Wrong", "Kata", "Sim", "Gpu"} <= set(wrong.header)
    assert wrong.header["Kata"] == wrong.path.parent.name, "a file stands in its kata's folder"
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", wrong.path.stem), "a file is named after its bug, in words"
    assert bool(wrong.marked_lines) == (wrong.header.get("Line") == MARK), f"Line: and {MARK} go together"
    assert set(wrong.sizes or {}) <= set(load_spec(wrong.kata).sizes)
    re.compile(wrong.header.get("Says", ""))
    for device in DEVICES:
        expected = wrong.expected(device)
        assert expected.reason or (len(expected.kinds) == 1 and Kind.PASS not in expected.kinds), "give the reason"
    assert any(Kind.PASS not in wrong.expected(device).kinds for device in DEVICES), "some device must see it for sure"


def test_every_family_has_three_bugs() -> None:
    bugs: dict[str, set[str]] = defaultdict(set)
    for wrong in WRONG:
        bugs[wrong.kata.family].add(wrong.header["Wrong"])
    assert {
        family: len(bugs[family]) for family in {kata.family for kata in KATAS.values()} if len(bugs[family]) < 3
    } == {}


def test_every_kind_of_verdict_is_seen_for_sure() -> None:
    """Each is the only one that some file may get on the simulator."""
    certain = {expected.kinds[0] for wrong in WRONG if len((expected := wrong.expected("sim")).kinds) == 1}
    assert set(Kind) - OTHER_KINDS <= certain


def test_no_bug_is_there_twice() -> None:
    seen: dict[str, list[str]] = defaultdict(list)
    for name, wrong in BY_NAME.items():
        code = [line for line in wrong.path.read_text().splitlines() if not line.startswith("// ")]
        seen["\n".join(code)].append(name)
    assert [names for names in seen.values() if len(names) > 1] == []
    assert len(BY_NAME) == len(WRONG), "a name stands in both folders"


# -- the verdicts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPOILERS)
def test_next_kata_is_unharmed(name: str, device: str) -> None:
    assert not graded(BY_NAME[name], device).passed
    after = KATAS["elementwise_f32x4"]
    assert explanation(grade(after, Options(device=device), source=after.solution_path)) == f"{after.name}: pass"


def said(verdict: Verdict) -> str:
    """What a verdict says in words; not the file's own name and lines, which may well have the same words."""
    unwritten = any(mismatch.got is None for mismatch in verdict.mismatches)
    return "\n".join([verdict.summary, verdict.pattern or "", "never written" if unwritten else ""])


@pytest.mark.parametrize("wrong", BY_NAME.values(), ids=BY_NAME)
def test_wrong_kernel_gets_its_verdict(wrong: WrongKernel, device: str) -> None:
    result = graded(wrong, device)
    verdict, story = result.verdict, explanation(result)
    assert verdict.kind in wrong.expected(device).kinds, story
    if verdict.passed:
        return
    if wrong.marked_lines and (device == "sim" or verdict.kind is Kind.DOES_NOT_COMPILE):
        assert verdict.line in wrong.marked_lines, story
    if wrong.sizes and Kind.PASS not in wrong.expected(device).kinds:  # luck has no smallest shape
        assert {name: verdict.sizes.get(name) for name in wrong.sizes} == wrong.sizes, story
    assert re.search(wrong.header.get("Says", ""), said(verdict)), story
    assert len(story.splitlines()) <= SCREEN, story
    assert not re.search(r"Traceback|grader/\w+\.py", story), f"our own innards are shown:\n{story}"


@pytest.mark.parametrize("wrong", BY_NAME.values(), ids=BY_NAME)
def test_wrong_answer_is_far_off(wrong: WrongKernel, device: str, gaps: dict[str, Gap]) -> None:
    """There is a gap between right and wrong: nothing that is wrong comes close to passing."""
    if Kind.WRONG_ANSWER not in wrong.expected(device).kinds or "never written" in wrong.header.get("Says", ""):
        pytest.skip("it does not come to an answer")
    verdict = graded(wrong, device).verdict
    if verdict.kind is Kind.WRONG_ANSWER:
        gaps[wrong.kata.family].wrong.append(verdict.error_share)
        assert verdict.error_share >= GAP


@pytest.mark.parametrize("kata", KATAS.values(), ids=list(KATAS))
def test_solution_passes_with_room(kata: Kata, device: str, gaps: dict[str, Gap]) -> None:
    result = present(grade(kata, _as_solution(device), source=kata.solution_path))
    assert result.passed, explanation(result)
    gaps[kata.family].right.append(result.verdict.error_share)
    if isinstance(load_spec(kata).tolerance, Accumulated):
        assert result.verdict.error_share <= ROOM


# -- files that are no kernels ---------------------------------------------------------------------------------------


def verdict_on(content: bytes, folder: Path) -> Verdict:
    source = folder / "elementwise_f32.cu"
    source.write_bytes(content)
    return grade(KATAS["elementwise_f32"], Options(device="sim"), source=source).verdict


def test_empty_file(tmp_path: Path) -> None:
    verdict = verdict_on(b"", tmp_path)
    assert verdict.kind is Kind.DOES_NOT_COMPILE
    assert has(verdict.summary, "empty")


def test_file_of_blank_lines(tmp_path: Path) -> None:
    verdict = verdict_on(b"\n  \n\t\n", tmp_path)
    assert verdict.kind is Kind.DOES_NOT_COMPILE and "empty" in verdict.summary


def test_file_of_comments(tmp_path: Path) -> None:
    verdict = verdict_on(b"// elementwise_f32: later\n", tmp_path)
    assert verdict.kind is Kind.DOES_NOT_COMPILE and has(verdict.summary, "no launcher", "elementwise_f32")


def test_binary_file(tmp_path: Path) -> None:
    verdict = verdict_on(bytes(range(256)) * 40, tmp_path)
    assert verdict.kind is Kind.DOES_NOT_COMPILE and has(verdict.summary, "elementwise_f32.cu", "text file")


def test_text_in_another_encoding(tmp_path: Path) -> None:
    """Bytes that are no UTF-8, in a comment, harm nobody; in the code they are the compiler's to refuse."""
    solution = KATAS["elementwise_f32"].solution_path.read_bytes()
    assert verdict_on(b"// gr\xfc\xdfe\n" + solution, tmp_path).passed
    verdict = verdict_on(solution + b"\xfc\xdf\n", tmp_path)
    assert verdict.kind is Kind.DOES_NOT_COMPILE and verdict.line is not None


def test_file_that_is_not_there(tmp_path: Path) -> None:
    verdict = grade(KATAS["elementwise_f32"], Options(device="sim"), source=tmp_path / "none.cu").verdict
    assert verdict.kind is Kind.DOES_NOT_COMPILE and has(verdict.summary, "read (")


def test_folder_instead_of_a_file(tmp_path: Path) -> None:
    verdict = grade(KATAS["elementwise_f32"], Options(device="sim"), source=tmp_path).verdict
    assert verdict.kind is Kind.DOES_NOT_COMPILE and has(verdict.summary, "read (")


@pytest.fixture
def no_nvcc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the compiler was called")

    monkeypatch.setattr(pipeline, "build_all", refuse)
    monkeypatch.setattr(pipeline, "find_toolchain", refuse)
    yield


@pytest.mark.parametrize("kata", KATAS.values(), ids=list(KATAS))
def test_untouched_skeleton_is_not_started(kata: Kata, tmp_path: Path, no_nvcc: None) -> None:
    """Also with white space added, as an editor does on saving; and no compiler is called for it."""
    source = tmp_path / f"{kata.name}.cu"
    source.write_text(skeleton_of(kata).replace("\n", "  \n") + "\n\n")
    verdict = grade(kata, Options(device="sim"), source=source).verdict
    assert verdict.kind is Kind.NOT_STARTED and re.fullmatch(r"\d+ TODOs?", verdict.summary)
