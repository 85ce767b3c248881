"""expected.xz <-> Recording: what every program left on a GPU, packed.

expected_h100.xz has programs that were written later, from a card of the same architecture.
"""

from __future__ import annotations

import functools
import json
import lzma
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path(__file__).with_name("expected.xz")
LATER = Path(__file__).with_name("expected_h100.xz")
SLOT = 8


@dataclass(frozen=True)
class Machine:
    """Where a recording was made, and when."""

    date: str
    gpu: str
    driver: str
    nvcc: str
    ptxas: str

    def __str__(self) -> str:
        return f"{self.gpu}, driver {self.driver}, nvcc {self.nvcc}, ptxas {self.ptxas}, {self.date}"


@dataclass(frozen=True)
class Recording:
    """``results``: a program's name -> the bytes of its ``out``."""

    machine: Machine
    results: Mapping[str, bytes]


def save(path: Path, recording: Recording, *, quick: bool = False) -> None:
    """The first line is JSON, the results follow, each byte by byte of all its slots: like bytes stand together.
    ``quick``: packed in a fraction of the time, less well.
    """
    sizes = {name: len(data) for name, data in recording.results.items()}
    header = json.dumps({"machine": asdict(recording.machine), "sizes": sizes}).encode() + b"\n"
    planes = (_padded(data)[byte::SLOT] for data in recording.results.values() for byte in range(SLOT))
    path.write_bytes(lzma.compress(header + b"".join(planes), preset=0 if quick else 9))


def load(path: Path = FILE) -> Recording:
    header, _, body = lzma.decompress(path.read_bytes()).partition(b"\n")
    fields = json.loads(header)
    results, start = {}, 0
    for name, size in fields["sizes"].items():
        slots = -(-size // SLOT)
        data = bytearray(slots * SLOT)
        for byte in range(SLOT):
            data[byte::SLOT] = body[start + byte * slots : start + (byte + 1) * slots]
        results[name] = bytes(data[:size])
        start += slots * SLOT
    return Recording(Machine(**fields["machine"]), results)


@functools.cache
def load_all() -> Recording:
    """Both files; the machine is that of the first, which wins."""
    first, later = load(), load(LATER)
    return Recording(first.machine, {**later.results, **first.results})


def _padded(data: bytes) -> bytes:
    return data.ljust(-(-len(data) // SLOT) * SLOT, b"\0")
