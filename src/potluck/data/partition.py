"""Plans that deal rows to clients: the same plan deals training rows and test rows.

A plan gives every client a part of the pool (`Cut`) or a part of every class in it (`Shares`). Applied to
two pools it gives each client the same mix of classes in both, so a personal model is tested on what its
client sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from potluck.data.dataset import Ints
from potluck.data.spec import DEFAULT_CLIENTS, PartitionSpec
from potluck.errors import BadInput, Code, must_be

Matrix = npt.NDArray[np.float64]
NO_CLIENT = -1


class Plan(Protocol):
    @property
    def clients(self) -> int: ...

    def deal(self, y: Ints, rng: np.random.Generator) -> Ints:
        """Return the client of each row of a pool with labels y, or NO_CLIENT."""


@dataclass(frozen=True)
class Cut:
    """A shuffled pool cut into pieces; `part` is each client's share of the pool."""

    part: Matrix

    @property
    def clients(self) -> int:
        return len(self.part)

    def deal(self, y: Ints, rng: np.random.Generator) -> Ints:
        client = np.full(len(y), NO_CLIENT, dtype=np.int64)
        counts = _whole(self.part[:, None] * len(y))[:, 0]
        owner = np.repeat(np.arange(self.clients), counts)
        client[rng.permutation(len(y))[: len(owner)]] = owner
        return client


@dataclass(frozen=True)
class Shares:
    """share_KC: the part of each class's rows that each client gets."""

    share_KC: Matrix

    @property
    def clients(self) -> int:
        return len(self.share_KC)

    def deal(self, y: Ints, rng: np.random.Generator) -> Ints:
        client = np.full(len(y), NO_CLIENT, dtype=np.int64)
        totals = np.bincount(y, minlength=self.share_KC.shape[1])
        counts_KC = _whole(self.share_KC * totals)
        for c in np.flatnonzero(totals):
            owner = np.repeat(np.arange(self.clients), counts_KC[:, c])
            client[rng.permutation(np.flatnonzero(y == c))[: len(owner)]] = owner
        return client


def _whole(amounts: Matrix) -> Ints:
    """Round each column to whole numbers whose running sums stay closest to the exact ones: no row is lost."""
    ends = np.rint(np.cumsum(amounts, axis=0)).astype(np.int64)
    return np.diff(ends, axis=0, prepend=0)


def plan(spec: PartitionSpec, y: Ints, classes: int, rng: np.random.Generator) -> tuple[Plan, list[str]]:
    """Make the plan for a pool with labels y (training rows, or all rows if the split comes later), with notes."""
    totals = np.bincount(y, minlength=classes).astype(np.float64)
    clients = spec.clients or (len(spec.sizes) if spec.sizes else DEFAULT_CLIENTS)
    match spec.kind:
        case "iid":
            return Cut(np.full(clients, 1 / clients)), []
        case "sizes":
            return _sizes(spec, clients, len(y), rng)
        case "dirichlet":
            return Shares(rng.dirichlet(np.full(clients, spec.alpha), size=classes).T), []
        case "classes":
            held = class_sets(clients, classes, spec.classes_per_client, rng)
            return Shares(_among_holders(held, _weights(clients, spec.sigma or 0.0, rng))), []
        case "gamma":
            held, notes = overlapping_sets(clients, classes, spec.gamma, rng)
            return Shares(_among_holders(held, np.ones(clients))), notes
        case "longtail":
            return Shares(_longtail(clients, totals, spec.tau, spec.ratio, rng)), []
        case _:
            return Shares(_scenario(spec.scenario, totals)), []


def _weights(clients: int, sigma: float, rng: np.random.Generator) -> Matrix:
    return np.exp(sigma * rng.standard_normal(clients))


def _sizes(spec: PartitionSpec, clients: int, rows: int, rng: np.random.Generator) -> tuple[Plan, list[str]]:
    if spec.sizes is None:
        weights = _weights(clients, 1.0 if spec.sigma is None else spec.sigma, rng)
        return Cut(weights / weights.sum()), []
    if sum(spec.sizes) > rows:
        raise BadInput(
            Code.PARTITION_ROWS,
            f"partition.sizes: the sizes must add up to at most {rows}, the rows of the data, got {sum(spec.sizes)}.",
        )
    return Cut(np.asarray(spec.sizes) / rows), []


def _among_holders(held_KC: npt.NDArray[np.bool_], weights: Matrix) -> Matrix:
    """Divide each class among the clients that hold it; a class without a client is left out."""
    share = held_KC * weights[:, None]
    total = share.sum(axis=0)
    return np.asarray(share / np.where(total > 0, total, 1.0))


def class_sets(clients: int, classes: int, each: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Give `each` different classes to every client, so that all classes are held about equally often."""
    if each > classes:
        wanted = f"at most {classes}, the classes of the data"
        raise must_be(Code.PARTITION_ROWS, "partition.classes_per_client", wanted, each)
    held = np.zeros((clients, classes), dtype=bool)
    uses = np.zeros(classes)
    for k, tie in enumerate(rng.random((clients, classes))):
        held[k, np.argsort(uses + tie)[:each]] = True  # the least used first, ties at random
        uses += held[k]
    return held


def overlapping_sets(
    clients: int, classes: int, gamma: float, rng: np.random.Generator
) -> tuple[npt.NDArray[np.bool_], list[str]]:
    """Make class sets of which any two share a part gamma (FedCFC section 6.2: |Dp ∩ Dq| / |Dp| = gamma)."""
    names = rng.permutation(classes)
    held = np.zeros((clients, classes), dtype=bool)
    if gamma == 1:
        held[:] = True
        return held, []
    if gamma == 0:
        sets = min(clients, classes)
        for k in range(clients):
            held[k, names[k % sets :: sets]] = True
        if clients <= classes:
            return held, []
        return held, [
            f"gamma 0 asks for {clients} disjoint class sets, the data has {classes} classes: "
            f"{classes} groups of clients share one class each."
        ]
    # Exact when there are enough classes: a common core and a disjoint rest for each client.
    for size in range(classes, 1, -1):
        core = round(gamma * size)
        own = size - core
        if core and own and abs(core / size - gamma) < 1e-9 and core + clients * own <= classes:
            held[:, names[:core]] = True
            for k in range(clients):
                held[k, names[core + k * own : core + (k + 1) * own]] = True
            return held, []
    # Otherwise sets of gamma * classes classes, which share gamma on average; swaps make the pairs more equal.
    size = min(max(round(gamma * classes), 1), classes - 1) if classes > 1 else 1
    held = class_sets(clients, classes, size, rng)
    _even_out(held, gamma * size, rng)
    meet = (held.astype(np.int64) @ held.T.astype(np.int64))[~np.eye(clients, dtype=bool)] / size
    if not len(meet):
        return held, []
    return held, [
        f"gamma {gamma:g} cannot hold for every pair of {clients} clients with {classes} classes: "
        f"they share {meet.mean():.2f} of them on average, from {meet.min():.2f} to {meet.max():.2f}."
    ]


def _even_out(held: npt.NDArray[np.bool_], target: float, rng: np.random.Generator, tries: int = 2000) -> None:
    """Swap one class of one client for another where that brings its overlaps nearer to the target."""
    clients, classes = held.shape
    if classes < 2:
        return
    for k in rng.integers(0, clients, size=tries):
        out, into = rng.choice(np.flatnonzero(held[k])), rng.choice(np.flatnonzero(~held[k]))
        others = np.delete(held, k, axis=0).astype(np.int64)
        before = others @ held[k].astype(np.int64)
        after = before - others[:, out] + others[:, into]
        if ((after - target) ** 2).sum() < ((before - target) ** 2).sum():
            held[k, out], held[k, into] = False, True


def _longtail(clients: int, totals: Matrix, tau: int, ratio: float, rng: np.random.Generator) -> Matrix:
    """FedCFC's long tail, after BalanceFL: class c keeps ratio^(c / (C-1)) of the first; tau at a time."""
    classes = len(totals)
    fall = ratio ** (np.arange(classes) / max(classes - 1, 1))
    kept = np.maximum(np.floor(fall * (totals / fall).min()), np.minimum(totals, 1)).astype(np.int64)
    label = np.repeat(np.arange(classes), kept)
    chunk = np.arange(len(label)) // tau
    passes = int(chunk[-1]) // clients + 1
    order = rng.permuted(np.tile(np.arange(clients), (passes, 1)), axis=1).reshape(-1)
    counts = np.zeros((clients, classes))
    np.add.at(counts, (order[chunk], label), 1)
    return np.asarray(counts / np.maximum(totals, 1))


def _scenario(name: str, totals: Matrix) -> Matrix:
    """EchoPFL Table 4, the data half: A, C all ten classes; B, D four, four, two, two, and 25 to 75 %."""
    classes = len(totals)
    mix = np.zeros((5, classes))
    if name in "AC":
        mix[:, : min(10, classes)] = 1 / min(10, classes)
    elif classes < 4:
        raise BadInput(Code.PARTITION_ROWS, f"partition.scenario: {name} needs 4 classes, but the data has {classes}.")
    else:
        mix[:2, :4] = 0.25
        mix[2:4, :2] = 0.5
        mix[4, :2] = 0.25, 0.75
    asked = mix.sum(axis=0)
    rows_each = (totals[asked > 0] / asked[asked > 0]).min()  # as many as the scarcest class allows, the same for all
    return np.asarray(mix * rows_each / np.maximum(totals, 1))
