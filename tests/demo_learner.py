"""A learner who never was, some weeks on their way: events and files in a clone, the same ones every time.

python tests/demo_learner.py CLONE    into a clone that may be spoilt, and into the database of $KATA_DATA
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

from grader.content.catalog import Catalog, Kata, load_catalog
from grader.content.source_file import digest_of
from grader.content.spec import load_spec
from grader.judge.measure import min_bytes_of
from grader.judge.peaks import peak_bytes, peak_flops
from grader.learner import progress
from grader.verdict import format_sizes

BEGIN = datetime(2026, 2, 2, 18, 0, tzinfo=timezone.utc)
CARD = "NVIDIA GeForce RTX 4090"
FACTS = {"sms": 128, "clock_khz": 2_520_000, "memory_clock_khz": 10_501_000, "memory_bus_bits": 384}
PASSED_FAMILIES = ("elementwise", "relu", "sigmoid", "histogram", "embedding", "warp_reduce", "sgemm")
PARTLY = {"gelu": 3, "mat_trans": 12, "block_all_reduce": 9, "softmax": 4, "sgemv": 5, "hgemm": 3}
MISTAKES = ("wrong answer", "out of bounds", "race", "does not compile", "uninitialised", "too slow")


def live(clone: Path) -> int:
    """Write the learner's files and events. Returns how many events there are."""
    catalog, random = load_catalog(clone), Random(7)
    passed = [kata for kata in catalog.katas.values() if _reached(catalog, kata)]
    failed, written = catalog.katas["softmax_f32x4"], catalog.katas["elu_f32"]
    passed = [kata for kata in passed if kata not in (failed, written)]
    for kata in (*passed, failed, written):
        kata.skeleton_path.write_text(kata.solution_path.read_text())
    events = [event for number, kata in enumerate(passed) for event in _story(kata, number, random)]
    events.append(_event(failed, 66 * 24, what="grade", device="sim sm_90a", verdict="race", digest=""))
    return progress.import_lines((json.dumps(event) for event in events), clone)


def _reached(catalog: Catalog, kata: Kata) -> bool:
    place = catalog.by_family[kata.family].index(kata)
    return kata.family in PASSED_FAMILIES or place < PARTLY.get(kata.family, 0)


def _story(kata: Kata, number: int, random: Random) -> Iterator[dict[str, Any]]:
    """Some mistakes, perhaps a hint, a pass; and where speed is graded some more, each faster than the one before."""
    hour = number * 14.0 + random.random() * 9
    for _ in range(random.choice((0, 1, 1, 2))):
        yield _event(kata, hour, what="grade", device="sim sm_90a", verdict=random.choice(MISTAKES[:-1]), seconds=3.1)
        hour += 0.3
    if random.random() < 0.2:
        yield _event(kata, hour, what="hint", strength=1)
    if kata.speed is None or kata.level == "easy":
        yield _event(kata, hour + 0.5, what="grade", device="sim sm_90a", verdict="pass", digest=_digest(kata))
        return
    asked = kata.speed.percent.get("sm_89")
    last = random.uniform(0.55, 0.98) if asked is None else asked.percent / 100 * random.uniform(1.02, 1.2)
    for share, verdict in ((0.6 * last, "too slow"), (0.85 * last, "too slow"), (last, "pass")):
        hour += 20 * random.random()
        yield _event(
            kata,
            hour,
            what="grade",
            device="gpu sm_89",
            verdict=verdict,
            digest=_digest(kata),
            **_speed(kata, share, random),
        )


def _speed(kata: Kata, share: float, random: Random) -> dict[str, Any]:
    assert kata.speed is not None
    spec, sizes = load_spec(kata), kata.speed.shapes[0]
    flops = spec.flops(sizes) if spec.flops else 0
    bytes_s, flops_s = peak_bytes(FACTS), peak_flops(FACTS, (8, 9), kata.elem)
    bytes_moved = min_bytes_of(kata, spec, sizes)
    time_s = max(bytes_moved / (0.92 * bytes_s), flops / (0.85 * flops_s) if flops_s else 0) / share
    room = random.uniform(0.004, 0.03)
    return {
        **{"baseline": kata.speed.baseline, "ratio": share, "low": share - room, "high": share + room, "card": CARD},
        **{"sizes": format_sizes(sizes), "time_s": time_s, "bytes_moved": bytes_moved, "flops": flops},
        **{"peak_bytes_s": bytes_s, "peak_flops_s": flops_s},
    }


def _digest(kata: Kata) -> str:
    return digest_of(kata.skeleton_path)


def _event(kata: Kata, hour: float, **known: Any) -> dict[str, Any]:
    time = (BEGIN + timedelta(hours=hour)).isoformat(timespec="milliseconds")
    return {"id": f"{kata.name}{hour:.3f}", "time": time, "kata": kata.name, **known}


if __name__ == "__main__":
    print(live(Path(sys.argv[1])), "events")
