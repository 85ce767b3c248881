"""What the tests of katas grade, and how: every solution, every skeleton, every wrong kernel and every right file of
another kind -> options and builds.

tests/test_wrong_kernels.py and tests/test_right_kernels.py grade them. All that they need is compiled here at once,
many files in one run of nvcc: see grader/compile/unit.py. A test that is run by itself finds the same builds, or makes
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from grader.compile.toolchain import find_gpu
from grader.content import skeleton
from grader.content.catalog import Catalog, Kata, load_catalog
from grader.devices import SIM_ARCH, SIM_ARCHITECTURES
from grader.grade import Planned, prepare_all
from grader.maintain.wrong_kernel import FOLDER, WrongKernel, load, written
from grader.options import Options
from grader.verdict import Kind

RIGHT = Path("tests", "right")  # <kata>/<name>.cu solves a kata in another way than its solution


def as_solution(device: str, arch: str = SIM_ARCH) -> Options:
    """Warnings are errors. ``arch`` is the simulated card's."""
    return Options(
        device=device, speed=False, warnings_are_errors=True, last_failure=False, together=True, sim_arch=arch
    )


def oldest_card(kata: Kata) -> str:
    """The oldest simulated architecture that the kata is for: its solution is graded there, too."""
    return kata.compute if kata.compute in SIM_ARCHITECTURES else SIM_ARCH


def as_skeleton() -> Options:
    return Options(device="sim", last_failure=False, together=True)


def as_wrong(wrong: WrongKernel, device: str) -> Options:
    """The options for a wrong kernel as a whole file. An exploit, which is a file in the repository, is compiled alone.
    So is a file that nvcc or the build refuses, because it would fail the others."""
    together = not is_refused(wrong) and wrong.kata.root not in wrong.path.parents
    return Options(device=device, speed=wrong.timed, last_failure=False, together=together)


def is_refused(wrong: WrongKernel) -> bool:
    """Whether there is to be no build of it: a failure is not kept, so it is left to the grade."""
    return bool({Kind.DOES_NOT_COMPILE, Kind.NOT_ALLOWED} & {*wrong.sim.kinds, *wrong.gpu.kinds})


def bare(kata: Kata, folder: Path) -> Path:
    """The kata's skeleton in a file of ``folder`` with its TODO markers blanked.

    An untouched skeleton is not graded; to a compiler this one is the same, line by line. It is derived from the
    solution: a learner may be at work on the file in exercises/.
    """
    place = folder / f"{kata.name}.cu"
    lines = skeleton.skeleton_of(kata).splitlines()
    place.write_text("\n".join("" if "TODO(" in line else line for line in lines) + "\n")
    return place


def compile_all(root: Path, only: Collection[str] | None, say: Callable[[str], None]) -> None:
    """Compile all, or what belongs to the katas named. What does not compile is left for its test to say.

    Raises a Fault.
    """
    catalog = load_catalog(root)
    katas = [kata for kata in catalog.katas.values() if only is None or kata.name in only]
    with TemporaryDirectory(prefix="kata-builds-") as folder:
        solutions = [(kata, kata.solution_path) for kata in katas]
        wrong = list(_wrong_kernels(catalog, katas, Path(folder)))
        skeletons = [(kata, bare(kata, Path(folder))) for kata in katas]
        right = [(kata, path) for kata in katas for path in sorted((root / RIGHT / kata.name).glob("*.cu"))]
        planned = [Planned([*skeletons, *wrong, *right], (as_skeleton(),))]  # whose options make the same builds
        for arch in sorted({oldest_card(kata) for kata in katas}):
            of_arch = [(kata, path) for kata, path in solutions if oldest_card(kata) == arch]
            planned.append(Planned(of_arch, (as_solution("sim"), as_solution("sim", arch))))
        if find_gpu() is not None:
            planned.append(Planned(solutions, (as_solution("gpu"),)))
            planned.append(Planned(wrong, (replace(as_skeleton(), device="gpu"),)))
        prepare_all(planned, say, jobs=as_skeleton().jobs)


def _wrong_kernels(catalog: Catalog, katas: Collection[Kata], folder: Path) -> Iterator[tuple[Kata, Path]]:
    for wrong in load(catalog, catalog.root / FOLDER):
        if wrong.kata in katas and as_wrong(file := written(wrong, folder), "sim").together:
            yield file.kata, file.path
