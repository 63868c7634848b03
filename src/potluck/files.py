"""Files that are whole or not there: written to a temporary name, flushed to disk, then renamed into place."""

from __future__ import annotations

import errno
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
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG, errno.EIO)
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


def write_bytes(path: Path, data: bytes, private: bool = False) -> None:
    """Write a file so that a reader, or a crash, never meets half of it. Only its owner can read a private one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(temporary, flags, 0o600 if private else 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:  # a full disk: leave nothing behind
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(folder: Path) -> None:
    """Flush a folder's names to disk: without it a power cut may undo a rename, or forget a new file."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_folder(path: Path, private: bool = False) -> None:
    """Make a folder and those above it, for good. Only its owner can read a private one; one that exists becomes so."""
    if not path.is_dir():
        missing = [path, *(above for above in path.parents if not above.exists())]
        path.mkdir(parents=True, exist_ok=True)
        for made in missing:
            sync(made.parent)
    if private and os.name == "posix":
        path.chmod(0o700)


def sweep(folder: Path) -> None:
    """Remove what writers that were killed left behind. Only the holder of a folder's lock may do that."""
    for left in folder.rglob(".*.part"):
        process = left.name.rsplit(".", 2)[1]
        if process.isdecimal() and not _lives(int(process)):
            left.unlink(missing_ok=True)


def _lives(process: int) -> bool:
    """Whether a process of this machine may still write; this one does not while it sweeps."""
    if process == os.getpid():
        return False
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def cannot_write(folder: Path, error: Exception) -> BadInput:
    """Refuse a folder on a full or read-only disk. What is there stays whole."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return BadInput(Code.OUTPUT_PLACE, f"run: {str(folder)!r} cannot be written ({reason}). What is there is whole.")


@contextmanager
def refusing(folder: Path) -> Iterator[None]:
    """Turn the error of a full or read-only disk into one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK:
            raise
        raise cannot_write(folder, error) from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder: only one process may write to a run at a time."""
    try:
        opened = (folder / ".lock").open("w")
    except OSError as error:
        raise cannot_write(folder, error) from None
    with opened as file:
        for left in reversed(range(TRIES)):
            if lock(file):
                break
            if not left:
                raise BadInput(Code.BUSY, f"run: {str(folder)!r} is being written by another process.")
            time.sleep(0.02)
        yield
