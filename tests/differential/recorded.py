"""expected.xz <-> Recording: the results of every form on a GPU, packed."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from programs import LANES, SLOT

FILE = "expected.xz"


@dataclass(frozen=True)
class Recording:
    """``results``: form -> 128 slots of 8 bytes; ``about``: the card, driver and compiler that they come from."""

    about: str
    results: Mapping[str, bytes]


def save(path: Path, recording: Recording) -> None:
    """The first line is JSON, the slots follow byte by byte of all lanes: like bytes stand together and pack well."""
    header = json.dumps({"about": recording.about, "forms": list(recording.results)}).encode() + b"\n"
    planes = (bits[byte::SLOT] for bits in recording.results.values() for byte in range(SLOT))
    path.write_bytes(lzma.compress(header + b"".join(planes), preset=9))


def load(path: Path) -> Recording:
    header, _, body = lzma.decompress(path.read_bytes()).partition(b"\n")
    fields = json.loads(header)
    results = {}
    for place, name in enumerate(fields["forms"]):
        planes = [body[(place * SLOT + byte) * LANES :][:LANES] for byte in range(SLOT)]
        results[name] = b"".join(bytes(lane) for lane in zip(*planes, strict=True))
    return Recording(fields["about"], results)
