"""FedConv: every client its own width of model, made from the global one by learned convolutions over its parameters.

Shen et al., "FedConv: A Learning-on-Model Paradigm for Heterogeneous Federated Clients", MobiSys 2024. Equations (1)
and (2): `compression`; (3): `_dilation`; (4): `_mixture`; Algorithm 1: `server`. Deviations, each a setting whose
published form is kept (docs/methods/fedconv.md says why): kernels start as a delta and without the MLR (`kernel_init`,
`activation`); two 1x1 convolutions are collapsed into the kernel (`pre`); dilated models are filled with the global one
(`fill`); the KL term, which has no gradient, may set the first v (`kld_init`); every choice is made on validation rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from potluck import keys
from potluck.errors import BadInput, Code
from potluck.fleet import Arrival, ClientId, Fleet, Local, Params
from potluck.learn import Recipe, adam, training_macs
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.submodels import fitting, kernels, mixing, tuning
from potluck.methods.parts.submodels.train import (
    ADAM,
    Mine,
    Train,
    Trained,
    check_layers,
    check_widths,
    train,
    within,
)
from potluck.methods.parts.submodels.widths import Plan, dealt, plan_of, sorted_channels
from potluck.models import Model

log = logging.getLogger(__name__)
_REDRAWS = 5  # of random kernels that tuning leaves below 1.5 x chance


@dataclass(frozen=True)
class Config:
    widths: tuple[float, ...] = (1.0, 0.75, 0.5, 0.25)  # shrinkage ratios
    shares: tuple[float, ...] = (4.0, 8.0, 4.0, 4.0)  # of the clients, dealt by the seed
    assign: Literal["dealt", "auto"] = "dealt"  # auto: the widest a device can afford
    memory_share: float = 1.0  # auto: of the device's memory that training may take
    step_seconds: float = 0.0  # auto: that one training step may take; 0: any number
    recipe: Recipe = ADAM  # of the clients; the server tunes in batches as large, and pre-trains at the same lr
    cohort: int = 0
    e_p: int = 5  # epochs of pre-training, once
    e_c: int | None = None  # epochs on compression kernels; 5 with delta, 20 with random kernels unless given
    e_t: int | None = None  # epochs on dilation kernels; the same
    e_a: int = 10  # epochs on the weights of the mean
    kernel_lr: float = 1e-3
    schedule: Literal["cosine", "constant"] = "cosine"  # equation (2), or as released
    v_lr: float = 1e-3
    kernel_init: Literal["delta", "random"] = "delta"
    kernel_noise: float = 0.0  # beside the delta; long kernels suffer from it
    activation: Literal["auto", "identity", "mlr"] = "auto"  # auto: identity with delta, mlr with random kernels
    pre: Literal["none", "stack16"] = "none"
    fill: Literal["global", "zero"] = "global"
    agg: Literal["scalar", "element", "mean"] = "scalar"
    kld_init: bool = False
    kld_lambda: float = 0.2  # lambda
    scale_match: bool = False
    server_refresh: bool = False  # as released: the server trains the global and every uploaded model, every round
    refresh_epochs: int = 10
    refresh_lr: float = 1e-4
    sort_channels: bool = False
    keep: tuple[str, ...] = ()  # layers of the clients' own, section 6.6
    moving: tuple[str, ...] = ()  # layers that clients train, section 6.7; all unless named
    validate_share: float = 0.2  # of the server's rows
    server_macs_per_second: float = 5e10
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        check_widths(self.widths, self.shares)
        for name in ("e_p", "e_a", "refresh_epochs", "kernel_noise", "step_seconds"):
            checks.at_least(self, name, 0)
        for name in ("kernel_lr", "v_lr", "refresh_lr", "memory_share", "server_macs_per_second"):
            checks.above(self, name, 0.0)
        for name in ("e_c", "e_t"):
            if getattr(self, name) is not None:
                checks.at_least(self, name, 0)
        if not 0.0 < self.validate_share < 1.0:
            raise BadInput(
                Code.SETTING_VALUE,
                f"method.validate_share: {self.validate_share} given, allowed is above 0 and below 1.",
            )

    @property
    def shape(self) -> kernels.Activation:
        return self.activation if self.activation != "auto" else "identity" if self.kernel_init == "delta" else "mlr"

    def rates(self, epochs: int | None) -> list[float]:
        count = epochs if epochs is not None else 5 if self.kernel_init == "delta" else 20
        return tuning.cosine(count, self.kernel_lr) if self.schedule == "cosine" else [self.kernel_lr] * count


@dataclass(frozen=True)
class State:
    weights: Params
    round: int = 0
    known: dict[ClientId, float] = field(default_factory=dict)  # who has answered, and its width
    compression: dict[str, Params] = field(default_factory=dict)  # kernels by width
    dilation: dict[ClientId, Params] = field(default_factory=dict)  # kernels by client
    v: dict[ClientId, Params] = field(default_factory=dict)  # weights of each client's layers in the last mean
    figures: dict[str, Any] = field(default_factory=dict)  # of the last round, on the server's validation rows


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def private(weights: Params, cfg: Config) -> Mine:
    return Mine({})


def check(cfg: Config, home: Local) -> None:
    plan = plan_of(home.model)
    check_layers("keep", cfg.keep, home.model)
    check_layers("moving", cfg.moving, home.model)
    if cfg.sort_channels:
        sorted_channels(home.model.init(0), plan)


@dataclass(frozen=True)
class Server:
    """What stays the same over the rounds on the server's side."""

    fleet: Fleet
    cfg: Config
    model: Model
    plan: Plan
    rows: tuning.Rows
    _macs: dict[tuple[int, ...], float] = field(
        default_factory=dict
    )  # of one sample, by the sizes of a model's tensors

    def spend(self, passes: float, weights: Params, extra: float, what: str) -> float:
        """Charge so many passes of the tune rows through a model, and `extra` MACs, to the clock."""
        sizes = tuple(value.numel() for value in weights.values())
        if sizes not in self._macs:
            self._macs[sizes] = training_macs(self.model, weights, self.rows.tune)
        work = passes * float(self.rows.tune.weight.sum()) * self._macs[sizes] + extra
        seconds = work / self.cfg.server_macs_per_second
        self.fleet.spend(seconds, what)
        return seconds

    def steps(self, epochs: int) -> int:
        return epochs * -(-len(self.rows) // self.cfg.recipe.batch)

    def key(self, round: int, what: str) -> Tensor:
        return keys.key(self.cfg.seed, round, what)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    home = fleet.home
    rows = tuning.divided(home.data, keys.key(cfg.seed, "server rows"), cfg.validate_share)
    cfg = _tunable(cfg, rows, home.model.classes)
    own = Server(fleet, cfg, home.model, plan_of(home.model), rows)
    width_of = _widths(own, state.weights)
    if state.round == 0:
        state = replace(state, weights=pretrained(own, state.weights))
    while True:
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        state, subs = compression(own, state, sorted({width_of[client] for client in chosen}, reverse=True))
        tasks = {client: _task(cfg, subs[width_of[client]], client in state.known) for client in chosen}
        arrivals = fleet.gather(tasks)
        state = _absorbed(own, state, arrivals, subs, width_of)
        yield state


def _tunable(cfg: Config, rows: tuning.Rows, classes: int) -> Config:
    """The settings as far as the server's rows can serve them; what they cannot is told."""
    if not len(rows):
        log.warning("the server has no rows: no kernel is tuned, sub-models are leading slices, the mean is plain")
        return replace(cfg, kernel_init="delta", kernel_noise=0.0, activation="identity", agg="mean", kld_init=False)
    missing = sorted(set(range(classes)) - set(rows.tune.y.tolist()))
    if missing:
        names = ", ".join(map(str, missing))
        log.warning("the server has no sample of class %s to tune on: kernels and weights cannot serve it", names)
    return cfg


def _widths(own: Server, weights: Params) -> Mapping[ClientId, float]:
    """Everybody's shrinkage ratio, as it would be reported once."""
    cfg, clients = own.cfg, own.fleet.clients
    if cfg.assign == "dealt":
        return dealt(clients, cfg.widths, cfg.shares, cfg.seed)
    lines = fitting.costs(own.model, weights, cfg.widths, cfg.recipe)
    return {
        client: fitting.affordable(lines, *fitting.budget(clients[client], cfg.memory_share, cfg.step_seconds))
        for client in clients
    }


def _task(cfg: Config, sub: Params, known: bool) -> Train:
    sent = {name: value for name, value in sub.items() if not (known and within(name, cfg.keep))}
    return Train(sent, cfg.recipe, cfg.keep, cfg.moving)


def pretrained(own: Server, weights: Params) -> Params:
    """Algorithm 1, lines 2 to 4."""
    cfg = own.cfg
    if not len(own.rows) or not cfg.e_p:
        return weights
    own.spend(cfg.e_p, weights, 0.0, f"pre-training, {cfg.e_p} epochs")
    key = own.key(0, "pre-training")
    return adam(own.model, weights, own.rows.tune, key=key, lr=cfg.recipe.lr, epochs=cfg.e_p, batch=cfg.recipe.batch)


def compression(own: Server, state: State, widths: list[float]) -> tuple[State, dict[float, Params]]:
    """Equation (1), Algorithm 1, lines 12 to 24: every width's kernels tuned, and the sub-models they make."""
    cfg, weights = own.cfg, state.weights
    if cfg.server_refresh and len(own.rows):
        weights = _refreshed(own, weights, state.round, "refreshing the global model")
    if cfg.sort_channels:
        weights = sorted_channels(weights, own.plan)
    found = dict(state.compression)
    accuracy = {"1": tuning.accuracy(own.model, weights, own.rows.valid)} if len(own.rows) else {}
    seconds = 0.0
    subs: dict[float, Params] = {}
    for width in widths:
        if width == 1.0:
            subs[width] = weights
            continue
        kept, buffers, best, took = _compressed(own, weights, width, found.get(str(width)), state.round)
        subs[width] = kernels.compress(weights, kept, own.plan, width, cfg.shape) | buffers
        found[str(width)] = kept
        seconds += took
        accuracy |= {} if best is None else {f"{width:g}": best}
    figures = {"compressed": accuracy, "seconds": {"compression": seconds}, "parameters": _spread(own, weights, subs)}
    return replace(state, weights=weights, compression=found, figures=figures), subs


def _spread(own: Server, weights: Params, subs: Mapping[float, Params]) -> dict[str, list[float]]:
    """How the parameters of the global model and of the sub-models made of it are distributed (Figure 6): shares of 40
    equal steps between plus and minus what 99.5 % of the global model's are within."""
    shares = {}
    sizes = torch.cat([weights[name].detach().abs().flatten() for name in own.model.trainable])
    reach = float(sizes.kthvalue(max(1, int(0.995 * sizes.numel()))).values) or 1.0
    for width, sub in {1.0: weights, **subs}.items():
        flat = torch.cat([sub[name].detach().flatten() for name in sub if name in own.model.trainable])
        shares[f"{width:g}"] = (torch.histc(flat, 40, -reach, reach) / flat.numel()).tolist()
    return {"reach": [reach], **shares}


def _compressed(
    own: Server, weights: Params, width: float, kept: Params | None, round: int
) -> tuple[Params, Params, float | None, float]:
    """The kernels of a width, statistics of norms, accuracy on validate, and the server's seconds."""
    cfg = own.cfg
    rates = cfg.rates(cfg.e_c)
    seconds = 0.0

    def drawn(attempt: int) -> Params:
        key = keys.key(cfg.seed, "compression", str(width), attempt)
        names = [name for name in weights if name in own.model.trainable]
        asked = cfg.kernel_init, cfg.pre, cfg.kernel_noise, cfg.shape
        return kernels.made(weights, names, own.plan, width, key, *asked)

    fresh = kept is None
    kept = drawn(0) if kept is None else kept
    if not len(own.rows):
        return kept, {}, None, 0.0
    for again in range(_REDRAWS + 1):
        sub = kernels.compress(weights, kept, own.plan, width, cfg.shape)
        extra = 3.0 * own.steps(len(rates)) * kernels.work(weights, sub, kept)
        seconds += own.spend(len(rates), sub, extra, f"round {round + 1}: tuning the compression to width {width:g}")
        tuned = tuning.tune(
            own.model, lambda free, _: kernels.compress(weights, free, own.plan, width, cfg.shape),
            {name: value[None] for name, value in kept.items()}, {}, own.rows,
            rates=rates, batch=cfg.recipe.batch, key=own.key(round, f"compression {width}"),
        )  # fmt: skip
        done = {name: value[0] for name, value in tuned.free.items()}
        hopeless = fresh and cfg.kernel_init == "random" and tuned.best[0] < 1.5 / own.model.classes
        if not hopeless or again == _REDRAWS:
            break
        kept = drawn(again + 1)
    return done, {name: value[0] for name, value in tuned.buffers.items()}, tuned.best[0], seconds


def _absorbed(
    own: Server, state: State, arrivals: list[Arrival], subs: Mapping[float, Params], width_of: Mapping[ClientId, float]
) -> State:
    """What came back becomes one model; nothing did: it stays as it was."""
    if not arrivals:
        return replace(state, round=state.round + 1)
    cfg = own.cfg
    # Layers that clients keep for themselves are, in the mean, as the server sent them.
    models = {a.client: {**subs[width_of[a.client]], **a.update.weights} for a in arrivals}
    if cfg.server_refresh and len(own.rows):
        models = {c: _refreshed(own, m, state.round, f"refreshing the model of {c}") for c, m in models.items()}
    dilation, dilated, seconds = _dilation(own, state, models, width_of)
    weights, v, more = _mixture(own, state, dilated, [a.update.examples for a in arrivals])
    known = state.known | {client: width_of[client] for client in models}
    counted = {**state.figures["seconds"], "dilation": seconds, "mixture": more["seconds"]}
    figures = {**state.figures, "seconds": counted, "mixture": more["accuracy"]}
    return State(weights, state.round + 1, known, state.compression, dilation, state.v | v, figures)


def _dilation(
    own: Server, state: State, models: Mapping[ClientId, Params], width_of: Mapping[ClientId, float]
) -> tuple[dict[ClientId, Params], dict[ClientId, Params], float]:
    """Equation (3): every returned sub-model at full width, by kernels of its client's own; r = 1 enters as it is."""
    cfg, weights = own.cfg, state.weights
    kept, seconds = dict(state.dilation), 0.0
    dilated: dict[ClientId, Params] = {}
    rates = cfg.rates(cfg.e_t) if len(own.rows) else []
    names = [name for name in weights if name in own.model.trainable]
    for width in sorted({width_of[client] for client in models}, reverse=True):
        group = [client for client in models if width_of[client] == width]
        if width == 1.0:
            dilated |= {client: models[client] for client in group}
            continue
        for client in group:
            if client not in kept:
                key = keys.key(cfg.seed, "dilation", client)
                kept[client] = kernels.made(
                    weights, names, own.plan, width, key, cfg.kernel_init, cfg.pre, cfg.kernel_noise
                )
        buffers: Params = {}
        if rates:
            extra = 3.0 * own.steps(len(rates)) * kernels.work(weights, models[group[0]], kept[group[0]]) * len(group)
            what = f"round {state.round + 1}: tuning the dilation of {len(group)} models of width {width:g}"
            seconds += own.spend(len(rates) * len(group), weights, extra, what)
            tuned = tuning.tune(
                own.model, lambda free, sub: kernels.dilate(sub, free, weights, own.plan, cfg.fill),
                mixing.stacked([kept[client] for client in group]), mixing.stacked([models[c] for c in group]),
                own.rows, rates=rates, batch=cfg.recipe.batch, key=own.key(state.round, f"dilation {width}"),
            )  # fmt: skip
            buffers = tuned.buffers
            kept |= {c: {name: value[k] for name, value in tuned.free.items()} for k, c in enumerate(group)}
        for k, client in enumerate(group):
            big = kernels.dilate(models[client], kept[client], weights, own.plan, cfg.fill)
            dilated[client] = big | {name: value[k] for name, value in buffers.items()}
    if cfg.scale_match:
        dilated = {c: mixing.matched(m, weights, own.model.trainable) for c, m in dilated.items()}
    return kept, {client: dilated[client] for client in models}, seconds


def _mixture(
    own: Server, state: State, dilated: Mapping[ClientId, Params], examples: list[Tensor]
) -> tuple[Params, dict[ClientId, Params], dict[str, Any]]:
    """Equation (4) with v learned on the server's rows; v = 1, the plain mean, is where it starts."""
    cfg, layers = own.cfg, own.plan.layers
    stack = mixing.stacked(list(dilated.values()))
    counts = torch.stack([torch.as_tensor(n) for n in examples]).float()
    share = counts / counts.sum()
    v = mixing.ones(stack, own.model.trainable, layers, cfg.agg)
    if cfg.kld_init:
        v = mixing.divergence_start(v, stack, state.weights, layers, cfg.kld_lambda)
    weights = mixing.mixed(stack, share, v, layers)
    learned = cfg.agg != "mean" and cfg.e_a > 0 and len(own.rows) > 0
    seconds, accuracy = 0.0, {}
    if learned:
        extra = 3.0 * own.steps(cfg.e_a) * float(sum(value.numel() for value in stack.values()))
        seconds = own.spend(cfg.e_a, weights, extra, f"round {state.round + 1}: tuning the weights of the mean")
        tuned = tuning.tune(
            own.model, lambda free, _: mixing.mixed(stack, share, free, layers),
            {name: value[None] for name, value in v.items()}, {}, own.rows,
            rates=[cfg.v_lr] * cfg.e_a, batch=cfg.recipe.batch, key=own.key(state.round, "mixture"),
        )  # fmt: skip
        v = {name: value[0] for name, value in tuned.free.items()}
        weights = mixing.mixed(stack, share, v, layers) | {n: value[0] for n, value in tuned.buffers.items()}
        accuracy = {"mean": tuned.start[0], "learned": tuned.best[0]}
    each = {client: {name: value[k] for name, value in v.items()} for k, client in enumerate(dilated)}
    return weights, each if cfg.agg != "element" else {}, {"seconds": seconds, "accuracy": accuracy}


def _refreshed(own: Server, weights: Params, round: int, what: str) -> Params:
    """As released: more training on the server's rows (never part of the default)."""
    cfg = own.cfg
    own.spend(cfg.refresh_epochs, weights, 0.0, f"round {round + 1}: {what}")
    return adam(
        own.model, weights, own.rows.tune, key=own.key(round, what),
        lr=cfg.refresh_lr, epochs=cfg.refresh_epochs, batch=cfg.recipe.batch,
    )  # fmt: skip


PROGRAMS = {Train: train}


def shared(state: State) -> Params:
    return state.weights


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    """The client's own sub-model as its training left it; the global one before its first task."""
    return mine.weights or state.weights


def record(state: State) -> dict[str, Any]:
    v = {client: {layer: float(value) for layer, value in own.items()} for client, own in state.v.items()}
    return {"widths": state.known, "v": v, **state.figures}


__all__ = [
    "PROGRAMS",
    "Config",
    "Mine",
    "Recipe",
    "State",
    "Train",
    "Trained",
    "personal",
    "record",
    "server",
    "shared",
    "start",
]
