"""A damaged SQLite database -> the rows of a table that can still be read. The file is not changed."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any


def readable_rows(place: Path, table: str) -> list[dict[str, Any]]:
    """The rows, each by its columns' names, in their order. They are read from both ends up to what is damaged.

    Does not raise for a file that is not a database: it has no rows.
    """
    import sqlite3

    found: dict[int, dict[str, Any]] = {}
    with contextlib.suppress(sqlite3.Error), contextlib.closing(_opened(place)) as db:
        for order in ("ASC", "DESC"):
            with contextlib.suppress(sqlite3.DatabaseError):
                rows = db.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid {order}")
                names = [column[0] for column in rows.description]
                for number, *values in rows:
                    if number in found:
                        break
                    found[number] = dict(zip(names[1:], values, strict=True))
    return [found[number] for number in sorted(found)]


def _opened(place: Path) -> Any:
    """A connection that writes nothing, rolls nothing back, and takes a file that was cut off for what is left."""
    import sqlite3

    db = sqlite3.connect(f"{place.absolute().as_uri()}?immutable=1", uri=True)
    db.execute("PRAGMA writable_schema = ON")
    db.text_factory = lambda text: text.decode(errors="replace")
    return db
