"""Rows or readings -> samples: windows are cut, recordings found by time, missing values dealt with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from potluck.data.dataset import Array
from potluck.data.intake import clocks, gaps, labels, stretches, tables, windows
from potluck.data.intake.roles import Found
from potluck.data.intake.spec import Intake, Window
from potluck.errors import BadInput, Code

_BLANK = "unlabelled"  # a column on the way: which rows have no label; y has any label there
_ROWS = ("x", "y", "subject", "group", "t", "split", "length", _BLANK)


@dataclass
class Made:
    """The fields of a Dataset, and what was decided on the way."""

    fields: dict[str, Array]
    channels: tuple[str, ...]
    table: bool
    missing: bool = False
    unlabelled: Array | None = None  # rows without a label, where they are kept
    notes: list[str] = field(default_factory=list)


def made(origin: str, fields: dict[str, Array], found: Found, intake: Intake, channels: tuple[str, ...]) -> Made:
    """Turn rows into samples as the settings say. Rows that fit to nothing are left to the check of the Dataset."""
    result = Made(dict(fields), channels, found.what == "column")
    if not _same_rows(fields):
        return result
    broken = _without_labels(origin, result, intake)
    t = result.fields.get("t")
    if t is not None and np.asarray(t).ndim == 1:
        unit = intake.window.unit if intake.window else "auto"
        stamps, note = clocks.seconds(origin, found.names["time"][0], np.asarray(t), unit)
        result.fields["t"] = stamps
        if note and intake.window is not None:
            result.notes.append(f"The time {found.names['time'][0]!r} is read {note}.")
    if intake.window is not None:
        broken = _dropped(origin, result, intake, broken)
        _cut(origin, result, intake.window, broken)
    elif t is not None and np.asarray(t).ndim == 1:
        _in_time(origin, result)
    _fill(origin, result, intake)
    result.unlabelled = result.fields.pop(_BLANK, None)
    return result


def _same_rows(fields: dict[str, Array]) -> bool:
    """Whether all columns are of one length; if not, the check of the Dataset says which is not."""
    x = np.asanyarray(fields["x"])
    if x.ndim == 0 or not len(x) or x.dtype.kind not in "iufb":
        return False
    return all(np.ndim(fields[key]) > 0 and len(fields[key]) == len(x) for key in _ROWS if key in fields)


def _keep(result: Made, keep: Array) -> None:
    for key in _ROWS:
        if key in result.fields:
            result.fields[key] = np.asanyarray(result.fields[key])[keep]


def _without_labels(origin: str, result: Made, intake: Intake) -> Array | None:
    """Keep rows without a label, or leave them out, as asked; return which rows follow one that was left out."""
    y = np.asanyarray(result.fields["y"])
    if y.ndim != 1:
        return None
    keep = intake.unlabelled and "asks" not in result.fields
    gone = tables.absent(y, ("", "nan"))
    if keep and y.dtype.kind == "i":
        gone = gone | (y == -1)
    if not gone.any():
        return None
    if gone.all() or not (keep or intake.missing == "drop"):
        train = ", or task.unlabelled to pseudo or consistency to train on them"
        if "asks" in result.fields:
            train = f"{train} if the others are classes" if labels.may_be_classes(y) else ""
        raise BadInput(
            Code.DATA_LABELS,
            f"{origin}: {int(gone.sum())} of {len(y)} rows have no label, first in row {int(np.argmax(gone))}. "
            f"Set data.missing to drop to leave them out{train}.",
        )
    if keep:
        result.fields["y"] = tables.as_numbers(np.where(gone, y[~gone][0], y))
        result.fields[_BLANK] = gone
        result.notes.append(
            f"{int(gone.sum())} of {len(y)} rows have no label; task.unlabelled says what they are for."
        )
        return None
    _keep(result, ~gone)
    result.fields["y"] = tables.as_numbers(np.asarray(result.fields["y"]))
    result.notes.append(f"{int(gone.sum())} of {len(y)} rows have no label and are left out.")
    return np.concatenate([[False], np.diff(np.cumsum(gone)[~gone]) > 0])


def _dropped(origin: str, result: Made, intake: Intake, broken: Array | None) -> Array | None:
    """Leave out readings with a missing value before windows are cut; a window never spans the hole."""
    holes = gaps.find(np.asanyarray(result.fields["x"]))
    if holes is None:
        return broken
    if intake.missing == "refuse":
        raise gaps.refusal(origin, holes, result.channels, result.table, intake.settled)
    result.notes.append(f"{_capital(holes.described(result.channels))} ({intake.missing}).")
    if intake.missing != "drop":
        return broken
    _check_some_left(origin, holes, result)
    keep = ~holes.rows
    after = np.concatenate([[False], np.diff(np.cumsum(holes.rows)[keep]) > 0])
    if broken is not None:
        after |= np.concatenate([[False], np.diff(np.cumsum(broken)[keep]) > 0])
    _keep(result, keep)
    return after


def _cut(origin: str, result: Made, window: Window, broken: Array | None) -> None:
    fields = result.fields
    x = np.asarray(fields["x"])
    if x.ndim == 1:
        x = x[:, None]
    if x.ndim != 2:
        raise BadInput(
            Code.DATA_SHAPE,
            f"{origin}: data.window cuts rows of shape (channels,), but x has shape {x.shape}: its rows are windows.",
        )
    if np.asarray(fields["y"]).ndim != 1 or "length" in fields:
        raise BadInput(Code.DATA_SHAPE, f"{origin}: data.window needs one label per reading and no array 'length'.")
    if fields.get("t") is not None and np.asarray(fields["t"]).ndim != 1:
        raise BadInput(Code.DATA_SHAPE, f"{origin}: data.window needs one time per reading.")
    values, y = _codes(fields)
    if "asks" in fields and window.label != "last":  # a number changes with every reading
        window = replace(window, label="last")
        result.notes.append("The target of a window is that of its last reading.")
    columns = {key: None if key not in fields else np.asarray(fields[key]) for key in ("subject", "group", "split")}
    given = windows.Readings(x, y, columns["subject"], columns["group"], fields.get("t"), columns["split"], broken)
    cut = windows.cut(origin, given, window)
    if _BLANK in fields:
        fields[_BLANK] = cut.y == len(values)
    labels = values[np.minimum(cut.y, len(values) - 1)]
    fields.update({"x": cut.x, "y": labels, "group": cut.group, "overlap": np.asarray(cut.overlap)})
    for key in ("subject", "split"):
        column = columns[key]
        if column is not None:
            fields[key] = column[cut.first]
    for key, column in (("t", cut.t), ("length", cut.length)):
        fields.pop(key, None)
        if column is not None:
            fields[key] = column
    result.notes += cut.notes


def _codes(fields: dict[str, Array]) -> tuple[Array, Array]:
    """The labels that there are, and the number of each row's; rows without a label have the next number."""
    values, y = np.unique(np.asarray(fields["y"]), return_inverse=True)
    y = y.reshape(-1)
    return values, np.where(fields[_BLANK], len(values), y) if _BLANK in fields else y


def _in_time(origin: str, result: Made) -> None:
    """Rows with a time each, without windows: what follows in time with one label is one recording."""
    fields = result.fields
    t, y = np.asarray(fields.pop("t")), np.asarray(fields["y"])
    if "group" in fields or y.ndim != 1:
        return
    subject = fields.get("subject")
    also = () if "asks" in fields else (_codes(fields)[1],)
    try:
        found = stretches.find(origin, len(t), None if subject is None else np.asarray(subject), None, t, None, also)
    except BadInput:
        result.notes.append("The times are not in order, so they are not used: rows count as independent.")
        return
    fields["group"] = stretches.numbered(found)
    result.notes.append(
        f"The rows have times, so rows that follow each other with one label count as one recording "
        f"({len(found.starts) - 1} in all) and stay together in the split. "
        "If they are readings of a signal, cut windows: data.window.seconds=2."
    )


def _fill(origin: str, result: Made, intake: Intake) -> None:
    """Deal with what is missing in the samples; means are left to the clients, as training rows are not known yet."""
    x = np.asanyarray(result.fields["x"])
    holes = gaps.find(x)
    if holes is None:
        return
    names = result.channels if len(result.channels) == len(holes.by_channel) else ()
    how = intake.missing
    if how == "refuse" and "missing" in result.fields:
        how = "mean"  # the file says that NaN is meant
    if how == "refuse":
        raise gaps.refusal(origin, holes, names, result.table, intake.settled)
    if not any("missing value" in note for note in result.notes):
        result.notes.append(f"{_capital(holes.described(names))} ({how}).")
    if how == "drop":
        _check_some_left(origin, holes, result)
        _keep(result, ~holes.rows)
        return
    if how == "interpolate":
        if x.ndim != 3:
            raise BadInput(
                Code.SETTINGS_CLASH,
                f"{origin}: data.missing: 'interpolate' works inside windows, but a sample has shape {x.shape[1:]}. "
                "Use mean, mask or drop.",
            )
        t, length = result.fields.get("t"), result.fields.get("length")
        result.fields["x"] = gaps.interpolated(x, t, length)
        holes = gaps.find(np.asarray(result.fields["x"]))
        if holes is None:
            return
    elif how == "mask":
        if x.ndim == 1:
            x = x[:, None]
        if x.ndim == 4:
            raise BadInput(Code.SETTINGS_CLASH, f"{origin}: data.missing: 'mask' works with features and series only.")
        result.fields["x"], result.channels = gaps.marked(x, holes, names)
    result.missing = True
    result.notes.append("What is missing gets the mean of its client's own training rows.")


def _check_some_left(origin: str, holes: gaps.Holes, result: Made) -> None:
    if holes.rows.all():
        raise BadInput(
            Code.DATA_VALUE, f"{origin}: {holes.described(result.channels)}: data.missing = drop would leave no row."
        )


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
