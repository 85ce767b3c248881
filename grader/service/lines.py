"""JSON lines between processes: objects into a descriptor, whole lines out of one as they come."""

from __future__ import annotations

import json
import os
from typing import Any

_READ_BYTES = 1 << 16


class Lines:
    """Reads whole lines from a descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._rest = b""

    def fileno(self) -> int:
        return self.fd

    def read(self) -> list[dict[str, Any]] | None:
        """The objects that have come; waits for the first bytes. None when the other end is closed."""
        try:
            data = os.read(self.fd, _READ_BYTES)
        except ConnectionResetError:
            data = b""
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]


def write(fd: int, line: dict[str, Any]) -> None:
    """Raises BrokenPipeError or ConnectionResetError when the other end is closed."""
    data = json.dumps(line).encode() + b"\n"
    while data:
        data = data[os.write(fd, data) :]
