"""pytest and `kata grade` give the same verdict, on every kata, solution and wrong kernel.

Both call one function. So it is enough that for every kata, whatever is asked, the same arguments reach it; that is
shown for all of them, with a grade() that only writes down how it is called. What it returns is then shown by both
alike: that is tried on one real grade for each kind of verdict.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from test_faces import make_clone, pytest_run, run
from test_wrong_kernels import BY_NAME, OTHER_KINDS, WRONG, WrongKernel

from grader import grade as pipeline
from grader import pytest_plugin
from grader.commands import grade as command
from grader.compile.toolchain import find_gpu
from grader.content.catalog import load_catalog
from grader.grade import Options, prepare
from grader.maintain.kata_builds import is_refused
from grader.verdict import Kind

ROOT = Path(__file__).resolve().parent.parent
KATAS = load_catalog(ROOT).katas

RECORDER = """
import json, os, sys
from dataclasses import asdict

from grader import cli, grade as pipeline, pytest_plugin
from grader.commands import grade as command
from grader.content.source_file import source_of
from grader.verdict import Grade, Kind, Verdict

def write(what, options, *files):
    with open(os.environ["RECORD"], "a") as file:
        file.write(json.dumps([what, asdict(options), *[[kata.name, str(source)] for kata, source in files]]) + "\\\\n")

def grade(kata, options, *, source=None, tell=None):
    write("grade", options, (kata, source))
    return Grade(kata, source_of(source), (Verdict(Kind.PASS, "right", device="sim sm_90a", cases=1),))

def prepare(work, options, tell=None):
    write("prepare", options, *work)

pipeline.grade = grade
for face in (command, pytest_plugin):
    face.prepare = prepare

if __name__ == "__main__":
    sys.exit(cli.main(sys.argv[1:]))
""".replace("\\\\n", "\\n")

KEEPER = """
import os, pickle, sys
from dataclasses import replace
from pathlib import Path

from grader import cli, grade as pipeline, pytest_plugin
from grader.commands import grade as command
from grader.judge import cause

real = pipeline.grade
cause.repair = lambda *_, **__: ()  # one clue fewer, the one that takes the most calls
refused = os.environ["REFUSED"].split()  # katas whose files have no build

def grade(kata, options, *, source=None, tell=None):
    place = Path(os.environ["KEPT"], kata.name)
    if not place.exists():  # the builds are those of `compiled`, and of test_wrong_kernels.py
        asked = replace(options, together=kata.name not in refused)
        place.write_bytes(pickle.dumps(real(kata, asked, source=source, tell=tell)))
    return pickle.loads(place.read_bytes())

pipeline.grade = grade
for face in (command, pytest_plugin):
    face.prepare = lambda work, options, tell=None: None

if __name__ == "__main__":
    sys.exit(cli.main(sys.argv[1:]))
"""

SAME = ("--solutions", "--thorough", "--counters", "--no-speed")
ASKED: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # what: (as pytest is asked, as kata grade is)
    "everything": (("exercises",), ("*",)),
    "a family": (("exercises/sgemm",), ("sgemm",)),
    "a level": (("exercises", "-m", "medium"), ("medium",)),
    "a file": (("exercises/relu/relu_f32.cu",), ("exercises/relu/relu_f32.cu",)),
    # An option is the same for every kata: one family for each, and then all katas with all of them.
    "a device": (("exercises/warp_reduce", "--device", "gpu"), ("warp_reduce", "--device", "gpu")),
    "a card": (
        ("exercises/warp_reduce", "--device", "sim", "--sim-arch", "sm_80"),
        ("warp_reduce", "--device", "sim", "--sim-arch", "sm_80"),
    ),
    "a seed": (("exercises/warp_reduce", "--kata-seed", "7"), ("warp_reduce", "--seed", "7")),
    **{flag: (("exercises/warp_reduce", flag), ("warp_reduce", flag)) for flag in SAME},
    "all of it": (("exercises", "--kata-seed", "3", *SAME), ("--seed", "3", *SAME)),
}


def test_both_faces_call_the_one_grade() -> None:
    assert pytest_plugin.in_order is command.in_order is pipeline.in_order
    assert pytest_plugin.prepare is command.prepare is pipeline.prepare


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("recorder") / "recorder.py"
    place.write_text(RECORDER)
    return place


@pytest.mark.parametrize("asked", ASKED)
def test_the_same_arguments_reach_it(asked: str, recorder: Path, tmp_path: Path) -> None:
    by_pytest, by_kata = ASKED[asked]
    paths = f"{ROOT}{os.pathsep}{recorder.parent}"
    environment = {"PYTHONPATH": paths, "RECORD": str(tmp_path / "pytest")}
    done = pytest_run(ROOT, *by_pytest, "-q", "-p", "recorder", "-p", "no:xdist", **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(ROOT, "-m", "recorder", "grade", *by_kata, PYTHONPATH=paths, RECORD=str(tmp_path / "kata"))
    assert done.returncode == 0, done.stdout + done.stderr
    one, other = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()] for name in ("pytest", "kata")
    )
    if find_gpu() is not None:  # some are at work at a time there: what reached them is the same, in any order
        one, other = (sorted(each, key=json.dumps) for each in (one, other))
    assert one == other
    graded = [name for what, _, (name, _), *_ in one if what == "grade"]
    graded = sorted(graded, key=[*KATAS].index) if find_gpu() is not None else graded
    assert graded == [name for name in KATAS if name in graded] and len(graded) >= 1
    if by_pytest[0] == "exercises" and "-m" not in by_pytest:
        assert graded == list(KATAS)


def test_a_file_from_elsewhere_is_graded_as_one_in_its_place(recorder: Path, tmp_path: Path) -> None:
    """So are the wrong kernels: their tests call grade() with the file, as --file does."""
    place, kata = tmp_path / "record", KATAS["relu_f32"]
    for arguments in ((), ("--file", str(WRONG[0].path))):
        paths = f"{ROOT}{os.pathsep}{recorder.parent}"
        run(ROOT, "-m", "recorder", "grade", kata.name, *arguments, PYTHONPATH=paths, RECORD=str(place))
    (_, one, own), (_, other, given) = (json.loads(line) for line in place.read_text().splitlines())
    assert one == other and own == [kata.name, str(kata.skeleton_path)] and given == [kata.name, str(WRONG[0].path)]


def test_every_option_of_a_grade_is_among_those_asked() -> None:
    """A new option of either face comes here, or is for that face alone."""
    of_kata = set(
        re.findall(r"--[a-z-]+", run(ROOT, "-m", "grader", "grade", "--help").stdout.partition("for classes")[0])
    )
    plugin = re.findall(r'addoption\(\s*"(--[a-z-]+)"', (ROOT / "grader" / "pytest_plugin.py").read_text())
    known = {word for pair in ASKED.values() for words in pair for word in words if word.startswith("--")}
    of_classes = {"--submission", "--submissions", "--results", "--csv", "--jobs", "--time-limit"}
    of_classes |= {"--grades", "--roster", "--assignment"}
    how_it_is_said = {"--help", "--json", "--time", "--explain"}
    assert of_kata - of_classes - how_it_is_said - {"--file"} <= known  # --file is graded below
    assert set(plugin) <= known


# -- one grade, shown by both ------------------------------------------------------------------------------------------


def rounds() -> list[dict[str, WrongKernel]]:
    """For each kind of verdict a file that gets it for sure; in each round all are of different katas."""
    found: list[dict[str, WrongKernel]] = []
    files = [wrong for wrong in BY_NAME.values() if not wrong.kata.libraries]
    # A time-out first: it then gets the first kata's, which counts instructions. Others wait for a limit of seconds.
    for kind in sorted(set(Kind) - OTHER_KINDS, key=lambda kind: (kind is not Kind.TIME_OUT, kind)):
        certain = [wrong for wrong in files if wrong.expected("sim").kinds == (kind,)]
        assert certain, f"no wrong kernel is sure of {kind}"
        order = list(KATAS)
        certain.sort(key=lambda wrong: (order.index(wrong.kata.name), wrong.path.stem))
        places = ((taken, wrong) for taken in [*found, {}] for wrong in certain if wrong.kata.name not in taken)
        taken, wrong = next(places)
        if not taken:
            found.append(taken)
        taken[wrong.kata.name] = wrong
    return found


def test_the_rounds_have_every_kind() -> None:
    kinds = [wrong.expected("sim").kinds[0] for taken in rounds() for wrong in taken.values()]
    assert sorted(kinds) == sorted(set(Kind) - OTHER_KINDS)


def stories(said: str, names: list[str]) -> dict[str, str]:
    """What `kata grade` says of each kata."""
    parts = re.split(rf"^(?=(?:{'|'.join(names)})(?::|  ))", said.rpartition("\n")[0], flags=re.MULTILINE)[1:]
    return {re.split(r":|  ", part)[0]: re.sub(r"\n\d+ of \d+ passed$", "", part).strip() for part in parts}


@pytest.fixture(scope="module")
def compiled() -> None:
    """All that is graded below, many files in one run of nvcc."""
    files = [(file.kata, file.path) for taken in rounds() for file in taken.values() if not is_refused(file)]
    files += [(KATAS[name], KATAS[name].solution_path) for name in OTHERS[:1]]
    prepare(files, Options(device="sim", together=True))


OTHERS = ("relu_f32", "relu_f16", "relu_f32x4")  # of which one is solved and one untouched


@pytest.mark.parametrize("wrong", rounds(), ids=lambda taken: "+".join(taken))
def test_verdicts_are_shown_alike(wrong: dict[str, WrongKernel], compiled: None, tmp_path: Path) -> None:
    clone = make_clone(tmp_path)
    katas = load_catalog(clone).katas
    solved, untouched = [name for name in OTHERS if name not in wrong][:2]
    katas[solved].skeleton_path.write_bytes(katas[solved].solution_path.read_bytes())
    for name, file in wrong.items():
        katas[name].skeleton_path.write_bytes(file.path.read_bytes())
    names = [solved, untouched, *wrong]
    files = [str(katas[name].skeleton_path) for name in names]
    kept = tmp_path / "kept"
    kept.mkdir()
    (tmp_path / "keeper.py").write_text(KEEPER)
    refused = [name for name, file in wrong.items() if is_refused(file)]
    environment = {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}",
        "KEPT": str(kept),
        "REFUSED": " ".join(refused),
    }
    by_pytest = pytest_run(clone, *files, "--device", "sim", "-p", "keeper", "-p", "no:xdist", **environment)
    assert sorted(names) == sorted(path.name for path in kept.iterdir())
    by_kata = run(clone, "-m", "keeper", "grade", *names, "--device", "sim", **environment)
    assert by_pytest.returncode == by_kata.returncode == 1
    shown = stories(by_kata.stdout, names)
    assert set(shown) == set(names), by_kata.stdout
    for name, file in wrong.items():
        assert shown[name].startswith(f"{name}: {file.expected('sim').kinds[0]}: "), shown[name]
        assert shown[name] in by_pytest.stdout, f"pytest says otherwise:\n{by_pytest.stdout}"
    assert (
        re.fullmatch(rf"{untouched}: not started: \d TODOs?", shown[untouched]) and shown[untouched] in by_pytest.stdout
    )
    assert "pass on sim" in shown[solved] and "1 passed" in by_pytest.stdout
