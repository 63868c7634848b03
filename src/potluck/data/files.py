"""Your own data: `.npz`, CSV, Parquet, a folder of `.npy` files, or a folder with one file per client or recording."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from potluck.data.dataset import Dataset
from potluck.data.folders import read_folder
from potluck.data.intake import tables
from potluck.data.intake.arrays import from_arrays, from_table
from potluck.data.intake.spec import Intake
from potluck.data.npz import check_file, read_npz
from potluck.errors import BadInput, Code

SUFFIXES = (".npz", *tables.SUFFIXES)


def beside(path: Path) -> list[str]:
    """List the data files in the folder of a path, written like the path."""
    try:
        there = [one for one in islice(path.parent.iterdir(), 1000) if one.suffix.lower() in SUFFIXES]
    except OSError:
        return []
    return [str(path.with_name(one.name)) for one in there]


def read(path: Path, intake: Intake | None = None, least: int = 2) -> Dataset:
    """Read the dataset in a file or folder. `least`: how many classes it must have."""
    intake = intake or Intake()
    if path.is_dir():
        return read_folder(path, intake, least)
    check_file(path)
    match path.suffix.lower():
        case ".npz":
            return from_arrays(str(path), read_npz(path), path.stem, intake, least)
        case ".csv" | ".parquet":
            return from_table(str(path), tables.columns(path), path.stem, intake, least)
        case other:
            raise BadInput(
                Code.DATA_FILE, f"{path}: must be a folder or a file ending in {', '.join(SUFFIXES)}, got {other!r}."
            )
