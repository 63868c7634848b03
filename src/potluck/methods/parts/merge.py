"""How updates become one model."""

from __future__ import annotations

from potluck.fleet import Fleet, Message, Params
from potluck.methods.parts.cohort import sample
from potluck.tensors import mean


def averaged(fleet: Fleet, task: Message, weights: Params, cohort: int, *key: int | str) -> Params:
    """One round of federated averaging: a cohort does the task, and the mean of their models, weighted by examples,
    comes back; the weights as they were when nobody answered."""
    chosen = sample(fleet, cohort, *key)
    updates = [arrival.update for arrival in fleet.gather({client: task for client in chosen})]
    return mean([u.weights for u in updates], [u.examples for u in updates]) if updates else weights
