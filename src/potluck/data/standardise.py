"""Samples in the layout of a model: float32, channels first for images, standardised by training statistics only.

Statistics are per feature (features) or per channel (series, images). Those of a client come from its own training
rows, one client at a time and in a fixed order. So they have the same bits in every stack of clients.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from potluck.data.dataset import Array, Dataset, Ints
from potluck.data.gathered import BYTE, Floats, Gathering, Statistics, finished, spread
from potluck.errors import Code, unknown

__all__ = ["STANDARDISE", "Floats", "Scaler", "Statistics"]

STANDARDISE = {
    "client": "each client by its own training rows; images are scaled to 0..1 and left at that",
    "channel": "as client, images too",
    "global": "all clients by the training rows of all",
    "none": "as stored; uint8 images are scaled to 0..1",
}
REMEMBER = 1 << 24  # statistics kept, as numbers: 64 MiB
_CHUNK = 4096


class Scaler:
    """Gathers rows of a dataset and standardises them."""

    def __init__(self, dataset: Dataset, how: str, train_rows: Callable[[int], Ints], all_train: Callable[[], Ints]):
        if how not in STANDARDISE:
            raise unknown(Code.SETTING_VALUE, "standardise", how, STANDARDISE)
        self._data = dataset
        self._per_client = how == "channel" or (how == "client" and dataset.kind != "image")
        self._global = how == "global"
        self._train_rows = train_rows
        self._all_train = all_train
        self._axis = 0 if dataset.kind == "image" else -1
        self._channels = dataset.sample_shape[self._axis]
        self._known: OrderedDict[int, Statistics] = OrderedDict()
        self._everyone: Statistics | None = None
        self._kernels = Gathering(dataset)

    def among(self, places: Ints, whole: bool) -> Scaler:
        """The scaler of some clients only, counted from 0; `whole`: the rows it is given are all that they have."""
        return Renumbered(self, places, whole)

    def samples(self, ids: Ints, rows: Ints, counts: Ints, is_train: bool) -> Floats:
        """Return the standardised samples of some clients in the layout of the model: (clients, capacity, ...)."""
        filled = self._data.missing and self._data.fill == "mean" and not self._per_client
        if filled or not self._kernels.able(rows):
            return self.apply(self.gather(rows), ids, rows, counts, is_train)
        known: list[Statistics | None] = [self._of_everyone()] if self._global else []
        if self._per_client:
            known = [self._known.get(i) if is_train else self._of_client(i, None) for i in ids.tolist()]
        x, learned = self._kernels(rows, counts, known)
        for place, statistics in learned.items():
            self._know(int(ids[place]), statistics)
        return x

    def gather(self, rows: Ints) -> Floats:
        """Return rows in the layout of the model, not yet standardised: (*rows.shape, *sample_shape)."""
        data = self._data
        raw: Array = np.take(data.x, rows.reshape(-1), axis=0)
        if data.channels_last:
            raw = np.ascontiguousarray(raw.transpose(0, 3, 1, 2))
        if data.kind == "image" and raw.dtype == np.uint8:
            out: Floats = np.multiply(raw, BYTE, dtype=np.float32)
        else:
            out = np.asarray(raw, dtype=np.float32)
        return out.reshape(*rows.shape, *data.sample_shape)

    def apply(self, x: Floats, ids: Ints, rows: Ints, counts: Ints, is_train: bool) -> Floats:
        """Standardise gathered x (clients, capacity, ...) in place; padding and missing values become 0."""
        if self._data.missing and self._data.fill == "mean" and not self._per_client:
            self._fill(x, ids, rows, counts, is_train)
        if self._per_client and len(ids):
            chosen = [
                self._of_client(i, (x[k, :n], rows[k, :n]) if is_train else None)
                for k, (i, n) in enumerate(zip(ids.tolist(), counts.tolist(), strict=True))
            ]
            self._shift(x, np.stack([mean for mean, _ in chosen]), np.stack([scale for _, scale in chosen]))
        elif self._global:
            mean, scale = self._of_everyone()
            self._shift(x, mean[None], scale[None])
        if self._data.missing:
            np.nan_to_num(x, copy=False, nan=0.0)
        if self._data.length is not None:
            x[~self._within(rows)] = 0.0
        if (counts < x.shape[1]).any():
            x[np.arange(x.shape[1]) >= counts[:, None]] = 0.0
        return x

    def _fill(self, x: Floats, ids: Ints, rows: Ints, counts: Ints, is_train: bool) -> None:
        """Put the mean of each client's own training rows where a value is missing."""
        for k, (i, n) in enumerate(zip(ids.tolist(), counts.tolist(), strict=True)):
            if np.isnan(x[k, :n]).any():
                mean, _ = self._of_client(i, (x[k, :n], rows[k, :n]) if is_train else None)
                sample = self._spread(mean[None]).reshape(self._data.sample_shape)
                x[k, :n] = np.where(np.isnan(x[k, :n]), sample, x[k, :n])

    def _shift(self, x: Floats, mean: Floats, scale: Floats) -> None:
        """Apply statistics (K or 1, channels) to x (K, rows, ...); spreading them over the sample first is faster."""
        flat = x.reshape(*x.shape[:2], -1)
        flat -= self._spread(mean)
        flat *= self._spread(scale)

    def _spread(self, per_channel: Floats) -> Floats:
        return spread(per_channel, self._data.sample_shape, self._axis)

    def statistics(self, i: int) -> Statistics | None:
        """Return what `apply` uses for a client; None if samples stay as they are."""
        if self._per_client:
            return self._of_client(i, None)
        return self._of_everyone() if self._global else None

    def _within(self, rows: Ints) -> npt.NDArray[np.bool_]:
        """Return which steps are before the end of their sequence: (*rows.shape, T)."""
        assert self._data.length is not None
        return np.arange(self._data.x.shape[1]) < np.asarray(self._data.length)[rows][..., None]

    def _of_client(self, i: int, loaded: tuple[Floats, Ints] | None) -> Statistics:
        """Return the statistics of one client, from memory or from its training rows; `loaded` may be those rows."""
        known = self._known.get(i)
        if known is not None:
            return known
        if loaded is None:
            rows = self._train_rows(i)
            loaded = self.gather(rows), rows
        count, total = self._sums(*loaded)
        mean = total / np.maximum(count, 1)
        statistics = finished(mean, self._sums(*loaded, around=mean)[1] / np.maximum(count, 1))
        self._know(i, statistics)
        return statistics

    def _know(self, i: int, statistics: Statistics) -> None:
        self._known[i] = statistics
        while len(self._known) * 2 * self._channels > REMEMBER:
            self._known.popitem(last=False)

    def _of_everyone(self) -> Statistics:
        if self._everyone is None:
            rows = self._all_train()
            pieces = [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
            sums = [self._sums(self.gather(piece), piece) for piece in pieces]
            count = np.maximum(np.sum([n for n, _ in sums], axis=0), 1)
            mean = np.sum([total for _, total in sums], axis=0) / count
            squares = [self._sums(self.gather(piece), piece, around=mean)[1] for piece in pieces]
            self._everyone = finished(mean, np.sum(squares, axis=0) / count)
        return self._everyone

    def _sums(self, x: Floats, rows: Ints, around: Array | None = None) -> tuple[Array, Array]:
        """Return per channel how many values count, and their sum, or the sum of squared distances to `around`."""
        if around is not None:
            x = (x.reshape(len(x), -1) - self._spread(around.astype(np.float32)[None])[0]).reshape(x.shape)
            x *= x
        counted: Array
        if self._data.length is None and not self._data.missing:
            counted = np.asarray(len(x) * math.prod(self._data.sample_shape) // self._channels)
        else:
            valid = ~np.isnan(x) if self._data.missing else np.ones(x.shape, dtype=bool)
            if self._data.length is not None:
                valid &= self._within(rows)[..., None]
            x = np.where(valid, x, np.float32(0))
            counted = self._fold(valid.sum(axis=0))
        return counted, self._fold(x.reshape(len(x), -1).sum(axis=0, dtype=np.float64))  # flat arrays sum faster

    def _fold(self, per_place: Array) -> Array:
        """Sum over all axes of a sample but its channels."""
        if self._axis == 0:
            return np.asarray(per_place.reshape(self._channels, -1).sum(axis=1))
        return np.asarray(per_place.reshape(-1, self._channels).sum(axis=0))


class Renumbered(Scaler):
    """Another scaler for some of its clients, whose statistics stay what they are."""

    _places: Ints
    _whole: bool

    def __init__(self, base: Scaler, places: Ints, whole: bool) -> None:
        self.__dict__.update(base.__dict__)  # the statistics that are known are shared
        if isinstance(base, Renumbered):
            places, whole = base._places[places], whole and base._whole
        self._places, self._whole = places, whole

    def samples(self, ids: Ints, rows: Ints, counts: Ints, is_train: bool) -> Floats:
        return super().samples(self._places[ids], rows, counts, is_train and self._whole)

    def statistics(self, i: int) -> Statistics | None:
        return super().statistics(int(self._places[i]))
