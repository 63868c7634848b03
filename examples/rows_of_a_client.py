"""Turn one client's recordings into the file that `potluck deploy client --data` takes.

Run it on the client's own machine: the samples never leave it. It makes rows.npz from a table of readings with the
columns time, ax, ay, az and label. Without recordings.csv, it makes up some readings first, so that you can try it.

    python rows_of_a_client.py
    potluck data rows.npz
    potluck deploy client --folder kitchen --data rows.npz
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

READINGS = Path("recordings.csv")
AXES = ("ax", "ay", "az")
CLASSES = ("sit", "walk")  # the same names in the same order on every machine
STEPS, HOP = 50, 25  # readings in a window, and from one window to the next
TEST = 0.25  # the last part of the time is for the test, so that no window is on both sides


def made_up(path: Path) -> None:
    """Write readings as a sensor might give them."""
    draw = np.random.Generator(np.random.Philox(7))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["time", *AXES, "label"])
        for k in range(4000):
            moving = k // 200 % 2
            values = draw.normal((0.0, 0.0, 9.8), 0.2 + moving)
            writer.writerow([f"{k / 50:.2f}", *(f"{v:.3f}" for v in values), CLASSES[moving]])


def windows(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Cut windows with one label each; a window that spans two activities is left out."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    values = np.array([[float(row[axis]) for axis in AXES] for row in rows], dtype=np.float32)
    labels = np.array([CLASSES.index(row["label"]) for row in rows])
    starts = [k for k in range(0, len(rows) - STEPS + 1, HOP) if len(set(labels[k : k + STEPS])) == 1]
    return np.stack([values[k : k + STEPS] for k in starts]), labels[starts]


def main() -> None:
    if not READINGS.exists():
        made_up(READINGS)
    x, y = windows(READINGS)
    split = np.zeros(len(x), dtype=np.int64)
    split[round(len(x) * (1 - TEST)) :] = 1
    np.savez("rows.npz", x=x, y=y, split=split, class_names=np.array(CLASSES))
    print(f"rows.npz: {len(x)} windows of {x.shape[1]} readings, {int(split.sum())} of them for the test")


if __name__ == "__main__":
    main()
