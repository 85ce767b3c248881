"""docs/voice.md as a check: what it finds in each kind of file, and how many places a file may have."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from facts import has

from grader import cli
from grader.maintain import checks, prose, voice

ROOT = Path(__file__).resolve().parent.parent
LONG = " ".join(["word"] * voice.LONGEST_SENTENCE)
WIDE = "x" * voice.WIDEST_LINE


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A repository with nothing in it to find."""
    for folder in ("docs", "exercises/waves", "solutions/waves", "grader"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / voice.WORDS, tmp_path / voice.WORDS)
    for name in ("README.md", "difficulty.yaml", voice.ALLOWED):
        (tmp_path / name).write_text("")
    return tmp_path


def found(root: Path, name: str, text: str) -> list[tuple[int, str]]:
    """(line, words) of each place in a file with this text."""
    (root / name).write_text(text)
    return [(place.line, place.words) for place in voice.places(root, [root / name])]


def test_each_entry_finds_words_that_it_names() -> None:
    """An entry whose expression matches nothing in its own cell of the table would look for something else."""
    samples = {
        "is no X": "it is no barrier",
        "Of X: Y; Of a pass what ...": "Of a pass what was printed.",
        "a thread an element, four rows a block": "a thread an element",
        "not unlike, not without, never without": "not unlike",
        "to be had, be had": "can be had",
        "begin (noun), whereabouts": "from the begin on",
        "turn of the loop, each turn, every turn": "a turn of the loop",
        "shrink (a softmax's sum)": "shrinks",
        "waves of shared memory": "waves of shared memory",
        "cuda, Cuda": "Cuda",
        "cuda core": "CUDA Core",
        "behind (for time)": "behind the barrier",
        "beside (for besides)": "beside the loads",
    }
    known = voice.tics(ROOT)
    assert samples.keys() <= {tic.avoid for tic in known}
    for tic in known:
        assert tic.find.search(samples.get(tic.avoid, tic.avoid)), tic.avoid
        assert not tic.find.search(tic.write), tic.avoid


@pytest.mark.parametrize(
    "right",
    [
        "There is no barrier, and it is no longer needed.",
        "It is no faster than that, of course. Of course not.",
        "The blockade and the commander amend it.",
    ],
)
def test_plain_words_are_not_found(small: Path, right: str) -> None:
    assert found(small, "docs/a.md", right) == []


def test_markdown(small: Path) -> None:
    text = f"""# whoever
A line, and
it is
no barrier.

```
nobody {WIDE}
```
`nobody` and [nobody](nobody.md)
| nobody | {WIDE} |
* first item: {LONG} end.
* a second `nobody
  is` {WIDE}

<!-- words: written by `kata dev tables` -->
nobody
<!-- end -->
<!-- quoted: words to avoid -->
nobody
<!-- end -->
last: nobody
"""
    assert found(small, "exercises/waves/README.md", text) == [
        (1, "whoever"),
        (3, "is no barrier"),
        (9, "nobody"),
        (10, "nobody"),
        (11, "* first item: word ..."),
        (11, f"a line of more than {voice.WIDEST_LINE} columns"),
        (13, f"a line of more than {voice.WIDEST_LINE} columns"),
        (21, "nobody"),
    ]


def test_a_sentence_may_have_so_many_words_and_no_more(small: Path) -> None:
    lines = LONG.replace("word word word word ", "word word word word\n")
    assert found(small, "docs/a.md", f"A start, e.g. this.\n{lines}.\n{lines}!") == []
    assert found(small, "docs/a.md", f"A start.\n{lines} e.g. this.\n") == [(2, "word word word word ...")]


def test_python(small: Path) -> None:
    text = '''"""It is
no wall."""
nobody = f"{x} whoever" "is " \\
    "as good"
    # it is
    # no use
y = ("as "  # mend
     "good as")
'''
    places = found(small, "grader/a.py", text)
    assert places == [(1, "is no wall"), (3, "whoever"), (5, "is no use"), (7, "mend")]
    assert found(small, "grader/a.py", 'x = ("as "\n     "good as")\n') == [(1, "as good as")]


def test_a_solution_and_the_engine(small: Path) -> None:
    text = f"""// relu: it is
// no barrier
int nobody = 1;  // mend
/* whoever */
const char* said = "anew " "nobody";
// {WIDE}
"""
    places = found(small, "solutions/waves/a.cu", text)
    wide = (6, f"a line of more than {voice.WIDEST_LINE} columns")
    assert places == [(1, "is no barrier"), (3, "mend"), (4, "whoever"), (5, "anew"), (5, "nobody"), wide]


def test_yaml(small: Path) -> None:
    text = "# alike\nmend_f32:\n  - It is\n    no barrier.\n  - 'Of a pass, the words'\n"
    assert found(small, "exercises/waves/hints.yaml", text) == [(1, "alike"), (3, "is no barrier"), (5, "Of ")]


def test_words_for_lessons_are_not_looked_for_elsewhere(small: Path) -> None:
    assert found(small, "exercises/waves/README.md", "shrink") and not found(small, "docs/a.md", "shrink")


def test_a_variable_named_shrink_is_not_the_word(small: Path) -> None:
    variable = "// O = shrink * O with `shrink`, where shrink = 2^x: f(x, shrink), shrink[i]\n"
    assert not found(small, "solutions/waves/a.cu", variable)
    assert found(small, "solutions/waves/a.cu", "// the sum may shrink by it\n")


def test_a_skeleton_and_the_lists_of_words_are_not_looked_at(small: Path) -> None:
    for name in ("exercises/waves/a.cu", "solutions/waves/a.cu"):
        (small / name).write_text("// nobody\n")
    names = {path.relative_to(small).as_posix() for path in prose.files(small)}
    assert names == {"README.md", "difficulty.yaml", "solutions/waves/a.cu"}


def test_a_place_too_many_is_found_and_one_less_must_be_written_down(small: Path) -> None:
    (small / "README.md").write_text("Nobody waits.\n\nMend it.\n")
    (small / voice.ALLOWED).write_text("README.md: 1\n")
    head, *listed = checks.check_voice(small)
    assert has(head, "README.md", "2 places", "1 are allowed")
    assert [re.match(r"README.md:(\d+): '(\w+)': ", line) is not None for line in listed] == [True, True]
    assert has(listed[1], "README.md:3", "'Mend'", "fix")
    (small / "README.md").write_text("No block waits. Fix it.\n")
    (problem,) = checks.check_voice(small)
    assert has(problem, str(voice.ALLOWED), "README.md", "--lower")
    assert voice.lower(small) == {} and checks.check_voice(small) == []


def test_lowering_never_allows_more(small: Path) -> None:
    (small / "README.md").write_text("Nobody waits. Mend it.\n")
    (small / "docs" / "a.md").write_text("Whoever waits.\n")
    (small / voice.ALLOWED).write_text("README.md: 1\ndocs/gone.md: 3\n")
    assert voice.lower(small) == {"README.md": 1}
    (small / voice.ALLOWED).unlink()
    assert voice.lower(small) == {"README.md": 2, "docs/a.md": 1}


def test_a_broken_expression_names_its_line(small: Path) -> None:
    (small / voice.WORDS).write_text("- avoid: this\n  find: '(['\n  write: that\n")
    (problem,) = checks.check_voice(small)
    assert has(problem, f"{voice.WORDS}:2", "regular expression")


def test_the_command_lists_the_places_of_a_file(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (small / "README.md").write_text("Nobody waits.\n")
    monkeypatch.setattr("grader.maintain.command.find_root", lambda: small)
    assert cli.main(["dev", "voice", str(small / "README.md")]) == 1
    assert has(capsys.readouterr().out, "README.md:1", "'Nobody'", "1 places in 1 files")
    assert cli.main(["dev", "voice", str(small / "docs")]) == 0
