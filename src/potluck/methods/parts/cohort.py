"""Who takes part in a round: a sample of those who are idle, drawn without walking the whole roster."""

from __future__ import annotations

from potluck import keys
from potluck.fleet import ClientId, Fleet


def sample(fleet: Fleet, cohort: int, *parts: int | str) -> list[ClientId]:
    """`cohort` idle clients without repetition, in the order of the roster; everybody idle when cohort is 0."""
    idle = fleet.idle
    if cohort == 0 or cohort >= len(idle):
        return list(idle)
    places = keys.rng(*parts, "cohort").choice(len(idle), size=cohort, replace=False)
    return [idle[int(place)] for place in sorted(places)]
