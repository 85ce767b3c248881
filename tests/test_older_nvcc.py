"""The katas compile with the CUDA releases before 13, whose headers differ.

PyPI has no nvcc before 13, so a machine seldom has one. KATA_OLDER_NVCC names those that it has, as PATH names folders:
`KATA_OLDER_NVCC=/usr/local/cuda-12.4/bin/nvcc pytest tests/test_older_nvcc.py`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from grader.content.catalog import Catalog, load_catalog
from grader.grade import Options, grade

ROOT = Path(__file__).parents[1]
OLDER = [path for path in os.environ.get("KATA_OLDER_NVCC", "").split(os.pathsep) if path]
# One of each kind: half precision, fp8, mma, tensor maps, wgmma, a cooperative launch, a cluster.
KINDS = [
    "elementwise_f16", "quant_fp8_tensor_bf16", "hgemm_mma_m16n8k16_naive", "tma_tile_copy_f16", "tma_transpose_f32",
    "wgmma_one_tile_tn_f16", "softmax_f32_fence", "cluster_reduce_f32",
]  # fmt: skip
BEFORE_12_5 = """\
#include <cuda.h>
#undef CUDA_VERSION
#define CUDA_VERSION 12040
#define cudaGetDriverEntryPointByVersion not_in_this_release
"""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(ROOT)


@pytest.mark.parametrize("name", ["tma_tile_copy_f16", "tma_transpose_f32"])
def test_tensor_maps_need_no_function_of_cuda_12_5(catalog: Catalog, tmp_path: Path, name: str) -> None:
    kata = catalog.katas[name]
    file = tmp_path / f"{name}.cu"
    file.write_text(BEFORE_12_5 + kata.solution_path.read_text())
    found = grade(kata, Options(device="sim"), source=file)
    assert found.passed, found.verdict


def test_cooperative_launches_get_a_pointer_that_cuda_12_takes(catalog: Catalog) -> None:
    """There the function is a template of a pointer to const, which fits no function's name."""
    calls = [
        (kata.name, argument)
        for kata in catalog.katas.values()
        for argument in re.findall(r"cudaLaunchCooperativeKernel\(\s*([^,]*),", kata.solution_path.read_text())
    ]
    assert len(calls) >= 3
    assert [call for call in calls if not call[1].startswith("reinterpret_cast<const void*>(")] == []


@pytest.mark.skipif(not OLDER, reason="KATA_OLDER_NVCC names no nvcc")
@pytest.mark.parametrize("nvcc", OLDER)
def test_an_older_nvcc(nvcc: str) -> None:
    command = [sys.executable, "-m", "grader", "grade", *KINDS, "--solutions", "--device", "sim"]
    ran = subprocess.run(command, env={**os.environ, "KATA_NVCC": nvcc}, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
