"""Samples of a file for a trained model: read as the run read its data, but without labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from potluck.data.dataset import Array, Dataset
from potluck.data.files import SUFFIXES
from potluck.data.intake import roles, tables
from potluck.data.intake.arrays import from_arrays, from_table
from potluck.data.intake.spec import Intake
from potluck.data.npz import check_file, read_npz
from potluck.errors import BadInput, Code, must_be
from potluck.runs.results import Personal

_LABEL = "potluck: no label"  # takes the place of labels, which new samples lack


@dataclass(frozen=True)
class NewSamples:
    """Samples in the layout of the dataset, their true labels as text where the file has them, and notes."""

    x: Array
    t: Array | None
    length: Array | None
    labels: Array | None
    notes: tuple[str, ...]


def read_samples(path: Path, one: Personal, intake: Intake) -> NewSamples:
    """Read the samples of an .npz, .csv or .parquet file for a model. `intake` is the run's own way of reading."""
    check_file(path)
    if path.suffix.lower() not in SUFFIXES:
        raise must_be(Code.DATA_FILE, str(path), f"a file ending in {', '.join(SUFFIXES)}", path.suffix)
    columns = replace(intake.columns, label=(_LABEL,), client=("none",), split=("none",))
    missing = "mean" if intake.missing == "drop" and intake.window is None else intake.missing
    reading = replace(intake, columns=columns, missing=missing, kind=intake.kind or one.about["kind"], settled=True)
    if path.suffix.lower() == ".npz":
        found, labels = _arrays(path, one, reading, intake)
    else:
        found, labels = _table(path, one, reading, intake)
    if found.x.shape[1:] != _wanted(one, found):
        raise must_be(
            Code.DATA_SHAPE, str(path), f"samples of shape {_wanted(one, found)}", shown=f"shape {found.x.shape[1:]}"
        )
    notes = tuple(note for note in found.notes if not note.startswith("Not used"))
    return NewSamples(found.x, found.t, found.length, labels if intake.window is None else None, notes)


def _wanted(one: Personal, found: Dataset) -> tuple[int, ...]:
    """The shape of one sample in the file's own layout."""
    shape = one.model.shape
    if one.about["kind"] != "image":
        return shape
    if one.about["channels_last"]:
        return (shape[1], shape[2], shape[0])
    return shape[1:] if shape[0] == 1 and found.x.ndim == 3 else shape


def _arrays(path: Path, one: Personal, reading: Intake, intake: Intake) -> tuple[Dataset, Array | None]:
    arrays = read_npz(path)
    inputs = reading.columns.features or ("x",)
    if inputs[0] not in arrays:
        raise roles.missing(str(path), "features", list(arrays), "array")
    kept = {key: arrays[key] for key in (*inputs, "t", "length", "kind", "missing") if key in arrays}
    kept[_LABEL] = np.zeros(len(np.atleast_1d(arrays[inputs[0]])), dtype=np.int64)
    return from_arrays(str(path), kept, path.stem, reading, least=1), _labels(arrays, intake)


def _table(path: Path, one: Personal, reading: Intake, intake: Intake) -> tuple[Dataset, Array | None]:
    columns = tables.columns(path)
    known = tuple(one.about.get("channels") or ()) or reading.columns.features
    names = known or tuple(key for key in columns if roles.says(key) is None and not tables.is_text(columns[key]))
    absent = [name for name in names if name not in columns]
    if absent:
        listed = ", ".join(map(repr, absent[:5])) + (f" and {len(absent) - 5} more" if len(absent) > 5 else "")
        raise BadInput(
            Code.DATA_ARRAY,
            f"{path}: must have the columns that the model was trained with; missing: {listed}.",
        )
    rows = len(next(iter(columns.values())))
    whole = {**columns, _LABEL: np.zeros(rows, dtype=np.int64)}
    reading = replace(reading, columns=replace(reading.columns, features=names))
    return from_table(str(path), whole, path.stem, reading, least=1), _labels(columns, intake)


def _labels(columns: dict[str, Array], intake: Intake) -> Array | None:
    """The true labels as text, if a column or array is named as the run's was, label or y, or a near name alone."""
    near = [name for name in columns if roles.says(name) == "label"]
    for name in intake.columns.label or ("label", "y", *(near if len(near) == 1 else ())):
        if name in columns and np.ndim(columns[name]) == 1:
            return np.asarray(tables.as_numbers(columns[name])).astype(str)
    return None
