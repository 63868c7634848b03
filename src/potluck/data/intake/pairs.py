"""X_train and X_test (and X_valid) as one array, with the split they stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from potluck.data.dataset import Array, Taken
from potluck.errors import BadInput, Code

SIDES = {"train": 0, "test": 1, "valid": 2, "val": 2, "validation": 2}
_SIDE = "train|test|validation|valid|val"
_FORMS = (re.compile(rf"(.+?)_?({_SIDE})", re.IGNORECASE), re.compile(rf"({_SIDE})_?(.+)", re.IGNORECASE))
_SAMPLES = ("x", "data", "features", "inputs", "samples", "windows", "signals")


def parts_of(name: str) -> tuple[str, int] | None:
    """Split X_train into x and the side 0; None for other names."""
    for place, form in enumerate(_FORMS):
        found = form.fullmatch(name)
        if found is not None:
            stem, side = (found[1], found[2]) if place == 0 else (found[2], found[1])
            return (stem.lower() if len(stem) == 1 else stem), SIDES[side.lower()]
    return None


def joined(origin: str, arrays: Mapping[str, Array]) -> tuple[dict[str, Array], list[Taken], list[str]]:
    """Join the arrays of both sides; also return what they were taken for, and a note. Others stay as they are."""
    sides: dict[str, dict[int, str]] = {}
    for name in arrays:
        found = parts_of(name)
        if found is not None:
            sides.setdefault(found[0], {})[found[1]] = name
    stem = next((stem for stem in _SAMPLES if {0, 1} <= set(sides.get(stem, ()))), None)
    if stem is None or "x" in arrays:
        return dict(arrays), [], []
    whole = {name: array for name, array in arrays.items() if parts_of(name) is None}
    if "split" in whole:
        raise BadInput(Code.DATA_ARRAY, f"{origin}: 'split' and {sides[stem][0]!r} both give a split; keep one.")
    codes, rows, taken = sorted(sides[stem]), {}, []
    for code in codes:
        rows[code] = len(np.atleast_1d(arrays[sides[stem][code]]))
    for field, names in sides.items():
        lacking = next((code for code in codes if code not in names), None)
        if lacking is not None:
            raise BadInput(
                Code.DATA_ARRAY,
                f"{origin}: {sides[stem][lacking]!r} has no partner for {next(iter(names.values()))!r}.",
            )
        for code in codes:
            count = len(np.atleast_1d(arrays[names[code]]))
            if count != rows[code]:
                raise BadInput(
                    Code.DATA_SHAPE, f"{origin}: {names[code]} has {count} rows, {sides[stem][code]} has {rows[code]}."
                )
        try:
            whole[field] = np.concatenate([arrays[names[code]] for code in codes])
        except (ValueError, TypeError) as fault:
            listed = " and ".join(names[code] for code in codes)
            raise BadInput(Code.DATA_SHAPE, f"{origin}: {listed} cannot be joined ({fault}).") from fault
        taken += [Taken(names[code], "joined", f"one part of {field!r}") for code in codes]
    whole["split"] = np.repeat(codes, [rows[code] for code in codes])
    listed = ", ".join(f"{sides[stem][code]} ({rows[code]} rows)" for code in codes)
    return whole, taken, [f"Joined {listed}; their names give the split."]
