"""The figures of EchoPFL for the run's record: clusters, arrivals, broadcasts, and how stale the updates were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from potluck.methods.echopfl import State


def record(state: State) -> dict[str, Any]:
    """All figures of a state, as plain JSON values by name."""
    grouping = state.grouping
    return {
        "clusters": sum(1 for cluster in grouping.clusters.values() if cluster.members),
        "arrivals": grouping.arrivals,
        "broadcasts": grouping.broadcasts,
        "staleness_mean": grouping.staleness[0] / max(1, grouping.arrivals),
        "staleness_max": grouping.staleness[1],
    }
