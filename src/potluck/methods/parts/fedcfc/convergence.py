"""When learning has converged: nobody's validation accuracy gains any more (FedCFC, section 5.2)."""

from __future__ import annotations

from collections.abc import Mapping

from potluck.fleet import ClientId


def best_so_far(
    best: Mapping[ClientId, float], now: Mapping[ClientId, float], share: float
) -> tuple[dict[ClientId, float], bool]:
    """Everybody's best accuracy with this round's, and whether anyone gained more than `share` of her best.

    A negative accuracy is that of a client without validation rows: she is taken to gain for ever.
    """
    gained = any(
        value < 0 or value - best.get(client, -1.0) > share * max(best.get(client, -1.0), 0.0)
        for client, value in now.items()
    )
    return {**best, **{client: max(value, best.get(client, -1.0)) for client, value in now.items()}}, gained
