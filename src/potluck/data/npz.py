"""Arrays of `.npz` files, without unpickling anything."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from potluck.data.dataset import Array
from potluck.errors import BadInput, Code, no_file

BROKEN = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error)


def check_file(path: Path) -> None:
    """Refuse a file that is not there or empty."""
    if not path.exists():
        raise no_file(Code.DATA_UNKNOWN, "data", path)
    if path.stat().st_size == 0:
        raise BadInput(Code.DATA_FILE, f"{path}: the file is empty.")


def read_npz(path: Path) -> dict[str, Array]:
    """Read all arrays of an `.npz` without unpickling."""
    if not zipfile.is_zipfile(path):
        raise BadInput(
            Code.DATA_FILE, f"{path}: this is not an .npz archive (np.savez writes one), or it is cut short."
        )
    arrays: dict[str, Array] = {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            for field in archive.files:
                arrays[field] = _plain(path, field, archive)
    except BadInput:
        raise
    except BROKEN as fault:
        raise BadInput(Code.DATA_FILE, f"{path}: the archive is damaged ({fault}).") from fault
    return arrays


def _plain(path: Path, field: str, archive: Mapping[str, Array]) -> Array:
    try:
        array = archive[field]
    except BROKEN as fault:
        if "pickle" in str(fault):
            raise BadInput(
                Code.DATA_VALUE,
                f"{path}: {field} holds Python objects, which are not unpickled; save plain numbers or text "
                "(sequences of unlike length: pad them and add `length`).",
            ) from fault
        raise BadInput(Code.DATA_FILE, f"{path}: {field} cannot be read, the file is damaged ({fault}).") from fault
    except MemoryError as fault:
        raise BadInput(
            Code.DATA_FILE,
            f"{path}: {field} does not fit into memory ({fault}). A folder with x.npy and the others stays on disk.",
        ) from fault
    if not isinstance(array, np.ndarray):
        raise BadInput(Code.DATA_FILE, f"{path}: {field} is not an array.")
    return array
