"""What the labels of a file are: classes, numbers to predict, or several labels at once."""

from __future__ import annotations

import numpy as np

from potluck.data.dataset import Array
from potluck.data.intake import tables
from potluck.errors import BadInput, Code

FEW = 32  # whole numbers that may be classes
NUMBERS = ("regression", "forecasting")
_SAYS = "task.name says otherwise"


def read(origin: str, y: Array, task: str, unlabelled: bool = False) -> tuple[Array, str, list[str]]:
    """Return the labels, the task that they ask for ("" for classes), and notes.

    `unlabelled`: rows without a label are trained on, so whole numbers with gaps (NaN) are classes.
    """
    y = np.asanyarray(y)
    if task == "auto" and unlabelled and may_be_classes(y):
        return y, "", []
    several = y.ndim == 2 and y.shape[1] > 1
    if task == "multilabel" or (task == "auto" and several and _marks(y)):
        if not several or not _marks(y):
            raise BadInput(
                Code.TASK,
                f"{origin}: task.name: multilabel needs labels of 0 and 1 in several columns, got {_shown(y)}.",
            )
        note = [] if task != "auto" else [f"The labels are {y.shape[1]} columns of 0 and 1: several labels ({_SAYS})."]
        return y.astype(np.float32), "multilabel", note
    if task not in ("auto", *NUMBERS):
        return y, "", []
    numbers = _numbers(y, origin, asked=task == "regression")
    if task == "auto" and (numbers is None or y.dtype.kind in "iub" or _whole_text(y)):
        return y, "", []
    if numbers is None:
        return y, "", []
    note = [] if task != "auto" else [f"The labels are floating-point numbers, so the task is regression ({_SAYS})."]
    kinds = np.unique(numbers)
    if note and len(kinds) <= FEW and (kinds == kinds.round()).all():
        note.append(f"They are {len(kinds)} whole numbers: if they are classes, set task.name = classification.")
    return numbers, "regression", note


def may_be_classes(y: Array) -> bool:
    """Whether floating-point labels with gaps are whole numbers: only a float array can hold NaN."""
    known = y[~np.isnan(y)] if y.dtype.kind == "f" and y.ndim == 1 else y[:0]
    return 0 < len(known) < len(y) and bool((known == known.round()).all()) and len(np.unique(known)) <= FEW


def _marks(y: Array) -> bool:
    return y.dtype.kind in "iufb" and bool(np.isin(y, (0, 1)).all())


def _whole_text(y: Array) -> bool:
    if y.dtype.kind != "U":
        return False
    known = y[~tables.absent(y)] if y.ndim == 1 else y
    return tables.as_numbers(known).dtype.kind in "iu"


def _numbers(y: Array, origin: str, asked: bool) -> Array | None:
    """The labels as float32; None where they are not numbers."""
    flat = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if flat.dtype.kind in "iufb":
        return flat.astype(np.float32)
    known = flat[~tables.absent(flat)] if flat.ndim == 1 and flat.dtype.kind == "U" else flat[:0]
    try:
        _ = known.astype(np.float64)
    except ValueError:
        known = known[:0]
    if not len(known):
        if asked:
            raise BadInput(Code.TASK, f"{origin}: task.name: regression needs labels that are numbers, got text.")
        return None
    return tables.feature(origin, "label", flat).astype(np.float32)


def _shown(y: Array) -> str:
    return f"shape {y.shape} of {y.dtype}"
