"""Where a client is, and for how long its device cannot reach its access point.

Mo et al. (Centaur), section 5, "Mobility Model": ten locations, each with a probability that a connection succeeds, and
a day of 24 slots that begins and ends at home. Every answer follows from (seed, client, round), so nothing is stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from potluck import keys
from potluck.errors import BadInput, Code
from potluck.fleet import ClientId
from potluck.methods.parts import checks

LOCATIONS, SLOTS, LONGEST = 10, 24, 100


@dataclass(frozen=True)
class Connection:
    """How long a device is without its access point, and how many samples it gathers meanwhile."""

    base: float = 0.5  # share of its samples that a device has without offline time
    step: float = 0.2  # further share per unit of offline time
    connected: float = 0.5  # lambda: probability that an attempt to connect succeeds
    mobility: tuple[float, float] | None = None  # range of lambda over locations and hours; none: lambda everywhere

    def __post_init__(self) -> None:
        checks.share(self, "base")
        checks.share(self, "step")
        checks.within(self, "connected", 0.0, 1.0)
        if self.mobility is not None and not 0.0 <= self.mobility[0] <= self.mobility[1] <= 1.0:
            raise BadInput(
                Code.SETTING_VALUE, f"mobility: must be [low, high] within 0 and 1, got {list(self.mobility)}."
            )

    def offline(self, seed: int, client: ClientId, pair: int) -> int:
        """Units of time that a device was without its access point before this pair of rounds."""
        chance = self.connected if self.mobility is None else connection(seed, client, pair, *self.mobility)
        return offline_units(chance, seed, pair, client)

    def gathered(self, units: int) -> float:
        """The share of its samples that a device has gathered: the longer without a connection, the larger."""
        return min(1.0, self.base + self.step * units)

    def units(self, share: float) -> int:
        """The offline time after which a device has this share of its samples."""
        return int((share - self.base) / self.step + 1e-9)


@lru_cache(maxsize=8)
def locations(seed: int) -> tuple[float, ...]:
    """The probability that a connection succeeds at each location, the same for all clients; the best one is home."""
    return tuple(keys.rng(seed, "places").uniform(0.0, 1.0, LOCATIONS).tolist())


@lru_cache(maxsize=65536)
def day(seed: int, client: ClientId) -> tuple[int, ...]:
    """The client's location in each slot of its day."""
    home = int(np.argmax(locations(seed)))
    between = keys.rng(seed, client, "day").integers(0, LOCATIONS, SLOTS - 2).tolist()
    return (home, *between, home)


def connection(seed: int, client: ClientId, slot: int, low: float, high: float) -> float:
    """The probability of a connection in a slot; the client's own probabilities are stretched linearly to low..high."""
    chances = locations(seed)
    own = [chances[location] for location in day(seed, client)]
    least, most = min(own), max(own)
    here = own[slot % SLOTS]
    return high if most == least else low + (high - low) * (here - least) / (most - least)


def offline_units(chance: float, *parts: int | str) -> int:
    """Failed attempts before the first success: geometric, by inversion. At most LONGEST: never connected."""
    if chance >= 1.0:
        return 0
    if chance <= 0.0:
        return LONGEST
    (u,) = keys.shares(keys.number(*parts, "offline"), 1)
    return min(LONGEST, int(math.log1p(-u) / math.log1p(-chance)))
