"""LotteryFL: each client finds its own sub-network, and only that is trained, sent and aggregated.

Li et al., "LotteryFL: Empower Edge Intelligence with Personalized and Communication-Efficient Federated Learning",
SEC 2021, Algorithm 1. Each round a client takes its part of the shared model, measures it on its validation rows,
trains it and sends what it has. A client whose part was right more often than `threshold` prunes: it drops the smallest
of the weights it still has, until `target` of all are left, and rewinds the others to the first weights. Without
pruning it trains on, so learning accumulates. The server averages each weight over the clients that have it. Only
weight matrices are pruned.
Deviations: a client prunes one round after it was right often enough, so that the server knows the size of a message
beforehand. Clients without validation rows measure on their training rows. FedCFC (section 5.1) prunes from the first
round on: `threshold = 0`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar

import torch
from torch import Tensor

from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit, mean_loss
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.starts import PRETRAINS, Pretrain, pretrained
from potluck.needs import VALIDATION_ROWS
from potluck.spaces import Choice, Range, Space
from potluck.tensors import mean
from potluck.unforeseen import Unforeseen

__all__ = ["PRETRAINS"]  # of the parts


@dataclass(frozen=True)
class Config:
    threshold: float = 0.5  # accuracy above which a client prunes; 0: it prunes in every round from the first on
    prune: float = 0.1  # share of the remaining weights that a round prunes
    target: float = 0.5  # share of all weights that stays at the end
    cohort: int = 0  # clients per round; 0: all
    recipe: Recipe = Recipe(clip=5.0)
    pretrain: Pretrain = Pretrain()  # on the server rows, before the first round
    seed: int = 0
    MOVED: ClassVar[dict[str, str]] = {"pretrain": "pretrain.epochs"}

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.within(self, "threshold", 0.0, 1.0)
        checks.share(self, "prune")
        checks.share(self, "target")


USES = (VALIDATION_ROWS,)
SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "target": Choice(0.3, 0.5, 0.8)}


@dataclass(frozen=True)
class State:
    weights: Params  # the common model
    held: dict[ClientId, Tensor]  # which weights a client has, as bits; a client without an entry has all
    right: dict[ClientId, float] = field(default_factory=dict)  # accuracy of a client's part before it trained last
    round: int = 0


@dataclass(frozen=True)
class Mine:
    first: Params  # the weights to which pruned networks are rewound
    weights: Params  # the client's own sub-network, zero where it was pruned
    held: Tensor  # 1 for each prunable weight it has


@dataclass(frozen=True)
class Train:
    """Server to client: its part of the common model."""

    values: Tensor
    rest: Params
    first: bool  # the client's first task: pruned networks are rewound to these weights
    left: int  # how many prunable weights the client has after this task
    recipe: Recipe


@dataclass(frozen=True)
class Trained:
    """Client to server: the weights it has, and which they are, one bit each."""

    values: Tensor
    rest: Params
    bits: Tensor
    right: Tensor  # accuracy of what it received


def start(weights: Params, cfg: Config) -> State:
    return State(weights, {})


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights, weights, torch.ones(_flat(weights).shape[0]))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    size = _flat(state.weights).shape[0]
    if cfg.pretrain.epochs and not state.round:
        state = State(pretrained(fleet, state.weights, cfg.pretrain, cfg.recipe, cfg.seed), {})
    while True:
        common, rest = _flat(state.weights), _rest(state.weights)
        tasks = {}
        for client in sample(fleet, cfg.cohort, cfg.seed, state.round):
            bits = state.held.get(client)
            own = common if bits is None else common[_from_bits(bits, size) > 0]
            ripe = not cfg.threshold or state.right.get(client, 0.0) > cfg.threshold
            least = max(ceil(cfg.target * size), ceil((1.0 - cfg.prune) * len(own)))
            left = min(len(own), least) if ripe else len(own)
            tasks[client] = Train(own, rest, bits is None, left, cfg.recipe)
        arrivals = [arrival for arrival in fleet.gather(tasks) if _fits(arrival.update, size)]
        total, count = torch.zeros(size), torch.zeros(size)
        for arrival in arrivals:
            mask = _from_bits(arrival.update.bits, size)
            total[mask > 0] += arrival.update.values
            count += mask
        merged = torch.where(count > 0, total / count.clamp_min(1.0), common)  # the others stay
        rest = mean([arrival.update.rest for arrival in arrivals]) if arrivals and rest else rest
        held = {**state.held, **{arrival.client: arrival.update.bits for arrival in arrivals}}
        right = {**state.right, **{arrival.client: float(arrival.update.right) for arrival in arrivals}}
        state = State(_whole(state.weights, merged, rest), held, right, state.round + 1)
        yield state


def _fits(update: Trained, size: int) -> bool:
    """Whether a client names as many weights as it sends: another update counts for nothing."""
    return int(_from_bits(update.bits, size).sum()) == update.values.shape[0]


def train(task: Train, local: Local) -> Done:
    mine: Mine = local.mine
    own = torch.zeros_like(mine.held).scatter(0, _places(mine.held, task.values.shape[0]), task.values)
    received = _whole(mine.first, own, task.rest)
    begun = received if task.first else mine.first
    held = mine.held
    pruned = task.left < task.values.shape[0]
    if pruned:  # drop the smallest, rewind the others to the first weights
        rank = torch.where(held > 0, own.abs(), -1.0)
        held = torch.zeros_like(held).scatter(0, rank.topk(task.left).indices, 1.0)
        own = _flat(begun) * held
    rest = task.rest
    weights = _whole(mine.first, own, rest)
    mask = _whole(mine.first, held, {name: torch.ones_like(value) for name, value in rest.items()})

    def loss(w: Params, batch: Data, key: Tensor) -> tuple[Tensor, Params]:
        return mean_loss(local.model, {name: value * mask[name] for name, value in w.items()}, batch, key)

    weights = fit(local.model, weights, local.data, task.recipe, key=local.key, loss=loss)
    values = _flat(weights).gather(0, _places(held, task.left))
    update = Trained(values, _rest(weights), _to_bits(held), accuracy(local, received))
    return Done(update, mine=Mine(begun, weights, held))


def accuracy(local: Local, weights: Params) -> Tensor:
    """On the validation rows; on the training rows of a client that has none."""
    rows = local.data if local.valid is None else local.valid
    logits = local.model.logits(weights, rows.x, t=rows.t, length=rows.length)
    found: Tensor = (local.model.task.closeness(logits, rows.y) * rows.weight).sum() / rows.weight.sum().clamp_min(1.0)
    return found


RELEASES = "each client sends a sub-network of its own"
UNFORESEEN = Unforeseen("when a client prunes", dry={"threshold": 0.0})  # dry: in every round from the first on
PROGRAMS = {Train: train}
HEADLINE = "own"


def shared(state: State) -> Params:
    return state.weights


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights


def _prunable(weights: Params) -> list[str]:
    return [name for name, value in weights.items() if value.dim() >= 2]


def _flat(weights: Params) -> Tensor:
    return torch.cat([weights[name].flatten() for name in _prunable(weights)])


def _rest(weights: Params) -> Params:
    return {name: value for name, value in weights.items() if value.dim() < 2}


def _whole(like: Params, values: Tensor, rest: Params) -> Params:
    """The model with these prunable weights, in the order of `like`."""
    names = _prunable(like)
    parts = torch.split(values, [like[name].numel() for name in names])
    found = {name: part.view(like[name].shape) for name, part in zip(names, parts, strict=True)}
    return {name: found[name] if name in found else rest[name] for name in like}


def _places(held: Tensor, count: int) -> Tensor:
    """The positions of the held weights, in order. `count` is their number, which a stack must know beforehand."""
    order = torch.arange(held.shape[0])
    return torch.where(held > 0, order, order + held.shape[0]).topk(count, largest=False, sorted=True).indices


def _to_bits(held: Tensor) -> Tensor:
    short = -held.shape[0] % 8
    eights = torch.cat((held, held.new_zeros(short))).view(-1, 8)
    return (eights * 2.0 ** torch.arange(8)).sum(1).to(torch.uint8)


def _from_bits(bits: Tensor, size: int) -> Tensor:
    return ((bits.unsqueeze(1) >> torch.arange(8, dtype=torch.uint8)) & 1).flatten()[:size].float()
