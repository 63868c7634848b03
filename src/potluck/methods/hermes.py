"""Hermes: each client prunes the channels it needs least, and only what sub-models have in common is averaged.

Li et al., "Hermes: An Efficient Federated Learning Framework for Heterogeneous Mobile Clients", MobiCom 2021: channel
pruning by a group lasso in local training, then averages over the clients that hold a weight; a weight that one client
alone holds stays that client's. Deviation: a client prunes once, to the width it was dealt, instead of step by step to
a validation accuracy, so that it is compared at the same cost as the others. The rounds are those of
`parts/submodels/pruning.py`; what makes it Hermes is how a client scores its channels.
"""

from __future__ import annotations

from torch import Tensor

from potluck.fleet import Data, Done, Local, Params
from potluck.learn import Recipe, fit, mean_loss
from potluck.methods.parts.submodels.pruning import (
    Config,
    Found,
    Search,
    State,
    check,
    found,
    lengths,
    personal,
    private,
    record,
    server,
    shared,
    start,
)
from potluck.methods.parts.submodels.train import Mine, Train, Trained, train
from potluck.methods.parts.submodels.widths import channel_squares, plan_of

__all__ = [
    "PROGRAMS", "Config", "Found", "Mine", "Recipe", "Search", "State", "Train", "Trained",
    "check", "personal", "private", "record", "server", "shared", "start",
]  # fmt: skip


def search(task: Search, local: Local) -> Done:
    plan = plan_of(local.model)

    def loss(weights: Params, batch: Data, key: Tensor) -> tuple[Tensor, Params]:
        value, buffers = mean_loss(local.model, weights, batch, key)
        return value + task.penalty * lengths(channel_squares(weights, plan)) if plan.groups else value, buffers

    weights = fit(local.model, task.weights, local.data, task.recipe, key=local.key, loss=loss)
    return found(weights, channel_squares(weights, plan), plan, task.ratio, local)


PROGRAMS = {Search: search, Train: train}
