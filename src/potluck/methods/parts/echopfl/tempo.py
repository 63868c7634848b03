"""How many epochs fast clients train while stragglers are at work, so that all push about equally often."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from potluck.fleet import ClientId
from potluck.methods.parts import checks
from potluck.methods.parts.shared_map import SharedMap, share


@dataclass(frozen=True)
class Pace:
    """The settings: whether fast clients train longer."""

    fill: float = 0.0  # 1: fast clients train as many epochs per task as fit into the slowest's time; 0: all the same
    most_epochs: int = 20  # at most so many

    def __post_init__(self) -> None:
        checks.within(self, "fill", 0.0, 1.0)
        checks.at_least(self, "most_epochs", 1)


@dataclass(frozen=True)
class Tempo:
    """Seconds that an epoch took, transfers included, as the server measured it."""

    last: SharedMap[float] = field(default_factory=SharedMap)  # in each client's newest task
    slowest: float = 0.0  # over all tasks so far

    def __post_init__(self) -> None:
        share(self, "last")


def noted(tempo: Tempo, client: ClientId, seconds: float, epochs: int) -> Tempo:
    each = seconds / max(1, epochs)
    return replace(tempo, last=tempo.last.put(client, each), slowest=max(tempo.slowest, each))


def epochs(tempo: Tempo, client: ClientId, least: int, pace: Pace) -> int:
    """The epochs of a client's next task: `least` (slowest / own)^fill."""
    own = tempo.last.get(client)
    if own is None or own <= 0.0:
        return least
    fits = least * float((tempo.slowest / own) ** pace.fill)
    return max(least, min(pace.most_epochs, round(fits)))
