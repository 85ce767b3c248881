"""Every way in which difficulty.yaml or the folders can be wrong gives one error with file, kata, field and fix."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from cost import cheapest_cpu_s
from facts import all_of, has

from grader.content import yaml_text
from grader.content.catalog import Catalog, CatalogError, Kata, Threshold, _listed, find_root, load_catalog

GOOD = """\
relu:
  about: the first ladder
  relu_f32:
    level: easy
    elem: f32
  relu_f32x4:
    level: easy
    elem: f32
    requires: [relu_f32]
hgemm:
  about: "Tensor Cores: fragments"
  hgemm_naive_f16:
    level: hard+
    elem: f16
    acc: f32
    requires: [relu_f32x4, relu_f32]
    compute: sm_90
    role: drill
    multiples: {K: 8}
    origin: extra
    libraries: [cutlass]
    speed:
      baseline: torch.mm
      shapes: [{M: 4096, N: 4096, K: 64}]
      percent: {sm_90: {value: 45, measured: true}, sm_80: {value: 85.5, measured: false}}
"""
NAMES = {"relu": ["relu_f32", "relu_f32x4"], "hgemm": ["hgemm_naive_f16"]}


def make(root: Path, text: str = GOOD, names: dict[str, list[str]] | None = None) -> Path:
    """A collection of katas with the given difficulty.yaml and the files that NAMES, or ``names``, ask for."""
    for family, katas in (names or NAMES).items():
        for folder in ("exercises", "solutions"):
            (root / folder / family).mkdir(parents=True, exist_ok=True)
            for kata in katas:
                (root / folder / family / f"{kata}.cu").write_text("// a kata\n")
        (root / "exercises" / family / f"test_{family}.py").write_text("SPEC = None\n")
    (root / "difficulty.yaml").write_text(text)
    return root


def names(katas: Iterable[Kata]) -> list[str]:
    return [kata.name for kata in katas]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return load_catalog(make(tmp_path))


def test_every_field_is_read(catalog: Catalog, tmp_path: Path) -> None:
    kata = catalog.katas["hgemm_naive_f16"]
    assert (kata.family, kata.level, kata.elem, kata.acc) == ("hgemm", "hard+", "f16", "f32")
    assert kata.requires == ("relu_f32x4", "relu_f32")
    assert (kata.compute, kata.capability, kata.role, kata.origin) == ("sm_90", (9, 0), "drill", "extra")
    assert kata.multiples == {"K": 8}
    assert kata.libraries == ("cutlass",)
    assert kata.speed is not None and kata.speed.baseline == "torch.mm"
    assert kata.speed.shapes == ({"M": 4096, "N": 4096, "K": 64},)
    assert kata.speed.percent == {"sm_90": Threshold(45.0, True), "sm_80": Threshold(85.5, False)}
    assert kata.skeleton_path == tmp_path / "exercises/hgemm/hgemm_naive_f16.cu"
    assert kata.solution_path == tmp_path / "solutions/hgemm/hgemm_naive_f16.cu"
    assert kata.spec_path == tmp_path / "exercises/hgemm/test_hgemm.py"
    assert kata.lesson_path == tmp_path / "exercises/hgemm/README.md"


def test_defaults_and_order(catalog: Catalog) -> None:
    kata = catalog.katas["relu_f32"]
    assert (kata.acc, kata.requires, kata.compute, kata.role, kata.origin) == (None, (), "sm_75", "core", "public")
    assert kata.multiples == {} and kata.speed is None and kata.libraries == ()
    assert list(catalog.katas) == ["relu_f32", "relu_f32x4", "hgemm_naive_f16"]
    assert catalog.families == ("relu", "hgemm")
    assert names(catalog.by_family["relu"]) == ["relu_f32", "relu_f32x4"]
    assert catalog.about == {"relu": "the first ladder", "hgemm": "Tensor Cores: fragments"}


@pytest.mark.parametrize(
    ("compute", "runs", "does_not"),
    [
        ("sm_90", ["sm_90", "sm_90a", "sm_100a"], ["sm_89", "sm_75"]),
        ("sm_90a", ["sm_90a"], ["sm_89", "sm_90", "sm_100a"]),
    ],
)
def test_cards_that_a_kata_runs_on(tmp_path: Path, compute: str, runs: list[str], does_not: list[str]) -> None:
    """sm_90a has instructions that newer architectures do not have."""
    kata = load_catalog(make(tmp_path, GOOD.replace("compute: sm_90", f"compute: {compute}"))).katas["hgemm_naive_f16"]
    assert kata.capability == (9, 0)
    assert all(kata.runs_on(arch) for arch in runs) and not any(kata.runs_on(arch) for arch in does_not)


def test_a_kata_can_go_into_a_set_and_to_another_process(catalog: Catalog) -> None:
    assert len(set(catalog.katas.values())) == 3
    kata = catalog.katas["hgemm_naive_f16"]
    assert pickle.loads(pickle.dumps(kata)) == kata


BAD = {
    # case: (text to replace, by what, line, parts of the message)
    "unknown level": ("level: hard+", "level: hrad", 13, ["kata hgemm_naive_f16: level:", "'hrad'", "easy, medium"]),
    "unknown elem": ("elem: f16", "elem: fp16", 14, ["kata hgemm_naive_f16: elem:", "f16"]),
    "unknown acc": ("acc: f32", "acc: float", 15, ["acc:", "'float'", "f32"]),
    "unknown compute": ("compute: sm_90", "compute: sm_91", 17, ["compute:", "'sm_91'", "sm_90"]),
    "unknown role": ("role: drill", "role: dril", 18, ["role:", "drill"]),
    "unknown origin": ("origin: extra", "origin: other", 20, ["origin:", "'other'", "public, extra"]),
    "unknown library": ("[cutlass]", "[cudnn]", 21, ["libraries:", "'cudnn'", "cublas, cutlass"]),
    "libraries is no list": ("[cutlass]", "cutlass", 21, ["libraries:", "list"]),
    "unknown field": ("compute:", "compte:", 17, ["kata hgemm_naive_f16: compte:", "unknown", "compute"]),
    "unknown field of speed": ("baseline: torch", "base: torch", 23, ["speed: base:", "unknown", "baseline"]),
    "missing level": ("    level: hard+\n", "", 13, ["kata hgemm_naive_f16: level:", "missing", "`level: ...`"]),
    "missing elem": ("    elem: f16\n", "", 13, ["kata hgemm_naive_f16: elem:", "missing"]),
    "missing measured": ("value: 45, measured: true", "value: 45", 25, ["percent: sm_90: measured:", "missing"]),
    "level of a wrong type": ("level: hard+", "level: 3", 13, ["level:", "'3'", "easy"]),
    "level without a value": ("level: hard+", "level:", 13, ["level:", "nothing"]),
    "requires is no list": (
        "requires: [relu_f32]",
        "requires: relu_f32",
        9,
        ["relu_f32x4: requires:", "list", "[...]"],
    ),
    "requires holds a number": ("requires: [relu_f32]", "requires: [3]", 9, ["requires:", "kata's name", "'3'"]),
    "multiples is no mapping": ("{K: 8}", "8", 19, ["multiples:", "`key: value`", "'8'"]),
    "multiple of zero": ("{K: 8}", "{K: 0}", 19, ["multiples: K:", "0", "small"]),
    "multiple is true": ("{K: 8}", "{K: true}", 19, ["multiples: K:", "whole number"]),
    "multiple is a fraction": ("{K: 8}", "{K: 1.5}", 19, ["multiples: K:", "whole number", "'1.5'"]),
    "kata is no mapping": ("    level: easy\n    elem: f32\n  relu", "    easy\n  relu", 4, ["relu_f32:", "`key"]),
    "percent of zero": ("value: 45", "value: 0", 25, ["percent: sm_90: value:", "0 percent", "(0, 300]"]),
    "percent above 300": ("value: 45", "value: 300.1", 25, ["300.1 percent", "(0, 300]"]),
    "percent is nan": ("value: 45", "value: .nan", 25, ["value:", "nan", "(0, 300]"]),
    "percent of an unknown architecture": ("{sm_90: {", "{sm_9: {", 25, ["percent: sm_9:", "unknown", "sm_90"]),
    "measured is no flag": ("measured: true", "measured: perhaps", 25, ["measured:", "true", "false"]),
    "no shapes": ("[{M: 4096, N: 4096, K: 64}]", "[]", 24, ["speed: shapes:", "empty"]),
    "kata twice in a family": ("relu_f32x4:", "relu_f32:", 6, ["relu:", "'relu_f32'", "twice", "line 3"]),
    "kata in two families": ("hgemm_naive_f16:", "relu_f32:", 12, ["kata relu_f32:", "twice", "line 3"]),
    "family twice": ("hgemm:\n", "relu:\n", 10, ["'relu'", "twice", "line 1"]),
    "field twice": ("acc: f32", "elem: f32", 15, ["kata hgemm_naive_f16:", "'elem'", "twice", "line 14"]),
    "kata no identifier": ("relu_f32x4:", "relu-f32x4:", 6, ["kata relu-f32x4:", "identifier"]),
    "kata name begins with a digit": ("relu_f32x4:", "4relu:", 6, ["kata 4relu:", "identifier"]),
    "kata name is a number": ("relu_f32x4:", "12:", 6, ["family relu:", "name", "'12'"]),
    "family no identifier": ("hgemm:\n", "h/gemm:\n", 10, ["family h/gemm:", "identifier"]),
    "after names nothing": ("[relu_f32]", "[relu_f33]", 9, ["relu_f32x4: requires:", "'relu_f33'", "relu_f32"]),
    "broken yaml": ("acc: f32", "acc: [f32", 16, ["YAML"]),
    "tab for indentation": ("    acc: f32", "\tacc: f32", 15, ["YAML"]),
    "unknown tag": ("acc: f32", "acc: !python f32", 15, ["acc:", "f32"]),
    "impossible date": ("acc: f32", "acc: 2001-99-99", 15, ["acc:", "f32"]),
    "about is missing": ("  about: the first ladder\n", "", 1, ["family relu: about:", "missing", "`about:"]),
    "about is empty": ("about: the first ladder", 'about: ""', 2, ["family relu: about:", "empty", "one line"]),
    "about without a value": ("about: the first ladder", "about:", 2, ["family relu: about:", "nothing"]),
    "about of two lines": ("about: the first ladder", 'about: "a\\nb"', 2, ["relu: about:", "one line"]),
    "about is a kata": ("about: the first ladder", "about: {level: easy}", 2, ["relu: about:", "a mapping"]),
    "about twice": ("relu_f32x4:", "about:", 6, ["family relu:", "'about'", "twice", "line 2"]),
    "a family without katas": ("hgemm:\n", "empty: {about: a}\nhgemm:\n", 10, ["family empty:", "no kata"]),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_difficulty_yaml(case: str, tmp_path: Path) -> None:
    old, new, line, parts = BAD[case]
    assert GOOD.count(old) == 1, "the case must change exactly one place"
    make(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(CatalogError) as caught:
        load_catalog(tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'difficulty.yaml'}:{line}: "), message
    assert has(message, *parts)
    assert message.endswith(".") and "\n" not in message, message


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (b"", ["empty"]),
        (b"# nothing but a comment\n", ["empty"]),
        (b"- a\n- b\n", ["`key: value`", "a list"]),
        (b"relu:\n", ["family relu:", "`key: value`", "nothing"]),
        (b"\xff\xfe\x00\x01", ["UTF-8"]),
        (b"a\x00b: c\n", ["YAML"]),
        (b"a: &a {about: x, b: *a}\n", ["kata b: about:", "unknown"]),
        (b"a: {about: x, b: &b [*b]}\n", ["kata b:", "`key: value`"]),
        (b"a: {about: x, b: {level: &l [*l]}}\n", ["level:", "easy"]),
    ],
)
def test_files_that_are_no_catalog(data: bytes, parts: list[str], tmp_path: Path) -> None:
    (tmp_path / "difficulty.yaml").write_bytes(data)
    with pytest.raises(CatalogError) as caught:
        load_catalog(tmp_path)
    assert has(str(caught.value), *parts)
    assert str(tmp_path / "difficulty.yaml") in str(caught.value)


def test_absent_difficulty_yaml(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=all_of("difficulty.yaml")):
        load_catalog(tmp_path)


@pytest.mark.parametrize(
    ("path", "fix"),
    [
        ("exercises/relu/relu_f32x4.cu", "kata reset relu_f32x4"),
        ("solutions/relu/relu_f32x4.cu", "entry"),
        ("exercises/hgemm/test_hgemm.py", "SPEC"),
    ],
)
def test_a_missing_file(path: str, fix: str, tmp_path: Path) -> None:
    (make(tmp_path) / path).unlink()
    with pytest.raises(CatalogError) as caught:
        load_catalog(tmp_path)
    assert has(str(caught.value), path, "missing", fix, "kata ")
    assert "difficulty.yaml:" in str(caught.value)


def test_skeletons_may_be_absent_for_the_commands_that_write_them(tmp_path: Path) -> None:
    shutil.rmtree(make(tmp_path) / "solutions" / "hgemm")
    for skeleton in (tmp_path / "exercises" / "relu").glob("*.cu"):
        skeleton.unlink()
    with pytest.raises(CatalogError, match=all_of("solutions/hgemm/hgemm_naive_f16.cu", "missing")):
        load_catalog(tmp_path, missing_skeletons=True)
    make(tmp_path)
    (tmp_path / "exercises" / "relu" / "relu_f32.cu").unlink()
    assert len(load_catalog(tmp_path, missing_skeletons=True).katas) == 3


@pytest.mark.parametrize("path", ["exercises/relu/relu_f16.cu", "solutions/hgemm/relu_f32.cu", "exercises/lost.cu"])
def test_a_file_without_an_entry(path: str, tmp_path: Path) -> None:
    (make(tmp_path) / path).write_text("")
    with pytest.raises(CatalogError) as caught:
        load_catalog(tmp_path)
    assert has(str(caught.value), path, "no entry", "Add `")


def test_what_editors_leave_behind_does_no_harm(tmp_path: Path) -> None:
    folder = make(tmp_path) / "exercises" / "relu"
    (folder / ".#relu_f32.cu").symlink_to("somebody@somewhere.1234")
    (folder / "relu_f32.cu~").write_text("")
    (folder / "relu_f32.cu.orig").write_text("")
    (folder / ".git").mkdir()
    (folder / ".git" / "x.cu").write_text("")
    assert len(load_catalog(tmp_path).katas) == 3


@pytest.mark.parametrize(
    ("edges", "circle"),
    [
        ({"a": ["a"]}, "a -> a"),
        ({"a": ["b"], "b": ["a"]}, "a -> b -> a"),
        ({"a": [], "b": ["a", "d"], "c": ["b"], "d": ["a", "c"]}, "b -> d -> c -> b"),
    ],
)
def test_a_cycle(edges: dict[str, list[str]], circle: str, tmp_path: Path) -> None:
    katas = {name: {"level": "easy", "elem": "f32", "requires": after} for name, after in edges.items()}
    make(tmp_path, yaml.safe_dump({"relu": {"about": "a", **katas}}, sort_keys=False), {"relu": list(edges)})
    with pytest.raises(CatalogError) as caught:
        load_catalog(tmp_path)
    assert f": kata {circle[0]}: requires:" in str(caught.value) and has(str(caught.value), circle)


def test_two_ways_to_the_same_kata_are_no_cycle(tmp_path: Path) -> None:
    edges = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c", "b"]}
    katas = {name: {"level": "easy", "elem": "f32", "requires": after} for name, after in edges.items()}
    make(tmp_path, yaml.safe_dump({"relu": {"about": "a", **katas}}), {"relu": list(edges)})
    assert len(load_catalog(tmp_path).katas) == 4


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ([], ["relu_f32", "relu_f32x4", "hgemm_naive_f16"]),
        (["relu_f32x4"], ["relu_f32x4"]),
        (["relu"], ["relu_f32", "relu_f32x4"]),
        (["hard+"], ["hgemm_naive_f16"]),
        (["easy"], ["relu_f32", "relu_f32x4"]),
        (["relu_*"], ["relu_f32", "relu_f32x4"]),
        (["*f16*"], ["hgemm_naive_f16"]),
        (["exercises/*/relu_f32.cu"], ["relu_f32"]),
        (["exercises/relu/relu_f32.cu"], ["relu_f32"]),
        (["solutions/relu/relu_f32.cu"], ["relu_f32"]),
        (["exercises/relu/test_relu.py"], ["relu_f32", "relu_f32x4"]),
        (["exercises/relu/"], ["relu_f32", "relu_f32x4"]),
        (["exercises"], ["relu_f32", "relu_f32x4", "hgemm_naive_f16"]),
        (["hgemm_naive_f16", "relu", "relu_f32"], ["relu_f32", "relu_f32x4", "hgemm_naive_f16"]),
        (["RELU_F32"], ["relu_f32"]),
        (["relu_f32x4.cu"], ["relu_f32x4"]),
        (["Relu_f32x4.CU"], ["relu_f32x4"]),
        (["ReLU"], ["relu_f32", "relu_f32x4"]),
        (["Hard+"], ["hgemm_naive_f16"]),
    ],
)
def test_select(patterns: list[str], expected: list[str], catalog: Catalog) -> None:
    assert names(catalog.select(patterns)) == expected
    assert names(catalog.select(iter(patterns))) == expected


def test_select_paths_from_elsewhere(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path / "exercises" / "hgemm")
    assert names(catalog.select(["hgemm_naive_f16.cu"])) == ["hgemm_naive_f16"]
    assert names(catalog.select(["."])) == ["hgemm_naive_f16"]
    assert names(catalog.select(["../relu"])) == ["relu_f32", "relu_f32x4"]
    assert names(catalog.select([tmp_path / "exercises" / "relu" / "relu_f32.cu"])) == ["relu_f32"]
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "exercises" / "relu")
    assert names(catalog.select([link])) == ["relu_f32", "relu_f32x4"]


def test_a_file_of_that_name_elsewhere_is_not_taken_for_the_kata(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "relu_f32.cu").write_text("// mine")
    with pytest.raises(CatalogError, match=all_of("'relu_f32.cu'", "mean relu_f32")):
        catalog.select(["relu_f32.cu"])


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        ("relu_f23", "relu_f32"),
        ("RELU_F23.cu", "relu_f32"),
        ("relu.cu", "relu"),
        ("hgem", "hgemm"),
        ("nothing*", "`kata list`"),
        ("/etc", "`kata list`"),
    ],
)
def test_select_nothing(pattern: str, part: str, catalog: Catalog) -> None:
    with pytest.raises(CatalogError) as caught:
        catalog.select(["relu", pattern])
    assert has(str(caught.value).replace(repr(pattern), "", 1), part) and repr(pattern) in str(caught.value)


def test_find_root(tmp_path: Path) -> None:
    folder = make(tmp_path) / "exercises" / "relu"
    assert find_root(folder) == tmp_path
    assert find_root(tmp_path) == tmp_path


def load_anew(place: Path) -> None:
    """As a process does that has not loaded this catalogue before."""
    yaml_text.nodes.cache_clear()
    _listed.cache_clear()
    load_catalog(place)


def test_what_loading_costs_grows_with_the_katas_and_no_faster(tmp_path: Path) -> None:
    """A thousand katas cost fifty times as much as twenty, and would cost 2500 times if each looked at all others."""
    loads, most = [], 4 * 50
    for count in (20, 1000):
        katas = [f"kata_{index}" for index in range(count)]
        entry = {"level": "easy", "elem": "f32", "acc": "f32", "compute": "sm_80", "multiples": {"K": 8}}
        entries = {name: {**entry, "requires": katas[index - 1 : index]} for index, name in enumerate(katas)}
        text = yaml.safe_dump({"relu": {"about": "a ladder", **entries}})
        place = make(tmp_path / str(count), text, {"relu": katas})
        loads.append(partial(load_anew, place))
    small_s, large_s = cheapest_cpu_s(*loads, until=lambda costs_s: 2 * costs_s[1] < most * costs_s[0])
    assert large_s < most * small_s, (small_s, large_s)


@pytest.fixture
def parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were parsed, by libyaml where it is, in a cache folder of the test's own."""
    found: list[str] = []
    name = "CSafeLoader" if hasattr(yaml, "CSafeLoader") else "SafeLoader"

    class Counted(getattr(yaml, name)):  # type: ignore[misc]
        def __init__(self, text: str) -> None:
            found.append(text)
            super().__init__(text)

    monkeypatch.setattr(yaml, name, Counted)
    monkeypatch.setenv("KATA_CACHE", str(tmp_path / "cache"))
    yaml_text.nodes.cache_clear()
    return found


def test_difficulty_yaml_is_parsed_once(tmp_path: Path, parsed: list[str]) -> None:
    root = make(tmp_path)
    before = load_catalog(root)
    assert parsed == [GOOD]
    for _ in range(2):
        load_anew(root)
    assert parsed == [GOOD] and load_catalog(root) == before


def test_what_is_kept_of_a_text_is_of_no_other(tmp_path: Path, parsed: list[str]) -> None:
    load_catalog(make(tmp_path))
    text = GOOD.replace("value: 45", "value: 46")
    load_anew(make(tmp_path, text))
    speed = load_catalog(tmp_path).katas["hgemm_naive_f16"].speed
    assert parsed == [GOOD, text] and speed is not None and speed.percent["sm_90"] == Threshold(46.0, True)


@pytest.mark.parametrize("damage", [b"", b"null", b"0" * 64 + b"\nnull", None], ids=["empty", "other", "forged", "cut"])
def test_what_was_kept_and_is_damaged_is_made_again(damage: bytes | None, tmp_path: Path, parsed: list[str]) -> None:
    before = load_catalog(make(tmp_path))
    (kept,) = (tmp_path / "cache" / "yaml").iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-1] if damage is None else damage)
    load_anew(tmp_path)
    assert parsed == [GOOD, GOOD] and load_catalog(tmp_path) == before and kept.read_bytes() == whole


def test_where_nothing_can_be_kept_it_is_parsed(
    tmp_path: Path, parsed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KATA_CACHE", str(tmp_path / "file" / "cache"))
    assert [*load_catalog(make(tmp_path)).katas] == [*NAMES["relu"], *NAMES["hgemm"]]
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "yaml").touch()
    monkeypatch.setenv("KATA_CACHE", str(tmp_path / "cache"))
    load_anew(tmp_path)
    assert parsed == [GOOD, GOOD]


def test_of_many_texts_the_oldest_go(tmp_path: Path, parsed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "MOST_KEPT", 4)
    for count in range(20):
        yaml_text.nodes(f"a: {count}")
        assert len([*(tmp_path / "cache" / "yaml").iterdir()]) <= 4
    yaml_text.nodes.cache_clear()
    yaml_text.nodes("a: 19")
    assert len(parsed) == 20


def said(node: yaml_text.Node | None) -> Any:
    """What nodes say, as a YAML loader gives it."""
    if node is None:
        return None
    _, kind, content, *value = node
    if kind == yaml_text.MAPPING:
        return {said(key): said(item) for key, item in content}
    return [*map(said, content)] if kind == yaml_text.SEQUENCE else value[0] if value else content


def test_nodes_are_what_yaml_says_of_every_file_also_when_they_were_kept(parsed: list[str]) -> None:
    root = Path(__file__).parents[1]
    folders = ("docs", "exercises", "solutions", "tests", "grader")
    files = [*root.glob("*.yaml"), *(file for folder in folders for file in (root / folder).rglob("*.yaml"))]
    assert len(files) > 100
    for file in files:
        text = file.read_text()
        fresh = yaml_text.nodes(text)
        yaml_text.nodes.cache_clear()
        assert said(fresh) == yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)), file
        assert yaml_text.nodes(text) == fresh
    odd = "{a: .inf, b: 1_000, 0x10: ~, c: yes, 2026-03-31: '', d: 1e3, e: !!str 1, f: '\U0001f600'}"
    assert said(yaml_text.nodes(odd)) == {**yaml.safe_load(odd.replace("2026-03-31: ''", "~: ''"))}


def test_what_an_alias_names_again_is_read_and_not_kept(tmp_path: Path, parsed: list[str]) -> None:
    text = GOOD.replace("multiples: {K: 8}", "multiples: &eight {K: 8}").replace("K: 64}", "K: 64}, *eight")
    for _ in range(2):
        load_anew(make(tmp_path, text))
    kata = load_catalog(tmp_path).katas["hgemm_naive_f16"]
    assert parsed == [text, text] and kata.speed is not None and kata.speed.shapes[1] == kata.multiples == {"K": 8}
