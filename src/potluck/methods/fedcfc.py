"""FedCFC: personal continuous-time networks that share nothing but the direction and size of one small gradient.

Dai and Tan, "FedCFC: On-Device Personalized Federated Learning with Closed-Form Continuous-Time Neural Networks", 2024,
Algorithm 1: the bound local updater (section 4.3, `parts/bind.py`) on the clients, the bound updates aggregator
(section 4.4, `parts/cud.py`) on the server. Every client keeps a whole model; of it only f is coordinated, through the
gradient by V, the weights of f's last layer. One family of variants: `fbind`; `favg`, `fprox` and `fscaf`, which
average f's weights; `fgh`, which binds f and averages g and h with control variates.
Deviations: CUD in closed form (the paper's semidefinite program is `cud = "sdp"`); R_a as a hinge that raises activity,
as the text intends (`ra_form = "printed"` lowers it); mini-batches of 32 rather than 1; gradients clipped at norm 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from potluck import keys
from potluck.errors import BadInput, unknown
from potluck.fleet import Arrival, ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import batches, clipped, sgd, take, training_macs
from potluck.methods.parts import checks, cud, precision
from potluck.methods.parts.bind import Terms, bound_gradient
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.schedule import present
from potluck.methods.parts.vector import Vector, packed, unpacked
from potluck.models.cfc import in_head, last_layer, logits_and_activity
from potluck.tensors import each, mean

BINDS = {"fbind": True, "fgh": True, "favg": False, "fprox": False, "fscaf": False}
CONTROLS = ("fscaf", "fgh")
SERVER_SPEED = 5e10  # MACs per second of an ordinary PC, for the time that pre-training takes


@dataclass(frozen=True)
class Config:
    variant: str = "fbind"  # fbind | favg | fprox | fscaf | fgh
    lambda_d: float = 0.6  # weight of the direction, R_d
    lambda_m: float = 0.2  # of the magnitude, R_m
    lambda_a: float = 0.2  # of the activity, R_a
    v: float = 1.59  # the activity wished for
    lr: float = 0.01  # eta
    batch: int = 32
    epochs: int = 1  # local passes per round
    clip: float = 5.0  # largest norm of a step's gradient; 0 does not clip
    mu: float = 0.01  # fprox
    cud: str = "closed"  # closed | sdp
    unit: bool = True  # CUD from unit gradients; off: from the gradients as they are
    second: str = "exact"  # exact | difference: how R_d and R_m are differentiated
    ra_form: str = "hinge"  # hinge | printed
    federate: str = "f"  # f | g | h: which head is coordinated
    wire: str = "float32"  # float32 | float16 | int8: of LUD and CUD
    common_start: bool = True  # off: everybody draws her own first weights
    pretrain: int = 0  # epochs on the server's own rows before anything else
    pretrain_lr: float = 0.1
    precisions: tuple[str, ...] = ("float32",)  # dealt to the clients in turn
    precision_cluster: bool = True  # one CUD and CUM per precision
    first_classes: int = 0  # class-incremental: so many classes are there at the beginning; 0: all
    rounds_per_class: int = 10  # then one more every so many rounds
    replay: float = 0.1  # share of the old classes' rows that is still at hand
    settle: float = (
        0.0  # ends once no client's validation gained more than this share of its best; the paper's is 0.0005
    )
    cohort: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        checks.local_training(self)
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise unknown(f"method.{name}", getattr(self, name), allowed)
        for name in ("lambda_d", "lambda_m", "lambda_a", "clip", "mu", "pretrain", "first_classes", "replay", "settle"):
            checks.at_least(self, name, 0)
        checks.at_least(self, "rounds_per_class", 1)
        object.__setattr__(self, "precisions", tuple(self.precisions))
        for form in self.precisions:
            if form not in precision.FORMATS:
                raise unknown("method.precisions", form, precision.FORMATS)
        if not self.precisions:
            raise BadInput("method.precisions: none given, at least one is needed.")

    @property
    def begins(self) -> bool:
        """Whether clients need a first message: what the seed and the program give them is not enough."""
        return self.pretrain > 0 or not self.common_start or self.precisions != ("float32",)


_CHOICES: dict[str, tuple[str, ...]] = {
    "variant": tuple(BINDS),
    "cud": ("closed", "sdp"),
    "second": ("exact", "difference"),
    "ra_form": ("hinge", "printed"),
    "federate": ("f", "g", "h"),
    "wire": precision.FORMATS,
}


@dataclass(frozen=True)
class How:
    """What a client's program is set to when it is installed; it does not travel again."""

    variant: str
    terms: Terms
    federate: str
    wire: str
    lr: float
    epochs: int
    clip: float
    mu: float
    first_classes: int
    replay: float


@dataclass(frozen=True)
class Aim:
    """What one cluster of clients is bound to."""

    cud: Tensor  # zero: none
    cum: Tensor  # negative: none


@dataclass(frozen=True)
class State:
    start: Params  # the common start
    ready: bool  # it is what clients begin with: pre-trained, where that was asked
    begun: dict[ClientId, int]  # who holds the common start, and her cluster
    aims: tuple[Aim, ...]  # one per cluster
    weights: Params  # averaged modules; empty for fbind
    control: Params  # c of SCAFFOLD on them
    best: dict[ClientId, float]  # of the validation accuracies
    agreement: float = 1.0  # mean cosine between two clients' gradients
    settled: int = 0  # the round in which nobody gained any more
    round: int = 0


@dataclass(frozen=True)
class Mine:
    weights: Params  # the whole personal model, at the client's precision; never sent
    control: Params  # c_i
    how: How


@dataclass(frozen=True)
class Begin:
    """Server to client, once: the common start and the precision to keep it in; `scatter` draws one's own instead."""

    weights: Params
    precision: str
    scatter: bool


@dataclass(frozen=True)
class Begun:
    examples: Tensor


@dataclass(frozen=True)
class Round:
    """Server to client: CUD and CUM (D + 1 numbers); the averaged modules, where the variant has some."""

    cud: Vector
    cum: Tensor
    weights: Params
    control: Params
    batch: int
    classes: int  # there are so many by now; 0: all


@dataclass(frozen=True)
class Report:
    """Client to server: LUD = ∂L/∂V (D numbers) and one figure; the averaged modules' changes, where there are some."""

    lud: Vector
    valid: Tensor  # accuracy on the validation rows, -1 without
    weights: Params
    control: Params


def averaged_names(names: Any, variant: str, federate: str) -> list[str]:
    """The weights whose values travel."""
    heads = {"fbind": "", "fgh": "fgh".replace(federate, "")}.get(variant, federate)
    return [name for name in names if any(in_head(name, head) for head in heads)]


def start(weights: Params, cfg: Config) -> State:
    if not all(f"{head}.1.weight" in weights for head in "fgh"):
        raise BadInput('method: fedcfc needs a model with the heads f, g and h; set model.name = "cfc".')
    size = weights[last_layer(list(weights), cfg.federate)].numel()
    clusters = len(cfg.precisions) if cfg.precision_cluster else 1
    averaged = {name: weights[name] for name in averaged_names(weights, cfg.variant, cfg.federate)}
    control = each(torch.zeros_like, averaged) if cfg.variant in CONTROLS and averaged else {}
    aims = (Aim(torch.zeros(size if BINDS[cfg.variant] else 0), torch.tensor(-1.0)),) * clusters
    return State(weights, not cfg.pretrain, {}, aims, averaged, control, {})


def private(weights: Params, cfg: Config) -> Mine:
    terms = Terms(cfg.lambda_d, cfg.lambda_m, cfg.lambda_a, cfg.v, cfg.ra_form, cfg.second)
    if not BINDS[cfg.variant]:
        terms = replace(terms, lambda_d=0.0, lambda_m=0.0, lambda_a=0.0)
    how = How(
        cfg.variant, terms, cfg.federate, cfg.wire, cfg.lr, cfg.epochs, cfg.clip, cfg.mu,
        cfg.first_classes, cfg.replay,
    )  # fmt: skip
    return Mine(weights, start(weights, cfg).control, how)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    place = {client: i for i, client in enumerate(fleet.clients)}
    while True:
        if cfg.begins:
            before = state
            state = _begin(fleet, state if state.ready else _pretrained(fleet, state, cfg), cfg, place)
            if not before.begun and state.begun:  # the first download is a round of its own
                state = replace(state, round=state.round + 1)
                yield state
        asked = sample(fleet, cfg.cohort, cfg.seed, state.round)
        asked = [client for client in asked if client in state.begun] if cfg.begins else asked
        classes = _classes(cfg, fleet.home.model.classes, state.round)
        tasks = {client: _task(state, cfg, _cluster(cfg, place[client]), classes) for client in asked}
        arrivals = fleet.gather(tasks)
        state = _bound(_averaged(fleet, state, cfg, arrivals), cfg, arrivals, place)
        state = _watched(state, cfg, arrivals)
        yield state
        if state.settled and cfg.settle > 0:
            return


def _pretrained(fleet: Fleet, state: State, cfg: Config) -> State:
    """The common start, trained on the server's own rows."""
    home, rows = fleet.home, fleet.home.data
    if not rows.weight.shape[0]:
        raise BadInput("method.pretrain: the server has no rows to train on; give it some with server.share.")
    if cfg.first_classes:
        rows = replace(rows, weight=rows.weight * (rows.y < cfg.first_classes))
    weights = sgd(
        home.model, state.start, rows, key=keys.key(cfg.seed, "pretrain"),
        lr=cfg.pretrain_lr, epochs=cfg.pretrain, batch=cfg.batch, clip=cfg.clip,
    )  # fmt: skip
    fleet.spend(cfg.pretrain * len(rows.y) * training_macs(home.model, state.start, rows) / SERVER_SPEED)
    return replace(state, start=weights, weights={name: weights[name] for name in state.weights}, ready=True)


def _begin(fleet: Fleet, state: State, cfg: Config, place: Mapping[ClientId, int]) -> State:
    """Whoever is idle and has not begun does so; who comes late begins when she comes."""
    new = {
        client: Begin(state.start if cfg.common_start else {}, _form(cfg, place[client]), not cfg.common_start)
        for client in list(fleet.idle)
        if client not in state.begun
    }
    if not new:
        return state
    answered = {arrival.client: _cluster(cfg, place[arrival.client]) for arrival in fleet.gather(new)}
    return replace(state, begun={**state.begun, **answered})


def _form(cfg: Config, place: int) -> str:
    return cfg.precisions[place % len(cfg.precisions)]


def _cluster(cfg: Config, place: int) -> int:
    return place % len(cfg.precisions) if cfg.precision_cluster else 0


def _classes(cfg: Config, classes: int, round: int) -> int:
    if not cfg.first_classes:
        return 0
    return min(classes, cfg.first_classes + (cfg.pretrain > 0) + (round - cfg.begins) // cfg.rounds_per_class)


def _task(state: State, cfg: Config, cluster: int, classes: int) -> Round:
    aim = state.aims[cluster]
    return Round(packed(aim.cud, cfg.wire), aim.cum, state.weights, state.control, cfg.batch, classes)


def _bound(state: State, cfg: Config, arrivals: list[Arrival], place: Mapping[ClientId, int]) -> State:
    """Section 4.4 for each cluster, one gradient at a time; a cluster nobody answered from keeps its aim."""
    if not BINDS[cfg.variant]:
        return state
    size = state.aims[0].cud.numel()
    running = [cud.nothing(size)] * len(state.aims)
    luds: list[list[Tensor]] = [[] for _ in state.aims]  # for the semidefinite program only
    for arrival in arrivals:
        k, lud = _cluster(cfg, place[arrival.client]), unpacked(arrival.update.lud)
        running[k] = cud.absorb(running[k], lud, cfg.unit)
        if cfg.cud == "sdp":
            luds[k].append(lud)
    aims = [
        Aim(cud.sdp(luds[k]) if cfg.cud == "sdp" else cud.direction(now), cud.magnitude(now)) if now.count else old
        for k, (now, old) in enumerate(zip(running, state.aims, strict=True))
    ]
    agreement = [cud.agreement(now) for now in running if now.count]
    shared = sum(agreement) / len(agreement) if agreement and cfg.unit else state.agreement
    return replace(state, aims=tuple(aims), agreement=shared)


def _averaged(fleet: Fleet, state: State, cfg: Config, arrivals: list[Arrival]) -> State:
    """FedAvg, FedProx, SCAFFOLD on the averaged modules: the mean change, weighted by samples but for SCAFFOLD."""
    if not state.weights or not arrivals:
        return state
    shares = None if state.control else [float(fleet.clients[a.client].samples) for a in arrivals]
    step = mean([a.update.weights for a in arrivals], shares)
    control = state.control
    if control:
        drift = mean([a.update.control for a in arrivals])
        control = each(lambda c, d: c + len(arrivals) / len(fleet.clients) * d, control, drift)
    return replace(state, weights=each(torch.add, state.weights, step), control=control)


def _watched(state: State, cfg: Config, arrivals: list[Arrival]) -> State:
    """Section 5.2: learning has converged when no client's validation accuracy gains any more."""
    best, gained = dict(state.best), False
    for arrival in arrivals:
        now, before = float(arrival.update.valid), best.get(arrival.client, -1.0)
        gained |= now < 0 or now - before > cfg.settle * max(before, 0.0)
        best[arrival.client] = max(now, before)
    settled = state.settled or (state.round + 1 if arrivals and not gained else 0)
    return replace(state, best=best, settled=settled, round=state.round + 1)


def begin(task: Begin, local: Local) -> Done:
    mine: Mine = local.mine
    weights = _scattered(mine.weights, local.key) if task.scatter else task.weights
    return Done(Begun(local.data.weight.sum()), mine=replace(mine, weights=precision.stored(weights, task.precision)))


def _scattered(weights: Params, key: Tensor) -> Params:
    """Weights of one's own, as Xavier draws them."""
    out = {}
    for name, w in weights.items():
        bound = (6.0 / sum(w.shape)) ** 0.5 if w.dim() == 2 else 0.0
        out[name] = bound * (2.0 * keys.uniform(keys.fold(key, "scatter", name), w.shape) - 1.0)
    return out


def train(task: Round, local: Local) -> Done:
    """Section 4.3 and Algorithm 1: passes over the local data; personal modules follow l, the bound head follows L."""
    mine: Mine = local.mine
    how, model = mine.how, local.model
    kept = {**mine.weights, **task.weights}  # what is averaged comes from the server
    half = precision.form_of(kept) == "float16"
    begun = each(lambda w: w.float(), {name: precision.loaded(kept)[name] for name in task.weights})
    bound = frozenset(name for name in model.trainable if in_head(name, how.federate))
    last = last_layer(list(model.trainable), how.federate)
    aim, steps = unpacked(task.cud), torch.zeros(())
    lud = torch.zeros_like(aim)
    data = present(local.data, task.classes, how.first_classes, how.replay, local.key)
    rows, counts = batches(data, task.batch, how.epochs, local.key)
    for step in range(rows.shape[0]):
        batch = take(data, rows[step], counts[step])
        batch = replace(batch, x=batch.x.half()) if half else batch

        def values(w: Params, batch: Data = batch) -> tuple[Tensor, Tensor]:
            logits, activity = logits_and_activity(
                model, w, batch.x, weight=batch.weight.to(batch.x.dtype), t=batch.t, length=batch.length
            )
            losses = model.losses(logits.float(), batch.y)
            return (losses * batch.weight).sum() / batch.weight.sum().clamp_min(1.0), activity.float()

        weights = precision.loaded(kept)
        gradient, _ = bound_gradient(values, weights, bound, last, how.terms, aim.to(weights[last].dtype), task.cum)
        gradient = each(lambda g: g.float(), gradient)
        for name in task.weights:  # FedProx: mu (w - w_0); SCAFFOLD: c - c_i
            if how.variant == "fprox":
                gradient[name] = gradient[name] + how.mu * (weights[name].float() - begun[name])
            elif task.control:
                gradient[name] = gradient[name] + task.control[name] - mine.control[name]
        if how.clip:
            gradient = dict(zip(gradient, clipped(list(gradient.values()), how.clip), strict=True))
        real = (counts[step].sum() > 0).float()  # an all-padding batch must not move anything
        if lud.numel():
            lud = lud + real * gradient[last].flatten()
        steps = steps + real
        moved = each(lambda w, g, real=real: w.float() - how.lr * real * g, weights, gradient)
        kept = precision.rounded(moved, kept, keys.fold(local.key, "step", step))
    trained = precision.loaded(kept)
    change = {name: trained[name].float() - begun[name] for name in task.weights}
    steps = steps.clamp_min(1.0)
    # SCAFFOLD line 12, option II: c_i+ = c_i - c + (x - y) / (K eta)
    control = {name: mine.control[name] - task.control[name] - change[name] / (steps * how.lr) for name in task.control}
    update = Report(
        packed(lud / steps, how.wire),
        _accuracy(local, trained, half),
        change,
        {name: control[name] - mine.control[name] for name in control},
    )
    return Done(update, mine=Mine(kept, control, how))


def _accuracy(local: Local, weights: Params, half: bool) -> Tensor:
    if local.valid is None:
        return torch.tensor(-1.0)
    rows = local.valid
    x = rows.x.half() if half else rows.x
    right = local.model.logits(weights, x, t=rows.t, length=rows.length).argmax(-1) == rows.y
    share: Tensor = (right * rows.weight).sum() / rows.weight.sum().clamp_min(1.0)
    return share


PROGRAMS = {Begin: begin, Round: train}


def clusters(state: State) -> Mapping[ClientId, int]:
    """Precision clusters, where there are several."""
    return state.begun if len(state.aims) > 1 else {}


def record(state: State) -> Mapping[str, Any]:
    seen = [best for best in state.best.values() if best >= 0]
    return {
        "agreement": state.agreement,
        "cum": [float(aim.cum) for aim in state.aims],
        "validation": sum(seen) / len(seen) if seen else None,
        "settled": state.settled,
    }


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    """Everybody's own; where modules are averaged, with their newest mean, which is what comes down next."""
    return {**each(lambda w: w.float(), precision.loaded(mine.weights)), **state.weights}
