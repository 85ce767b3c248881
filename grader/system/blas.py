"""How many threads a product in numpy takes."""

from __future__ import annotations

import os
import sys

_SETTINGS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")


def spare_threads() -> None:
    """One, where numpy is not imported yet. What a simulator can check is small, and OpenBLAS's idle threads spin.

    Where one of its settings is set, that stands.
    """
    if "numpy" not in sys.modules and not any(name in os.environ for name in _SETTINGS):
        os.environ[_SETTINGS[0]] = "1"
