"""Which clients take part in a round: a random sample of the idle ones."""

from __future__ import annotations

from potluck import keys
from potluck.fleet import ClientId, Fleet


def sample(fleet: Fleet, cohort: int, *key: int | str) -> list[ClientId]:
    """Draw `cohort` idle clients without repetition, in the order of the roster; all idle clients if cohort is 0.

    The draw indexes `fleet.idle` and does not copy it: a million idle clients cost no more than a thousand.
    """
    idle = fleet.idle
    if cohort == 0 or cohort >= len(idle):
        return list(idle)
    chosen = keys.rng(*key, "cohort").choice(len(idle), size=cohort, replace=False)
    return [idle[int(index)] for index in sorted(chosen)]
