"""How much the fast do while the slow are at it: more epochs per task, so that all push about equally often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from potluck.fleet import ClientId
from potluck.methods.parts.shared_map import SharedMap


@dataclass(frozen=True)
class Tempo:
    """Seconds an epoch took, there and back included, as the server saw it."""

    last: Mapping[ClientId, float] = field(default_factory=SharedMap)  # in each client's newest task
    slowest: float = 0.0  # of all there were


def noted(tempo: Tempo, client: ClientId, seconds: float, epochs: int) -> Tempo:
    each = seconds / max(1, epochs)
    return replace(tempo, last=SharedMap.of(tempo.last).put(client, each), slowest=max(tempo.slowest, each))


def epochs(tempo: Tempo, client: ClientId, least: int, fill: float, most: int) -> int:
    """Of the next task: `least` (slowest / own)^fill. At 0 all do the same; at 1 the fast fill the slowest's time."""
    own = tempo.last.get(client)
    if own is None or own <= 0.0:
        return least
    fits = least * float((tempo.slowest / own) ** fill)
    return max(least, min(most, round(fits)))
