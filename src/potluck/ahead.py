"""Samples that a run is sure to need, unpacked by another thread while modules are imported.

Imports need Python's interpreter, and to unpack an archive does not. Nothing depends on it: what is not there is read
where it is needed, and what fails here fails there again, in words.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from threading import Thread

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
MOST = 1 << 29  # bytes of samples that are unpacked before anybody has checked whether they fit into memory
STEP = 1 << 16  # bytes that are unpacked at a time: more would be new memory from the system each time
FAULTS = (OSError, EOFError, ValueError, RuntimeError, NotImplementedError, MemoryError, zipfile.BadZipFile, zlib.error)
Stamp = tuple[Path, int, int]


class _Reading(Thread):
    """Unpacks the members of an archive."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.found: dict[str, Bytes] = {}

    def run(self) -> None:
        try:
            with zipfile.ZipFile(self.path) as archive:
                members = archive.infolist()
                if sum(one.file_size for one in members) <= MOST:
                    self.found = {one.filename: _unpacked(archive, one) for one in members}
        except FAULTS:  # whoever reads it says what is wrong
            self.found = {}


_READING: dict[Stamp, _Reading] = {}


def samples(path: Path) -> None:
    """Begin to unpack an `.npz` file."""
    stamp = _stamp(path)
    if stamp is not None and stamp not in _READING:
        _READING[stamp] = _Reading(path)
        _READING[stamp].start()


def unpacked(path: Path) -> dict[str, Bytes]:
    """The members of an archive that `samples` began to unpack, once; empty if it did not, or could not."""
    stamp = _stamp(path)
    thread = None if stamp is None else _READING.pop(stamp, None)
    if thread is None:
        return {}
    thread.join()
    return thread.found


def _stamp(path: Path) -> Stamp | None:
    try:
        file = path.stat()
    except OSError:
        return None
    return path, file.st_mtime_ns, file.st_size


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Bytes:
    room = np.empty(member.file_size, np.uint8)  # in large pages, which the system gives NumPy and not Python
    at = 0
    with archive.open(member) as file:
        while piece := file.read(STEP):
            room[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)
    if at < len(room):
        raise EOFError
    return room
