"""Convergence (FedCFC, section 5.2): the first round in which no client's validation accuracy gains; figures of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from potluck.fleet import Arrival, ClientId

if TYPE_CHECKING:
    from potluck.methods.fedcfc import State


def watched(state: State, arrivals: Sequence[Arrival], share: float) -> State:
    """The state with the best accuracies so far, and with the round in which they stopped to gain."""
    best, gained = best_so_far(state.best, {a.client: float(a.update.valid) for a in arrivals}, share)
    settled = state.settled or (state.round if arrivals and not gained else 0)
    return replace(state, best=best, settled=settled)


def best_so_far(
    best: Mapping[ClientId, float], now: Mapping[ClientId, float], share: float
) -> tuple[dict[ClientId, float], bool]:
    """The best accuracy of each client with this round's, and whether any client gained more than `share` of its best.

    A negative accuracy is that of a client without validation rows: it always counts as gaining.
    """
    gained = any(
        value < 0 or value - best.get(client, -1.0) > share * max(best.get(client, -1.0), 0.0)
        for client, value in now.items()
    )
    return {**best, **{client: max(value, best.get(client, -1.0)) for client, value in now.items()}}, gained


def record(state: State) -> Mapping[str, Any]:
    """The figures of a state for the run's record."""
    seen = [best for best in state.best.values() if best >= 0]
    return {
        "agreement": state.agreement,
        "cum": [float(aim.cum) for aim in state.aims],
        "validation": sum(seen) / len(seen) if seen else None,
        "settled": state.settled,
    }
