"""Arrays of `.npz` files, without unpickling anything."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib.format import MAGIC_PREFIX, read_array_header_1_0, read_array_header_2_0, read_magic

from potluck.data.dataset import Array
from potluck.errors import BadInput, Code, no_file
from potluck.sizes import check_fits

BROKEN = (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error)  # RuntimeError: encrypted


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
        _check_sizes(path)
        with np.load(path, allow_pickle=False) as archive:
            for field in archive.files:
                arrays[field] = _plain(path, field, archive)
    except BadInput:
        raise
    except BROKEN as fault:
        raise BadInput(Code.DATA_FILE, f"{path}: the archive is damaged ({fault}).") from fault
    return arrays


def _check_sizes(path: Path) -> None:
    """Compare what the arrays declare with what the archive holds, and both with this machine's memory."""
    remedy = " A folder with x.npy and the others stays on disk."
    with zipfile.ZipFile(path) as archive:
        check_fits(Code.DATA_FILE, f"{path}: its arrays", sum(one.file_size for one in archive.infolist()), remedy)
        for one in archive.infolist():
            with archive.open(one) as file:
                if file.read(len(MAGIC_PREFIX)) != MAGIC_PREFIX:
                    continue  # not an array, which `_plain` says
                file.seek(0)
                declared = declared_bytes(file)
            if declared > one.file_size:
                raise BadInput(
                    Code.DATA_FILE,
                    f"{path}: {one.filename} declares {declared} bytes and holds {one.file_size}. It is damaged.",
                )


def declared_bytes(file: IO[bytes]) -> int:
    """The bytes that the array of an .npy file declares, from its header alone; 0 for Python objects."""
    major, _ = read_magic(file)
    shape, _, dtype = (read_array_header_1_0 if major == 1 else read_array_header_2_0)(file)
    return 0 if dtype.hasobject else math.prod(shape) * dtype.itemsize


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
