"""torch without some of its parts: it is the same torch, and has them when they are needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parent.parent
SAID = """
import json, sys
{how}
import torch
from grader.sandbox.lean_torch import LATER
left = [name for name in LATER if name in sys.modules and "__getattr__" in vars(sys.modules[name])]
x = torch.ones(8, 8)
torch.mm(x, x)
still = [name for name in left if "__getattr__" in vars(sys.modules[name])]
if True:
    {used}
names = {{name: sorted(vars(sys.modules[name])) for name in ("torch", *LATER) if name in sys.modules}}
print(json.dumps([left, still, names, float(torch.mm(x, x).sum())]))
"""
LEAN = "from grader.sandbox.lean_torch import import_torch\nimport_torch()"


def said(how: str, used: str = "pass") -> list:  # type: ignore[type-arg]
    program = SAID.format(how=how, used=used)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def whole() -> list:  # type: ignore[type-arg]
    return said("")


@pytest.mark.parametrize(
    "used",
    [
        "torch.vmap(lambda a: 2 * a)(x)",
        "torch.optim.SGD([x], lr=1.0)",
        "torch.export.export",
        "from torch.distributions import Normal",
        "import torch._dynamo",
        "torch.empty(2, 2, device='meta') @ torch.empty(2, 2, device='meta')",
    ],
)
def test_all_of_it_comes_with_the_first_use_of_a_part(used: str, whole: list) -> None:  # type: ignore[type-arg]
    left, still, names, total = said(LEAN, used)
    assert len(left) > 8 and still == left, "a product needs none of them"
    assert total == whole[3]
    if "device" not in used:  # which torch can do without the part that is about it
        assert {name: missing for name in whole[2] if (missing := {*whole[2][name]} - {*names[name]})} == {}
