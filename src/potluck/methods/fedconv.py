"""FedConv: each client trains its own width of model, made of the global one by learned convolutions over parameters.

Shen et al., "FedConv: A Learning-on-Model Paradigm for Heterogeneous Federated Clients", MobiSys 2024. Algorithm 1:
`server`; equations (1) and (2): `compressed`; (3): `dilated`; (4): `mixed`. The convolution itself is in
`parts/submodels/kernels.py`, the mean with learned weights in `mixing.py`, tuning on the server rows in `tuning.py`.
Deviations, each a setting whose published form is kept (docs/methods/fedconv.md says why): kernels start as a delta and
without the MLR (`kernels.init`, `kernels.activation`); two 1x1 convolutions are collapsed into the kernel
(`kernels.pre`); v weighs the clients' changes of the entries that they hold (`mix.on`, `kernels.fill`); the KL term,
which has no gradient, may set the first v (`mix.kld_init`); every choice is made on validation rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import Arrival, ClientId, Fleet, Params
from potluck.learn import Recipe
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.fedconv.declared import (
    KEY_SETTINGS,
    NEEDS,
    OLD_NAMES,
    PRETRAINS,
    SPACE,
    USES,
    check,
    check_forms,
)
from potluck.methods.parts.submodels import figures, kernels, mixing
from potluck.methods.parts.submodels import train as client_side
from potluck.methods.parts.submodels.fitting import FittedSizes
from potluck.methods.parts.submodels.kernels import Kernels
from potluck.methods.parts.submodels.making import Compression, Dilation
from potluck.methods.parts.submodels.mixing import Mix
from potluck.methods.parts.submodels.stepping import row
from potluck.methods.parts.submodels.train import ADAM, Given, Mine, Train, Trained, personal, private, received
from potluck.methods.parts.submodels.tuning import (
    REDRAWS,
    Released,
    Rows,
    ServerRows,
    Tuned,
    Tuner,
    accuracy,
    divided,
    lacking,
)
from potluck.methods.parts.submodels.widths import Plan, masks_of, plan_of, sorted_channels
from potluck.release import Release

__all__ = [
    "KEY_SETTINGS", "NEEDS", "PRETRAINS", "SPACE", "USES", "Mine", "Trained", "check", "personal", "private",
    "received",
]  # of the parts, for readers of this module  # fmt: skip


@dataclass(frozen=True)
class Config:
    recipe: Recipe = ADAM  # of the clients; the server pre-trains by it, and uses its batch
    sizes: FittedSizes = FittedSizes()  # which client gets which width
    kernels: Kernels = Kernels()  # compression and dilation, sections 4.1 and 4.2
    mix: Mix = Mix()  # the mean with learned weights, section 4.3
    server: ServerRows = ServerRows()
    released: Released = Released()
    keep: tuple[str, ...] = ()  # layers that stay on the clients, section 6.6
    moving: tuple[str, ...] = ()  # layers that clients train, section 6.7; all unless named
    cohort: int = 0  # clients per round; 0: all
    server_macs_per_second: float = 5e10
    seed: int = 0
    MOVED: ClassVar[dict[str, str]] = OLD_NAMES

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.above(self, "server_macs_per_second", 0.0)
        check_forms(self.kernels, self.mix)


@dataclass(frozen=True)
class State:
    weights: Params
    round: int = 0
    known: dict[ClientId, float] = field(default_factory=dict)  # clients that have answered, and their widths
    compression: dict[str, Params] = field(default_factory=dict)  # kernels by width
    dilation: dict[ClientId, Params] = field(default_factory=dict)  # kernels by client
    v: dict[ClientId, Params] = field(default_factory=dict)  # weights of each client's layers in the last mean
    figures: dict[str, Any] = field(default_factory=dict)  # of the last round, on the server's validation rows
    notices: tuple[str, ...] = ()  # of the first round: what the server rows cannot serve
    given: Given = field(default_factory=Given)  # the sub-models that were made last


class Server(NamedTuple):
    """What stays the same over the rounds."""

    cfg: Config
    plan: Plan
    tuner: Tuner


class Made(NamedTuple):
    """A model, and the tuned numbers that made it of others: kernels, or weights of the mean; none at full width."""

    weights: Params
    by: Params


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    """Algorithm 1."""
    rows = divided(fleet.home.data, keys.key(cfg.seed, "server rows"), cfg.server.validate_share)
    width_of = cfg.sizes.fitted(fleet, state.weights, cfg.recipe, cfg.seed)
    own, state = opened(fleet, rows, cfg), replace(state, notices=())
    if state.round == 0:  # lines 2 to 4
        weights = own.tuner.trained(state.weights, "pre-training", cfg.server.pretrain_epochs, cfg.recipe)
        state = replace(state, weights=weights, notices=lacking(rows, fleet.home.model.task))
    while True:
        own.tuner.begin(state.round)
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        state = replace(state, weights=prepared(own, state.weights))
        subs = compression(own, state, {width_of[client] for client in chosen})  # lines 12 to 24
        arrivals = fleet.gather({c: _task(cfg, subs[width_of[c]].weights, c in state.known) for c in chosen})
        found = {str(width): sub.by for width, sub in subs.items() if sub.by}
        state = replace(state, compression=state.compression | found)
        state = aggregated(own, state, arrivals, subs, width_of) if arrivals else state
        given = state.given.renewed(width_of, {width: sub.weights for width, sub in subs.items()}, state.weights)
        state = replace(state, round=state.round + 1, figures=own.tuner.figures, given=given)
        yield state
        state = replace(state, notices=())


def opened(fleet: Fleet, rows: Rows, cfg: Config) -> Server:
    """The server's side of a run; without rows kernels stay deltas and the mean is plain."""
    if not len(rows):
        untuned = replace(cfg.kernels, init="delta", noise=0.0, activation="identity")
        cfg = replace(cfg, kernels=untuned, mix=replace(cfg.mix, agg="mean", kld_init=False))
    speed, choose = cfg.server_macs_per_second, cfg.server.choose
    tuner = Tuner(fleet, rows, batch=cfg.recipe.batch, seed=cfg.seed, macs_per_second=speed, choose=choose)
    return Server(cfg, plan_of(fleet.home.model), tuner)


def prepared(own: Server, weights: Params) -> Params:
    """The global model before compression; as it is, but for two settings that are off by default."""
    weights = own.cfg.released.refreshed(own.tuner, weights, "the global model")
    return sorted_channels(weights, own.plan) if own.cfg.kernels.sort_channels else weights


def _task(cfg: Config, sub: Params, known: bool) -> Train:
    sent = {name: value for name, value in sub.items() if not (known and client_side.within(name, cfg.keep))}
    return Train(sent, cfg.recipe, cfg.keep, cfg.moving)


def compression(own: Server, state: State, widths: set[float]) -> dict[float, Made]:
    """The sub-model of each width, with its kernels tuned on from the last round's."""
    tuner, weights = own.tuner, state.weights
    found = {"1": accuracy(tuner.model, weights, tuner.rows.valid)} if len(tuner.rows) else {}
    tuner.figures["compressed"] = found
    subs = {}
    for width in sorted(widths, reverse=True):
        before = state.compression.get(str(width))
        subs[width] = Made(weights, {}) if width == 1.0 else compressed(own, weights, width, before)
    made_of = {width: sub.weights for width, sub in subs.items()}
    tuner.figures["parameters"] = figures.spread(tuner.model, weights, made_of)
    return subs


def compressed(own: Server, weights: Params, width: float, before: Params | None) -> Made:
    """Equation (1): Y = MLR(X * w + c), with w and c tuned at the rates of equation (2).

    Random kernels that stay near chance are drawn again.
    """
    cfg, tuner = own.cfg.kernels, own.tuner
    floor = own.cfg.released.floor("compression", tuner.model)
    again = cfg.drawn and (own.cfg.released.restarts or not before)

    make = Compression(weights, own.plan, width, cfg.shape, cfg.lattice)
    found: list[Tuned] = []
    for draw in range(1 + REDRAWS if again else 1):
        key = keys.key(own.cfg.seed, "compression", str(width), draw)
        first = cfg.fresh(weights, tuner.model.trainable, own.plan, width, key, cfg.shape)
        begin = before if before and not draw else first
        macs = kernels.work(own.plan.shapes(weights, width), begin)
        how: dict[str, Any] = {"rates": cfg.rates(cfg.compress_epochs), "batch": cfg.batch, "look": cfg.look}
        found += tuner.tuned("compression", width, make, [begin], macs=macs, draw=draw, **how)
        if found[-1].best >= floor:
            break
    tuned = max(found, key=lambda one: one.best)
    if len(tuner.rows):
        tuner.figures["compressed"][f"{width:g}"] = tuned.best
    return Made(make(tuned.free) | tuned.buffers, tuned.free)


def aggregated(
    own: Server,
    state: State,
    arrivals: Sequence[Arrival],
    subs: Mapping[float, Made],
    width_of: Mapping[ClientId, float],
) -> State:
    """Dilate what came back to full width, and mix it into one model."""
    # Layers that clients keep for themselves are, in the mean, as the server sent them.
    models = {a.client: {**subs[width_of[a.client]].weights, **a.update.weights} for a in arrivals}
    models = {c: own.cfg.released.refreshed(own.tuner, m, f"the model of {c}") for c, m in models.items()}
    big: dict[ClientId, Made] = {}
    for width in sorted({width_of[client] for client in models}, reverse=True):
        group = {client: model for client, model in models.items() if width_of[client] == width}
        big |= {c: Made(m, {}) for c, m in group.items()} if width == 1.0 else dilated(own, state, group, width)
    full = {client: big[client].weights for client in models}
    if own.cfg.mix.scale_match:
        full = {c: mixing.matched(m, state.weights, own.tuner.model.trainable) for c, m in full.items()}
    mixture = mixed(own, state.weights, full, [a.update.examples for a in arrivals], width_of)
    known = state.known | {client: width_of[client] for client in models}
    dilation = state.dilation | {client: one.by for client, one in big.items() if one.by}
    scalar = {} if own.cfg.mix.agg == "element" else {client: row(mixture.by, k) for k, client in enumerate(models)}
    return replace(state, weights=mixture.weights, known=known, dilation=dilation, v=state.v | scalar)


def dilated(
    own: Server, state: State, models: Mapping[ClientId, Params], width: float, changes: bool = False
) -> dict[ClientId, Made]:
    """Equation (3): each returned sub-model of a width at full width, by kernels of its client, or of the width.

    With `changes` they are changes of sub-models, whose dilations are added to the whole model.
    """
    cfg, weights, tuner = own.cfg.kernels, state.weights, own.tuner
    floor, subs = own.cfg.released.floor("dilation", tuner.model), list(models.values())
    make = Dilation(weights, "all" if changes else cfg.fill, cfg.lattice)
    names = tuner.model.trainable & subs[0].keys()

    def fresh(client: ClientId, draw: int = 0) -> Params:
        key = keys.key(own.cfg.seed, "dilation", client, *([draw] if draw else []))
        return cfg.fresh(weights, names, own.plan, width, key, constants=not changes)

    begin = [state.dilation.get(client) or fresh(client) for client in models]
    if cfg.per == "width":
        begin = [next((state.dilation[client] for client in models if client in state.dilation), begin[0])]
    how: dict[str, Any] = {"rates": cfg.rates(cfg.dilate_epochs), "batch": cfg.batch, "look": cfg.look}
    how["macs"] = kernels.work(own.plan.shapes(weights, width), begin[0])
    tuned = tuner.tuned("dilation", width, make, begin, subs, **how)
    for draw in range(1, 1 + REDRAWS if cfg.drawn and floor and cfg.per == "client" else 1):
        low = [k for k, one in enumerate(tuned) if one.best < floor]
        if not low:
            break
        first = [fresh(list(models)[k], draw) for k in low]
        others = tuner.tuned("dilation", width, make, first, [subs[k] for k in low], draw=draw, **how)
        for k, other in zip(low, others, strict=True):
            tuned[k] = max(tuned[k], other, key=lambda one: one.best)
    return {
        client: Made(make(one.free, sub) | one.buffers, one.free)
        for (client, sub), one in zip(models.items(), tuned, strict=True)
    }


def mixed(
    own: Server, weights: Params, models: Mapping[ClientId, Params], examples: list[Tensor],
    width_of: Mapping[ClientId, float],
) -> Made:  # fmt: skip
    """Equation (4) with v learned on the server rows; v = 1, the plain mean, is where it starts.

    By default on changes: W = W_old + sum_j p_jl (w_jl - W_old), p = v s over its sum among those that hold an entry.
    """
    cfg, tuner, layers = own.cfg.mix, own.tuner, own.plan.layers
    stack = mixing.stacked(list(models.values()))
    counts = torch.stack([torch.as_tensor(n) for n in examples]).float()
    widths = sorted({width_of[client] for client in models})
    masks = [masks_of(own.plan, stack, width, own.cfg.kernels.stride) for width in widths]
    at = torch.tensor([widths.index(width_of[client]) for client in models])
    changed = mixing.changes(weights, stack, masks, at, counts) if cfg.on == "changes" else None

    def make(free: Params, _: Any = None) -> Params:
        if changed is not None:
            return mixing.stepped(changed, free, layers)
        return mixing.mixed(stack, counts / counts.sum(), free, layers)

    v = mixing.ones(stack, tuner.model.trainable, layers, cfg.agg)
    if cfg.kld_init:
        v = mixing.divergence_start(v, stack, weights, layers, cfg.kld_lambda)
    buffers: Params = {}
    tuner.figures["mixture"] = {}
    if cfg.agg != "mean" and cfg.epochs and len(tuner.rows):
        macs = float(sum(value.numel() for value in stack.values()))
        floor, found = own.cfg.released.floor("mixture", tuner.model), list[Tuned]()
        for draw in range(1 + REDRAWS if floor and cfg.init == "normal" else 1):
            begin = v if cfg.init == "ones" else mixing.drawn(v, keys.key(own.cfg.seed, "mixture", draw))
            found += tuner.tuned("mixture", None, make, [begin], rates=[cfg.lr] * cfg.epochs, macs=macs, draw=draw)
            if found[-1].best >= floor:
                break
        tuned = max(found, key=lambda one: one.best)
        v, buffers = tuned.free, tuned.buffers
        tuner.figures["mixture"] = {"mean": found[0].start, "learned": tuned.best}
    return Made(make(v) | buffers, v)


RELEASES = {Trained: Release(models=("weights",), weight="examples")}  # a sum for each width
PROGRAMS = {Train: client_side.train}
HEADLINE = "own"


def shared(state: State) -> Params:
    return state.weights


def events(state: State) -> list[tuple[str, str, str]]:
    return [("server", "", notice) for notice in state.notices]


def record(state: State) -> dict[str, Any]:
    return figures.mixture(state)
