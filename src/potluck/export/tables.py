"""Export runs as CSV or Parquet: one table of all runs, and a folder per run with the tables of its run.db."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from potluck.export import folder_of, names_of
from potluck.export.figures import whole
from potluck.files import write_bytes
from potluck.runs.record import reading
from potluck.runs.results import TABLES, Run

Rows = list[tuple[Any, ...]]


def write(runs: Sequence[Run], to: str, out: str) -> list[str]:
    folder = folder_of(out)
    lines = [{**whole(run), "run": name} for run, name in zip(runs, names_of(runs), strict=True)]
    made = [_table(folder / f"runs.{to}", list(lines[0]), [tuple(line.values()) for line in lines])]
    for run, name in zip(runs, names_of(runs), strict=True):
        (folder / name).mkdir(exist_ok=True)
        for table in TABLES:
            columns, rows = _rows(run, table)
            if rows:
                made.append(_table(folder / name / f"{table}.{to}", columns, rows))
    return [str(path) for path in made]


def _rows(run: Run, table: str) -> tuple[list[str], Rows]:
    path = run.folder / "run.db"
    if not path.exists():
        return [], []
    with reading(path) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
            return [], []  # a run of an older release has fewer tables
        found = db.execute(f"SELECT * FROM {table}")
        return [column[0] for column in found.description], found.fetchall()


def _table(path: Path, columns: Sequence[str], rows: Rows) -> Path:
    write_bytes(path, _csv(columns, rows) if path.suffix == ".csv" else _parquet(columns, rows))
    return path


def _csv(columns: Sequence[str], rows: Rows) -> bytes:
    """Numbers with all their digits; an empty cell for a missing value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().encode("utf-8", errors="replace")


def _parquet(columns: Sequence[str], rows: Rows) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    sink = io.BytesIO()
    parquet.write_table(pa.table({name: _typed(pa, [row[i] for row in rows]) for i, name in enumerate(columns)}), sink)
    return sink.getvalue()


def _typed(pa: Any, values: list[Any]) -> Any:
    """SQLite may store integers in a column of floats: turn those into floats as well."""
    if any(isinstance(value, float) for value in values):
        values = [float(value) if isinstance(value, int) else value for value in values]
    return pa.array(values)
