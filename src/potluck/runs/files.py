"""Files that are whole or not there: written beside, flushed, then moved into place."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from potluck.errors import BadInput, Code
from potluck.wire.files import write_bytes

__all__ = ["locked", "write_bytes", "write_json", "write_text"]

TRIES = 10  # whoever asks whether a run goes on holds its lock for an instant


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one process may write to a run at a time."""
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
