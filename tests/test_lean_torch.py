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
import json, os, sys
{how}
import torch
from grader.sandbox.lean_torch import LATER
for number, used in enumerate({uses}):
    if os.fork():  # each use is the first of its process, which has just imported torch
        os.wait()
        continue
    left = [name for name in LATER if name in sys.modules and "__getattr__" in vars(sys.modules[name])]
    x = torch.ones(8, 8)
    torch.mm(x, x)
    still = [name for name in left if "__getattr__" in vars(sys.modules[name])]
    exec(used)
    names = {{name: sorted(vars(sys.modules[name])) for name in ("torch", *LATER) if name in sys.modules}}
    print(json.dumps([number, left, still, names, float(torch.mm(x, x).sum())]), flush=True)
    os._exit(0)
"""
LEAN = "from grader.sandbox.lean_torch import import_torch\nimport_torch()"
USES = (
    "torch.vmap(lambda a: 2 * a)(x)",
    "torch.optim.SGD([x], lr=1.0)",
    "torch.export.export",
    "from torch.distributions import Normal",
    "import torch._dynamo",
    "torch.empty(2, 2, device='meta') @ torch.empty(2, 2, device='meta')",
)
Said = tuple[list[str], list[str], dict[str, list[str]], float]


def said(how: str, *uses: str) -> dict[str, Said]:
    program = SAID.format(how=how, uses=uses)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    found: dict[str, Said] = {uses[number]: tuple(rest) for number, *rest in lines}  # type: ignore[misc]
    assert [*found] == [*uses], done.stderr
    return found


@pytest.fixture(scope="module")
def whole() -> Said:
    return said("", "pass")["pass"]


@pytest.fixture(scope="module")
def lean() -> dict[str, Said]:
    return said(LEAN, *USES)


@pytest.mark.parametrize("used", USES)
def test_all_of_it_comes_with_the_first_use_of_a_part(used: str, whole: Said, lean: dict[str, Said]) -> None:
    left, still, names, total = lean[used]
    assert len(left) > 8 and still == left, "a product needs none of them"
    assert total == whole[3]
    if "device" not in used:  # which torch can do without the part that is about it
        assert {name: missing for name in whole[2] if (missing := {*whole[2][name]} - {*names[name]})} == {}
