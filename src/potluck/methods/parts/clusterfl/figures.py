"""The figures of ClusterFL for the run's record: eq. (1), how F moves, which clients were dropped, what that saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from potluck.fleet import ClientId
from potluck.methods.parts.clusterfl.relation import correlation

if TYPE_CHECKING:
    from potluck.methods.clusterfl import State

RELATION_SHOWN = 200  # clients up to which the relation matrix is written to the run's database


def clusters(state: State) -> Mapping[ClientId, int]:
    """The cluster of each client, and for a dropped client the one that it had; none while no F is known."""
    if state.structure.learned < 0:
        return {}
    now = dict(zip(state.table.names, state.structure.cluster, strict=True))
    return now | {client: one.cluster for client, one in state.dropped.items()}


def record(state: State) -> dict[str, Any]:
    """All figures of a state, as plain JSON values by name."""
    if state.trials:
        return {}
    table, structure = state.table, state.structure
    scores: dict[str, Any] = {"validation": state.scores} if state.scores else {}
    if not table.names:
        return scores
    centres = structure.F.T @ table.weights
    coupled, ridge = float((centres**2).sum()), float((table.weights**2).sum())
    figures = scores | {
        "apart": (ridge - coupled) / ridge if ridge > 0 else 0.0,  # the term of eq. (1) that pulls, for alpha = beta
        "coupling" if state.coupling else "beta": state.coupling or state.beta,
        "client_rounds": {"asked": state.saved.asked, "saved": state.saved.skipped},
        "saved": state.saved.shown(table.weights.shape[1]),
        "dropped": {client: [one.round, one.cause] for client, one in state.dropped.items()},
    }
    if not state.coupling:  # with a coupling, each client's loss has a weight of its own there
        figures["objective"] = float(table.loss.sum()) + state.alpha * ridge - state.beta * coupled  # eq. (1)
    if state.omega.shape == centres.shape and coupled > 0:  # admm: how far Omega is from F^T W, eq. (4c)
        figures["dual_gap"] = float(((centres - state.omega) ** 2).sum() / coupled) ** 0.5
    if structure.learned == state.round:
        figures |= {"f_change": structure.change, "sigma_max": structure.sigma}
        if len(table.names) <= RELATION_SHOWN:
            matrix = [[round(v, 3) for v in row] for row in correlation(structure.F).tolist()]
            figures["relation"] = {"clients": list(table.names), "cluster": list(structure.cluster), "matrix": matrix}
    return figures
