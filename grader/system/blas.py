"""How many threads a product in numpy takes."""

from __future__ import annotations

import os
import sys

_SETTINGS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")


def spare_threads() -> None:
    """One, where numpy is not imported yet. Where one of OpenBLAS's settings is set, that stands.

    References and answers are worked out in threads of our own (formulas.side_by_side), and OpenBLAS has one pool of
    threads for all of them, which spin while they are idle. On 16 cores, the answers of a timed attention kernel took
    four times as long.
    """
    if "numpy" not in sys.modules and not any(name in os.environ for name in _SETTINGS):
        os.environ[_SETTINGS[0]] = "1"
