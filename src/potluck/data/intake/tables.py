"""The columns of CSV and Parquet files, and their cells as numbers."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from potluck.data.dataset import Array
from potluck.errors import BadInput, Code, Missing, install_extra, must_be

SUFFIXES = (".csv", ".parquet")
_ABSENT = ("", "nan", "na", "n/a", "null", "none", "?", "-", "#n/a", "nat")


def columns(path: Path) -> dict[str, Array]:
    """Read a table; a CSV gives text, Parquet the types it has."""
    found = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
    if not found or not len(next(iter(found.values()))):
        raise BadInput(Code.DATA_FILE, f"{path}: the table has no rows.")
    return found


def as_numbers(column: Array) -> Array:
    """Turn text into whole numbers if all of it is: in a CSV everything is text."""
    if column.dtype.kind != "U":
        return column
    try:
        return column.astype(np.int64)
    except (ValueError, OverflowError):
        return column


def absent(column: Array, words: tuple[str, ...] = _ABSENT) -> Array:
    """Which cells hold no value."""
    if column.dtype.kind == "U":
        return np.isin(np.char.lower(np.char.strip(column)), words)
    if column.dtype.kind == "f":
        return np.isnan(column)
    return np.zeros(len(column), dtype=bool)


def is_text(column: Array) -> bool:
    """Whether no cell is a number, apart from the empty ones."""
    if column.dtype.kind != "U":
        return False
    known = np.unique(column[~absent(column)])
    return len(known) > 0 and not any(is_number(cell) for cell in known)


def comma(column: Array) -> str | None:
    """A cell of a column whose numbers have a decimal comma; None for any other column."""
    known = np.unique(column[~absent(column)]) if column.dtype.kind == "U" else column[:0]
    commas = [cell for cell in known if "," in cell]
    return str(commas[0]) if commas and all(is_number(cell.replace(",", ".", 1)) for cell in known) else None


def feature(path: str, name: str, column: Array) -> Array:
    """Turn a column into numbers, NaN where a cell is empty."""
    if column.dtype.kind not in "iufbU":
        raise must_be(Code.DATA_VALUE, f"{path}: column {name!r}", "numbers", shown=f"{column.dtype} values")
    if column.dtype.kind == "U":
        column = np.where(absent(column), "nan", column)
    try:
        values = column.astype(np.float64)
    except ValueError:
        row = next(row for row, cell in enumerate(column) if not is_number(cell))
        raise BadInput(
            Code.DATA_VALUE,
            f"{path}: column {name!r} has {str(column[row])!r}, which is not a number (data row {row + 1}).",
        ) from None
    wrong = np.isinf(values)
    if wrong.any():
        raise BadInput(Code.DATA_VALUE, f"{path}: column {name!r} is infinite in data row {int(np.argmax(wrong)) + 1}.")
    return values


def is_number(cell: object) -> bool:
    try:
        float(str(cell))
    except ValueError:
        return False
    return True


def _csv(path: Path) -> dict[str, Array]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header_line = file.readline()
            separator = max(",;\t", key=header_line.count)
            file.seek(0)
            rows = [row for row in csv.reader(file, delimiter=separator) if row]
    except (UnicodeDecodeError, csv.Error) as fault:
        raise BadInput(Code.DATA_FILE, f"{path}: this is not a CSV file in UTF-8 ({fault}).") from fault
    if not rows:
        raise BadInput(Code.DATA_FILE, f"{path}: the table has no rows.")
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


def _parquet(path: Path) -> dict[str, Array]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_table
        from pyarrow.types import is_binary, is_dictionary, is_floating, is_large_binary, is_nested
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
    found: dict[str, Array] = {}
    for name in table.column_names:
        column = table.column(name)
        if is_nested(column.type) or is_binary(column.type) or is_large_binary(column.type):
            shown = f"{column.type} cells"
            raise must_be(Code.DATA_VALUE, f"{path}: column {name!r}", "numbers or text", shown=shown)
        if is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if column.null_count and not is_floating(column.type):
            values = np.array(["" if cell is None else str(cell) for cell in column.to_pylist()], dtype=str)
        else:
            values = column.to_numpy()
        found[name] = values.astype(str) if values.dtype == object else values
    return found
