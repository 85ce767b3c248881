"""A class of submissions on the simulator -> submissions a minute and the grader's peak memory as it goes on.

    PYTHONPATH=. python tests/classes_benchmark.py [SUBMISSIONS [STAGE ...]]

Run by hand: 200 submissions of 5 katas by default. The stages: "cold", every file with a number of its own, so that
none is compiled for another; "warm", the same with all of them in the cache; "alike", all handed in the same, none in
the cache. Exit code 1 where a file did not pass, or the memory grew after the first twentieth.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from grader.content.catalog import load_catalog
from grader.system.processes import children

ROOT = Path(__file__).resolve().parent.parent
KATAS = ("elementwise_f32", "relu_f32x4", "histogram_i32", "warp_reduce_sum_f32", "sgemm_sliced_k_f32")
MARKS = (0.05, 0.5, 1.0)  # shares of the run after which the memory is looked at
STAGES = ("cold", "warm", "alike")
GROWTH = 1.10  # from the first mark to the last


def hand_in(parent: Path, count: int, *, alike: bool) -> None:
    katas = load_catalog(ROOT).katas
    for number in range(count):
        folder = parent / f"student-{number:03d}"
        folder.mkdir(parents=True)
        for name in KATAS:
            text = katas[name].solution_path.read_text()
            (folder / f"{name}.cu").write_text(text if alike else f"{text}// handed in by student {number}\n")


def run(parent: Path, environment: dict[str, str], *, count: int) -> tuple[float, list[int], bool]:
    """(seconds, MiB at each mark: the peaks of the grader and its service together, whether all passed)"""
    command = [sys.executable, "-m", "grader", "grade", "--submissions", str(parent), "--device", "sim"]
    total = count * len(KATAS)
    marks = [min(round(share * total), total - 2) for share in MARKS]  # at the very end the service is gone
    start, peaks = time.monotonic(), []
    with subprocess.Popen(
        [*command, "--results", str(parent.with_suffix(".jsonl"))],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stderr is not None and process.stdout is not None
        for line in process.stderr:
            match = re.match(r"\[(\d+)/", line)
            if match is not None and len(peaks) < len(marks) and int(match[1]) >= marks[len(peaks)]:
                peaks.append(sum(peak_mib(pid) for pid in [process.pid, *children(process.pid)]))
        said = process.stdout.read()
    parent.with_suffix(".jsonl").unlink()
    return time.monotonic() - start, peaks, said.endswith(f"{total} of {total} passed\n")


def peak_mib(pid: int) -> int:
    match = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(match[1]) // 1024 if match else 0


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    stages = sys.argv[2:] or STAGES
    bad = False
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KATA_CACHE": str(place / "cache")}
        for folder in ("distinct", "alike"):
            hand_in(place / folder, count, alike=folder == "alike")
        ready = [sys.executable, "-m", "grader", "grade", "embedding_f32", "--solutions", "--device", "sim"]
        subprocess.run(ready, env=environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)  # builds the simulator
        for stage in stages:
            folder = "alike" if stage == "alike" else "distinct"
            seconds, peaks, passed = run(place / folder, environment, count=count)
            grew = peaks[-1] / peaks[0]
            bad = bad or not passed or grew > GROWTH
            at = ", ".join(f"{mib} MiB after {share:.0%}" for mib, share in zip(peaks, MARKS, strict=True))
            words = "" if passed else "; NOT ALL PASSED"
            words += f"; GREW {grew:.2f} times" if grew > GROWTH else ""
            speed = f"{count} x {len(KATAS)} in {seconds:.0f} s: {60 * count / seconds:.1f} submissions/min"
            print(f"{stage:<6} {speed}; {at}{words}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
