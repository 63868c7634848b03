"""How many clients a round an epsilon needs (`potluck privacy`).

A round's mean of N updates, each of norm at most C, gets noise of standard deviation noise · C / N on each of its P
numbers. That noise has the norm noise · C · sqrt(P) / N. The signal has the norm C at most. Their ratio,
noise · sqrt(P) / N, says how much of a step is noise. The least noise for an epsilon follows from the rate N / clients,
the number of rounds and delta.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from potluck.privacy import account

MOST = 100_000_000  # clients that are looked for


@dataclass(frozen=True)
class Need:
    """One choice of how many clients a round asks."""

    cohort: int
    clients: int
    rate: float
    noise: float  # in units of the clipping bound
    ratio: float  # norm of the noise by the largest norm of the signal


def at(cohort: int, clients: int, epsilon: float, delta: float, rounds: int, parameters: int) -> Need:
    """What a cohort of this size costs."""
    rate = min(1.0, cohort / clients)
    noise = account.noise_for(epsilon, rate, rounds, delta, "rdp")
    return Need(cohort, clients, rate, noise, noise * sqrt(parameters) / cohort)


def least(clients: int, epsilon: float, delta: float, rounds: int, parameters: int, ratio: float) -> Need | None:
    """The smallest cohort whose noise is within the ratio; None where all clients together are too few."""
    if at(clients, clients, epsilon, delta, rounds, parameters).ratio > ratio:
        return None
    low, high = 0, clients  # the ratio falls as the cohort grows: noise grows more slowly than the rate
    while high - low > max(1, high // 200):
        middle = (low + high + 1) // 2
        fits = at(middle, clients, epsilon, delta, rounds, parameters).ratio <= ratio
        low, high = (low, middle) if fits else (middle, high)
    return at(high, clients, epsilon, delta, rounds, parameters)


def clients_for(epsilon: float, delta: float, rounds: int, parameters: int, ratio: float) -> int:
    """How many clients there must be, if all are asked in every round."""
    noise = account.noise_for(epsilon, 1.0, rounds, delta, "rdp")
    return min(MOST, int(noise * sqrt(parameters) / ratio) + 1)
