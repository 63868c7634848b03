"""The samples in the picture of the data card: one window or image of each class, as stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.data.dataset import Dataset
from potluck.data.federation import Federation
from potluck.data.split import TRAIN

MOST_CLASSES = 6
MOST_CHANNELS = 9
# Okabe and Ito: they read the same with and without colour vision
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000", "#999999")


def height(federation: Federation) -> float:
    """Inches that the samples need; 0 where a sample is a list of features, which has no picture."""
    return 0.0 if federation.dataset.kind == "features" else 2.6


def draw(figure: Any, federation: Federation) -> None:
    """Draw the first training sample of each class, of different clients where possible."""
    data = federation.dataset
    rows = _chosen(federation)
    axes = np.atleast_1d(figure.subplots(1, len(rows), sharey=data.kind == "series"))
    for place, (axis, row) in enumerate(zip(axes, rows, strict=True)):
        if data.kind == "image":
            picture = np.asarray(data.x[row])
            if picture.ndim == 3 and not data.channels_last:
                picture = picture.transpose(1, 2, 0)
            axis.imshow(picture.squeeze(), cmap="gray")
            axis.set_axis_off()
        else:
            _lines(axis, data, row, place == 0)
        axis.set_title(data.class_names[int(data.y[row])], fontsize=9)
    if data.kind == "series" and data.x.shape[2] > 1:
        figure.legend(loc="outside lower center", ncols=MOST_CHANNELS, frameon=False, fontsize=8)
    figure.suptitle("one training sample of each class, as stored", fontsize=10)


def _chosen(federation: Federation) -> list[int]:
    data, classes = federation.dataset, min(federation.dataset.classes, MOST_CLASSES)
    rows = []
    for label in range(classes):
        having = np.flatnonzero((data.y == label) & (federation.side == TRAIN))
        if len(having):
            rows.append(int(having[(len(having) * label) // classes]))
    return rows or [0]


def _lines(axis: Any, data: Dataset, row: int, labelled: bool) -> None:
    end = data.x.shape[1] if data.length is None else int(data.length[row])
    when = np.arange(end) if data.t is None else np.asarray(data.t[row][:end])
    mark = "." if data.t is not None else None
    for k in range(min(data.x.shape[2], MOST_CHANNELS)):
        name = data.channel_names[k] if len(data.channel_names) == data.x.shape[2] else f"channel {k}"
        colour = COLOURS[k % len(COLOURS)]
        values = np.asarray(data.x[row, :end, k], dtype=np.float32)
        axis.plot(when, values, color=colour, linewidth=1, marker=mark, markersize=3, label=name if labelled else None)
    axis.set_xlabel("step" if data.t is None else "time", fontsize=8)
    axis.tick_params(labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)
