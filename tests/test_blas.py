"""How many threads numpy's products take while the simulator grades."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PRODUCT = """
import os
from grader.system.blas import spare_threads
if {spares}:
    spare_threads()
import numpy
numpy.ones((300, 300)) @ numpy.ones((300, 300))
print(len(os.listdir("/proc/self/task")))
"""
SETTINGS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")


def threads_of_a_product(*, spares: bool, **environment: str) -> int:
    rest = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    command = [sys.executable, "-c", PRODUCT.format(spares=spares)]
    done = subprocess.run(command, env={**rest, **environment}, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_a_product_takes_one_thread() -> None:
    assert threads_of_a_product(spares=True) == 1


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_the_user_stands(name: str) -> None:
    with_it = threads_of_a_product(spares=False, **{name: "2"})
    assert threads_of_a_product(spares=True, **{name: "2"}) == with_it


def test_numpy_that_is_imported_already_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy  # noqa: F401

    from grader.system.blas import spare_threads

    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    spare_threads()
    assert not any(name in os.environ for name in SETTINGS)
