"""Which clients take part in a round: a random sample of the idle ones, once those that rest have rested.

Synchronous methods take their clients from here. Where devices rest (`fleet.duty`, `fleet.rows_per_hour`), a round
begins when enough clients are idle. A method that took `fleet.idle` as it is would go on with the few fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from potluck import keys
from potluck.fleet import ClientId, Fleet

Fits = Callable[[ClientId], bool]


def ready(fleet: Fleet, wanted: int = 0, fits: Fits | None = None, waits: Fits | None = None) -> Sequence[ClientId]:
    """The idle clients, once there are `wanted` of them or nobody rests; 0 waits for all.

    `fits` says which clients count, and `waits` for which resting ones to wait (default: those that count).
    """
    waits = waits or fits
    while fleet.resting and (waits is None or any(waits(client) for client in fleet.resting)):
        if wanted and len(_idle(fleet, fits)) >= wanted:
            break
        fleet.receive()  # an answer to an earlier round comes too late here
    return _idle(fleet, fits)


def awaited(fleet: Fleet, clients: Collection[ClientId]) -> None:
    """Wait until none of these clients rests."""
    while any(client in fleet.resting for client in clients):
        fleet.receive()


def sample(fleet: Fleet, cohort: int, *key: int | str) -> list[ClientId]:
    """Draw `cohort` idle clients without repetition, in the order of the roster; all idle clients if cohort is 0.

    The draw indexes `fleet.idle` and does not copy it: a million idle clients cost no more than a thousand.
    """
    idle = ready(fleet, cohort)
    if cohort == 0 or cohort >= len(idle):
        return list(idle)
    chosen = keys.rng(*key, "cohort").choice(len(idle), size=cohort, replace=False)
    return [idle[int(index)] for index in sorted(chosen)]


def not_in(others: Collection[ClientId], client: ClientId) -> bool:
    """Whether a client is none of the others; with them bound it says which clients fit."""
    return client not in others


def _idle(fleet: Fleet, fits: Fits | None) -> Sequence[ClientId]:
    return fleet.idle if fits is None else [client for client in fleet.idle if fits(client)]
