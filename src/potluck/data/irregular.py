"""Records of unequal length and rate in fixed shapes; `t` and `length` say which values are real."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from potluck.data.dataset import Array, Dataset
from potluck.keys import rng

ICU_TYPES = ("coronary", "cardiac-surgery", "medical", "surgical")
ICU_STEPS = 128  # nearly all stays have fewer time stamps; longer ones keep the latest
# An entry outside these bounds, such as a pH of 735, is a typing error and counts as not measured.
PLAUSIBLE = {
    "DiasABP": (10, 250),
    "HR": (10, 300),
    "K": (1, 12),
    "MAP": (10, 300),
    "NIDiasABP": (10, 250),
    "NIMAP": (10, 300),
    "NISysABP": (20, 300),
    "PaCO2": (5, 150),
    "RespRate": (1, 100),
    "SysABP": (20, 300),
    "Temp": (25, 45),
    "Weight": (20, 300),
    "pH": (6.5, 8.0),
}
AIR_WINDOW, AIR_STEP = 12, 4  # readings
CNC_RATE, CNC_KEPT = 2000.0, 128  # Hz; readings kept of each window in the irregular variant
MONTHS = ("Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb", "Mar", "Apr")


def physionet2012(arrays: Mapping[str, Array]) -> Dataset:
    """Return stays as (128, 76): 37 values carried forward, 37 flags for what was measured just then, age and sex.

    Values not measured so far are NaN (`missing`); t is in hours; empty stays are left out.
    """
    values = np.array(arrays["x"], dtype=np.float32)
    names = [str(name) for name in arrays["params"]]
    for name, (low, high) in PLAUSIBLE.items():
        column = values[:, names.index(name)]
        column[(column < low) | (column > high)] = np.nan
    offset = arrays["offset"]
    record = np.repeat(np.arange(len(offset) - 1), np.diff(offset))
    measured = ~np.isnan(values)
    carried = _carry_forward(values, measured, offset[:-1][record])
    ventilated = names.index("MechVent")  # noted only when it happens: no note means no
    carried[:, ventilated] = np.nan_to_num(carried[:, ventilated])

    alive = np.flatnonzero(np.diff(offset) > 0)
    length = np.minimum(np.diff(offset)[alive], ICU_STEPS)
    rows = (offset[1:][alive] - length)[:, None] + np.arange(ICU_STEPS)
    beyond = np.arange(ICU_STEPS) >= length[:, None]
    rows[beyond] = 0
    person = np.repeat(arrays["static"][alive][:, None, :2], ICU_STEPS, axis=1)
    x = np.concatenate([carried[rows], measured[rows].astype(np.float32), person], axis=2)
    x[beyond] = 0.0
    t = arrays["t"][rows].astype(np.float32) / 60
    t = np.where(beyond, t[np.arange(len(t)), length - 1][:, None], t)
    return Dataset(
        name="physionet2012",
        x=x,
        y=arrays["y"][alive],
        classes=2,
        class_names=("survived", "died"),
        subject=arrays["icu_type"][alive] - 1,
        subject_names=ICU_TYPES,
        t=t,
        length=length,
        missing=True,
    )


def _carry_forward(values: Array, measured: Array, begin: Array) -> Array:
    """Carry the last measured value of the same record forward; NaN before the first."""
    row = np.where(measured, np.arange(len(values))[:, None], -1)
    last = np.maximum.accumulate(row, axis=0)
    known = last >= begin[:, None]
    return np.where(known, np.take_along_axis(values, np.maximum(last, 0), axis=0), np.nan).astype(np.float32)


def air_quality(arrays: Mapping[str, Array]) -> Dataset:
    """Return windows of 12 complete readings of a month, every 4 readings; the label is that of the last hour.

    Hours with a broken sensor are left out, which makes gaps: t is in hours from the first reading.
    The reference analysers (`_GT`) define the label and are left out of x.
    """
    sensors = np.array([not str(name).endswith("_GT") for name in arrays["names"]])
    readings = arrays["x"][:, sensors]
    good = np.flatnonzero(~np.isnan(readings).any(axis=1))
    month = arrays["subject"][good]
    ends = np.arange(AIR_WINDOW - 1, len(good), AIR_STEP)
    ends = ends[(month[ends] == month[ends - AIR_WINDOW + 1]) & (arrays["y"][good[ends]] >= 0)]
    rows = good[ends[:, None] + np.arange(-AIR_WINDOW + 1, 1)]
    t = arrays["t"][rows]
    return Dataset(
        name="air_quality",
        x=readings[rows],
        y=arrays["y"][rows[:, -1]],
        classes=4,
        class_names=("benzene-low", "benzene-medium", "benzene-high", "benzene-very-high"),
        subject=arrays["subject"][rows[:, -1]],
        subject_names=tuple(f"{2004 + (m + 2) // 12}-{name}" for m, name in enumerate(MONTHS)),
        t=t - t[:, :1],
        group=arrays["subject"][rows[:, -1]],
        overlap=(AIR_WINDOW - 1) // AIR_STEP,
        channel_names=tuple(str(name) for name in arrays["names"][sensors]),
    )


def bosch_cnc(arrays: Mapping[str, Array]) -> Dataset:
    """Return windows (1024, 3) as recorded, regular in time; windows of one run form a group."""
    return Dataset(
        name="bosch_cnc",
        x=arrays["x"],
        y=arrays["y"],
        classes=2,
        class_names=("normal", "anomalous"),
        subject=arrays["subject"] - 1,
        subject_names=("machine-1", "machine-2", "machine-3"),
        group=arrays["run"],
    )


def bosch_cnc_irregular(arrays: Mapping[str, Array]) -> Dataset:
    """Keep 128 of the 1024 readings of each window, at random moments: t in milliseconds from the first one kept.

    The published files carry no time stamps, so irregular intervals must be made; every load makes the same.
    """
    regular = bosch_cnc(arrays)
    order = rng("bosch_cnc", "moments").random(regular.x.shape[:2]).argsort(axis=1)
    kept = np.sort(order[:, :CNC_KEPT], axis=1)
    t = (kept - kept[:, :1]) * (1000.0 / CNC_RATE)
    return Dataset(
        name="bosch_cnc_irregular",
        x=np.take_along_axis(regular.x, kept[..., None], axis=1),
        y=regular.y,
        classes=2,
        class_names=regular.class_names,
        subject=regular.subject,
        subject_names=regular.subject_names,
        group=regular.group,
        t=t.astype(np.float32),
    )
