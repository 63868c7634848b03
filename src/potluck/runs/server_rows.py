"""Training on the server rows, for any method: before a run (`server.pretrain`), after every round (`server.epochs`).

`server.validate_share` keeps a part of the rows to choose by. The epoch with the smallest loss on them is taken. The
start counts as an epoch. FedConv and Serveralone keep the same rows if their share is the same. Without such rows the
last epoch is taken. Each epoch begins with fresh moments of Adam.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Set
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from potluck import keys
from potluck.errors import BadInput, Code
from potluck.fleet import Data, Fleet, Local, Params
from potluck.learn import Recipe, fit, training_macs
from potluck.methods import Method
from potluck.models import Model
from potluck.runs.experiment import Experiment

if TYPE_CHECKING:
    from potluck.methods.parts.submodels.tuning import Rows

SERVER_SPEED = 5e10  # MACs per second of an ordinary PC
Train = Callable[[Params], Params]


def recipe_of(experiment: Experiment, epochs: int, lr: float) -> Recipe:
    server = experiment.server
    return Recipe(epochs, server.pretrain_batch, lr, optimiser=server.optimiser, clip=5.0)


def rows_of(experiment: Experiment, rows: Data) -> Rows:
    """What is trained on, and what is chosen by: all of them and none without `server.validate_share`."""
    from potluck.methods.parts.submodels.tuning import Rows, divided  # few runs train server rows, and it takes long

    share = experiment.server.validate_share
    if not share:
        return Rows(rows, rows)
    return divided(rows, keys.key(experiment.run.seed, "server rows"), share)


def trained(experiment: Experiment, model: Model, weights: Params, rows: Data, recipe: Recipe, key: Tensor) -> Params:
    """The model after some epochs on the server rows."""
    from potluck.methods.parts.submodels.tuning import score

    parts = rows_of(experiment, rows)
    if not experiment.server.validate_share:
        return fit(model, weights, parts.tune, recipe, key=key)
    once, best = dataclasses.replace(recipe, epochs=1), weights
    least = float(score(model, weights, parts.valid)[1])
    for epoch in range(recipe.epochs):
        weights = fit(model, weights, parts.tune, once, key=keys.fold(key, epoch))
        found = float(score(model, weights, parts.valid)[1])
        if found > least:
            best, least = weights, found
    return best


def seconds(experiment: Experiment, model: Model, weights: Params, rows: Data, epochs: int) -> float:
    """What that takes the server: training, and one forward pass of the rows to choose by for every epoch."""
    parts = rows_of(experiment, rows)
    held = len(rows.y) - len(parts.tune.y)
    passes = epochs * len(parts.tune.y) + (epochs + 1) * held / 3.0
    return passes * training_macs(model, weights, rows) / SERVER_SPEED


def check(experiment: Experiment, method: Method, config: Any, state: Any, home: Local) -> None:
    """Raise BadInput, before anything runs, for epochs that have no rows or no model to train."""
    epochs = experiment.server.epochs
    if not epochs:
        return
    if not len(home.data.y):
        raise BadInput(
            Code.METHOD_NEEDS,
            f"server.epochs: needs server rows to train on, got {epochs} epochs and no rows. Set server.share above 0.",
        )
    decide: Callable[[Any], bool] = getattr(method.module, "improves", lambda config: True)
    if not decide(config) or improved(method, state, lambda weights: weights, home.model.trainable) is None:
        why = "its server has no model that clients train on"
        raise BadInput(
            Code.SETTINGS_CLASH, f"server.epochs: must be 0 with {method.name} and these settings, got {epochs}: {why}."
        )


def program(experiment: Experiment, method: Method, fleet: Fleet, state: Any, config: Any) -> Iterator[Any]:
    """The method's server program. With `server.epochs`, its models train on the server rows whenever a round ended.

    The program then begins anew from that state, as that of a resumed run does.
    """
    epochs = experiment.server.epochs
    if not epochs:
        return method.server(fleet, state, config)
    return _with_epochs(experiment, method, fleet, state, config)


def _with_epochs(experiment: Experiment, method: Method, fleet: Fleet, state: Any, config: Any) -> Iterator[Any]:
    names = fleet.home.model.trainable
    while True:
        round = getattr(state, "round", None)
        inner = method.server(fleet, state, config)
        for state in inner:
            if round is None or state.round != round:
                break
            yield state
        else:
            return
        inner.close()  # type: ignore[attr-defined]
        yield (state := improved(method, state, _after(experiment, fleet, getattr(state, "round", 0)), names))


def _after(experiment: Experiment, fleet: Fleet, round: int) -> Train:
    """The epochs after a round; each of a method's models has random numbers of its own."""
    model, rows, server = fleet.home.model, fleet.home.data, experiment.server
    recipe = recipe_of(experiment, server.epochs, server.epochs_lr)
    keys_of_models = (keys.key(experiment.run.seed, round, number, "server epochs") for number in count())

    def train(weights: Params) -> Params:
        cost = seconds(experiment, model, weights, rows, recipe.epochs)
        fleet.spend(cost, f"round {round}: {recipe.epochs} epochs on the server rows")
        with torch.no_grad():
            return trained(experiment, model, weights, rows, recipe, next(keys_of_models))

    return train


def improved(method: Method, state: Any, train: Train, names: Set[str] = frozenset()) -> Any:
    """The state with `train` done to each model that the server has for its clients; None where it has none.

    A method says what they are in `improved(state, train)`. Without it: the field that `shared` returns, a field
    `weights`, or a list in `models`; each with all of these names.
    """
    own: Callable[[Any, Train], Any] | None = getattr(method.module, "improved", None)
    if own is not None:
        return own(state, train)
    whole = method.shared(state) if hasattr(method.module, "shared") else getattr(state, "weights", None)
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if value is whole and isinstance(value, dict) and value and names <= value.keys():
            return dataclasses.replace(state, **{field.name: train(value)})
        if field.name == "models" and isinstance(value, list) and all(isinstance(one, dict) for one in value):
            return dataclasses.replace(state, models=[train(one) for one in value])
    return None
