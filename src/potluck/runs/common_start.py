"""`server.pretrain`: train the first model on the server rows before a run, for any method.

The result follows from the seed, the first weights and the rows. It is kept in this process, so that the methods of a
comparison do not compute it again. The server's clock is charged once, when the run begins.
"""

from __future__ import annotations

import hashlib

import torch

from potluck import keys
from potluck.errors import BadInput, Code
from potluck.fleet import Data, Fleet, Params
from potluck.learn import Recipe
from potluck.models import Model
from potluck.runs import server_rows
from potluck.runs.experiment import Experiment

_KEPT: dict[str, Params] = {}  # the newest results, by what they follow from
_MOST = 8


def pretrained(experiment: Experiment, model: Model, weights: Params, rows: Data | None) -> Params:
    """The weights after `server.pretrain` epochs on the server rows; as they are for 0 epochs."""
    server, seed = experiment.server, experiment.run.seed
    if not server.pretrain:
        return weights
    if rows is None or not len(rows.y):
        raise BadInput(
            Code.METHOD_NEEDS,
            f"server.pretrain: needs server rows to train on, got {server.pretrain} epochs and no rows. "
            "Set server.share above 0.",
        )
    recipe = server_rows.recipe_of(experiment, server.pretrain, server.pretrain_lr)
    name = _name(model, weights, rows, recipe, (seed, server.validate_share))
    if name not in _KEPT:
        with torch.no_grad():
            key = keys.key(seed, "server pretrain")
            found = server_rows.trained(experiment, model, weights, rows, recipe, key)
        while len(_KEPT) >= _MOST:
            del _KEPT[next(iter(_KEPT))]
        _KEPT[name] = found
    return dict(_KEPT[name])


def charge(experiment: Experiment, model: Model, weights: Params, fleet: Fleet) -> None:
    """Charge the pre-training to the clock of a run that begins."""
    epochs, rows = experiment.server.pretrain, fleet.home.data
    if epochs:
        seconds = server_rows.seconds(experiment, model, weights, rows, epochs)
        fleet.spend(seconds, f"pre-training on {len(rows.y)} server rows, {epochs} epochs")


def _name(model: Model, weights: Params, rows: Data, recipe: Recipe, rest: tuple[float, ...]) -> str:
    digest = hashlib.sha256(repr((model.name, model.settings, recipe, rest)).encode())
    parts = [*weights.values(), rows.x, rows.y, *(part for part in (rows.t, rows.length) if part is not None)]
    for part in parts:
        digest.update(part.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()
