"""Your own data: `.npz`, a folder of `.npy` or of one `.npz` per client, CSV, Parquet, or a function."""

from __future__ import annotations

import csv
import importlib
import sys
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from potluck.data import check
from potluck.data.dataset import Array, Dataset
from potluck.errors import BadInput, Code, Missing, install_extra, must_be, no_file, unknown

SUFFIXES = (".npz", ".csv", ".parquet")
_CLIENT = ("client", "subject")
_LABEL = ("label", "y")
_BROKEN = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error)


def beside(path: Path) -> list[str]:
    """List the data files in the folder of a path, written like the path."""
    try:
        there = [one for one in islice(path.parent.iterdir(), 1000) if one.suffix.lower() in SUFFIXES]
    except OSError:
        return []
    return [str(path.with_name(one.name)) for one in there]


def read(path: Path) -> Dataset:
    """Read the dataset in a file or folder."""
    if path.is_dir():
        return _folder(path)
    if not path.exists():
        raise no_file(Code.DATA_UNKNOWN, "data", path)
    if path.stat().st_size == 0:
        raise BadInput(Code.DATA_FILE, f"{path}: the file is empty.")
    match path.suffix.lower():
        case ".npz":
            return check.dataset(str(path), read_npz(path), path.stem)
        case ".csv":
            return _table(path, _csv_columns(path))
        case ".parquet":
            return _table(path, _parquet_columns(path))
        case other:
            raise BadInput(
                Code.DATA_FILE, f"{path}: must be a folder or a file ending in {', '.join(SUFFIXES)}, got {other!r}."
            )


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
    except _BROKEN as fault:
        raise BadInput(Code.DATA_FILE, f"{path}: the archive is damaged ({fault}).") from fault
    return arrays


def _plain(path: Path, field: str, archive: Mapping[str, Array]) -> Array:
    try:
        array = archive[field]
    except _BROKEN as fault:
        if "pickle" in str(fault):
            raise BadInput(
                Code.DATA_VALUE,
                f"{path}: {field} holds Python objects, which are not unpickled; save plain numbers or text "
                "(sequences of unlike length: pad them and add `length`).",
            ) from fault
        raise BadInput(Code.DATA_FILE, f"{path}: {field} cannot be read, the file is damaged ({fault}).") from fault
    if not isinstance(array, np.ndarray):
        raise BadInput(Code.DATA_FILE, f"{path}: {field} is not an array.")
    return array


def _folder(path: Path) -> Dataset:
    if (path / "x.npy").exists():
        return check.dataset(str(path), _mapped(path), path.name)
    files = sorted(path.glob("*.npz"))
    if not files:
        raise BadInput(Code.DATA_FILE, f"{path}: the folder holds no .npz files (one per client), nor x.npy and y.npy.")
    parts = [(file, read_npz(file)) for file in files]
    for file, arrays in parts:
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
    first = parts[0][1]
    for file, arrays in parts:
        if arrays["x"].shape[1:] != first["x"].shape[1:]:
            raise BadInput(
                Code.DATA_SHAPE,
                f"{file}: x has samples of shape {arrays['x'].shape[1:]}, "
                f"those of {files[0].name} are {first['x'].shape[1:]}.",
            )
        if len(arrays["y"]) != len(arrays["x"]):
            raise BadInput(Code.DATA_SHAPE, f"{file}: y has {len(arrays['y'])} rows, x has {len(arrays['x'])}.")
    return check.dataset(str(path), _joined(parts), path.name)


def _joined(parts: Sequence[tuple[Path, dict[str, Array]]]) -> dict[str, Array]:
    """Join the arrays of the clients; a field must be in all files or in none."""
    first = parts[0][1]
    whole: dict[str, Array] = {key: first[key] for key in ("class_names", "overlap", "kind") if key in first}
    for field in ("x", "y", "t", "length", "split", "group"):
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
                Code.DATA_SHAPE, f"{parts[0][0].parent}: {field} differs between the files ({fault})."
            ) from fault
    whole["subject"] = np.concatenate([np.full(len(arrays["x"]), file.stem) for file, arrays in parts])
    return whole


def _mapped(path: Path) -> dict[str, Array]:
    """Read x.npy and the other .npy files; x stays on disk and is memory-mapped."""
    arrays: dict[str, Array] = {}
    for field in check.FIELDS:
        file = path / f"{field}.npy"
        if not file.exists():
            continue
        try:
            arrays[field] = np.load(file, mmap_mode="r" if field == "x" else None, allow_pickle=False)
        except _BROKEN as fault:
            raise BadInput(
                Code.DATA_FILE, f"{file}: this is not a plain .npy file, or it is damaged ({fault})."
            ) from fault
    return arrays


def _table(path: Path, columns: dict[str, Array]) -> Dataset:
    """Read one row per sample: label, client, perhaps split and group; every other column is a feature."""
    if not columns or not len(next(iter(columns.values()))):
        raise BadInput(Code.DATA_FILE, f"{path}: the table has no rows.")
    arrays: dict[str, Array] = {}
    roles = {"y": _LABEL, "subject": _CLIENT, "split": ("split",), "group": ("group",)}
    lowered = {name.strip().lower(): name for name in columns}
    for field, wanted in roles.items():
        found = [lowered[name] for name in wanted if name in lowered]
        if len(found) > 1:
            raise BadInput(Code.DATA_ARRAY, f"{path}: the columns {' and '.join(found)} both say {field}; keep one.")
        if found:
            arrays[field] = columns.pop(found[0])
    if "y" not in arrays:
        raise BadInput(
            Code.DATA_ARRAY, f"{path}: a column {' or '.join(map(repr, _LABEL))} with the labels is missing."
        )
    if not columns:
        raise BadInput(Code.DATA_ARRAY, f"{path}: there are no feature columns beside the label and the client.")
    arrays = {field: _as_numbers(column) for field, column in arrays.items()}
    features = [_feature(path, name, column) for name, column in columns.items()]
    arrays["x"] = np.stack(features, axis=1).astype(np.float32)
    return check.dataset(str(path), arrays, path.stem)


def _as_numbers(column: Array) -> Array:
    """Turn text into whole numbers if all of it is: in a CSV everything is text."""
    if column.dtype.kind != "U":
        return column
    try:
        return column.astype(np.int64)
    except ValueError:
        return column


def _feature(path: Path, name: str, column: Array) -> Array:
    if column.dtype.kind not in "iufbU":
        raise must_be(Code.DATA_VALUE, f"{path}: column {name!r}", "numbers", shown=f"{column.dtype} values")
    try:
        numbers = column.astype(np.float64)
    except ValueError:
        row = next(row for row, cell in enumerate(column) if not _is_number(cell))
        cell = str(column[row])
        what = f"has {cell!r}, which is not a number" if cell else "is empty"
        raise BadInput(Code.DATA_VALUE, f"{path}: column {name!r} {what} (data row {row + 1}).") from None
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        raise BadInput(
            Code.DATA_VALUE, f"{path}: column {name!r} has no finite number in data row {int(np.argmax(wrong)) + 1}."
        )
    return numbers


def _is_number(cell: object) -> bool:
    try:
        float(str(cell))
    except ValueError:
        return False
    return True


def _csv_columns(path: Path) -> dict[str, Array]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header_line = file.readline()
            separator = max(",;\t", key=header_line.count)
            file.seek(0)
            rows = [row for row in csv.reader(file, delimiter=separator) if row]
    except (UnicodeDecodeError, csv.Error) as fault:
        raise BadInput(Code.DATA_FILE, f"{path}: this is not a CSV file in UTF-8 ({fault}).") from fault
    header, body = [name.strip() for name in rows[0]], rows[1:]
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise BadInput(Code.DATA_ARRAY, f"{path}: the column {twice[0]!r} appears twice.")
    for number, row in enumerate(body, start=1):
        if len(row) != len(header):
            raise BadInput(
                Code.DATA_SHAPE, f"{path}: data row {number} has {len(row)} fields, the header has {len(header)}."
            )
    return {name: np.array([row[k].strip() for row in body], dtype=str) for k, name in enumerate(header)}


def _parquet_columns(path: Path) -> dict[str, Array]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_table
        from pyarrow.types import is_dictionary
    except ImportError as fault:
        raise Missing(
            Code.EXTRA, f"{path}: Parquet needs the package pyarrow; `{install_extra('frames')}` adds it."
        ) from fault
    try:
        table = read_table(path)
    except (ArrowException, OSError) as fault:
        raise BadInput(
            Code.DATA_FILE, f"{path}: this is not a Parquet file, or it is damaged ({str(fault).splitlines()[0]})."
        ) from fault
    columns: dict[str, Array] = {}
    for name in table.column_names:
        column = table.column(name)
        if column.null_count:
            raise BadInput(Code.DATA_VALUE, f"{path}: column {name!r} has {column.null_count} empty cells.")
        if is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        values = column.to_numpy()
        columns[name] = values.astype(str) if values.dtype == object else values
    return columns


def call(source: str) -> Dataset:
    """Call `package.module:function`, which returns a Dataset, a mapping of arrays, or (x, y[, subject])."""
    module_name, _, attribute = source.partition(":")
    if not module_name or not attribute.isidentifier():
        raise must_be(Code.DATA_FUNCTION, "data", "of the form package.module:function", source)
    function = getattr(_imported(module_name, source), attribute, None)
    if function is None:
        public = [name for name in dir(sys.modules[module_name]) if not name.startswith("_")]
        raise unknown(Code.DATA_FUNCTION, f"data: function in {module_name}", attribute, public)
    if not callable(function):
        raise must_be(Code.DATA_FUNCTION, f"data: {source}", "a function", shown=f"a {type(function).__name__}")
    try:
        returned = function()
    except BadInput:
        raise
    except Exception as fault:
        raise BadInput(Code.DATA_FUNCTION, f"data: {source} failed with {type(fault).__name__}: {fault}") from fault
    return _returned(source, returned)


def _imported(module_name: str, source: str) -> Any:
    here = str(Path.cwd())  # find a module in the working folder, as `python -m` does
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as fault:
        raise BadInput(
            Code.DATA_FUNCTION, f"data: {source}: there is no module {fault.name!r} here or among the installed ones."
        ) from fault
    except Exception as fault:
        raise BadInput(
            Code.DATA_FUNCTION, f"data: {source}: importing it failed with {type(fault).__name__}: {fault}"
        ) from fault
    finally:
        if added:
            sys.path.remove(here)


def _returned(source: str, value: object) -> Dataset:
    if isinstance(value, Dataset):
        return value
    if isinstance(value, tuple) and len(value) in (2, 3):
        value = dict(zip(("x", "y", "subject"), value, strict=False))
    if not isinstance(value, Mapping):
        raise BadInput(
            Code.DATA_FUNCTION,
            f"data: {source} must return a Dataset, a dict of arrays or (x, y[, subject]), "
            f"got a {type(value).__name__}.",
        )
    try:
        arrays = {str(field): np.asanyarray(array) for field, array in value.items() if array is not None}
    except ValueError as fault:
        raise BadInput(
            Code.DATA_FUNCTION, f"data: {source} returned something that is not an array ({fault})."
        ) from fault
    return check.dataset(source, arrays, source.rpartition(":")[2])
