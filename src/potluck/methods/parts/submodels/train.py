"""The client's side of every method that gives clients sub-models: train what was sent, keep it, send it back.

The client does nothing unusual; that a neighbour's model is wider it cannot see. `keep` names layers of its own
(FedConv, section 6.6): they are trained with the rest, used in its personal model, and never leave the device.
`moving` names the layers that training may change (transfer learning, section 6.7); none means all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from potluck.errors import BadInput, Code, unknown
from potluck.fleet import Done, Local, Params
from potluck.learn import Loss, Recipe, fit
from potluck.methods.parts import checks
from potluck.models import Model

ADAM = Recipe(epochs=5, lr=1e-3, optimiser="adam")  # how clients train in FedConv's comparison


@dataclass(frozen=True)
class Dealt:
    """Settings of every method that deals widths to its clients."""

    widths: tuple[float, ...] = (1.0, 0.75, 0.5, 0.25)  # shrinkage ratios
    shares: tuple[float, ...] = (4.0, 8.0, 4.0, 4.0)  # of the clients, dealt by the seed
    recipe: Recipe = ADAM
    cohort: int = 0  # clients per round; 0: all
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        check_widths(self.widths, self.shares)


@dataclass(frozen=True)
class Train:
    """Server to client: a sub-model, without the layers the client keeps once it has them."""

    weights: Params
    recipe: Recipe
    keep: tuple[str, ...] = ()
    moving: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trained:
    """Client to server."""

    weights: Params
    examples: Tensor


@dataclass(frozen=True)
class Mine:
    weights: Params  # the sub-model as training left it; none before the first task


def train(task: Train, local: Local) -> Done:
    weights = trained(task, local)
    sent = {name: value for name, value in weights.items() if not within(name, task.keep)}
    return Done(Trained(sent, local.data.weight.sum()), mine=Mine(weights))


def trained(task: Train, local: Local, loss: Loss | None = None) -> Params:
    """The sub-model after local training; layers of one's own are one's own."""
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
    for layer in layers:
        if not any(within(name, [layer]) for name in model.trainable):
            raise unknown(Code.SETTING_VALUE, f"method.{field}: layer", layer, model.layers())


def check_widths(widths: tuple[float, ...], shares: tuple[float, ...]) -> None:
    if not widths or not all(0.0 < width <= 1.0 for width in widths) or len(set(widths)) < len(widths):
        raise BadInput(
            Code.SETTING_VALUE,
            f"method.widths: {list(widths)} given, different ratios above 0 and up to 1 are allowed.",
        )
    if len(shares) != len(widths) or min(shares) < 0 or not sum(shares) > 0:
        raise BadInput(
            Code.SETTINGS_CLASH,
            f"method.shares: {list(shares)} given for {len(widths)} widths, one share of 0 or more for each is "
            "allowed.",
        )
