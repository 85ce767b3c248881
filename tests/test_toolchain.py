"""The compilers are found in every place that is promised, and a machine without them is told what to install."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from facts import all_of, has
from fake_nvml import build_nvml

from grader import grade as pipeline
from grader.compile import toolchain
from grader.compile.toolchain import (
    Gpu,
    ToolchainError,
    builds_for,
    dotted,
    find_gpu,
    find_nvcc,
    find_toolchain,
    gpu_archs,
    gpu_of_worker,
    visible_gpus,
)
from grader.content.catalog import Kata
from grader.grade import Options
from grader.verdict import Kind, Verdict

NVCC = """\
#!/bin/sh
case "$*" in
*--list-gpu-code*) for code in {codes}; do echo "sm_$code"; done ;;
*--version*) echo "Cuda compilation tools, release {release}, V{version}" ;;
*--dryrun*) echo "#$ TOP={top}/bin/.." >&2 ;;
esac
"""
GXX = "#!/bin/sh\necho {version}\n"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def codes_of(version: str) -> str:
    """What `nvcc --list-gpu-code` says, in numbers (release notes of CUDA 12.0, 12.8, 12.9 and 13.0)."""
    release = tuple(map(int, version.split(".")[:2]))
    codes = ["50", "52", "53", "60", "61", "62", "70", "72"] if release < (13, 0) else []
    codes += ["75", "80", "86", "87", "89", "90"]
    codes += ["100", "101", "120"] if release >= (12, 8) else []
    return " ".join(codes + (["103", "121"] if release >= (12, 9) else []))


def toolkit(top: Path, version: str = "13.0.88", newest_gcc: int = 15, library: str = "lib64") -> Path:
    """A folder that looks like a CUDA toolkit; its nvcc."""
    (top / library).mkdir(parents=True)
    header = top / "include" / "crt" / "host_config.h"
    header.parent.mkdir(parents=True)
    header.write_text(f"#if defined(__GNUC__)\n#if __GNUC__ > {newest_gcc}\n#error\n#endif\n#endif\n")
    text = NVCC.format(release=version.rpartition(".")[0], version=version, top=top, codes=codes_of(version))
    return program(top / "bin" / "nvcc", text)


def on_path(*folders: Path) -> str:
    return ":".join([*map(str, folders)])


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with g++ 12 on PATH and no nvcc anywhere; its bin folder."""
    for name in ("KATA_NVCC", "KATA_CXX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "bin"
    program(folder / "g++", GXX.format(version="12.2.0"))
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(toolchain, "TOOLKIT_FOLDERS", (tmp_path / "usr_local", tmp_path / "opt"))
    find_toolchain.cache_clear()
    monkeypatch.setattr(toolchain, "find_toolchain", find_toolchain)
    return folder


@pytest.fixture(autouse=True)
def forget() -> object:
    yield
    find_toolchain.cache_clear()


def test_no_nvcc(bare: Path) -> None:
    with pytest.raises(ToolchainError) as caught:
        find_toolchain()
    message = str(caught.value)
    assert has(message, "no nvcc", "pip install -e .[nvcc]", "KATA_NVCC")


def test_an_nvcc_that_is_killed_while_it_is_asked_leaves_no_file(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes temporary files even where it compiles nothing."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    nvcc = toolkit(tmp_path / "usr_local" / "cuda")
    nvcc.write_text(nvcc.read_text().replace("*--dryrun*)", '*--dryrun*) : > "$TMPDIR/tmpxft";'))
    assert find_toolchain().toolkit == nvcc.parent.parent and list(temporary.iterdir()) == []
    nvcc.write_text(nvcc.read_text().replace('tmpxft";', 'tmpxft"; case $TMPDIR in */staging/*) exit 1 ;; esac;'))
    find_toolchain.cache_clear()
    assert find_toolchain().toolkit == nvcc.parent.parent  # a cache without room: asked once more
    assert [file.name for file in temporary.iterdir()] == ["tmpxft"]


PLACES = {
    "PATH": ("on_path", {}),
    "CUDA_HOME": ("home", {"CUDA_HOME": "home"}),
    "CUDA_PATH": ("home", {"CUDA_PATH": "home"}),
    "/usr/local/cuda": ("usr_local/cuda", {}),
    "/usr/local/cuda-13.0": ("usr_local/cuda-13.0", {}),
    "/opt/cuda": ("opt/cuda", {}),
    "wheels": ("site-packages/nvidia/cu13", {}),
    "KATA_NVCC": ("elsewhere", {"KATA_NVCC": "elsewhere/bin/nvcc"}),
}


@pytest.mark.parametrize("place", PLACES)
def test_nvcc_is_found(place: str, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, variables = PLACES[place]
    nvcc = toolkit(tmp_path / folder)
    for name, value in variables.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    if place == "PATH":
        monkeypatch.setenv("PATH", on_path(bare, nvcc.parent))
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "site-packages")])
    monkeypatch.chdir(tmp_path)
    found = find_toolchain()
    assert (found.nvcc, found.nvcc_version) == (nvcc, (13, 0, 88))
    assert (found.host, found.host_version) == (bare / "g++", (12, 2, 0))
    assert found.nvcc_flags == ("-ccbin", str(bare / "g++"))


def test_the_wheels_have_their_libraries_where_nvcc_does_not_look(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "site-packages" / "nvidia" / "cu13"
    toolkit(top, library="lib")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages")])
    assert find_toolchain().nvcc_flags[2:] == ("-L", str(top / "lib"))


def test_the_places_are_searched_in_order(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages")])
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    for folder in ("site-packages/nvidia/cu13", "usr_local/cuda-12.9", "usr_local/cuda-13.0", "usr_local/cuda", "home"):
        nvcc = toolkit(tmp_path / folder)
        assert find_nvcc()[0] == nvcc or folder == "usr_local/cuda-12.9"
    monkeypatch.setenv("PATH", on_path(bare, toolkit(tmp_path / "on_path").parent))
    assert find_nvcc()[0] == tmp_path / "on_path" / "bin" / "nvcc"


def test_an_old_or_broken_nvcc_is_passed_over(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = toolkit(tmp_path / "on_path", "11.8.89")
    monkeypatch.setenv("PATH", on_path(bare, old.parent))
    broken = program(tmp_path / "usr_local" / "cuda" / "bin" / "nvcc", "#!/nowhere/sh\n")
    with pytest.raises(ToolchainError) as caught:
        find_nvcc()
    message = str(caught.value)
    assert has(message, f"{old} (11.8.89)", f"{broken} (", "12.0", "newer")
    new = toolkit(tmp_path / "opt" / "cuda")
    assert find_nvcc() == (new, (13, 0, 88))


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((7, 0), "12.6.85"),
        ((9, 0), "12.6.85"),
        ((10, 0), "13.0.88"),
        ((12, 1), "13.0.88"),
        ((13, 0), "12.6.85"),  # none knows it: the first is taken, and a grade says so
    ],
)
def test_an_nvcc_that_builds_for_the_gpu_comes_first(
    capability: tuple[int, int], expected: str, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {"13.0.88": toolkit(tmp_path / "opt" / "cuda"), "12.6.85": toolkit(tmp_path / "on_path", "12.6.85")}
    monkeypatch.setenv("PATH", on_path(bare, made["12.6.85"].parent))
    monkeypatch.setattr(toolchain, "find_gpu", lambda: Gpu("", capability, "", (13, 0)))
    found = find_toolchain()
    assert (found.nvcc, dotted(found.nvcc_version)) == (made[expected], expected)


@pytest.mark.parametrize(
    ("driver", "expected"), [((13, 0), "13.0.88"), ((14, 1), "13.0.88"), ((12, 9), "12.6.85"), ((12, 4), "12.6.85")]
)
def test_an_nvcc_whose_code_the_driver_runs_comes_first(
    driver: tuple[int, int], expected: str, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {"12.6.85": toolkit(tmp_path / "opt" / "cuda", "12.6.85"), "13.0.88": toolkit(tmp_path / "on_path")}
    monkeypatch.setenv("PATH", on_path(bare, made["13.0.88"].parent))
    monkeypatch.setattr(toolchain, "find_gpu", lambda: Gpu("", (7, 5), "", driver))
    assert find_toolchain().nvcc == made[expected]


BUILDS_FOR = {  # capability -> the releases of nvcc that make code for it
    (7, 0): ("12.4.131", "12.6.85", "12.8.93", "12.9.86"),
    (7, 5): ("12.4.131", "12.6.85", "12.8.93", "12.9.86", "13.0.88"),
    (9, 0): ("12.4.131", "12.6.85", "12.8.93", "12.9.86", "13.0.88"),
    (10, 0): ("12.8.93", "12.9.86", "13.0.88"),
    (12, 0): ("12.8.93", "12.9.86", "13.0.88"),
    (12, 1): ("12.9.86", "13.0.88"),
}


def test_each_nvcc_builds_for_the_architectures_that_it_lists(tmp_path: Path) -> None:
    made = {version: toolkit(tmp_path / version, version) for version in BUILDS_FOR[9, 0]}
    for capability, versions in BUILDS_FOR.items():
        gpu = Gpu("", capability, "", (13, 0))
        assert tuple(version for version, nvcc in made.items() if builds_for(nvcc, gpu)) == versions


def test_an_nvcc_that_does_not_say_what_it_builds_for(bare: Path, tmp_path: Path) -> None:
    nvcc = program(tmp_path / "nvcc", "#!/bin/sh\nexit 1\n")
    assert gpu_archs(nvcc) == () and builds_for(nvcc, Gpu("", (9, 0), "", (13, 0)))


def test_auto_takes_the_simulator_where_the_gpu_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "builds_for", lambda nvcc, gpu: gpu.capability < (13, 0))
    kata = Kata(name="k", family="f", level="easy", elem="f32", root=Path("/"), compute="sm_80")
    old, fits, unknown = (Gpu("", capability, "", (13, 0)) for capability in ((7, 5), (8, 0), (13, 0)))
    simulator = pipeline.Target("sim", "sm_90a")
    assert pipeline.targets(Options(), old, kata) == pipeline.targets(Options(), unknown, kata) == (simulator,)
    assert pipeline.targets(Options(), fits, kata) == (pipeline.Target("gpu", "sm_80"), simulator)
    assert pipeline.targets(Options(), old, replace(kata, compute="sm_75"))[0] == pipeline.Target("gpu", "sm_75")
    assert pipeline.targets(Options(device="gpu"), old, kata) == (pipeline.Target("gpu", "sm_75"),)
    assert has(pipeline.unfit_gpu(old, kata) or "", "sm_80", "sm_75") and pipeline.unfit_gpu(fits, kata) is None
    assert has(pipeline.unfit_gpu(unknown, kata) or "", "nvcc", "sm_130a")
    behind = replace(fits, cuda=(11, 8))  # older than every nvcc that the katas take
    assert pipeline.targets(Options(), behind, kata) == (simulator,)
    assert has(pipeline.unfit_gpu(behind, kata) or "", "driver", "11.8", "nvcc")


@pytest.mark.parametrize("variable", ["KATA_NVCC", "KATA_CXX"])
def test_a_variable_that_names_no_program(
    variable: str, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolkit(tmp_path / "opt" / "cuda")
    monkeypatch.setenv(variable, "/no/such/thing")
    with pytest.raises(ToolchainError, match=all_of(variable, "'/no/such/thing'", "unset")):
        find_toolchain()


def test_no_host_compiler(bare: Path, tmp_path: Path) -> None:
    toolkit(tmp_path / "opt" / "cuda")
    (bare / "g++").unlink()
    with pytest.raises(ToolchainError, match=all_of("no g++", "apt install g++")):
        find_toolchain()


def test_a_host_compiler_that_is_too_new(bare: Path, tmp_path: Path) -> None:
    toolkit(tmp_path / "opt" / "cuda", newest_gcc=13)
    program(bare / "g++", GXX.format(version="14.1.0"))
    with pytest.raises(ToolchainError) as caught:
        find_toolchain()
    message = str(caught.value)
    assert has(message, "nvcc 13.0.88", "g++ up to 13")
    assert f"{bare / 'g++'} (14.1.0)" in message and "apt install g++-13" in message
    older = program(bare / "g++-11", GXX.format(version="11.4.0"))
    assert find_toolchain().host == older


def test_identity_changes_with_either_compiler(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = toolkit(tmp_path / "opt" / "cuda-13.0")
    wrapper = program(tmp_path / "wrapped" / "nvcc", f'#!/bin/sh\nexec {real} "$@"\n')
    monkeypatch.setenv("PATH", f"{on_path(bare, wrapper.parent)}:/usr/bin:/bin")
    seen = set()

    def look() -> None:
        find_toolchain.cache_clear()
        assert find_toolchain().nvcc == wrapper
        seen.add(find_toolchain().identity)

    look()
    look()
    assert len(seen) == 1
    program(real, real.read_text() + "# behind the wrapper\n")
    look()
    program(bare / "g++", GXX.format(version="12.3.0"))
    look()
    assert len(seen) == 3


def test_the_compilers_of_this_machine_work_together(tmp_path: Path) -> None:
    """A file as the katas are, with cuda_fp16.h, in both ways in which katas are built."""
    try:
        found = find_toolchain()
    except ToolchainError as error:
        pytest.skip(str(error))
    source = tmp_path / "half.cu"
    source.write_text(
        "#include <cuda_fp16.h>\n"
        "__global__ void half_kernel(half* x) { x[threadIdx.x] = __hadd(x[threadIdx.x], x[0]); }\n"
        'extern "C" void half_launch(half* x, cudaStream_t stream) { half_kernel<<<1, 32, 0, stream>>>(x); }\n'
    )
    common = [found.nvcc, "-std=c++17", "-shared", "-Xcompiler", "-fPIC", *found.nvcc_flags, source]
    ways = {
        "sim": ["-gencode", "arch=compute_90a,code=compute_90a", "-cudart", "none", "--keep"],
        "gpu": ["-gencode", "arch=compute_90a,code=sm_90a"],
    }
    for way, flags in ways.items():
        folder = tmp_path / way
        folder.mkdir()
        ran = subprocess.run(
            [*common, *flags, "-o", "half.so"], cwd=folder, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0 and (folder / "half.so").is_file(), ran.stdout + ran.stderr
    assert ".entry" in (tmp_path / "sim" / "half.ptx").read_text()


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_nvml(tmp_path_factory.mktemp("nvml"))


SMALL = Gpu("Small", (8, 9), "580.65.06", (13, 1), memory_bytes=8 << 30, pci_bus_id="00000000:1A:00.0", uuid="GPU-aa")
LARGE = Gpu("Large", (9, 0), "580.65.06", (13, 1), memory_bytes=8 << 30, pci_bus_id="00000000:3B:00.0", uuid="GPU-bb")


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, SMALL),
        ("0", SMALL),
        ("1,0", LARGE),
        ("GPU-bb", LARGE),
        ("MIG-cc", LARGE),
        ("7", None),
        ("GPU-zz", None),
        ("", None),
        ("-1", None),
    ],
)
def test_find_gpu(visible: str | None, expected: Gpu | None, nvml: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert find_gpu(library=nvml) == expected


def test_arch_of_a_gpu() -> None:
    assert (SMALL.arch, LARGE.arch) == ("sm_89", "sm_90a")
    assert Gpu("", (12, 0), "", (13, 0)).arch == "sm_120a"


def test_no_gpu(nvml: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert find_gpu(library="libno-such-thing.so.1") is None
    monkeypatch.setenv("NVML_BROKEN", "1")
    assert find_gpu(library=nvml) is None
    assert visible_gpus(library="libno-such-thing.so.1") == visible_gpus(library=nvml) == []


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["0", "1"]),
        ("1", ["1"]),
        ("1, GPU-aa", ["1", "GPU-aa"]),
        ("0,-1,1", ["0"]),  # CUDA itself stops at the first that is none
        ("", []),
    ],
)
def test_visible_gpus(visible: str | None, expected: list[str], nvml: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_gpus(library=nvml) == expected


def test_workers_share_out_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-bb,5")
    assert [gpu_of_worker(index)["CUDA_VISIBLE_DEVICES"] for index in range(4)] == ["2", "GPU-bb", "5", "2"]
    for few in ("3", ""):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", few)
        assert gpu_of_worker(1) == {}


@pytest.mark.parametrize(
    ("on_gpu", "on_sim", "shown"),
    [
        (Kind.PASS, Kind.PASS, ["gpu", "sim"]),
        (Kind.WRONG_ANSWER, Kind.WRONG_ANSWER, ["sim", "gpu"]),  # which says who wrote the element, and on which line
        (Kind.CRASH, Kind.OUT_OF_BOUNDS, ["sim", "gpu"]),
        (Kind.WRONG_ANSWER, Kind.PASS, ["gpu", "sim"]),
        (Kind.WRONG_ANSWER, Kind.UNSUPPORTED, ["gpu", "sim"]),
        (Kind.PASS, Kind.RACE, ["sim", "gpu"]),
        (Kind.TOO_SLOW, Kind.PASS, ["gpu"]),
    ],
)
def test_what_a_gpu_finds_wrong_the_simulator_explains(
    on_gpu: Kind, on_sim: Kind, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds, after = {"gpu": on_gpu, "sim": on_sim}, list[bool]()

    def on_device(request: SimpleNamespace, *_: object) -> Verdict:
        return Verdict(kinds[request.device], request.device)

    for name, stub in {
        "find_gpu": lambda: None,
        "targets": lambda *_: (pipeline.Target("gpu", "sm_90a"), pipeline.Target("sim", "sm_90a")),
        "_request": lambda kata, source, target, options: SimpleNamespace(device=target.device),
        "_on_device": on_device,
        "budget_of": lambda options, target, after_gpu: after.append(after_gpu),
    }.items():
        monkeypatch.setattr(pipeline, name, stub)
    verdicts = pipeline._on_devices(None, None, Options(), None)  # type: ignore[arg-type]
    assert [verdict.summary for verdict in verdicts] == shown
    assert after == [False, on_gpu is Kind.PASS][: len(shown)]  # else the simulator tries all that it can
