"""Turn arrays from outside into a Dataset. A fault raises BadInput with the file, the field and the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from potluck.data.dataset import KINDS, Array, Dataset, Ints
from potluck.data.strata import strata
from potluck.errors import BadInput, Code, must_be, nearest, unknown

FIELDS = (
    "x",
    "y",
    "subject",
    "t",
    "length",
    "split",
    "group",
    "class_names",
    "subject_names",
    "overlap",
    "kind",
    "asks",
)
_BLOCK = 1 << 24  # numbers checked at a time, so that a memory-mapped x is never in memory as a whole
_SIDES = {"train": 0, "test": 1, "valid": 2, "0": 0, "1": 1, "2": 2}


def dataset(
    origin: str, arrays: Mapping[str, Array], name: str | None = None, least: int = 2, missing: bool = False
) -> Dataset:
    """Make a Dataset of the arrays named in FIELDS; ignore arrays with other names. `missing` allows NaN in x."""
    for field in ("x", "y"):
        if field not in arrays:
            close = nearest(field, [key for key in arrays if key not in FIELDS])
            like = f", did you mean {close!r} to be it?" if close else ""
            found = ", ".join(arrays) or "nothing"
            raise BadInput(Code.DATA_ARRAY, f"{origin}: the array {field!r} is missing{like or '.'} Found: {found}.")
    x = _samples(origin, arrays["x"], series=arrays.get("t") is not None, missing=missing)
    asks = str(np.asarray(arrays["asks"]).item()) if "asks" in arrays else ""
    target = _target(origin, arrays["y"], len(x)) if asks else None
    if target is None:
        y, class_names = _labels(origin, arrays["y"], arrays.get("class_names"), len(x), least)
    else:
        y, class_names = strata(target)
    subject, subject_names = _subjects(origin, arrays.get("subject"), arrays.get("subject_names"), len(x))
    kind = str(np.asarray(arrays["kind"]).item()) if "kind" in arrays else ""
    if kind and kind not in KINDS:
        raise unknown(Code.DATA_SHAPE, f"{origin}: kind", kind, KINDS)
    t, length = arrays.get("t"), arrays.get("length")
    made = Dataset(
        name=name or origin,
        x=x,
        y=y,
        classes=len(class_names),
        class_names=class_names,
        subject=subject,
        t=None if t is None else _numbers(origin, "t", t),
        length=None if length is None else _whole(origin, "length", length, len(x)),
        split=_sides(origin, arrays.get("split"), len(x)),
        group=_groups(origin, arrays.get("group"), len(x)),
        subject_names=subject_names,
        overlap=_overlap(origin, arrays.get("overlap")),
        kind=kind,
        missing=missing,
        target=target,
        asks=asks,
    )
    _check_times(origin, made)
    return made


def _samples(origin: str, x: Array, series: bool, missing: bool) -> Array:
    x = np.asanyarray(x)
    if x.ndim == 0 or not len(x):
        raise BadInput(Code.DATA_SHAPE, f"{origin}: x holds no samples; its shape is {x.shape}.")
    if x.ndim == 1 or (series and x.ndim == 2):
        x = x[..., None]  # one feature, or one channel over time
    if 0 in x.shape:
        raise BadInput(Code.DATA_SHAPE, f"{origin}: x has shape {x.shape}, so its samples are empty.")
    return _numbers(origin, "x", x, missing)


def _numbers(origin: str, field: str, values: Array, missing: bool = False) -> Array:
    values = np.asanyarray(values)
    if values.dtype == bool:
        return values.astype(np.float32)
    if values.dtype.kind not in "iuf":
        raise must_be(Code.DATA_VALUE, f"{origin}: {field}", "numbers", shown=f"{values.dtype} values")
    if values.dtype.kind != "f":
        return values
    rows = max(1, _BLOCK // max(1, values[0].size))
    for start in range(0, len(values), rows):
        block = np.asarray(values[start : start + rows])
        with np.errstate(over="ignore"):
            narrow = block.astype(np.float32, copy=False)
            wrong = np.isinf(narrow) if missing else ~np.isfinite(narrow)
        if wrong.any():
            row = start + int(np.argwhere(wrong)[0][0])
            what = "NaN" if np.isnan(block[wrong][0]) else "infinite or too large for float32"
            raise BadInput(
                Code.DATA_VALUE,
                f"{origin}: {field} has a value that is {what} (first in row {row}); clean or fill it first.",
            )
    return values


def _column(origin: str, field: str, values: Array, rows: int) -> Array:
    values = np.asanyarray(values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise must_be(Code.DATA_SHAPE, f"{origin}: {field}", "one value per sample", shown=f"shape {values.shape}")
    if len(values) != rows:
        raise BadInput(Code.DATA_SHAPE, f"{origin}: {field} has {len(values)} rows, x has {rows}.")
    if values.dtype.kind not in "iufbUS":
        raise must_be(Code.DATA_VALUE, f"{origin}: {field}", "numbers or text", shown=f"{values.dtype} values")
    values = values.astype(str) if values.dtype.kind == "S" else values
    if values.dtype.kind == "U":
        _check_text(origin, field, [str(value) for value in np.unique(values)])
    return values


def _check_text(origin: str, field: str, texts: Sequence[str]) -> None:
    """Refuse text that no file, database or page can hold."""
    for text in texts:
        if "\0" in text or any("\ud800" <= one <= "\udfff" for one in text):
            shown = f"{text[:40]!r}"
            raise must_be(Code.DATA_VALUE, f"{origin}: {field}", "text without broken characters", shown=shown)


def _names(origin: str, field: str, names: Array, code: Code) -> tuple[str, ...]:
    found = tuple(str(name) for name in names)
    _check_text(origin, field, found)
    if len(set(found)) < len(found):
        raise BadInput(code, f"{origin}: {field} has a name twice. Each name must be different.")
    return found


def _whole(origin: str, field: str, values: Array, rows: int) -> Ints:
    values = _column(origin, field, values, rows)
    if values.dtype.kind == "U":
        raise must_be(Code.DATA_VALUE, f"{origin}: {field}", "whole numbers", shown="text")
    if values.dtype.kind == "f":
        bad = ~np.isfinite(values) | (values != np.floor(values))
        if bad.any():
            row = int(np.argmax(bad))
            shown = f"{values[row]} in row {row}"
            raise must_be(Code.DATA_VALUE, f"{origin}: {field}", "whole numbers", shown=shown)
    return values.astype(np.int64)


def _target(origin: str, y: Array, rows: int) -> Array:
    """Numbers to predict, or several labels of 0 and 1: float32 of one or two axes."""
    if len(y) != rows or y.ndim > 2:
        raise BadInput(Code.DATA_SHAPE, f"{origin}: y has shape {y.shape}, x has {rows} rows.")
    return np.asarray(_numbers(origin, "y", y), dtype=np.float32)


def _labels(origin: str, y: Array, names: Array | None, rows: int, least: int) -> tuple[Ints, tuple[str, ...]]:
    y = _column(origin, "y", y, rows)
    if y.dtype.kind == "U":
        given, ids = np.unique(y, return_inverse=True)
    else:
        whole = _whole(origin, "y", y, rows)
        if whole.min() < 0:
            shown = f"{whole.min()} in row {int(np.argmin(whole))}"
            fix = "If -1 marks rows without a label, set task.unlabelled." if whole.min() == -1 else ""
            raise must_be(Code.DATA_LABELS, f"{origin}: y", "labels from 0 on", shown=shown, fix=fix)
        if names is not None:
            if whole.max() >= len(names):
                raise BadInput(
                    Code.DATA_LABELS, f"{origin}: y goes up to {whole.max()}, but class_names has {len(names)} entries."
                )
            if len(np.unique(whole)) < least:
                shown = f"one ({names[int(whole[0])]})"
                raise must_be(Code.DATA_LABELS, f"{origin}: y", "of two classes or more", shown=shown)
            return whole, _names(origin, "class_names", names, Code.DATA_LABELS)
        given, ids = np.unique(whole, return_inverse=True)
    if len(given) < least:
        raise must_be(Code.DATA_LABELS, f"{origin}: y", "of two classes or more", shown=f"one ({given[0]})")
    return ids.astype(np.int64).reshape(-1), tuple(str(value) for value in given)


def _subjects(
    origin: str, subject: Array | None, names: Array | None, rows: int
) -> tuple[Array | None, tuple[str, ...]]:
    if subject is None:
        return None, ()
    subject = _column(origin, "subject", subject, rows)
    if subject.dtype.kind == "U":
        empty = np.char.strip(subject) == ""
        if empty.any():
            raise BadInput(Code.DATA_SUBJECTS, f"{origin}: subject is empty in row {int(np.argmax(empty))}.")
        given, ids = np.unique(subject, return_inverse=True)
        return ids.astype(np.int64).reshape(-1), tuple(str(value) for value in given)
    whole = _whole(origin, "subject", subject, rows)
    if names is None:
        return whole, ()
    idle = np.setdiff1d(np.arange(len(names)), whole)
    if whole.min() < 0 or whole.max() >= len(names):
        raise BadInput(
            Code.DATA_SUBJECTS,
            f"{origin}: subject runs from {whole.min()} to {whole.max()}, but subject_names has {len(names)} entries.",
        )
    if len(idle):
        raise BadInput(
            Code.DATA_SUBJECTS, f"{origin}: subject {names[int(idle[0])]!s} of subject_names has no samples."
        )
    return whole, _names(origin, "subject_names", names, Code.DATA_SUBJECTS)


def _sides(origin: str, split: Array | None, rows: int) -> Ints | None:
    if split is None:
        return None
    split = _column(origin, "split", split, rows)
    text = split if split.dtype.kind == "U" else _whole(origin, "split", split, rows).astype(str)
    given, ids = np.unique(text, return_inverse=True)
    for value in given:
        if str(value).lower() not in _SIDES:
            wanted = "0 or train, 1 or test, 2 or valid"
            raise must_be(Code.DATA_SUBJECTS, f"{origin}: split", wanted, str(value))
    sides = np.array([_SIDES[str(value).lower()] for value in given], dtype=np.int64)[ids.reshape(-1)]
    for side, code in (("train", 0), ("test", 1)):
        if code not in sides:
            raise BadInput(Code.DATA_SUBJECTS, f"{origin}: split must have train and test rows, got no {side} rows.")
    return sides


def _groups(origin: str, group: Array | None, rows: int) -> Ints | None:
    if group is None:
        return None
    return np.unique(_column(origin, "group", group, rows), return_inverse=True)[1].astype(np.int64).reshape(-1)


def _overlap(origin: str, overlap: Array | None) -> int:
    if overlap is None:
        return 0
    value = np.asarray(overlap)
    if value.size != 1 or value.dtype.kind not in "iu" or int(value.item()) < 0:
        wanted = "one whole number from 0 on (rows that overlap the next ones)"
        raise must_be(Code.DATA_SUBJECTS, f"{origin}: overlap", wanted, value.tolist())
    return int(value.item())


def _check_times(origin: str, data: Dataset) -> None:
    steps = data.x.shape[1]
    if data.length is not None and (data.length.min() < 1 or data.length.max() > steps):
        shown = f"{data.length.min()} to {data.length.max()}"
        raise must_be(Code.DATA_VALUE, f"{origin}: length", f"from 1 to {steps}, the steps of x", shown=shown)
    if data.t is not None:
        back = np.diff(data.t, axis=1) < 0
        if data.length is not None:
            back &= np.arange(1, steps) < data.length[:, None]
        if back.any():
            raise BadInput(Code.DATA_VALUE, f"{origin}: t goes back in time in row {int(np.argwhere(back)[0][0])}.")
