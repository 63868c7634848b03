"""FedBits: clients share all but the read-out, by changes of a few bits a number.

Potluck's own. In continuous-time networks, FedCFC's f carries hardly any of what can be learned together, and the rest
carries much (docs/methods/fedbits.md). This method shares the rest at FedCFC's price. In each round a client sends how
its training changed the shared weights. The server sends the mean change back. Both use `bits` bits a number and
one scale per tensor; what rounding leaves out is added to the next change, on both sides (error feedback: Seide et
al., Interspeech 2014; Karimireddy et al., ICML 2019). With Q the rounding, c the common weights, w_i those of client i:

    client   w_i <- common weights, with the client's own read-out; d_i = train(w_i) - w_i
             sends q_i = Q(d_i + e_i), keeps e_i <- d_i + e_i - q_i
    server   s = e + weighted mean of q_i; sends Q(s), c <- c + Q(s), e <- s - Q(s)

A client that missed rounds gets their changes, or the common weights where those are shorter. `strength` below 1 binds
loosely: of its own change a client replaces only this share by the common one, so its weights stay personal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from potluck import keys
from potluck.errors import BadInput, Code
from potluck.fleet import Arrival, ClientId, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit
from potluck.methods.parts import checks, layers
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.few_bits import FLOAT, Packed, names_of, packed, unpacked
from potluck.methods.parts.merge import MEAN, Merge, merged
from potluck.methods.parts.starts import PRETRAINS, Pretrain, pretrained
from potluck.models import Model
from potluck.release import Release
from potluck.spaces import Choice, Range, Space
from potluck.tensors import each, zeros_like

__all__ = ["PRETRAINS"]  # of the parts


@dataclass(frozen=True)
class Config:
    bind: str = "body"  # what is shared: body (all but the last layers), all, or layers and modules: f,backbone
    layers: int = 1  # layers that body leaves out, counted from the output
    bits: int = 7  # of a number of a change, 1 to 8; 32 sends numbers as they are
    rounding: Literal["nearest", "random"] = "nearest"  # random: up or down with the right mean
    feedback: bool = True  # what rounding left out is added to the next change
    strength: float = 1.0  # share of a client's own change that the common one replaces
    recipe: Recipe = Recipe(epochs=2, clip=5.0)
    pretrain: Pretrain = Pretrain()  # on the server rows, before the first round
    cohort: int = 0  # clients per round; 0: all
    merge: Merge = MEAN  # how the server combines changes
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.at_least(self, "layers", 1)
        checks.share(self, "strength")
        if self.bits not in (*range(1, 9), FLOAT):
            raise BadInput(Code.SETTING_VALUE, f"bits: must be 1 to 8, or 32, got {self.bits}.")
        if self.bits == 1 and self.rounding == "random":
            raise BadInput(Code.SETTINGS_CLASH, "rounding: must be nearest with bits = 1, got random: a sign is sent.")


KEY_SETTINGS = ("bits", "bind", "recipe.lr", "recipe.batch", "strength")
SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "strength": Choice(0.5, 1.0)}


@dataclass(frozen=True)
class State:
    weights: Params  # c, and the first weights of what is not shared
    bound: tuple[str, ...] = ()  # the names of what is shared; none before the first round
    left: Params = field(default_factory=dict)  # e
    past: tuple[Packed, ...] = ()  # the newest common changes, the last one at the end
    version: int = 0  # how many there were
    at: dict[ClientId, int] = field(default_factory=dict)  # how many of them a client has
    round: int = 0


@dataclass(frozen=True)
class Mine:
    weights: Params  # the client's own model after training
    common: Params  # c as the client has it; empty before its first task
    own: Params  # d_i, where the client's weights are not the common ones (`strength`)
    left: Params  # e_i
    cfg: Config  # installed with the program, so that settings do not travel


@dataclass(frozen=True)
class Train:
    """Server to client: the common changes that it lacks, or the common weights."""

    numbers: Tensor  # (changes, bytes)
    scales: Tensor  # (changes, tensors)
    whole: Params
    recipe: Recipe


@dataclass(frozen=True)
class Trained:
    """Client to server: its change, in bytes or as it is."""

    BOUNDED: ClassVar[dict[str, str]] = {"scales": "", "change": ""}  # a change is proportional to its scales
    numbers: Tensor
    scales: Tensor
    change: Params
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights, {}, {}, {}, cfg)


def check(cfg: Config, home: Local) -> None:
    """Raise BadInput for a model that has no such layers."""
    if cfg.bind == "body":
        layers.check(home, cfg.layers)
    if not _names(cfg, home.model, home.model.init(0)):
        known = ", ".join(home.model.layers())
        raise BadInput(Code.METHOD_NEEDS, f"bind: must be body, all, or some of {known}, got {cfg.bind}.")


def _names(cfg: Config, model: Model, weights: Params) -> list[str]:
    return names_of(cfg.bind, weights, model.trainable, model.last_layers(cfg.layers))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    names = _names(cfg, fleet.home.model, state.weights)
    if not state.round and not state.bound:
        weights = state.weights
        if cfg.pretrain.epochs:
            weights = pretrained(fleet, weights, cfg.pretrain, cfg.recipe, cfg.seed)
        state = replace(state, weights=weights, bound=tuple(names), left=zeros_like(layers.only(weights, names)))
    while True:
        tasks: dict[int, Train] = {}  # by how many changes a client has
        asked = {}
        for client in sample(fleet, cfg.cohort, cfg.seed, state.round):
            at = state.at.get(client, -1 if cfg.pretrain.epochs else 0)
            if at not in tasks:
                tasks[at] = task_of(state, cfg, at)
            asked[client] = tasks[at]
        arrivals = fleet.gather(asked)
        had = {arrival.client: state.version for arrival in arrivals}
        state = replace(state, at={**state.at, **had}, round=state.round + 1)
        if arrivals:
            state = moved(state, cfg, arrivals)
        yield state


def task_of(state: State, cfg: Config, at: int) -> Train:
    """The changes since the `at`-th; the common weights, where those are shorter."""
    common = layers.only(state.weights, state.bound)
    since = state.version - at
    if at < 0 or cfg.bits == FLOAT or since > len(state.past):
        return Train(torch.zeros((0, 0), dtype=torch.uint8), torch.zeros((0, 0)), common, cfg.recipe)
    past = state.past[len(state.past) - since :]
    empty = Packed(torch.zeros(0, dtype=torch.uint8), torch.zeros(0))
    numbers, scales = ([getattr(one, part) for one in past or (empty,)] for part in ("numbers", "scales"))
    return Train(torch.stack(numbers)[: len(past)], torch.stack(scales)[: len(past)], {}, cfg.recipe)


def moved(state: State, cfg: Config, arrivals: Sequence[Arrival]) -> State:
    """The common weights after the mean change, as clients will know it."""
    common, count = layers.only(state.weights, state.bound), [arrival.update.examples for arrival in arrivals]
    changes = [
        arrival.update.change or unpacked(Packed(arrival.update.numbers, arrival.update.scales), common, cfg.bits)
        for arrival in arrivals
    ]
    change = merged(changes, count, cfg.merge, zeros_like(common))
    sent, told, left = _told(change, state.left, cfg, keys.key(cfg.seed, state.round, "common"))
    most = max(1, FLOAT // cfg.bits)  # more changes than that are longer than the weights
    return replace(
        state,
        weights={**state.weights, **each(torch.add, common, told)},
        left=left,
        past=(*state.past, sent)[-most:],
        version=state.version + 1,
    )


def _told(change: Params, left: Params, cfg: Config, key: Tensor) -> tuple[Packed, Params, Params]:
    """Q(change + e), what the other side makes of it, and what is left for the next time."""
    if cfg.bits == FLOAT:
        return Packed(torch.zeros(0, dtype=torch.uint8), torch.zeros(0)), change, left
    wanted = each(torch.add, change, left)
    sent = packed(wanted, cfg.bits, key if cfg.rounding == "random" else None)
    told = unpacked(sent, wanted, cfg.bits)
    return sent, told, each(torch.sub, wanted, told) if cfg.feedback else left


def train(task: Train, local: Local) -> Done:
    """Train from the common weights with the own read-out, and tell how they changed."""
    mine: Mine = local.mine
    cfg = mine.cfg
    names = _names(cfg, local.model, mine.weights)
    before = mine.common or layers.only(mine.weights, names)
    common = task.whole or before
    for k in range(task.numbers.shape[0]):
        common = each(torch.add, common, unpacked(Packed(task.numbers[k], task.scales[k]), common, cfg.bits))
    begin = {**mine.weights, **bound(mine, before, common, cfg.strength)}
    after = fit(local.model, begin, local.data, task.recipe, key=local.key)
    change = {name: after[name] - begin[name] for name in names}
    left = mine.left or zeros_like(change)
    sent, _, left = _told(change, left, cfg, keys.fold(local.key, "told"))
    whole = change if cfg.bits == FLOAT else {}
    kept = Mine(after, common, change if cfg.strength < 1 else {}, left if cfg.bits != FLOAT else {}, cfg)
    return Done(Trained(sent.numbers, sent.scales, whole, local.data.weight.sum()), mine=kept, own=after)


def bound(mine: Mine, before: Params, common: Params, strength: float) -> Params:
    """Where the shared weights begin: the common ones, or the client's own with a share of its change replaced."""
    if strength == 1:
        return common
    return {
        name: mine.weights[name] + strength * (now - before[name] - (mine.own[name] if mine.own else 0.0))
        for name, now in common.items()
    }


def releases(cfg: Config) -> dict[type, Release] | str:
    if cfg.bits != FLOAT:
        return "its changes are whole numbers of a few bits"
    return {Trained: Release(changes=("change",), weight="examples", by_fit=True)}


PROGRAMS = {Train: train}
VISIBLE = ("weights", "bound")  # the common part; the rest is the client's own


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    """The client's own model with the newest common weights, as its next training would begin."""
    common = layers.only(state.weights, state.bound)
    return {**mine.weights, **bound(mine, mine.common or common, common, mine.cfg.strength)}
