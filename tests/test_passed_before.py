"""What passed before -> passes again without a call, unless something that it reads has changed."""

from __future__ import annotations

import os
from pathlib import Path

import passed_before
import pytest
import warm

TESTS = Path(__file__).resolve().parent
CONFTEST = """
import passed_before
def pytest_addoption(parser):
    parser.addoption("--fresh", action="store_true")
def pytest_configure(config):
    config.addinivalue_line("markers", "reads(by)")
    config.pluginmanager.register(passed_before)
    passed_before.SAMPLE = {sample}
    passed_before.CODE = [config.rootpath / "machine"]
"""
OF_NUMBERS = """
import pathlib, pytest
HERE = pathlib.Path(__file__).parent
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.reads(by=lambda item: [(HERE / f"{item.callspec.params['number']}.txt")])
def test_number(number, record_property):
    with open(HERE / "calls", "a") as calls:
        calls.write(f"{number}\\n")
    record_property("square", number * number)
    assert "bad" not in (HERE / f"{number}.txt").read_text()
@pytest.mark.reads(by=lambda item: None)
def test_that_reads_more_than_can_be_named():
    with open(HERE / "calls", "a") as calls:
        calls.write("unnamed\\n")
def test_without_a_mark():
    with open(HERE / "calls", "a") as calls:
        calls.write("unmarked\\n")
"""
ALWAYS = ["unmarked", "unnamed"]


class Project:
    """A folder of tests that keep which of them were called."""

    def __init__(self, folder: Path, sample: int) -> None:
        self.folder = folder
        (folder / "machine").mkdir()
        self.write("machine/grade.py", "1")
        self.write("conftest.py", CONFTEST.format(sample=sample))
        self.write("test_numbers.py", OF_NUMBERS)
        for number in (1, 2, 3):
            self.write(f"{number}.txt", "good")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def run(self, *arguments: str) -> tuple[list[str], str]:
        """Which tests were called, and what pytest said."""
        self.write("calls", "")
        command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA", *arguments)
        done = warm.run(command, cwd=self.folder, env=_environment(self.folder, f"{TESTS}:{TESTS.parent}"))
        return sorted((self.folder / "calls").read_text().split()), done.stdout


def _environment(folder: Path, path: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**kept, "PYTHONPATH": path, "KATA_CACHE": str(folder / "cache")}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, sample=1 << 62)


def test_the_second_run_calls_nothing_that_is_named(project: Project) -> None:
    assert project.run()[0] == ["1", "2", "3", *ALWAYS]
    called, said = project.run()
    assert called == ALWAYS
    assert "5 passed" in said and "3 of 5" in said and "--fresh" in said


def test_a_test_is_called_when_what_it_reads_has_changed(project: Project) -> None:
    project.run()
    project.write("2.txt", "good too")
    assert project.run()[0] == ["2", *ALWAYS]


def test_all_are_called_when_the_machine_has_changed(project: Project) -> None:
    project.run()
    project.write("machine/grade.py", "2")
    assert project.run()[0] == ["1", "2", "3", *ALWAYS]
    project.write("machine/new.py", "")
    assert project.run()[0] == ["1", "2", "3", *ALWAYS]


def test_a_failure_is_never_kept(project: Project) -> None:
    project.write("3.txt", "bad")
    project.run()
    called, said = project.run()
    assert called == ["3", *ALWAYS] and "1 failed" in said
    project.write("3.txt", "good")
    assert project.run()[0] == ["3", *ALWAYS]


def test_fresh_calls_all(project: Project) -> None:
    project.run()
    assert project.run("--fresh")[0] == ["1", "2", "3", *ALWAYS]


def test_a_sample_is_called_again(tmp_path: Path) -> None:
    project = Project(tmp_path, sample=1)
    project.run()
    assert project.run()[0] == ["1", "2", "3", *ALWAYS]


def test_what_a_test_noted_is_noted_again(project: Project) -> None:
    def noted(*arguments: str) -> list[str]:
        place = project.folder / "report.xml"
        project.run(f"--junit-xml={place}", "-o", "junit_family=xunit1", *arguments)
        return [
            line.split('value="')[1].split('"')[0] for line in place.read_text().split("<") if 'name="square"' in line
        ]

    assert noted() == noted() == ["1", "4", "9"]


def test_only_what_was_used_lately_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KATA_CACHE", str(tmp_path))
    old, new = passed_before.place_of("0123"), passed_before.place_of("4567")
    for file in (old, new):
        file.parent.mkdir(parents=True)
        file.write_text("[]")
    os.utime(old, (0, 0))
    passed_before.sweep()
    assert not old.exists() and new.exists()
