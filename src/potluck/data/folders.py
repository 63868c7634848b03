"""Folders: arrays as `.npy` files, one `.npz` per client, tables per client or recording, or train and test files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from potluck.data.dataset import Array, Dataset
from potluck.data.intake import pairs, tables
from potluck.data.intake.arrays import from_arrays, from_table
from potluck.data.intake.spec import Intake
from potluck.data.npz import BROKEN, check_file, declared_bytes, read_npz
from potluck.errors import BadInput, Code

MOST_FILES = 100_000
_JOINED = ("x", "y", "t", "length", "split", "group")


def read_folder(path: Path, intake: Intake, least: int = 2) -> Dataset:
    """Read a folder by what it holds."""
    loose = sorted(path.glob("*.npy"))
    if loose:
        return from_arrays(str(path), _mapped(loose), path.name, intake, least)
    files = sorted(path.glob("*.npz"))
    if files:
        sides = _sides(files)
        parts = [(file, _part(file)) for file in files]
        whole = _sided(path, parts, sides) if sides is not None else _joined(parts)
        return from_arrays(str(path), whole, path.name, intake, least)
    found = sorted(one for suffix in tables.SUFFIXES for one in (*path.glob(f"*{suffix}"), *path.glob(f"*/*{suffix}")))
    if not found:
        raise BadInput(
            Code.DATA_FILE,
            f"{path}: the folder holds no .npz files (one per client), no .csv or .parquet files (one per client or "
            "recording), nor x.npy and y.npy.",
        )
    if len(found) > MOST_FILES:
        raise BadInput(Code.DATA_FILE, f"{path}: the folder holds {len(found)} files, more than {MOST_FILES}.")
    return _tables(path, found, intake, least)


def _sides(files: Sequence[Path]) -> list[int] | None:
    """The sides of files that are called train and test (and valid), and nothing else."""
    stems = [file.stem.lower() for file in files]
    if {"train", "test"} <= set(stems) and all(stem in pairs.SIDES for stem in stems):
        return [pairs.SIDES[stem] for stem in stems]
    return None


def _mapped(files: Sequence[Path]) -> dict[str, Array]:
    """Read the .npy files; the samples stay on disk and are memory-mapped."""
    arrays: dict[str, Array] = {}
    for file in files:
        try:
            with file.open("rb") as header:
                if declared_bytes(header) > file.stat().st_size:
                    raise ValueError("it declares more numbers than it holds")
            arrays[file.stem] = np.load(file, mmap_mode="r" if file.stem == "x" else None, allow_pickle=False)
        except BROKEN as fault:
            raise BadInput(
                Code.DATA_FILE, f"{file}: this is not a plain .npy file, or it is damaged ({fault})."
            ) from fault
    return arrays


def _part(file: Path) -> dict[str, Array]:
    arrays = read_npz(file)
    for field in ("x", "y"):
        if field not in arrays:
            raise BadInput(
                Code.DATA_ARRAY, f"{file}: the array {field!r} is missing. Found: {', '.join(arrays) or 'nothing'}."
            )
        if not arrays[field].ndim or not len(arrays[field]):
            raise BadInput(
                Code.DATA_SHAPE,
                f"{file}: client {file.stem} has no samples, {field} has shape {arrays[field].shape}.",
            )
    if len(arrays["y"]) != len(arrays["x"]):
        raise BadInput(Code.DATA_SHAPE, f"{file}: y has {len(arrays['y'])} rows, x has {len(arrays['x'])}.")
    return arrays


def _joined(parts: Sequence[tuple[Path, dict[str, Array]]], more: Sequence[str] = ()) -> dict[str, Array]:
    """Join the arrays of the clients; a field must be in all files or in none."""
    first_file, first = parts[0]
    for file, arrays in parts:
        if arrays["x"].shape[1:] != first["x"].shape[1:]:
            raise BadInput(
                Code.DATA_SHAPE,
                f"{file}: x has samples of shape {arrays['x'].shape[1:]}, "
                f"those of {first_file.name} are {first['x'].shape[1:]}.",
            )
    whole: dict[str, Array] = {key: first[key] for key in ("class_names", "overlap", "kind") if key in first}
    for field in (*_JOINED, *more):
        having = [arrays for _, arrays in parts if field in arrays]
        if not having:
            continue
        if len(having) < len(parts):
            without = next(file for file, arrays in parts if field not in arrays)
            raise BadInput(
                Code.DATA_ARRAY, f"{without}: the array {field!r} is missing, other files of the folder have it."
            )
        columns = [arrays[field] for arrays in having]
        if field == "group":  # ids count within a file: make them differ between files
            columns = [np.char.add(f"{k}:", column.astype(str)) for k, column in enumerate(columns)]
        try:
            whole[field] = np.concatenate(columns)
        except (ValueError, TypeError) as fault:
            raise BadInput(
                Code.DATA_SHAPE, f"{first_file.parent}: {field} differs between the files ({fault})."
            ) from fault
    if not more:
        whole["subject"] = np.concatenate([np.full(len(arrays["x"]), file.stem) for file, arrays in parts])
        whole |= {key: np.zeros(0) for key in _others(parts)}  # named as not used
    return whole


def _others(parts: Sequence[tuple[Path, dict[str, Array]]]) -> list[str]:
    """Arrays of the files that no field of a dataset is, to be named as not used."""
    known = {*_JOINED, "class_names", "overlap", "kind", "subject", "subject_names"}
    return sorted({key for _, arrays in parts for key in arrays} - known)


def _sided(path: Path, parts: Sequence[tuple[Path, dict[str, Array]]], sides: Sequence[int]) -> dict[str, Array]:
    """Join a train and a test file; their names give the split."""
    for file, arrays in parts:
        if "split" in arrays:
            raise BadInput(Code.DATA_ARRAY, f"{file}: 'split' and the name of the file both give a split; keep one.")
    common = [
        key for key in parts[0][1] if np.ndim(parts[0][1][key]) and len(parts[0][1][key]) == len(parts[0][1]["x"])
    ]
    whole = _joined(parts, [key for key in common if key not in _JOINED])
    whole["split"] = np.repeat(sides, [len(arrays["x"]) for _, arrays in parts])
    return whole


def _tables(path: Path, files: Sequence[Path], intake: Intake, least: int) -> Dataset:
    """Join tables with the same columns; the files and their folders are two columns more."""
    sides = _sides(files) if all(file.parent == path for file in files) else None
    parts: list[dict[str, Array]] = []
    for file in files:
        check_file(file)
        columns = tables.columns(file)
        if parts and set(columns) != set(parts[0]):
            odd = sorted(set(columns) ^ set(parts[0]))
            raise BadInput(
                Code.DATA_ARRAY,
                f"{file}: must have the columns of {files[0].name}, but {odd[0]!r} is in one of the two only.",
            )
        parts.append(columns)
    whole = {name: _column(path, name, [columns[name] for columns in parts]) for name in parts[0]}
    rows = [len(next(iter(columns.values()))) for columns in parts]
    if sides is not None:
        if "split" in whole:
            raise BadInput(Code.DATA_ARRAY, f"{path}: 'split' and the files' names both give a split; keep one.")
        whole["split"] = np.repeat(sides, rows)
        return from_table(str(path), whole, path.name, intake, least)
    names = {"file": np.repeat([str(file.relative_to(path).with_suffix("")) for file in files], rows)}
    if any(file.parent != path for file in files):
        names["folder"] = np.repeat([file.parent.name if file.parent != path else file.stem for file in files], rows)
    return from_table(str(path), whole, path.name, intake, least, names)


def _column(path: Path, name: str, columns: Sequence[Array]) -> Array:
    if len({column.dtype.kind for column in columns} - {"i", "u", "f"}) > 1:
        raise BadInput(Code.DATA_VALUE, f"{path}: the column {name!r} is text in some files and numbers in others.")
    return np.concatenate(columns)
