"""Calls one kata on a GPU, so that a profiler has something to watch. docs/profiling.md shows what to look for.

ncu --clock-control none -k regex:^sgemm python3 docs/profile_kata.py sgemm_naive_f32 M=4096 N=4096 K=4096

It calls your file, with --solution the reference solution. Whether the answer is right is not asked here.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy
import torch

from grader.content.catalog import find_root, load_catalog
from grader.content.dtype import Dtype
from grader.content.spec import load_spec
from grader.judge.case import Case, CaseKey
from grader.notebook import ops


def main(arguments: Sequence[str] | None = None, *, device: str = "cuda") -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kata")
    parser.add_argument("sizes", nargs="+", metavar="NAME=SIZE", help="every size of the kata's spec")
    parser.add_argument("--solution", action="store_true", help="call the reference solution")
    parser.add_argument("--calls", type=int, default=1)
    options = parser.parse_args(arguments)

    root = find_root(Path(__file__).resolve().parent)
    kata = load_catalog(root).katas[options.kata]
    spec = load_spec(kata)
    sizes = {name: int(size) for name, size in (pair.split("=") for pair in options.sizes)}
    inputs = Case(kata, spec, CaseKey.of(spec, sizes, spec.values[0].name, 1)).inputs
    known = {dim for tensor in spec.inputs for dim in tensor.shape}

    ops.register(root, solutions=options.solution)
    operator = getattr(torch.ops.kata, kata.name)
    given = [as_torch(inputs[item.name], spec.dtype(item, kata)).to(device) for item in spec.inputs]
    given += [sizes[name] for name in spec.sizes if name not in known]
    for _ in range(options.calls):
        operator(*given)
    if device == "cuda":
        torch.cuda.synchronize()


def as_torch(raw: numpy.ndarray, dtype: Dtype) -> torch.Tensor:
    """The same bits as torch's dtype; numpy has no bf16 and no fp8."""
    return torch.from_numpy(raw).view(getattr(torch, dtype.torch_name))


if __name__ == "__main__":
    main()
