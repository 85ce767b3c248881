"""Completion, by the shells themselves: what Tab gives for a line that is typed so far."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from patience import PATIENCE_S
from test_faces import ROOT, run

from grader.content.catalog import load_catalog

CATALOG = load_catalog(ROOT)

BASH = """\
source {script}
line={line}
COMP_WORDS=($line)
[ "${{line% }}" != "$line" ] && COMP_WORDS+=("")
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_kata
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        done = run(ROOT, "-m", "grader", "completion", shell)
        assert done.returncode == 0, done.stderr
        (folder / shell).write_text(done.stdout)
    return folder


def bash(scripts: Path, line: str) -> list[str]:
    text = BASH.format(script=scripts / "bash", line=f"'{line}'")
    done = subprocess.run(["bash", "--norc", "-c", text], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stderr == ""
    return done.stdout.split()


def fish(scripts: Path, line: str) -> list[str]:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    text = f"source {scripts / 'fish'}; complete -C '{line}'"
    done = subprocess.run(["fish", "--no-config", "-c", text], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stderr == ""
    return [row.split("\t")[0] for row in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", [bash, fish])
def test_commands_options_values_and_katas(scripts: Path, shell: object) -> None:
    def tab(line: str) -> list[str]:
        return shell(scripts, line)  # type: ignore[operator, no-any-return]

    assert {"list", "next", "grade", "watch", "doctor", "completion"} <= set(tab("kata "))
    assert tab("kata wat") == ["watch"]
    assert tab("kata grade elementwise_f32x") == ["elementwise_f32x4"]
    assert set(tab("kata grade softm")) >= {"softmax", "softmax_f32"}
    assert set(tab("kata list har")) >= {"hard", "hard+", "hard++", "hardswish"}
    assert set(tab("kata list --level ha")) == {"hard", "hard+", "hard++"}
    assert "not-started" in tab("kata list --state n")
    assert tab("kata list --family elem") == ["elementwise"]
    assert {"--solutions", "--thorough", "--json"} <= set(tab("kata grade --"))
    assert tab("kata bench --dev") == []  # of another command
    assert set(tab("kata dev ")) >= {"check", "skeletons"} and "elementwise_f32" not in tab("kata dev ")
    assert set(tab("kata show ")) >= set(CATALOG.katas)
    assert set(tab("kata hint relu_f32 ")) >= {"1", "2", "3"}
    assert sorted(tab("kata next --track in")) == ["inference", "interview"]
    assert "kernels" in tab("kata status --track ")
    assert {"1", "3"} <= set(tab("kata try hgemm_mma_m16n8k16_naive ")) and "1" not in tab("kata try relu_f32 ")


def test_where_nothing_fits_bash_offers_files(scripts: Path, tmp_path: Path) -> None:
    assert bash(scripts, "kata grade --file ") == []
    registered = subprocess.run(
        ["bash", "--norc", "-c", f"source {scripts / 'bash'}; complete -p kata"], capture_output=True, text=True
    )
    assert registered.stdout.split() == ["complete", "-o", "bashdefault", "-o", "default", "-F", "_kata", "kata"]


_SHOW = "PS1='REA''DY> '; kata() { echo \"<$*>\"; }"  # what a completed line is called with


def test_bash_in_a_terminal(scripts: Path) -> None:
    pexpect = pytest.importorskip("pexpect", reason="`pip install -e .[dev]`")
    child = pexpect.spawn("bash", ["--norc"], encoding="utf-8", dimensions=(50, 200), timeout=PATIENCE_S)
    child.sendline(f"bind 'set enable-bracketed-paste off'; source {scripts / 'bash'}; {_SHOW}")
    child.expect("READY> ")
    child.sendline("kata gr\telementwise_f32x\t--thor\t")
    child.expect("<grade elementwise_f32x4 --thorough>")
    child.close(force=True)


def test_zsh_in_a_terminal(scripts: Path) -> None:
    pexpect = pytest.importorskip("pexpect", reason="`pip install -e .[dev]`")
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    child = pexpect.spawn("zsh", ["-f", "-i"], encoding="utf-8", dimensions=(50, 200), timeout=PATIENCE_S)
    child.sendline(f"unset zle_bracketed_paste; source {scripts / 'zsh'}; {_SHOW}")
    child.expect("READY> ")
    child.send("kata wat\telementwise_f32x\t--no-sp\t\r")
    child.expect("<watch elementwise_f32x4 --no-speed>")
    child.close(force=True)


def test_another_shell_is_refused() -> None:
    done = run(ROOT, "-m", "grader", "completion", "tcsh")
    assert done.returncode == 2 and "bash" in done.stderr
