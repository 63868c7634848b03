"""The epsilon of a list of charges, by Google's dp-accounting (extra `privacy`).

Neighbours differ in one client (or one sample) whose contribution is replaced by zeros: `REPLACE_SPECIAL`, the zero-out
relation of Kairouz et al., "Practical and Private (Deep) Learning without Sampling or Shuffling", ICML 2021.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

from potluck.errors import Code, Missing, install_extra

ACCOUNTANTS = ("pld", "rdp")
MOST = 1 << 20  # charges of one kind that `most` looks for


@dataclass(frozen=True, order=True)
class Charge:
    """One Gaussian release: the noise in units of the bound, and the probability of having been asked."""

    noise: float
    rate: float = 1.0


Charges = tuple[tuple[Charge, int], ...]  # kinds of charges in order, and how often each


def library() -> ModuleType:
    """dp-accounting. Without it Missing is raised, with what to install."""
    try:
        return importlib.import_module("dp_accounting")
    except ImportError:
        raise Missing(Code.EXTRA, f"privacy: needs dp-accounting. Install it: `{install_extra('privacy')}`.") from None


def event_of(charge: Charge) -> Any:
    """The charge as dp-accounting knows it."""
    dp = library()
    released = dp.GaussianDpEvent(charge.noise)
    return released if charge.rate >= 1.0 else dp.PoissonSampledDpEvent(charge.rate, released)


def accountant_of(name: str) -> Any:
    """A fresh accountant: `pld`, privacy loss distributions, or `rdp`, Rényi differential privacy."""
    dp = library()
    relation = dp.NeighboringRelation.REPLACE_SPECIAL
    module = importlib.import_module(f"dp_accounting.{name}")
    return module.PLDAccountant(relation) if name == "pld" else module.RdpAccountant(neighboring_relation=relation)


def epsilon(charges: Iterable[tuple[Charge, int]], delta: float, accountant: str = "pld") -> float:
    """The epsilon of all these charges together."""
    return _epsilon(tuple(sorted(charges)), delta, accountant)


@lru_cache(maxsize=4096)
def _epsilon(charges: Charges, delta: float, accountant: str) -> float:
    if not charges:
        return 0.0
    if any(charge.noise <= 0 for charge, _ in charges):
        return float("inf")
    logging.getLogger("absl").setLevel(logging.ERROR)  # it warns of each order of Rényi that it leaves out
    found = accountant_of(accountant)
    for charge, count in charges:
        found.compose(event_of(charge), count)
    return float(found.get_epsilon(delta))


@lru_cache(maxsize=1024)
def most(charge: Charge, budget: float, delta: float, accountant: str = "pld") -> int:
    """How many charges of one kind a budget allows."""

    def fits(count: int) -> bool:
        return _epsilon(((charge, count),), delta, accountant) <= budget

    if not fits(1):
        return 0
    high = 2
    while high < MOST and fits(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def noise_for(budget: float, rate: float, count: int, delta: float, accountant: str = "pld") -> float:
    """The least noise with which so many charges at this rate cost at most the budget, to three digits, rounded up."""
    low, high = 0.0, 1.0
    while _epsilon(((Charge(high, rate), count),), delta, accountant) > budget:
        low, high = high, 2.0 * high
    while high - low > 5e-4 * high:
        middle = 0.5 * (low + high)
        spent = _epsilon(((Charge(middle, rate), count),), delta, accountant)
        low, high = (low, middle) if spent <= budget else (middle, high)
    return high
