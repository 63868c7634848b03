"""A dataset: samples and labels, and where known the person, the times and the recording of each sample."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from potluck import keys
from potluck.errors import BadInput, Code, must_be, unknown

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

KINDS = ("features", "series", "image")
MOST_CHANNELS = 16  # bytes of shape (steps, at most so many channels) are a series, not an image
_ROWS = 4096  # of a memory-mapped x that are read at a time
_COLOURS = (1, 3, 4)  # channel counts that mark an axis of length 1, 3 or 4 as the colour axis of an image


@dataclass(frozen=True)
class Taken:
    """What one array or column of a file was taken for, and why."""

    name: str
    role: str  # features, label, client, recording, time, split, length, names, setting or ignored
    why: str


@dataclass(frozen=True, eq=False)
class Dataset:
    """Arrays with the sample axis first, in their original type; x may be memory-mapped."""

    name: str
    x: Array
    y: Ints  # class ids from 0, -1 without a label; of a target that is not a class, groups of similar rows (`strata`)
    classes: int
    class_names: tuple[str, ...]
    subject: Array | None = None  # natural client of each row: ids, or positions in subject_names where there are any
    t: Array | None = None  # time stamps (n, T) of sequences that are not regular in time
    length: Array | None = None  # true number of steps (n,) of padded sequences
    split: Array | None = None  # 0 train, 1 test, 2 validation, where the set comes with a customary split
    group: Array | None = None  # recording, segment, trial or run: rows of one group must stay on one side of a split
    subject_names: tuple[str, ...] = ()
    overlap: int = 0  # rows of a group, in stored order, that share readings with the next `overlap` rows
    kind: str = ""  # features (n, F), series (n, T, channels), image (n, H, W[, C]) or (n, C, H, W); "" = inferred
    missing: bool = False  # x holds NaN for what was not measured; it becomes 0 after standardisation
    fill: str = ""  # "mean": NaN becomes the mean of the client's own training rows, however x is standardised
    own: bool = False  # read from a file or function of the user's, so that its split is honoured where it can be
    taken: tuple[Taken, ...] = ()  # what each array or column was taken for
    notes: tuple[str, ...] = ()  # what the reading decided, for whoever runs it
    channel_names: tuple[str, ...] = ()  # of the features or channels, where they are known
    target: Array | None = None  # what is learned where that is not the class: (n,) or (n, outputs)
    asks: str = ""  # the task that the target asks for: regression or multilabel
    odd: Array | None = None  # rows that no client may train on: the anomalous ones of one-class detection
    rule: str = ""  # the split that suits it, for partition.split = auto

    def __post_init__(self) -> None:
        if self.x.ndim not in (2, 3, 4):
            wanted = "(n, features), (n, steps, channels), (n, height, width) or (n, height, width, colours)"
            raise must_be(Code.DATA_SHAPE, f"{self.name}: the shape of x", wanted, self.x.shape)
        for field in ("y", "subject", "length", "split", "group", "t", "target", "odd"):
            column = getattr(self, field)
            if column is not None and len(column) != len(self.x):
                raise BadInput(Code.DATA_SHAPE, f"{self.name}: {field} has {len(column)} rows, x has {len(self.x)}.")
        if len(self.class_names) != self.classes:
            raise BadInput(
                Code.DATA_LABELS,
                f"{self.name}: class_names has {len(self.class_names)} entries, but there are {self.classes} classes.",
            )
        if not self.kind:
            object.__setattr__(self, "kind", _infer(self.x))
        elif self.kind not in KINDS:
            raise unknown(Code.DATA_SHAPE, f"{self.name}: kind", self.kind, KINDS)
        allowed = {"features": (2,), "series": (3,), "image": (3, 4)}[self.kind]
        if self.x.ndim not in allowed:
            raise BadInput(Code.DATA_SHAPE, f"{self.name}: x of shape {self.x.shape} cannot be of kind {self.kind!r}.")
        if self.t is not None and (self.kind != "series" or self.t.shape != self.x.shape[:2]):
            wanted = f"(n, steps) of an x of shape (n, steps, channels), which is {self.x.shape}"
            raise must_be(Code.DATA_SHAPE, f"{self.name}: the shape of t", wanted, self.t.shape)
        if self.length is not None and self.kind != "series":
            fault = f"{self.name}: length is for series only, but x has shape {self.x.shape} and is not a series."
            raise BadInput(Code.DATA_SHAPE, fault)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def learned(self) -> Array:
        """What a client's y is: the target, or the classes."""
        return self.y if self.target is None else self.target

    @property
    def unlabelled(self) -> Array | None:
        """Which rows have no label; None where all have one."""
        none = self.y < 0
        return none if none.any() else None

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """One sample as a model sees it: (F,), (T, channels), or channels first (C, H, W) for images."""
        shape = self.x.shape[1:]
        if self.kind != "image":
            return shape
        if len(shape) == 2:
            return (1, *shape)
        return (shape[2], shape[0], shape[1]) if self.channels_last else shape

    @property
    def channels_last(self) -> bool:
        return self.kind == "image" and self.x.ndim == 4 and self.x.shape[3] in _COLOURS

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all arrays and names: two sets with the same one hold the same samples."""
        found = hashlib.blake2b(repr((self.class_names, self.subject_names, self.kind)).encode(), digest_size=16)
        for field in ("x", "y", "subject", "t", "length", "split", "group"):
            array = getattr(self, field)
            found.update(f"{field} {None if array is None else (array.shape, str(array.dtype))}".encode())
            for start in range(0, 0 if array is None else len(array), _ROWS):
                found.update(np.ascontiguousarray(array[start : start + _ROWS]).data)
        return found.hexdigest()

    @cached_property
    def twins(self) -> Ints:
        """For each row, the first row with equal samples, whatever the labels."""
        return twins(self.x)

    def natural_clients(self) -> tuple[Ints, tuple[str, ...]]:
        """Return the client index of every row and the clients' names, from `subject`."""
        if self.subject is None:
            raise BadInput(
                Code.DATA_SUBJECTS,
                f"partition: kind 'subject' needs an array `subject`, which {self.name} does not have.",
            )
        ids, position = np.unique(self.subject, return_inverse=True)
        if self.subject_names:
            names = tuple(self.subject_names[int(i)] for i in ids)
        elif ids.dtype.kind in "iu":
            width = max(2, len(str(int(ids.max()))))
            names = tuple(f"s{int(i):0{width}d}" for i in ids)
        else:
            names = tuple(str(i) for i in ids)
        return position.astype(np.int64).reshape(-1), names


def twins(x: Array) -> Ints:
    """For each row, find the first row that is equal byte for byte. Rows with equal sums are compared by a digest."""
    first: dict[bytes, int] = {}
    twin = np.arange(len(x), dtype=np.int64)
    for i in _doubtful(x):
        digest = hashlib.blake2b(np.ascontiguousarray(x[i]).data, digest_size=16).digest()
        twin[i] = first.setdefault(digest, int(i))
    return twin


def _doubtful(x: Array) -> Ints:
    """Rows that may have an equal: those whose weighted sum, modulo 2^64, another row has too."""
    width = x[0].nbytes if len(x) else 0
    if not width or width % 8:
        return np.arange(len(x))
    factors = keys.rng("twins").integers(0, 1 << 63, width // 8, np.uint64) * np.uint64(2) + np.uint64(1)
    sums = np.empty(len(x), np.uint64)
    for at in range(0, len(x), _ROWS):
        block = np.ascontiguousarray(x[at : at + _ROWS]).reshape(-1, width // x.itemsize).view(np.uint64)
        sums[at : at + _ROWS] = block @ factors
    _, place, count = np.unique(sums, return_inverse=True, return_counts=True)
    return np.flatnonzero(count[place] > 1)


def few_channels(x: Array) -> bool:
    """Whether the last of three axes is short enough, and the one before long enough, for channels over time."""
    return x.ndim == 3 and x.shape[2] <= MOST_CHANNELS and x.shape[1] >= 2 * x.shape[2]


def _infer(x: Array) -> str:
    """Infer the kind: two axes are features, four are images; three are series, but of bytes images.

    Bytes with few channels over time (`few_channels`) are series too.
    """
    if x.ndim == 2:
        return "features"
    if x.ndim == 4:
        return "image"
    return "image" if x.dtype == np.uint8 and not few_channels(x) else "series"
