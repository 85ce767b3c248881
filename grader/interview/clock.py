"""The machine's clocks -> Moment; two Moments -> the time that passed between them.

Time passes while no process runs and while a laptop sleeps, and setting the clock back gains none. Within one boot, the
clock since boot counts: it includes sleep, and no one can set it.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Moment:
    """``time``: ISO 8601 in UTC, as the wall clock had it. ``boot_s``: seconds since the boot that ``boot`` names."""

    time: str
    boot: str
    boot_s: float

    @property
    def wall_s(self) -> float:
        return datetime.fromisoformat(self.time).timestamp()


def now() -> Moment:
    """This moment, by all clocks."""
    wall = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return Moment(wall, _boot(), round(_since_boot_s(), 3))


def elapsed_s(start: Moment, end: Moment) -> float:
    """Seconds from one to the other, at least 0: by the clock since boot, or the wall clock across boots."""
    if start.boot == end.boot and end.boot_s >= start.boot_s:
        return end.boot_s - start.boot_s
    return max(0.0, end.wall_s - start.wall_s)


def clock_set_s(start: Moment, end: Moment) -> float:
    """By how much the wall clock was set meanwhile, forward being more than 0; 0 where that cannot be known."""
    if start.boot != end.boot or end.boot_s < start.boot_s:
        return 0.0
    return (end.wall_s - start.wall_s) - (end.boot_s - start.boot_s)


def format_duration(seconds: float) -> str:
    """A duration as ``4:05`` or ``1:02:03``; ``-0:30`` where it is less than nothing."""
    sign, whole = ("-", -int(seconds // 1)) if seconds < 0 else ("", int(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{sign}{hours}:{minutes:02}:{left:02}" if hours else f"{sign}{minutes}:{left:02}"


def _since_boot_s() -> float:
    """Sleeps included, where the system has such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@functools.cache
def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
