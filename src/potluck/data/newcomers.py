"""Clients that take no part in training, and the few labelled rows that they have."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from potluck.data.dataset import Ints
from potluck.data.federation import Federation
from potluck.errors import Code, must_be
from potluck.keys import rng


@dataclass(frozen=True)
class Divided:
    """The clients of a federation: those that train, and the newcomers, by their client index in it."""

    whole: Federation
    here: Ints
    new: Ints

    @property
    def training(self) -> Federation:
        """The data of the clients that train."""
        return self.whole.among(self.here) if len(self.new) else self.whole

    def limited(self, most: int, seed: int) -> Divided:
        """At most so many newcomers, drawn at random: those that a run measures."""
        if len(self.new) <= most:
            return self
        return replace(self, new=np.sort(rng(seed, "measured newcomers").choice(self.new, most, replace=False)))

    def newcomers(self, rows: int, seed: int) -> Federation:
        """The data of the newcomers, each with at most so many training rows of every class and no validation rows.

        More rows include those of fewer. With 0 rows there is still one, so that shapes are known; nobody trains on it.
        """
        few = [self._few(int(i), rows, seed) for i in self.new]
        return self.whole.among(self.new, few)

    def _few(self, i: int, rows: int, seed: int) -> Ints:
        own = self.whole.train_rows(i)
        own = own[rng(seed, "newcomer", self.whole.names[i]).permutation(len(own))]
        if not rows:
            return own[:1]
        labels = self.whole.dataset.y[own]
        chosen = np.concatenate([own[labels == label][:rows] for label in np.unique(labels)])
        return np.sort(chosen)


def divide(federation: Federation, share: float, seed: int) -> Divided:
    """Draw the newcomers among the clients with test rows; at least one client stays to train.

    A run that is evaluated on validation rows has the same ones, so that tuning never reads a row of a newcomer.
    """
    count = len(federation.names)
    if not share:
        return Divided(federation, np.arange(count), np.arange(0))
    able = np.flatnonzero((federation.test_sizes > 0) & (federation.sizes > 0))
    wanted = max(1, round(share * count))
    if wanted >= count or wanted > len(able):
        raise must_be(
            Code.PARTITION_ROWS, "newcomers.share", f"a share that leaves clients to train, of {count} clients", share
        )
    new = np.sort(rng(seed, "newcomers").choice(able, wanted, replace=False))
    return Divided(federation, np.setdiff1d(np.arange(count), new), new)
