"""FedEM: all clients share a few component models; each client mixes their answers with shares of its own.

Marfoq et al., "Federated Multi-Task Learning under a Mixture of Distributions", NeurIPS 2021, Algorithm 1. A client's
samples come from M distributions, each with a model theta_m. On a client, a round is one step of EM:

    E-step   q_i(m) is proportional to pi_m exp(-loss(theta_m, sample i))
    M-step   pi_m = the mean of q_i(m); theta_m trains on the loss of sample i times q_i(m)

The server takes the mean of each component, weighted by samples. The shares pi never leave the client. It answers with
sum_m pi_m p(y | x, theta_m). A client that never trained has equal shares.
Deviation: none. The first component is the run's own start; the others are drawn with other seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit, revisited, row_losses
from potluck.methods.fedavg import State, Trained, averaged
from potluck.methods.parts import checks
from potluck.methods.parts.merge import MEAN, Merge
from potluck.methods.parts.starts import other_start
from potluck.models import Model
from potluck.release import Release
from potluck.spaces import Choice, Range, Space

SHARES = "mixture.shares"  # the name of pi among the tensors of a personal model
LEAST = 1e-6  # a sample never leaves the batches of a component altogether


@dataclass(frozen=True)
class Config:
    components: int = 3  # M
    recipe: Recipe = Recipe(epochs=2)
    cohort: int = 0  # clients per round; 0: all
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.at_least(self, "components", 1)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "components": Choice(1, 2, 3)}


@dataclass(frozen=True)
class Mine:
    shares: Tensor  # pi: M numbers that sum to 1


@dataclass(frozen=True)
class Train:
    """Server to client: all components, each tensor with the component as its first axis."""

    weights: Params
    recipe: Recipe


def start(weights: Params, cfg: Config) -> State:
    """One component; the server draws the others in the first round."""
    return State({name: value[None] for name, value in weights.items()})


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(torch.full((cfg.components,), 1.0 / cfg.components))


def check(cfg: Config, home: Local) -> None:
    checks.probabilities(home)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        weights = state.weights
        if _count(weights) < cfg.components:
            others = [other_start(fleet.home.model, cfg.seed, number) for number in range(1, cfg.components)]
            weights = {n: torch.cat([value, *(one[n][None] for one in others)]) for n, value in weights.items()}
        weights = averaged(
            fleet, Train(weights, cfg.recipe), weights, cfg.cohort, cfg.seed, state.round, merge=cfg.merge
        )
        state = State(weights, state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    model, data = local.model, local.data
    losses = torch.stack([row_losses(model, one, data) for one in components(task.weights)])  # M x n
    member = responsibilities(losses, local.mine.shares)
    shares = (member * data.weight).sum(1) / data.weight.sum().clamp_min(1.0)  # M-step
    trained = []
    for m, begin in enumerate(components(task.weights)):
        part = Data(data.x, data.y, data.weight * member[m].clamp_min(LEAST), data.t, data.length)
        revisited(data.weight - part.weight, task.recipe.epochs)  # a sample that counts less is visited all the same
        key = keys.fold(local.key, m)
        trained.append(fit(model, begin, part, task.recipe, key=key, loss=lambda w, b, k: _loss(model, w, b, k)))
    weights = {name: torch.stack([one[name] for one in trained]) for name in task.weights}
    update = Trained(weights, data.weight.sum())
    return Done(update, mine=Mine(shares), own=weights | {SHARES: shares})


def responsibilities(losses: Tensor, shares: Tensor) -> Tensor:
    """E-step: q (M x n), for each sample the probability of each component."""
    return torch.softmax(shares.log()[:, None] - losses, dim=0)


def _loss(model: Model, weights: Params, batch: Data, key: Tensor) -> tuple[Tensor, Params]:
    """M-step: the mean over the batch of q times the loss. Statistics of the batch count every sample alike."""
    real = (batch.weight > 0).to(batch.weight.dtype)
    logits, buffers = model.train_logits(weights, batch.x, weight=real, key=key, t=batch.t, length=batch.length)
    return (model.losses(logits, batch.y) * batch.weight).sum() / real.sum().clamp_min(1.0), buffers


CLASSES = "a client's answer is a mixture of class probabilities"
RELEASES = {Trained: Release(models=("weights",), weight="examples")}
PROGRAMS = {Train: train}


def shared(state: State) -> Params:
    """The mixture with equal shares."""
    count = _count(state.weights)
    return state.weights | {SHARES: torch.full((count,), 1.0 / count)}


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return state.weights | {SHARES: mine.shares}


def answer(
    model: Model, weights: Params, x: Tensor, *, t: Tensor | None = None, length: Tensor | None = None
) -> Tensor:
    """The mixture of the components' probabilities, as logarithms."""
    plain = {name: value for name, value in weights.items() if name != SHARES}
    found = [model.logits(one, x, t=t, length=length).log_softmax(-1) for one in components(plain)]
    return torch.logsumexp(torch.stack(found) + weights[SHARES].log()[:, None, None], dim=0)


ANSWER = answer


def components(weights: Params) -> list[Params]:
    return [{name: value[m] for name, value in weights.items()} for m in range(_count(weights))]


def _count(weights: Params) -> int:
    return len(next(iter(weights.values())))
