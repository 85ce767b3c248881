"""Every solution, skeleton and wrong kernel, and attempts to fool the grader -> the verdict that each must get.

What must be found in a wrong one is written with it, as grader/maintain/wrong_kernel.py says: in tests/wrong_kernels
mostly as edits of a solution, in tests/exploits as whole files. A bug that a device does not show must pass there: if
it ever does not, the entry is out of date.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import compiler
import passed_before
import pytest
from facts import has

from conftest import group_of, kata_of
from grader import grade as pipeline
from grader.compile.build import Build, Target, build_all
from grader.compile.toolchain import find_gpu, find_toolchain
from grader.content.catalog import Kata, capability_of, load_catalog
from grader.content.skeleton import skeleton_of
from grader.content.source_file import source_of
from grader.content.spec import Accumulated, load_spec
from grader.devices import SIM_ARCH
from grader.grade import Options, grade, prepare
from grader.judge.search import SearchBudget, budget_for
from grader.maintain import wrong_kernel
from grader.maintain.coverage import disagreements, reasons
from grader.maintain.kata_builds import as_skeleton, as_solution, as_wrong, bare, is_refused, oldest_card
from grader.maintain.wrong_kernel import WrongKernel, load, written
from grader.output.verdict_text import explanation, learners_first
from grader.sandbox import parent as sandbox
from grader.verdict import Grade, Kind, Verdict

ROOT = Path(__file__).resolve().parent.parent
CATALOG = load_catalog(ROOT)
KATAS = CATALOG.katas
DEVICES = ("sim", "gpu")
GAP = 4.0  # a wrong answer is off by this many times what is allowed, or more
ROOM = 0.5  # of what is allowed, a right answer uses no more
SCREEN = 40  # lines
# One of so many files that must fail is looked into as a learner's file is: for its smallest case, and some of these
# for their cause, too. Either takes longer than to find that a file is wrong. A wrong kernel whose smallest shape is
# written down is looked into for that.
SMALLEST, CAUSES = 8, 32

# Said of files that are not kernels at all, or of speed, which only a GPU has.
OTHER_KINDS = {Kind.PASS, Kind.NOT_STARTED, Kind.TOO_SLOW, Kind.INCONCLUSIVE}

# The first test of a group waits until its files are compiled. That time has no limit here: each run of nvcc has one.
pytestmark = pytest.mark.timeout(func_only=True)

# Each is graded as a whole file, which is made here of those that are stored as edits.
FILES = TemporaryDirectory(prefix="wrong-kernels-")
WRONG = [written(wrong, Path(FILES.name)) for folder in wrong_kernel.FOLDERS for wrong in load(CATALOG, ROOT / folder)]
BY_NAME = {wrong.name: wrong for wrong in WRONG}


def what_it_reads(item: Any) -> list[str | Path] | None:
    """What the verdict on one of a kata's files on the simulator follows from, besides the code of all tests.

    An exploit may try anything, so it is always graded. So is all that a GPU grades.
    """
    parameters: Mapping[str, Any] = item.callspec.params
    wrong: WrongKernel | None = parameters.get("wrong")
    is_exploit = wrong is not None and ROOT / "tests" / "exploits" in wrong.path.parents
    if is_exploit or parameters["device"] != "sim" or passed_before.asks_more(item):
        return None
    kata: Kata = parameters["kata"] if wrong is None else wrong.kata
    entry = [] if wrong is None else [wrong.path.read_text(), repr((wrong.sim, wrong.sizes, wrong.says, wrong.timed))]
    return [*entry, *passed_before.of_kata(kata), ROOT / "solutions" / "unreached.yaml"]


READS = pytest.mark.reads(by=what_it_reads)

# What may leave something behind for the file that is graded next.
SPOILERS = (
    "elementwise_f32/kernel-traps",
    "elementwise_f32/kernel-never-ends",
    "elementwise_f32/host-reads-a-device-pointer",
    "elementwise_f32/exits-with-0",
    "elementwise_f32/eats-64-gb",
    "elementwise_f32/leaves-a-child-behind",
)


@pytest.fixture(params=DEVICES if find_gpu() is not None else DEVICES[:1])
def device(request: pytest.FixtureRequest) -> str:
    """A device that is there, with the files of the test's group built for it."""
    name: str = request.param
    if kata_of(request.node) is not None and passed_before.kept(request.node) is None:
        request.getfixturevalue("builds").wait_for(name, group_of(request.node.nodeid))
        request.getfixturevalue("forked_children")
    return name


@contextlib.contextmanager
def own_interpreters(wanted: bool) -> Iterator[None]:
    """Sandboxes are started as in a plain `kata grade`: those of exploits, which may try anything."""
    starter = sandbox.starter()
    if wanted:
        sandbox.start_children_by(None)
    yield
    sandbox.start_children_by(starter)


@contextlib.contextmanager
def nvcc_for(wrong: WrongKernel) -> Iterator[None]:
    """An nvcc that remembers what it made of files whose build is refused afterwards: the cache keeps no such build."""
    if Kind.NOT_ALLOWED not in wrong.sim.kinds:
        yield
        return
    with compiler.using(compiler.remembering_nvcc(compiler.STORE.parent)):
        yield


# How many processes run tests side by side; each takes its share of the processors.
PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
JOBS = max(1, (os.cpu_count() or 1) // PROCESSES)


class Builds:
    """The files of all chosen tests, compiled group by group while the tests of earlier groups run.

    Where tests are spread over processes, each compiles the groups that come to it, when they come.
    """

    def __init__(self, items: list[pytest.Item]) -> None:
        self._work: dict[tuple[str, str], list[Any]] = {}
        self._built: dict[tuple[str, str], Future[None]] = {}
        self._pool = ThreadPoolExecutor(max_workers=1)
        for item in items:
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            if kata_of(item) is None or "device" not in parameters or passed_before.kept(item) is not None:
                continue
            group = self._work.setdefault((parameters["device"], group_of(item.nodeid)), [])
            if "wrong" not in parameters or not is_refused(parameters["wrong"]):
                group.append(item)

    def wait_for(self, device: str, group: str) -> None:
        """Return when the group is built for the device."""
        key = (device, group)
        if key not in self._built:
            ahead = [other for other in self._work if other[0] == device] if PROCESSES == 1 else [key]
            for place, count in _doubling(len(ahead)):
                future = self._pool.submit(self._build, ahead[place : place + count])
                self._built |= dict.fromkeys(ahead[place : place + count], future)
        self._built[key].result()

    def _build(self, keys: list[tuple[str, str]]) -> None:
        files: dict[Options, dict[tuple[Kata, Path], None]] = defaultdict(dict)
        for item in (item for key in keys for item in self._work[key]):
            file, options = _file_of(item)
            files[options][file] = None
        alike: dict[tuple[tuple[Kata, Path], ...], list[Options]] = defaultdict(list)
        for options, work in files.items():
            alike[tuple(work)].append(options)
        for each, (first, *others) in alike.items():  # one run of nvcc for all architectures
            prepare(each, first, beside=others)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _doubling(count: int) -> Iterator[tuple[int, int]]:
    """(first, how many): one, then twice as many each time: the first tests wait for little."""
    place, step = 0, 1
    while place < count:
        yield place, step
        place, step = place + step, 2 * step


def _file_of(item: Any) -> tuple[tuple[Kata, Path], Options]:
    """What a test grades, and how."""
    parameters: Mapping[str, Any] = item.callspec.params
    if "wrong" in parameters:
        wrong: WrongKernel = parameters["wrong"]
        return (wrong.kata, wrong.path), with_jobs(as_wrong(wrong, parameters["device"]))
    kata: Kata = parameters["kata"]
    path, options = GRADED[item.originalname](kata, parameters["device"])
    return (kata, path), with_jobs(options)


def with_jobs(options: Options) -> Options:
    return replace(options, jobs=JOBS)


def solution_of(kata: Kata, device: str) -> tuple[Path, Options]:
    return kata.solution_path, as_solution(device)


def solution_on_oldest_card(kata: Kata, device: str) -> tuple[Path, Options]:
    return kata.solution_path, as_solution(device, oldest_card(kata))


def skeleton_without_marks(kata: Kata, device: str) -> tuple[Path, Options]:
    return bare_skeleton(kata), as_skeleton()


@functools.cache
def bare_skeleton(kata: Kata) -> Path:
    folder = Path(FILES.name, "skeletons")
    folder.mkdir(exist_ok=True)
    return bare(kata, folder)


# What the tests of a kata's own files grade, by their names.
GRADED: Mapping[str, Callable[[Kata, str], tuple[Path, Options]]] = {
    "test_solution_passes_with_room": solution_of,
    "test_solution_passes_on_the_oldest_card": solution_on_oldest_card,
    "test_skeleton_compiles_and_does_not_pass": skeleton_without_marks,
}


@pytest.fixture(scope="session")
def builds(request: pytest.FixtureRequest) -> Iterator[Builds]:
    made = Builds(request.session.items)
    yield made
    made.close()


_GRADES: dict[tuple[str, Path], Grade] = {}


def graded(wrong: WrongKernel, device: str, causes: int = CAUSES) -> Grade:
    """The grade of a file on a device, made once in a run. One in ``causes`` is looked into for its cause."""
    key = (device, wrong.path)
    if key not in _GRADES:
        refused = nvcc_for(wrong)
        with own_interpreters(ROOT in wrong.path.parents), refused, pytest.MonkeyPatch.context() as patch:
            if device == "sim" and wrong.sim.kinds == (Kind.TIME_OUT,):
                patch.setattr(pipeline, "budget_for", impatient)
            options = with_jobs(as_wrong(wrong, device))
            options = looked_into(options, wrong.path, causes)
            options = replace(options, smallest=options.smallest or wrong.sizes is not None)
            result = grade(wrong.kata, options, source=wrong.path)
            if result.verdict.kind is Kind.WRONG_ANSWER and result.verdict.error_share < GAP and not options.smallest:
                # The first case is nearly right; a search would find one that is further off.
                result = grade(wrong.kata, replace(options, smallest=True), source=wrong.path)
            _GRADES[key] = result
    return present(_GRADES[key])


def looked_into(options: Options, path: Path, causes: int) -> Options:
    """As the file's name says."""
    number = crc32(path.name.encode())
    return replace(options, smallest=number % min(SMALLEST, causes) == 0, diagnose=number % causes == 0)


@pytest.fixture(scope="session")
def causes(request: pytest.FixtureRequest) -> int:
    """One of so many files that must fail is looked into for its cause."""
    return 1 if request.config.getoption("--all-causes") else CAUSES


def impatient(device: str) -> SearchBudget:
    """A launcher that never returns is known by a limit of time, half a minute, and a kernel by its instructions; here
    by a shorter one and fewer. On no machine do so few take that time."""
    budget = budget_for(device)
    return replace(budget, limits=replace(budget.limits, seconds=5.0, instructions=2_000_000))


def present(result: Grade) -> Grade:
    """Skips the test where the machine lacks what the kata needs."""
    if result.verdict.lacks_library:
        pytest.skip(result.verdict.summary)
    return result


# -- the entries -----------------------------------------------------------------------------------------------------


def test_every_entry_fits_its_kata() -> None:
    """Its sizes are the kata's, and some device must see the bug for sure."""
    assert [
        name for name, wrong in BY_NAME.items() if not set(wrong.sizes or {}) <= set(load_spec(wrong.kata).sizes)
    ] == []
    seen = {
        device: {name for name, wrong in BY_NAME.items() if Kind.PASS not in wrong.expected(device).kinds}
        for device in DEVICES
    }
    assert set(BY_NAME) - seen["sim"] - seen["gpu"] == set()


def test_every_family_has_three_bugs() -> None:
    bugs: dict[str, set[str]] = defaultdict(set)
    for wrong in WRONG:
        bugs[wrong.kata.family].add(wrong.wrong)
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
    options = Options(device=device, last_failure=False)
    assert explanation(grade(after, options, source=after.solution_path)) == f"{after.name}: pass"


def said(verdict: Verdict) -> str:
    """What a verdict says in words; not the file's own name and lines, which may well have the same words."""
    unwritten = any(mismatch.got is None for mismatch in verdict.mismatches)
    phases = verdict.finding.phases if verdict.finding else ()  # of mbarriers
    return "\n".join([verdict.summary, verdict.pattern or "", "never written" if unwritten else "", *phases])


def shown_lines(grade: Grade) -> list[int]:
    """The lines that a verdict names: its own, and the call where that one is in a helper of one instruction."""
    verdict = grade.verdict
    if verdict.line is None:
        return []
    return learners_first(grade.source.text, [verdict.line, *(verdict.finding.callers if verdict.finding else ())])


@READS
@pytest.mark.parametrize("wrong", BY_NAME.values(), ids=BY_NAME)
def test_wrong_kernel_gets_its_verdict(
    wrong: WrongKernel, device: str, causes: int, gap: Callable[[str, str, float], None]
) -> None:
    """And there is a gap between right and wrong: no wrong answer comes close to passing."""
    result = graded(wrong, device, causes)
    verdict, story = result.verdict, explanation(result)
    assert verdict.kind in wrong.expected(device).kinds, story
    if verdict.passed:
        return
    if wrong.marked_lines and (device == "sim" or verdict.kind is Kind.DOES_NOT_COMPILE):
        assert not set(wrong.marked_lines).isdisjoint(shown_lines(result)), story
    is_luck = Kind.PASS in wrong.expected(device).kinds  # which has no smallest shape, and on a GPU no words of its own
    if wrong.sizes and not is_luck:
        assert {name: verdict.sizes.get(name) for name in wrong.sizes} == wrong.sizes, story
    assert (is_luck and device == "gpu") or re.search(wrong.says, said(verdict)), story
    assert len(story.splitlines()) <= SCREEN, story
    assert not re.search(r"Traceback|grader/\w+\.py", story), f"our own innards are shown:\n{story}"
    if verdict.kind is Kind.WRONG_ANSWER and "never written" not in wrong.says:
        gap(wrong.kata.family, "wrong", verdict.error_share)
        assert verdict.error_share >= GAP, story


# -- solutions and skeletons -----------------------------------------------------------------------------------------

UNREACHED = reasons(ROOT)
ON_SIM = pytest.mark.parametrize("device", ["sim"], indirect=True)


@READS
@pytest.mark.parametrize("kata", KATAS.values(), ids=list(KATAS))
def test_solution_passes_with_room(kata: Kata, device: str, gap: Callable[[str, str, float], None]) -> None:
    source, options = solution_of(kata, device)
    result = present(grade(kata, with_jobs(options), source=source))
    assert result.passed, explanation(result)
    gap(kata.family, "right", result.verdict.error_share)
    if result.verdict.coverage is not None and not result.verdict.left_out:
        assert disagreements(kata, result.verdict.coverage, UNREACHED.get(kata.name, {})) == []
    if isinstance(load_spec(kata).tolerance, Accumulated) or (device == "sim" and is_usual_card(kata)):
        assert result.verdict.error_share <= ROOM


# How a launcher learns what card it is on, or needs more of it than every card has; and how blocks wait for each other,
# or are told what others did, so that it matters how many the card runs at the same time.
OF_THE_CARD = re.compile(r"cudaDeviceGet|cudaGetDevice|cudaFunc[GS]et|cudaOccupancy|cudaLaunch|cudaMemGet|cuda\w*Limit")
OF_BLOCKS = (
    "atom.",
    "\tred.",
    " red.",
    "fence.",
    "membar.",
    "griddepcontrol",
    ".volatile",
    ".relaxed",
    ".ac",
    ".release",
)
# Names that depend on the other files of the unit: see grader/compile/unit.py.
OF_THE_UNIT = re.compile(r"unit_[0-9a-f]{16}|(?<=\$L__BB)[0-9]+")


def instructions(ptx: Path) -> str:
    """What stands between the braces of a program's functions, without comments and places in the source. What is only
    declared outside of them depends on the other files of the unit, too."""
    bodies = re.findall(r"^\{\n(.*?)^\}", ptx.read_text().partition("\n\t.section")[0], re.MULTILINE | re.DOTALL)
    lines = [line for body in bodies for line in body.splitlines()]
    return OF_THE_UNIT.sub("", "\n".join(line for line in lines if not line.startswith(("\t//", "\t.loc", "\t.file"))))


def cannot_tell_the_cards_apart(kata: Kata, source: Path, options: Options) -> bool:
    """Whether a file's grade on the card of ``options`` is its grade on the usual one: the same PTX, on the same card,
    or of blocks that do not communicate, launched by code that asks nothing of the card."""
    targets = [Target("sim", arch) for arch in (options.sim_arch, SIM_ARCH)]
    requests = [pipeline._request(kata, source_of(source), target, options) for target in targets]
    built = [item for item in build_all(requests, find_toolchain()) if isinstance(item, Build)]
    program, *others = [instructions(item.ptx) for item in built] or [""]
    if is_usual_card(kata):
        return others == [program]
    of_blocks = any(word in program for word in OF_BLOCKS)
    return others == [program] and not of_blocks and not OF_THE_CARD.search(source.read_text())


def is_usual_card(kata: Kata) -> bool:
    """Whether the oldest card is the usual one: sm_90 and sm_90a are the same H200, for which nvcc may generate other
    instructions."""
    return capability_of(oldest_card(kata)) == capability_of(SIM_ARCH)


ON_EITHER_CARD = {  # why a kata's solution is graded on both
    "elementwise_f32": "",
    "hgemm_sliced_k_f16": "",
    "cluster_reduce_f32": "",
    "wgmma_one_tile_tn_f16": "",
    "warp_reduce_sum_bf16_f32": "other instructions",
    "dot_product_f32": "atomics",
    "softmax_f32_fence": "blocks that wait for each other",
    "flash_attn_mma_stages_split_q": "more shared memory than each card has",
}


@pytest.mark.parametrize(("name", "why"), ON_EITHER_CARD.items())
def test_a_card_is_passed_over_only_where_it_cannot_matter(name: str, why: str) -> None:
    source, options = solution_on_oldest_card(KATAS[name], "sim")
    assert cannot_tell_the_cards_apart(KATAS[name], source, options) is not bool(why)


@READS
@pytest.mark.parametrize("kata", KATAS.values(), ids=list(KATAS))
@ON_SIM
@pytest.mark.usefixtures("few_cases")
def test_solution_passes_on_the_oldest_card(kata: Kata, device: str) -> None:
    """It is graded there unless that would be the same grade again, to the last instruction."""
    source, options = solution_on_oldest_card(kata, device)
    if cannot_tell_the_cards_apart(kata, source, options):
        return
    result = present(grade(kata, with_jobs(options), source=source))
    assert result.passed, explanation(result)
    assert result.verdict.error_share <= ROOM


@READS
@pytest.mark.parametrize("kata", KATAS.values(), ids=list(KATAS))
@ON_SIM
def test_skeleton_compiles_and_does_not_pass(kata: Kata, device: str, causes: int) -> None:
    """A learner's first error is the learner's own. What is graded has its TODO markers blanked."""
    source, options = skeleton_without_marks(kata, device)
    options = looked_into(with_jobs(options), source, causes)
    result = present(grade(kata, options, source=source))
    assert result.verdict.kind is not Kind.DOES_NOT_COMPILE, explanation(result)
    assert not result.passed, "it passes with nothing filled in"


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
