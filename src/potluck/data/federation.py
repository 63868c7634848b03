"""The clients of a dataset: their names, their rows, and the arrays to train and test on."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, overload

import numpy as np

from potluck.data import split as splits
from potluck.data.dataset import Array, Dataset, Ints
from potluck.data.spec import PartitionSpec
from potluck.data.split import TEST, TRAIN, VALID, Leak, Sides
from potluck.data.standardise import Floats, Scaler
from potluck.errors import Code, must_be, unknown

ClientId = str
Part = Literal["train", "test", "valid"]
PARTS: dict[str, int] = {"train": TRAIN, "test": TEST, "valid": VALID}
_AT_ONCE = 256  # clients whose rows are counted at once
_DUPLICATES_UP_TO = 1 << 30  # bytes of x up to which equal rows are searched for


class Deal(Protocol):
    def rows(self, i: int, part: str) -> Ints: ...

    def padded(self, ids: Ints, part: str, capacity: int) -> Ints: ...


class Dealt:
    """Rows stored in one array per part, client after client."""

    def __init__(self, client: Ints, side: Sides, clients: int):
        self._rows, self._starts = {}, {}
        for part, code in PARTS.items():
            rows = np.flatnonzero((side == code) & (client >= 0))
            rows = rows[np.argsort(client[rows], kind="stable")]
            self._rows[part] = rows
            self._starts[part] = np.searchsorted(client[rows], np.arange(clients + 1))

    def counts(self, part: str) -> Ints:
        return np.diff(self._starts[part])

    def rows(self, i: int, part: str) -> Ints:
        starts = self._starts[part]
        rows: Ints = self._rows[part][starts[i] : starts[i + 1]]
        return rows

    def padded(self, ids: Ints, part: str, capacity: int) -> Ints:
        rows = self._rows[part]
        if not len(rows):
            return np.zeros((len(ids), capacity), dtype=np.int64)
        places = self._starts[part][ids][:, None] + np.arange(capacity)
        return np.take(rows, places, mode="clip")


class Some:
    """The rows of some clients of another deal, counted from 0; `train` gives them other training rows."""

    def __init__(self, deal: Deal, places: Ints, train: Sequence[Ints] | None) -> None:
        self._deal, self._places, self._train = deal, places, train

    def rows(self, i: int, part: str) -> Ints:
        return self._deal.rows(int(self._places[i]), part) if self._own(part) is None else self._own(part)[i]

    def padded(self, ids: Ints, part: str, capacity: int) -> Ints:
        own = self._own(part)
        if own is None:
            return self._deal.padded(self._places[ids], part, capacity)
        return np.stack([np.resize(own[int(i)], capacity) for i in ids])

    def _own(self, part: str) -> Any:
        return self._train if part == "train" else None


class Numbered(Sequence[ClientId]):
    """The names c0000, c0001, ..., made on demand, so that a million of them need no memory."""

    def __init__(self, count: int):
        self._count = count
        self._width = max(4, len(str(count - 1)))
        self._form = f"c%0{self._width}d"  # asked for several times per task

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, i: int) -> ClientId: ...

    @overload
    def __getitem__(self, i: slice) -> list[ClientId]: ...

    def __getitem__(self, i: int | slice) -> ClientId | list[ClientId]:
        if type(i) is int and 0 <= i < self._count:
            return self._form % i
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(self._count))]
        position = i + self._count if i < 0 else i
        if not 0 <= position < self._count:
            raise IndexError(f"client {i} of {self._count}")
        return f"c{position:0{self._width}d}"

    def __iter__(self) -> Iterator[ClientId]:
        return map(self._form.__mod__, range(self._count))

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        text = str(value)
        if text[:1] == "c" and text[1:].isdecimal():
            position = int(text[1:])
            if position in range(*slice(start, stop).indices(self._count)) and self[position] == text:
                return position
        raise ValueError(f"{value!r} is not one of {self._count} clients")

    def __contains__(self, value: object) -> bool:
        try:
            self.index(value)
        except ValueError:
            return False
        return True


@dataclass(frozen=True)
class Check:
    """The results of the checks of a split."""

    leak: Leak | None  # None: the data names no groups
    twins_across: int | None  # test rows equal to a training row; None: not checked, the data is too large


class Federation:
    """A dataset dealt out to clients. A client index i is a position in `names`."""

    def __init__(
        self,
        dataset: Dataset,
        spec: PartitionSpec,
        names: Sequence[ClientId],
        deal: Deal,
        counts: dict[str, Ints],
        side: Sides,
        standardise: str,
        notes: Iterable[str],
    ):
        self.dataset = dataset
        self.spec = spec
        self.names = names
        self.sizes = counts["train"]
        self.test_sizes = counts["test"]
        self.valid_sizes = counts["valid"]
        self.standardise = standardise
        self.side = side  # of every row of the dataset, across all clients
        self.check = _check(dataset, side)
        self.notes = (*dataset.notes, *notes, *_warnings(self.check, spec, dataset.rule))
        self.unlabelled: Array | None = None  # training rows whose label no client sees (`hide_labels`)
        self._counts = counts
        self._deal = deal
        self._scaler = Scaler(dataset, standardise, self.train_rows, self._all_train_rows)

    def __len__(self) -> int:
        return len(self.names)

    def among(self, places: Ints, train: Sequence[Ints] | None = None) -> Federation:
        """The data of some clients only, in this order; `train` gives each other training rows, and no validation rows.

        Samples stay standardised as before: by the statistics of all training rows that a client has here.
        """
        some = copy.copy(self)
        some.names = [self.names[int(i)] for i in places]
        some._deal = Some(self._deal, places, train)
        some._counts = {part: np.asarray(counts)[places] for part, counts in self._counts.items()}
        if train is not None:
            some._counts["train"] = np.array([len(rows) for rows in train], dtype=np.int64)
            some._counts["valid"] = np.zeros(len(places), dtype=np.int64)  # their labels would be more labels
        some.sizes, some.test_sizes, some.valid_sizes = (some._counts[part] for part in ("train", "test", "valid"))
        some._scaler = self._scaler.among(places, whole=train is None)
        return some

    def train_rows(self, i: int) -> Ints:
        return self._deal.rows(i, "train")

    def test_rows(self, i: int) -> Ints:
        return self._deal.rows(i, "test")

    def valid_rows(self, i: int) -> Ints:
        return self._deal.rows(i, "valid")

    def _all_train_rows(self) -> Ints:
        return np.flatnonzero(self.side == TRAIN)

    def counts(self, part: Part) -> Ints:
        """Count the rows of each client in a part."""
        if part not in PARTS:
            raise unknown(Code.ARGUMENT, "part", part, PARTS)
        return self._counts[part]

    def materialise(self, i: int, part: Part = "train") -> tuple[Floats, Array, Floats | None, Ints | None]:
        """Return x, y, t and length of one client, standardised, in the layout of the model."""
        x, y, _, t, length = self.materialise_many([i], part, int(self.counts(part)[i]))
        return x[0], y[0], None if t is None else t[0], None if length is None else length[0]

    def materialise_many(
        self, ids: Sequence[int] | Ints, part: Part, capacity: int
    ) -> tuple[Floats, Array, Floats, Floats | None, Ints | None]:
        """Return x (K, capacity, ...), y, weight (1 sample, 0 padding), t and length of many clients."""
        who = np.asarray(ids, dtype=np.int64)
        counts = np.asarray(self.counts(part)[who])
        if len(who) and counts.max() > capacity:
            k = int(counts.argmax())
            wanted = f"{counts[k]} or more, the {part} rows of client {self.names[int(who[k])]}"
            raise must_be(Code.ARGUMENT, "capacity", wanted, capacity)
        rows = self._deal.padded(who, part, capacity)
        weight = (np.arange(capacity) < counts[:, None]).astype(np.float32)
        x = self._scaler.samples(who, rows, counts, part == "train")
        learned = self.dataset.learned
        there = weight if learned.ndim == 1 else weight[..., None]
        y = np.where(there > 0, learned[rows], learned.dtype.type(0))
        if self.unlabelled is not None and part == "train":
            y = np.where((weight > 0) & self.unlabelled[rows], -1, y)
        return x, y, weight, *self._times(rows, weight)

    def _times(self, rows: Ints, weight: Floats) -> tuple[Floats | None, Ints | None]:
        data = self.dataset
        t = None if data.t is None else np.asarray(data.t[rows] * weight[..., None], dtype=np.float32)
        # Padding has one step rather than none, so that nothing divides by its length.
        length = None if data.length is None else np.where(weight > 0, np.asarray(data.length, np.int64)[rows], 1)
        return t, length

    def scale(self, i: int) -> tuple[Floats, Floats] | None:
        """Return mean and 1/deviation per channel that standardise a client's samples; None if nothing does."""
        return self._scaler.statistics(i)

    def class_counts(self, ids: Sequence[int] | Ints, part: Part = "train") -> Array:
        """Count the labelled training rows of some clients by class: (K, classes)."""
        who = np.asarray(ids, dtype=np.int64)
        return np.concatenate([self._class_counts(who[a : a + _AT_ONCE], part) for a in range(0, len(who), _AT_ONCE)])

    def _class_counts(self, who: Ints, part: Part) -> Array:
        counts, classes = np.asarray(self.counts(part)[who]), self.dataset.classes
        label = self.dataset.y[self._deal.padded(who, part, int(counts.max()))]
        there = (np.arange(label.shape[1]) < counts[:, None]) & (label >= 0)
        found = np.bincount((label + classes * np.arange(len(who))[:, None])[there], minlength=classes * len(who))
        return found.reshape(-1, classes)

    def card(self) -> dict[str, Any]:
        """Return the figures of the data card as plain numbers and lists."""
        from potluck.data.card import figures

        return figures(self)


def _check(dataset: Dataset, side: Sides) -> Check:
    leak = None if dataset.group is None else splits.leak(splits.ids(dataset.group), side, dataset.overlap)
    small = dataset.x.nbytes <= _DUPLICATES_UP_TO
    return Check(leak, splits.crossing_twins(dataset.twins, side) if small else None)


def _tested(spec: PartitionSpec, rule: str) -> str:
    return "a stretch of each" if "stretch" in (spec.split, rule if spec.split == "auto" else "") else "their end"


def _warnings(check: Check, spec: PartitionSpec, rule: str = "") -> list[str]:
    notes = []
    leak = check.leak
    if leak is not None and leak.touching:
        notes.append(
            f"Leak: in {leak.touching} of {leak.groups} groups (recordings, trials, runs) training rows "
            f"lie next to test rows and may overlap them (split {spec.split!r}; 'group', 'tail', 'stretch' avoid it)."
        )
    elif leak is not None and leak.both_sides:
        notes.append(
            f"{leak.both_sides} of {leak.groups} groups are cut in time: {_tested(spec, rule)} is for testing, "
            "and the rows beside it that may overlap it are left out."
        )
    if check.twins_across:
        notes.append(f"{check.twins_across} test rows equal a training row byte for byte.")
    return notes
