"""How updates become one sum: plainly, or in the fixed point of a secure sum, whose steps are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from potluck import devices
from potluck.fleet import Arrival
from potluck.release import Release, vector
from potluck.runs.privacy_section import SecureSection
from potluck.secure import cost
from potluck.secure.fixed import Fixed
from potluck.secure.graph import sizes

ROWS = 64  # updates that are added at a time


@dataclass(frozen=True)
class Sum:
    """A weighted sum of releases, the sum of the weights, and the arrivals in it."""

    total: Tensor
    weight: float
    group: list[Arrival]


class Adder(Protocol):
    """Adds up the releases of a group; None where the sum is lost."""

    @property
    def hides(self) -> bool:
        """Whether the server sees the sum alone."""

    @property
    def about(self) -> dict[str, Any]:
        """What sums cost so far, for summary.json and the checkpoint."""

    def __call__(
        self, fleet: Any, group: list[Arrival], tasks: Sequence[Any], release: Release, shares: Sequence[float]
    ) -> Sum | None: ...


def weights_of(group: Sequence[Arrival], release: Release, shares: Sequence[float]) -> Tensor:
    """What each update counts: its number of samples, where the method weighs by them, times its share."""
    counts = [float(getattr(one.update, release.weight)) if release.weight else 1.0 for one in group]
    return torch.tensor(counts, dtype=torch.float64) * torch.tensor(shares, dtype=torch.float64)


@dataclass(frozen=True)
class PlainAdder:
    """The sum in float64. A release longer than `clip` is shortened: clients should have done so."""

    clip: float = float("inf")
    hides: bool = False
    about: dict[str, Any] = field(default_factory=dict)

    def __call__(
        self, fleet: Any, group: list[Arrival], tasks: Sequence[Any], release: Release, shares: Sequence[float]
    ) -> Sum | None:
        weights = weights_of(group, release, shares)
        if self.clip < float("inf"):
            weights = weights.clamp_max(1.0)
        total = torch.zeros(())
        for begin in range(0, len(group), ROWS):
            some = slice(begin, begin + ROWS)
            rows = torch.stack(
                [vector(one.update, task, release) for one, task in zip(group[some], tasks[some], strict=True)]
            ).double()
            scale = (self.clip / torch.linalg.vector_norm(rows, dim=1)).clamp_max(1.0)
            total = total + (weights[some] * scale) @ rows
        return Sum(total.float(), float(weights.sum()), group)


@dataclass(frozen=True)
class SimulatedSecureAdder:
    """The sum of a secure sum in a simulation: its fixed point to the last bit, its bytes and seconds, and no masks.

    Masks cancel, so they change nothing in the sum; tests compare it with the protocol itself.
    """

    settings: SecureSection
    hides: bool = True
    about: dict[str, Any] = field(default_factory=lambda: {"sums": 0, "bytes_up": 0, "bytes_down": 0, "seconds": 0.0})

    def __call__(
        self, fleet: Any, group: list[Arrival], tasks: Sequence[Any], release: Release, shares: Sequence[float]
    ) -> Sum | None:
        weights = weights_of(group, release, shares)
        most = max(float(weights.max()), 1e-12)
        fixed = Fixed(self.settings.largest, len(group))
        total = np.zeros(0, dtype=np.uint32)
        for one, task, weight in zip(group, tasks, weights.tolist(), strict=True):
            term = fixed.write(vector(one.update, task, release).numpy() * (weight / most))
            total = term if not len(total) else total + term
        self._count(fleet, group, len(total))
        return Sum(torch.from_numpy(fixed.read(total) * most).float(), float(weights.sum()), group)

    def _count(self, fleet: Any, group: Sequence[Arrival], length: int) -> None:
        """Add what the four steps cost. The round waits for the slowest link of the group."""
        degree, threshold = sizes(len(group), self.settings.dropout, self.settings.corrupt)
        up, down = cost.up(degree), cost.down(degree)
        links = {fleet.clients[one.client].link for one in group}
        seconds = max((cost.seconds(devices.link(name), degree) for name in links if name), default=0.0)
        told = {"sums": 1, "bytes_up": up * len(group), "bytes_down": down * len(group), "seconds": seconds}
        for name, value in told.items():
            self.about[name] += value
        self.about.update(neighbours=degree, threshold=threshold, numbers=length)
        fleet.spend(seconds, "")
