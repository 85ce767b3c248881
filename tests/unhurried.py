"""Grades whose searches no clock ends: how small a failing shape gets is then no matter of how fast the machine is.

pytest -p unhurried ...              with pytest
python tests/unhurried.py grade ...  as `kata`
"""

from __future__ import annotations

import sys
from dataclasses import replace

from grader import check, cli
from grader import grade as pipeline
from grader.check import Effort


def effort_for(device: str) -> Effort:
    return replace(check.effort_for(device), edge_time_s=3600.0, shrink_time_s=3600.0)


def pytest_configure() -> None:
    pipeline.effort_for = effort_for


if __name__ == "__main__":
    pipeline.effort_for = effort_for
    sys.exit(cli.main(sys.argv[1:]))
