"""54 people: the 30 of UCI-HAR and the 24 of MotionSense, with the five activities that both have.

    potluck data experiments.clusterfl.people:both

Total acceleration and rotation rate, means of four readings: 32 steps of 6 channels. UCI-HAR has the phone at the
waist, MotionSense in a trouser pocket: gravity lies along another axis. These are two groups that nobody made up.
"""

from __future__ import annotations

import numpy as np

from potluck.data.dataset import Dataset
from potluck.data.load import load

ACTIVITIES = ("walking", "upstairs", "downstairs", "sitting", "standing")
CHANNELS = {"uci_har": (6, 7, 8, 3, 4, 5), "motionsense": (0, 1, 2, 3, 4, 5)}  # acceleration, then rotation rate


def both() -> Dataset:
    """The two sets as one."""
    x, y, subject, group, names = [], [], [], [], []
    for source, channels in CHANNELS.items():
        data = load(source)
        assert data.subject is not None
        assert data.group is not None
        wanted = [data.class_names.index(name) for name in ACTIVITIES]
        rows = np.isin(data.y, wanted)
        windows = np.asarray(data.x[rows], dtype=np.float32)[:, :, channels]
        x.append(windows.reshape(len(windows), 32, 4, 6).mean(2))
        y.append(np.array([wanted.index(label) for label in data.y[rows]]))
        people, place = np.unique(data.subject[rows], return_inverse=True)
        subject.append(place + len(names))
        names += [f"{source}-{person}" for person in people]
        group.append(data.group[rows] + (0 if not group else int(group[0].max()) + 1))
    return Dataset(
        name="people",
        x=np.concatenate(x),
        y=np.concatenate(y).astype(np.int64),
        classes=len(ACTIVITIES),
        class_names=ACTIVITIES,
        subject=np.concatenate(subject).astype(np.int64),
        group=np.concatenate(group).astype(np.int64),
        subject_names=tuple(names),
        overlap=1,
        kind="series",
    )
