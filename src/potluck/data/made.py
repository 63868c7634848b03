"""A small artificial set for tests and examples: two groups of wearers that move differently for one label."""

from __future__ import annotations

import numpy as np

from potluck.data.dataset import Dataset
from potluck.keys import rng

CLASS_NAMES = ("still", "walk", "run", "jump")
STEPS, CHANNELS = 32, 3


def made(subjects: int = 12, per_class: int = 15, noise: float = 0.6) -> Dataset:
    """Make windows (32, 3) of four classes: a wave per class and channel, changed for every second wearer's group.

    In the second group each class moves like the next class of the first, half a turn later: one model for
    all clients must compromise, one per group need not.
    """
    draw = rng("made", "prototypes")
    classes = len(CLASS_NAMES)
    pace = 1.0 + np.arange(classes)[:, None] + 0.3 * draw.random((classes, CHANNELS))  # turns per window
    phase = 2 * np.pi * draw.random((classes, CHANNELS))
    time = np.linspace(0.0, 1.0, STEPS, endpoint=False)
    wave = np.sin(2 * np.pi * pace[:, None] * time[None, :, None] + phase[:, None])  # (classes, steps, channels)
    prototypes = np.stack([wave, -np.roll(wave, -1, axis=0)])  # (groups, classes, steps, channels)
    x, y, subject = [], [], []
    for s in range(subjects):
        own = rng("made", "subject", s)
        gain, offset = own.uniform(0.7, 1.3, CHANNELS), own.normal(0.0, 0.5, CHANNELS)
        label = np.tile(np.arange(classes), per_class)
        clean = prototypes[s % 2][label] * gain + offset
        x.append(clean + noise * own.standard_normal(clean.shape))
        y.append(label)
        subject.append(np.full(len(label), s + 1))
    return Dataset(
        name="made",
        x=np.concatenate(x).astype(np.float32),
        y=np.concatenate(y).astype(np.int64),
        classes=classes,
        class_names=CLASS_NAMES,
        subject=np.concatenate(subject).astype(np.int64),
    )


def opposite(subjects: int = 12, each: int = 40, features: int = 8, noise: float = 2.5) -> Dataset:
    """Make two classes around opposite centres; every second subject swaps their labels.

    One model for all clients can only guess. A model per group is better than one per client.
    """
    centre = rng("opposite", "centre").choice([-1.0, 1.0], features)
    x, y = [], []
    for s in range(subjects):
        own = rng("opposite", "subject", s)
        side = np.tile([0, 1], each // 2)
        x.append((2 * side - 1)[:, None] * centre + noise * own.standard_normal((len(side), features)))
        y.append(side if s % 2 == 0 else 1 - side)
    return Dataset(
        name="opposite",
        x=np.concatenate(x).astype(np.float32),
        y=np.concatenate(y).astype(np.int64),
        classes=2,
        class_names=("one", "other"),
        subject=np.repeat(np.arange(subjects), len(y[0])),
        subject_names=tuple(f"{'even' if s % 2 == 0 else 'odd'}-{s // 2 + 1}" for s in range(subjects)),
    )
