"""Where a wearer is, and for how long her device cannot reach its access point.

Mo et al. (Centaur), section 5, "Mobility Model": ten places, each with a probability that a connection succeeds; a day
of 24 slots, home first and last. Every answer follows from (seed, client, round): nothing is stored.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from potluck import keys
from potluck.fleet import ClientId

PLACES, SLOTS, LONGEST = 10, 24, 100


@lru_cache(maxsize=8)
def places(seed: int) -> tuple[float, ...]:
    """The probability that a connection succeeds at each place, the same for everybody; the best one is home."""
    return tuple(keys.rng(seed, "places").uniform(0.0, 1.0, PLACES).tolist())


@lru_cache(maxsize=65536)
def day(seed: int, client: ClientId) -> tuple[int, ...]:
    """The client's place in each slot of its day."""
    home = int(np.argmax(places(seed)))
    between = keys.rng(seed, client, "day").integers(0, PLACES, SLOTS - 2).tolist()
    return (home, *between, home)


def connection(seed: int, client: ClientId, slot: int, low: float, high: float) -> float:
    """The probability of a connection in a slot, the client's own probabilities stretched linearly to low..high."""
    chances = places(seed)
    mine = [chances[place] for place in day(seed, client)]
    least, most = min(mine), max(mine)
    here = mine[slot % SLOTS]
    return high if most == least else low + (high - low) * (here - least) / (most - least)


def offline_units(chance: float, *parts: int | str) -> int:
    """Failed attempts before the first success, at most LONGEST (never connected): geometric, by inversion."""
    if chance >= 1.0:
        return 0
    if chance <= 0.0:
        return LONGEST
    (u,) = keys.shares(keys.number(*parts, "offline"), 1)
    return min(LONGEST, int(math.log1p(-u) / math.log1p(-chance)))


def offline(cfg: Any, client: ClientId, pair: int) -> int:
    """Units of time a device was without its access point before this round's connection."""
    chance = cfg.connected if cfg.mobility is None else connection(cfg.seed, client, pair, *cfg.mobility)
    return offline_units(chance, cfg.seed, pair, client)


def gathered(cfg: Any, units: int) -> float:
    """The longer without a connection, the larger the share of its data a client has gathered."""
    return min(1.0, float(cfg.base) + float(cfg.step) * units)
