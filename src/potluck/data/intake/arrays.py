"""Named arrays or columns -> a checked Dataset that says what each of them was taken for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from potluck.data import check
from potluck.data.dataset import MOST_CHANNELS, Array, Dataset, Taken, few_channels
from potluck.data.intake import clocks, labels, pairs, roles, samples, tables
from potluck.data.intake.roles import FIELD, Found
from potluck.data.intake.spec import Intake
from potluck.data.split import ids
from potluck.errors import BadInput, Code

_SETTINGS = {"length": "length", "class_names": "names", "subject_names": "names", "overlap": "setting"}
_SETTINGS |= {"kind": "setting", "missing": "setting", "dealt": "setting"}
_ROLES = ("label", "client", "recording", "time", "split")
_JOIN = "|"
_TEXT = "it holds text"
_MANY_CLASSES = 100  # numbers as labels with more values than this may be a measurement
_SEARCHED = 1 << 28  # bytes of x up to which its columns are searched for clocks


def from_arrays(origin: str, given: Mapping[str, Array], name: str, intake: Intake, least: int = 2) -> Dataset:
    """Make a Dataset of the arrays of an .npz, of .npy files or of a function."""
    arrays, taken, notes = pairs.joined(origin, given)
    rest = [key for key in arrays if key not in _SETTINGS]

    def fits(role: str, key: str) -> bool:
        array = np.asanyarray(arrays[key])
        axes = {"features": (2, 3, 4), "time": (1, 2)}.get(role, (1, 2))
        wide = role in ("features", "time", "label")  # several labels, or several numbers to predict
        return array.ndim in axes and (array.ndim == 1 or wide or array.shape[1] == 1)

    found = roles.assign(origin, rest, intake.columns, fits, (*_ROLES, "features"), "array")
    joined = {key for key in arrays if key not in given}
    found.taken = [replace(one, why="joined of both sides") if one.name in joined else one for one in found.taken]
    found.taken += taken
    found.notes = notes + found.notes
    for role in ("features", "label"):
        if role not in found.names:
            raise roles.missing(origin, role, rest, "array")
    for key in arrays:
        if key in _SETTINGS:
            found.taken.append(Taken(key, _SETTINGS[key], f"its name is {key!r}"))
    fields: dict[str, Array] = {key: arrays[key] for key in arrays if key in _SETTINGS}
    for role, names in found.names.items():
        fields[FIELD[role]] = _combined(origin, role, [arrays[key] for key in names], names)
    _ignore_rest(found, rest)
    channels = found.names["features"] if len(found.names["features"]) > 1 else ()
    return _finish(origin, name, fields, found, intake, least, tuple(channels))


def from_table(
    origin: str,
    columns: Mapping[str, Array],
    name: str,
    intake: Intake,
    least: int = 2,
    files: Mapping[str, Array] | None = None,
) -> Dataset:
    """Make a Dataset of a table with one row per sample, or per reading where it is to be cut into windows.

    `files` are the columns `file` and `folder` of tables that were joined.
    """
    every = {**columns, **{key: column for key, column in (files or {}).items() if key not in columns}}
    added = [key for key in every if key not in columns]

    def fits(role: str, key: str) -> bool:
        return key not in added and (role != "time" or _may_be_time(every, key))

    found = roles.assign(origin, list(every), intake.columns, fits, _ROLES, "column")
    _by_files(found, added, intake)
    if "label" not in found.names:
        raise roles.missing(origin, "label", list(columns), "column")
    fields: dict[str, Array] = {}
    for role, names in found.names.items():
        fields[FIELD[role]] = _combined(origin, role, [tables.as_numbers(every[key]) for key in names], names)
    chosen = intake.columns.features
    if chosen is None:
        chosen = _features(origin, found, {key: every[key] for key in columns}, fields.get("subject"))
    else:
        roles.take_asked(found, "features", chosen, list(every), origin)
        for key in every:
            if key not in found.used:
                found.ignore(key, "data.columns.features does not name it")
    if not chosen:
        raise BadInput(
            Code.DATA_ARRAY,
            f"{origin}: there are no feature columns beside {', '.join(sorted(found.used)) or 'nothing'}. "
            "Name some with --set data.columns.features=A,B.",
        )
    numbers = [tables.feature(origin, key, every[key]) for key in chosen]
    fields["x"] = np.stack(numbers, axis=1).astype(np.float32)
    return _finish(origin, name, fields, found, intake, least, tuple(chosen))


def _may_be_time(columns: Mapping[str, Array], key: str) -> bool:
    """A column `t` may also be a temperature: it is a time only if it goes up. Longer names say it themselves."""
    if roles.plain(key) != "t":
        return True
    values = clocks.numbers(columns[key])
    return values is None or float(np.mean(np.diff(values) > 0)) >= 0.9 if len(columns[key]) > 1 else False


def _by_files(found: Found, added: Sequence[str], intake: Intake) -> None:
    """Let the files of a folder be clients or recordings, where no column is."""
    left = [key for key in added if key not in found.used]
    for role, setting in (("client", intake.columns.client), ("recording", intake.columns.group)):
        if role in found.names or setting is not None or not left:
            continue
        key = "folder" if role == "client" and "folder" in left else "file"
        if key in left:
            found.take(role, [key], f"each {key} is one {role}")
            found.notes.append(f"Each {key} is one {role}, as no column names the {role}s.")
            left.remove(key)
    for key in left:
        found.ignore(key, "the columns say more")


def _features(origin: str, found: Found, columns: Mapping[str, Array], subject: Array | None) -> tuple[str, ...]:
    """All other columns are features, except those that are a clock, text, or mean something else by their name."""
    client = None if subject is None else ids(subject)
    chosen = []
    for key, column in columns.items():
        if key in found.used:
            continue
        why = _no_feature(found, key, column, client)
        if why == _TEXT and (cell := tables.comma(column)) is not None:
            raise BadInput(
                Code.DATA_VALUE,
                f"{origin}: column {key!r}: numbers must have a decimal point, got {cell!r} with a comma.",
            )
        if why:
            found.ignore(key, why)
            found.notes.append(f"The column {key!r} is not a feature: {why} (data.columns.features takes it).")
        else:
            chosen.append(key)
    found.take("features", chosen, "numbers, and nothing else is known of it")
    return tuple(chosen)


def _no_feature(found: Found, key: str, column: Array, client: Any) -> str:
    role = roles.says(key)
    if key == found.axis or (role == "time" and roles.plain(key) == "t"):
        role = None
    if role is not None:
        by = ", ".join(found.names.get(role, ()))
        return f"its name means {role}" + (f", which {by!r} is" if by else "")
    if clocks.dates(column) is not None:
        return "it holds dates"
    values = clocks.numbers(column)
    if values is not None and clocks.rises(values, client):
        return "it goes up row by row, as a clock or a count of the rows does"
    if values is None and tables.is_text(column):
        return _TEXT
    return ""


def _combined(origin: str, role: str, columns: Sequence[Array], names: Sequence[str]) -> Array:
    """Several columns as one: features side by side, ids joined to one text."""
    if len(columns) == 1:
        return np.asanyarray(columns[0])
    rows = {len(np.atleast_1d(column)) for column in columns}
    if len(rows) > 1 or any(np.ndim(column) != 1 for column in columns):
        shapes = ", ".join(f"{key} {np.shape(column)}" for key, column in zip(names, columns, strict=True))
        raise BadInput(Code.DATA_SHAPE, f"{origin}: {role}: must be arrays of one axis and one length, got {shapes}.")
    if role in ("features", "label"):
        return np.stack(columns, axis=1)
    whole = columns[0].astype(str)
    for column in columns[1:]:
        whole = np.char.add(np.char.add(whole, _JOIN), column.astype(str))
    return whole


def _ignore_rest(found: Found, names: Sequence[str]) -> None:
    left = [key for key in names if key not in found.used and key not in [n for ns in found.names.values() for n in ns]]
    for key in left:
        role = roles.says(key)
        by = ", ".join(found.names.get(role, ())) if role else ""
        found.ignore(key, f"its name means {role}, which {by!r} is" if by else "its name means nothing to Potluck")
    if left:
        found.notes.append(
            f"Not used: {', '.join(left[:8])}{' and more' if len(left) > 8 else ''}. "
            "If one of them is the client, the recording, the time or the split, name it in data.columns."
        )


def _finish(
    origin: str,
    name: str,
    fields: dict[str, Array],
    found: Found,
    intake: Intake,
    least: int,
    channels: tuple[str, ...],
) -> Dataset:
    if intake.kind:
        fields["kind"] = np.asarray(intake.kind)
    elif "kind" not in fields and np.ndim(fields["x"]) == 3 and _has_steps(fields):
        fields["kind"] = np.asarray("series")  # only series have steps with times, or a length
    _recordings_of_clients(fields, found)
    fields["y"], asks, told = labels.read(origin, fields["y"], intake.task, intake.unlabelled)
    found.notes += told
    if asks:
        fields["asks"] = np.asarray(asks)
    made = samples.made(origin, fields, found, intake, channels)
    data = check.dataset(origin, made.fields, name, least, missing=made.missing)
    notes = [*found.notes, *made.notes, *_kind_notes(data, "kind" in fields)]
    if not asks and np.asarray(fields["y"]).dtype.kind in "iuf" and data.classes > _MANY_CLASSES:
        notes.append(
            f"The label {', '.join(found.names['label'])} is a number, and each of its {data.classes} values counts as "
            "a class. Is it a measurement? Then set task.name to regression."
        )
    if found.what == "array" and data.kind == "features":
        notes += _clock_notes(data)
    if made.unlabelled is not None:
        data = replace(data, y=np.where(made.unlabelled, -1, data.y))
    return replace(
        data,
        own=True,
        missing=made.missing,
        fill="mean" if made.missing else "",
        taken=tuple(found.taken),
        notes=tuple(notes),
        channel_names=made.channels,
    )


def _has_steps(fields: Mapping[str, Array]) -> bool:
    return "length" in fields or ("t" in fields and np.ndim(fields["t"]) == 2)


def _recordings_of_clients(fields: dict[str, Array], found: Found) -> None:
    """Recordings of different clients are different, also where each client counts its own from 1."""
    names = found.names.get("recording", ())
    if not names or "subject" not in fields or names == (FIELD["recording"],):
        return
    group, subject = np.asarray(fields["group"]), np.asarray(fields["subject"])
    if group.ndim == subject.ndim == 1 and len(group) == len(subject):
        fields["group"] = np.char.add(np.char.add(subject.astype(str), _JOIN), group.astype(str))


def _clock_notes(data: Dataset) -> list[str]:
    """Name columns of x that are clocks; they have no names to leave them out by."""
    if data.x.nbytes > _SEARCHED:
        return []
    client = None if data.subject is None else ids(data.subject)
    clock = [k for k in range(data.x.shape[1]) if clocks.rises(np.asarray(data.x[:, k], dtype=np.float64), client)]
    if not clock:
        return []
    listed = ", ".join(map(str, clock[:5]))
    return [
        f"Column {listed} of x goes up row by row, as a clock does. A model can learn the order from it: leave it out."
    ]


def _kind_notes(data: Dataset, asked: bool) -> list[str]:
    """Say which kind was inferred where the axes leave a doubt."""
    if asked:
        return []
    if data.x.dtype == np.uint8 and few_channels(data.x):
        return [
            f"Bytes of shape {data.x.shape[1:]} are read as a series, because at most {MOST_CHANNELS} channels follow "
            "at least twice as many steps (data.kind = image says otherwise)."
        ]
    if data.x.dtype == np.uint8 and data.x.ndim == 3:
        return [f"Bytes of shape {data.x.shape[1:]} are read as grey images (data.kind = series says otherwise)."]
    if data.kind == "series" and data.x.shape[1] <= MOST_CHANNELS and data.x.shape[2] >= 4 * data.x.shape[1]:
        steps, channels = data.x.shape[1:]
        return [f"A sample is read as {steps} steps of {channels} channels. If the channels come first, transpose x."]
    return []
