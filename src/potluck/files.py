"""Files that are whole or not there: written to a temporary name, flushed to disk, then renamed into place."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from potluck.errors import BadInput, Code

# A process that only asks whether a run is going on holds its lock for an instant, so one failure proves nothing.
TRIES = 10


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, never meets half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder: only one process may write to a run at a time."""
    with (folder / ".lock").open("w") as file:
        for left in reversed(range(TRIES)):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not left:
                    raise BadInput(Code.BUSY, f"run: {str(folder)!r} is being written by another process.") from None
                time.sleep(0.02)
        yield
