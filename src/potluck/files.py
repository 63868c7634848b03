"""Files that are whole or not there: written to a temporary name, flushed to disk, then renamed into place."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from potluck.errors import BadInput, Code

# A process that only asks whether a run is going on holds its lock for an instant, so one failure proves nothing.
TRIES = 10
FAR = 1 << 30  # the byte that a lock covers where locks are of bytes (Windows): the rest of the file stays readable

if sys.platform == "win32":
    import msvcrt

    def lock(file: IO[Any], shared: bool = False) -> bool:
        """Lock an open file without waiting; return whether that worked. It ends with the file or the process."""
        before = file.tell()
        file.seek(FAR)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            file.seek(before)
        return True

else:
    import fcntl

    def lock(file: IO[Any], shared: bool = False) -> bool:
        """Lock an open file without waiting; return whether that worked. It ends with the file or the process."""
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


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
            if lock(file):
                break
            if not left:
                raise BadInput(Code.BUSY, f"run: {str(folder)!r} is being written by another process.")
            time.sleep(0.02)
        yield
