"""The client's side of every method that gives clients sub-models: train what was sent, keep it, send it back.

A client does nothing unusual: it cannot see that another client's model is wider. `keep` names layers that are its own
(FedConv, section 6.6). They are trained with the rest, belong to its personal model, and never leave the device.
`moving` names the layers that training may change (transfer learning, section 6.7); none means all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from potluck.errors import Code, unknown
from potluck.fleet import ClientId, Done, Local, Params
from potluck.learn import Loss, Recipe, fit
from potluck.models import Model

ADAM = Recipe(epochs=5, lr=1e-3, optimiser="adam")  # how clients train in FedConv's comparison


@dataclass(frozen=True)
class Mine:
    weights: Params  # the sub-model as training left it; none before the first task


@dataclass(frozen=True)
class Train:
    """Server to client: a sub-model, without the layers that the client keeps once it has them."""

    weights: Params
    recipe: Recipe
    keep: tuple[str, ...] = ()
    moving: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trained:
    """Client to server: the sub-model after training, without the layers that the client keeps."""

    weights: Params
    examples: Tensor


@dataclass(frozen=True)
class Given:
    """What the server has for the clients: the width of each, and the sub-model of each width as it would send it."""

    widths: dict[ClientId, float] = field(default_factory=dict)
    models: dict[str, Params] = field(default_factory=dict)  # width, as text -> sub-model

    def renewed(self, widths: Mapping[ClientId, float], subs: Mapping[float, Params], whole: Params) -> Given:
        """After a round: the sub-models that were sent in it; at full width the new global model."""
        models = {**self.models, **{str(width): sub for width, sub in subs.items()}}
        models |= {"1.0": whole} if "1.0" in models else {}
        return Given(dict(widths), models)


def received(state: Any, client: ClientId) -> Params | None:
    """The sub-model of the client's width; None before the first round."""
    given: Given = state.given
    return given.models.get(str(given.widths.get(client)))


def personal(state: Any, client: ClientId, mine: Mine) -> Params:
    """The client's own sub-model as its training left it; the server's model before its first task."""
    return mine.weights or state.weights


def private(weights: Params, cfg: Any) -> Mine:
    return Mine({})


def train(task: Train, local: Local) -> Done:
    weights = trained(task, local)
    sent = {name: value for name, value in weights.items() if not within(name, task.keep)}
    return Done(Trained(sent, local.data.weight.sum()), mine=Mine(weights))


def trained(task: Train, local: Local, loss: Loss | None = None) -> Params:
    """The sub-model after local training, with the client's own layers in their places."""
    mine: Mine = local.mine
    own = {name: value for name, value in mine.weights.items() if within(name, task.keep)}
    begin = task.weights | own
    order = [name for name, _ in local.model.module.named_parameters()]
    order += [name for name in begin if name not in order]
    begin = {name: begin[name] for name in order}
    moving = local.model.trainable
    if task.moving:
        moving = frozenset(name for name in moving if within(name, task.moving))
    return fit(local.model, begin, local.data, task.recipe, key=local.key, only=moving, loss=loss)


def within(name: str, layers: Iterable[str]) -> bool:
    """Whether a tensor belongs to one of the layers named."""
    return any(name == layer or name.startswith(f"{layer}.") for layer in layers)


def check_layers(field: str, layers: Iterable[str], model: Model) -> None:
    """Raise BadInput for a name that is no layer of the model."""
    for layer in layers:
        if not any(within(name, [layer]) for name in model.trainable):
            raise unknown(Code.SETTING_VALUE, f"method.{field}: layer", layer, model.layers())
