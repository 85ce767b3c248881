"""`kata sass` and `kata ptx`: figures first, and each instruction under the line of the file that it stems from."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import passed_before
import pytest
from facts import all_of, has
from test_faces import copied, make_clone, run, solve

from grader.compile import listing as module
from grader.compile.listing import Instruction, Kernel, ListingError, _figures, _ptx, _sass, grouped, headline, in_order
from grader.compile.toolchain import ToolchainError, find_toolchain
from grader.learner import progress

pytestmark = passed_before.REPOSITORY


def code(place: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = run(place, "-m", "grader", *arguments, **environment)
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_clone(tmp_path_factory.mktemp("pristine"))


@pytest.fixture
def clone(pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KATA_DATA", str(tmp_path / "data"))
    return copied(pristine, tmp_path)


@pytest.fixture
def disassembler() -> None:
    try:
        module._find("nvdisasm", find_toolchain())
    except (ListingError, ToolchainError) as error:
        pytest.skip(str(error))


def under(text: str, source: Path, part: str) -> str:
    """What stands under the line of the file that has ``part``."""
    number = next(number for number, line in enumerate(source.read_text().splitlines(), 1) if part in line)
    found = re.search(rf"^ *{number}  .*\[\d+\]\n((?: {{9}}.*\n)+)", text, re.MULTILINE)
    assert found is not None, text
    return found[1]


def test_ptx_of_the_learners_file(clone: Path) -> None:
    path = solve(clone, "elementwise_f32")
    done = code(clone, "ptx", "elementwise_f32", "--arch", "sm_80")
    assert done.returncode == 0
    head, figures, card = done.stdout.splitlines()[:3]
    assert re.fullmatch(r"elementwise_f32_kernel: \d+ instructions", head) and has(card, "sm_80")
    assert re.search(r"\d+ registers\b", figures) and has(figures, "shared memory", "stack", "spills")
    assert set(re.findall(r"\d+", re.sub(r"\d+ registers", "", figures))) == {"0"}
    inner = under(done.stdout, path, "if (idx < n)")
    assert inner.count("ld.global.nc.f32") == 2 and "add.f32" in inner and "st.global.f32" in inner
    assert "%ctaid.x" in under(done.stdout, path, "const int idx")


def test_sass_of_the_learners_file(clone: Path, disassembler: None) -> None:
    path = solve(clone, "elementwise_f16x8_pack")
    done = code(clone, "sass", "elementwise_f16x8_pack")
    assert done.returncode == 0 and "34 registers" in done.stdout
    assert "LDG.E.128.CONSTANT" in under(done.stdout, path, "(a + idx)")
    assert "HADD2" in under(done.stdout, path, "__hadd2(a_rmem")  # which the header has, not the file
    ordered = code(clone, "sass", "elementwise_f16x8_pack", "--in-order").stdout
    addresses = [int(item, 16) for item in re.findall(r"/\*([0-9a-f]+)\*/", ordered)]
    assert addresses == list(range(0, 16 * len(addresses), 16))
    assert re.search(r"^\.L_x_\d+:$", ordered, re.MULTILINE) and "NOP" not in ordered


def test_what_goes_to_local_memory_is_among_the_figures(clone: Path) -> None:
    path = solve(clone, "elementwise_f16x8_pack")
    text = path.read_text()
    path.write_text(re.sub(r"#pragma unroll", "#pragma unroll 1", text))
    assert path.read_text() != text
    data = json.loads(code(clone, "ptx", "elementwise_f16x8_pack", "--json").stdout)
    (kernel,) = data["kernels"]
    assert (kernel["stack_bytes"], kernel["spill_store_bytes"], data["arch"]) == (48, 0, "sm_90a")
    assert any("ld.local" in item["text"] for item in kernel["code"])
    assert kernel["instructions"] == sum(not item["text"].endswith(":") for item in kernel["code"])


def test_a_file_from_elsewhere_and_one_kernel_of_several(clone: Path, tmp_path: Path) -> None:
    text = (clone / "solutions/elementwise/elementwise_f32.cu").read_text()
    mine = tmp_path / "mine.cu"
    mine.write_text(text + "__global__ void other_kernel(int* x) { *x = 1; }\n")
    asked = ("ptx", "elementwise_f32", "--file", str(mine))
    assert re.findall(r"^(\w+): ", code(clone, *asked).stdout, re.MULTILINE) == [
        "elementwise_f32_kernel",
        "other_kernel",
    ]
    assert re.findall(r"^(\w+): ", code(clone, *asked, "--kernel", "other").stdout, re.MULTILINE) == ["other_kernel"]
    done = code(clone, *asked, "--kernel", "third")
    assert done.returncode == 2 and has(done.stderr, "elementwise_f32_kernel", "other_kernel")


def test_a_solution_is_looked_at_and_that_is_kept(clone: Path) -> None:
    done = code(clone, "ptx", "elementwise_f32", "--solution")
    assert (done.returncode, done.stdout) == (1, "") and "--anyway" in done.stderr
    assert code(clone, "ptx", "elementwise_f32", "--solution", "--anyway").returncode == 0
    assert [event.what for event in progress.load(clone).events] == [progress.SOLUTION]


def test_what_does_not_compile_is_said_as_by_a_grade(clone: Path) -> None:
    path = solve(clone, "elementwise_f32", ("a[idx] + b[idx]", "a[idx] + d[idx]"))
    done = code(clone, "ptx", "elementwise_f32")
    assert done.returncode == 1 and done.stdout == ""
    graded = code(clone, "grade", "elementwise_f32", "--device", "sim").stdout
    assert done.stderr.splitlines()[:2] == graded.splitlines()[:2]
    assert path.name in done.stderr and '"d" is undefined' in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ptx", "elementwise_f32", "--arch", "hopper"], ["--arch", "sm_80", "sm_90a", "'hopper'"]),
        (["ptx", "elementwise"], ["one kata"]),
        (["ptx", "elementwise_f32", "--file", "nowhere.cu"], ["nowhere.cu", "not a file"]),
    ],
)
def test_a_wrong_command_is_one_sentence(clone: Path, arguments: list[str], said: list[str]) -> None:
    done = code(clone, *arguments)
    assert done.returncode == 2 and has(done.stderr, *said) and len(done.stderr.splitlines()) == 1


def test_without_nvdisasm_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(ListingError, match=all_of("nvdisasm", "pip install nvidia-cuda-nvdisasm")):
        module._disassembled(tmp_path / "kata.cubin", find_toolchain_or_skip())


def find_toolchain_or_skip() -> module.Toolchain:
    try:
        return find_toolchain()
    except ToolchainError as error:
        pytest.skip(str(error))


def test_a_disassembler_that_refuses_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "nvdisasm"
    fake.write_text("#!/bin/sh\necho nvdisasm fatal: Unsupported binary >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(module, "_find", lambda *_: str(fake))
    with pytest.raises(ListingError, match=all_of("nvdisasm fatal: Unsupported binary", "older")):
        module._disassembled(tmp_path / "kata.cubin", find_toolchain_or_skip())


def test_a_file_that_no_compiler_could_read_is_said_as_by_a_grade(clone: Path) -> None:
    (clone / "binary.cu").write_bytes(b"\x7fELF\0\1\2")
    asked = ("elementwise_f32", "--file", "binary.cu")
    done = code(clone, "ptx", *asked)
    assert (done.returncode, done.stdout) == (1, "") and has(done.stderr, "binary.cu", "text file")
    assert done.stderr == code(clone, "grade", *asked).stdout


def test_figures_are_in_good_english() -> None:
    assert next(headline(Kernel("k", (Instruction("ret;", 1),)))) == "k: 1 instruction"
    assert next(headline(Kernel("k", (Instruction("ret;", 1),) * 2))) == "k: 2 instructions"


SASS = """\
//--------------------- .text._Z1kPi --------------------------
.text._Z1kPi:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
	//## File "/b/kata.cu", line 4
        /*0010*/              @!P1 BRA `(.L_x_1) ;
	//## File "/cuda/fp16.hpp", line 90 inlined at "/b/kata.cuh", line 7
	//## File "/b/kata.cuh", line 7 inlined at "/b/kata.cu", line 6
	//## File "/b/kata.cu", line 6
        /*0020*/                   HADD2 R5, R2.H0_H0, R5.H0_H0 ;
.L_x_1:
	//## File "/b/kata.cu", line 3 inlined at "/b/kata.cu", line 9
	//## File "/b/kata.cu", line 9
        /*0030*/                   EXIT ;
	//## File "/cuda/fp16.hpp", line 90
        /*0040*/                   NOP ;
        /*0050*/                   IADD3 R1, R1, 0x1, RZ ;
        /*0060*/                   NOP ;
"""


def test_an_instruction_belongs_to_the_line_that_called_for_it() -> None:
    (found,) = _sass(SASS).values()
    assert [(item.address, item.line) for item in found if not item.is_label] == [
        (0x00, None),
        (0x10, 4),
        (0x20, 6),  # through two headers
        (0x30, 3),  # a function of the file itself: its own line, not the call's
        (0x40, None),
        (0x50, None),
    ]
    assert [item.text for item in found if item.is_label] == [".L_x_1:"]
    kernel = Kernel("k", tuple(found))
    assert list(kernel.by_line()) == [3, 4, 6, None] and kernel.instructions == 6
    source = "\n".join(f"line {number}" for number in range(1, 10))
    assert [line for line in grouped(kernel, source) if "[" in line and "/*" not in line] == [
        "    3  line 3  [1]",
        "    4  line 4  [1]",
        "    6  line 6  [1]",
        "    -  of no line  [3]",
    ]
    assert next(iter(in_order(kernel, source))) == "    -  of no line" and ".L_x_1:" in list(in_order(kernel, source))


PTX = """\
.visible .entry _Z1kPi(
	.param .u64 _Z1kPi_param_0
)
.maxntid 256, 1, 1
{
	.reg .b32 	%r<3>;
	.loc	1 4 0
	mov.u32 	%r1, %tid.x;
	.loc	2 90 3, function_name $L__info_string0, inlined_at 1 6 5
	add.s32 	%r2, %r1, 1;
	.loc	3 10 1, function_name $L__info_string1, inlined_at 2 90 3
	// begin inline asm
	{ mul.lo.s32 	%r2, %r2, 2; }
	// end inline asm
$L__BB0_1:
	.loc	1 9 2
	{ // callseq 0, 0
	.param .b32 retval0;
	call.uni (retval0),
	vprintf,
	(
	param0
	);
	} // callseq 0
	ret;

}
	.file	1 "/b/kata.cu"
	.file	2 "/b/kata.cuh"
	.file	3 "/cuda/fp16.hpp"
"""


def test_ptx_is_read_line_by_line() -> None:
    (found,) = _ptx(PTX).values()
    assert [(item.text, item.line) for item in found] == [
        ("mov.u32 %r1, %tid.x;", 4),
        ("add.s32 %r2, %r1, 1;", 6),
        ("{ mul.lo.s32 %r2, %r2, 2; }", 6),
        ("$L__BB0_1:", 6),
        ("call.uni (retval0), vprintf, ( param0 );", 9),
        ("ret;", 9),
    ]


def test_figures_are_those_of_the_kernel_and_not_of_a_function_it_calls() -> None:
    log = """\
ptxas info    : Compiling entry function '_Z1kPi' for 'sm_90a'
ptxas info    : Function properties for _Z1kPi
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Function properties for _Z6calledi
    40 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 1024+16 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function '_Z5otherv' for 'sm_90a'
ptxas info    : Function properties for _Z5otherv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 4 registers, used 0 barriers
"""
    assert _figures(log) == {
        "_Z1kPi": {
            "stack_bytes": 16,
            "spill_store_bytes": 8,
            "spill_load_bytes": 12,
            "registers": 40,
            "barriers": 1,
            "smem_bytes": 1040,
        },
        "_Z5otherv": {
            "stack_bytes": 0,
            "spill_store_bytes": 0,
            "spill_load_bytes": 0,
            "registers": 4,
            "barriers": 0,
            "smem_bytes": 0,
        },
    }
