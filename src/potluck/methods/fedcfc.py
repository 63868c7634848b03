"""FedCFC: personal continuous-time networks that share nothing but the direction and size of one small gradient.

Dai and Tan, "FedCFC: On-Device Personalized Federated Learning with Closed-Form Continuous-Time Neural Networks", 2024,
Algorithm 1: the bound local updater (section 4.3, `parts/fedcfc/bind.py`) on the clients, the bound updates aggregator
(section 4.4, `parts/fedcfc/cud.py`) on the server. Every client keeps a whole model; of it only f is coordinated,
through the gradient by V, the weights of f's last layer. One family of variants: `fbind`; `favg`, `fprox` and `fscaf`,
which average f's weights; `fgh`, which binds f and averages g and h with control variates.
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
from potluck.errors import BadInput, Code
from potluck.fleet import Arrival, ClientId, Done, Fleet, Local, Params
from potluck.learn import Recipe, batches, clipped, take
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.fedcfc import cud, depths, precision
from potluck.methods.parts.fedcfc.bind import Terms, bound_gradient
from potluck.methods.parts.fedcfc.classes import present, so_far
from potluck.methods.parts.fedcfc.convergence import best_so_far
from potluck.methods.parts.fedcfc.modules import corrected, merged, new_control
from potluck.methods.parts.fedcfc.quantised import Vector, packed, unpacked
from potluck.methods.parts.fedcfc.readout import accuracy, loss_and_activity
from potluck.methods.parts.starts import Pretrain, pretrained, scattered
from potluck.models.cfc import in_head, last_layer
from potluck.models.memory import need
from potluck.tensors import each

BINDS = {"fbind": True, "fgh": True, "favg": False, "fprox": False, "fscaf": False}
CONTROLS = ("fscaf", "fgh")


@dataclass(frozen=True)
class Config:
    variant: str = "fbind"  # fbind | favg | fprox | fscaf | fgh
    lambda_d: float = 0.6  # weight of the direction, R_d
    lambda_m: float = 0.2  # of the magnitude, R_m
    lambda_a: float = 0.2  # of the activity, R_a
    v: float = 1.59  # the activity wished for
    recipe: Recipe = Recipe(lr=0.01, clip=5.0)  # lr is eta
    mu: float = 0.01  # fprox
    cud: str = "closed"  # closed | sdp
    unit: bool = True  # CUD from unit gradients; off: from the gradients as they are
    second: str = "exact"  # exact | difference: how R_d and R_m are differentiated
    ra_form: str = "hinge"  # hinge | printed
    federate: str = "f"  # f | g | h: which head is coordinated
    wire: str = "float32"  # float32 | float16 | int8: of LUD and CUD
    common_start: bool = True  # off: everybody draws her own first weights
    pretrain: Pretrain = Pretrain()  # of the common start, on the server rows
    precisions: tuple[str, ...] = ("float32",)  # dealt to the clients in turn
    precision_cluster: bool = True  # one CUD and CUM per precision
    depths: tuple[str, ...] = ()  # layers of f, g and h, dealt to the clients in turn ("1-1-1"); none: the model's own
    first_classes: int = 0  # class-incremental: so many classes are there at the beginning; 0: all
    rounds_per_class: int = 10  # then one more every so many rounds
    replay: float = 0.1  # share of the old classes' rows that is still at hand
    settle: float = 0.0  # ends once nobody's validation gained more than this share of its best; the paper's is 0.0005
    cohort: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        checks.uses(self.recipe, "epochs", "batch", "lr", "clip", why="fedcfc takes plain SGD steps")
        checks.at_least(self, "cohort", 0)
        for name, allowed in _CHOICES.items():
            checks.one_of(self, name, allowed)
        for name in ("lambda_d", "lambda_m", "lambda_a", "mu", "first_classes", "settle"):
            checks.at_least(self, name, 0)
        checks.at_least(self, "rounds_per_class", 1)
        checks.within(self, "replay", 0.0, 1.0)
        object.__setattr__(self, "precisions", tuple(self.precisions))
        precision.check(self.precisions)
        object.__setattr__(self, "depths", tuple(self.depths))
        depths.check(self.depths)
        if self.depths and self.variant != "fbind":
            raise BadInput(
                Code.SETTING_VALUE,
                f"method.depths: {self.variant} averages heads, which must be alike; fbind does not.",
            )

    @property
    def begins(self) -> bool:
        """Whether clients need a first message: what the seed and the program give them is not enough."""
        return self.pretrain.epochs > 0 or not self.common_start or self.precisions != ("float32",) or bool(self.depths)


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
    recipe: Recipe
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
    starts: tuple[Params, ...]  # the common start, for each depth
    ready: bool  # they are what clients begin with: pre-trained, where that was asked
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
    depth: str
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
        raise BadInput(
            Code.METHOD_NEEDS, 'method: fedcfc needs a model with the heads f, g and h; set model.name = "cfc".'
        )
    size = weights[last_layer(list(weights), cfg.federate)].numel()
    clusters = len(cfg.precisions) if cfg.precision_cluster else 1
    averaged = {name: weights[name] for name in averaged_names(weights, cfg.variant, cfg.federate)}
    control = each(torch.zeros_like, averaged) if cfg.variant in CONTROLS and averaged else {}
    aims = (Aim(torch.zeros(size if BINDS[cfg.variant] else 0), torch.tensor(-1.0)),) * clusters
    starts = tuple(depths.shallower(weights, depth) for depth in cfg.depths or ("",))
    return State(starts, not cfg.pretrain.epochs, {}, aims, averaged, control, {})


def private(weights: Params, cfg: Config) -> Mine:
    terms = Terms(cfg.lambda_d, cfg.lambda_m, cfg.lambda_a, cfg.v, cfg.ra_form, cfg.second)
    if not BINDS[cfg.variant]:
        terms = replace(terms, lambda_d=0.0, lambda_m=0.0, lambda_a=0.0)
    how = How(cfg.variant, terms, cfg.federate, cfg.wire, cfg.recipe, cfg.mu, cfg.first_classes, cfg.replay)
    return Mine(weights, start(weights, cfg).control, how)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    """Algorithm 1: CUD and CUM go out, gradients come back, and give the next CUD and CUM."""
    place = {client: i for i, client in enumerate(fleet.clients)}
    if not state.ready:  # the common start, trained on the server's own rows
        starts = tuple(
            pretrained(fleet, weights, cfg.pretrain, cfg.recipe, cfg.seed, cfg.first_classes)
            for weights in state.starts
        )
        averaged = {name: starts[0][name] for name in state.weights}
        state = replace(state, starts=starts, weights=averaged, ready=True)
    while True:
        if cfg.begins:
            before = state
            state = _begin(fleet, state, cfg, place)
            if not before.begun and state.begun:  # the first download is a round of its own
                state = replace(state, round=state.round + 1)
                yield state
        asked = sample(fleet, cfg.cohort, cfg.seed, state.round)
        asked = [client for client in asked if client in state.begun] if cfg.begins else asked
        done = state.round - cfg.begins
        classes = so_far(
            cfg.first_classes, cfg.pretrain.epochs > 0, cfg.rounds_per_class, fleet.home.model.classes, done
        )
        tasks = {client: _task(state, cfg, _cluster(cfg, place[client]), classes) for client in asked}
        arrivals = fleet.gather(tasks)
        state = _bound(_averaged(fleet, state, arrivals), cfg, arrivals, place)
        state = _watched(state, cfg, arrivals)
        yield state
        if state.settled and cfg.settle > 0:
            return


def _begin(fleet: Fleet, state: State, cfg: Config, place: Mapping[ClientId, int]) -> State:
    """Whoever is idle and has not begun does so; who comes late begins when she comes."""
    new = {
        client: Begin(
            state.starts[place[client] % len(state.starts)] if cfg.common_start else {},
            cfg.precisions[place[client] % len(cfg.precisions)],
            cfg.depths[place[client] % len(cfg.depths)] if cfg.depths else "",
            not cfg.common_start,
        )
        for client in list(fleet.idle)
        if client not in state.begun
    }
    if not new:
        return state
    answered = {arrival.client: _cluster(cfg, place[arrival.client]) for arrival in fleet.gather(new)}
    return replace(state, begun={**state.begun, **answered})


def _cluster(cfg: Config, place: int) -> int:
    return place % len(cfg.precisions) if cfg.precision_cluster else 0


def _task(state: State, cfg: Config, cluster: int, classes: int) -> Round:
    aim = state.aims[cluster]
    return Round(packed(aim.cud, cfg.wire), aim.cum, state.weights, state.control, cfg.recipe.batch, classes)


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


def _averaged(fleet: Fleet, state: State, arrivals: list[Arrival]) -> State:
    """The variants' part: the mean of the modules that travel."""
    if not state.weights or not arrivals:
        return state
    changes, drifts = ([getattr(a.update, part) for a in arrivals] for part in ("weights", "control"))
    samples = [float(fleet.clients[a.client].samples) for a in arrivals]
    weights, control = merged(state.weights, state.control, changes, drifts, samples, len(fleet.clients))
    return replace(state, weights=weights, control=control)


def _watched(state: State, cfg: Config, arrivals: list[Arrival]) -> State:
    """Section 5.2: the first round in which no client's validation accuracy gained."""
    best, gained = best_so_far(state.best, {a.client: float(a.update.valid) for a in arrivals}, cfg.settle)
    settled = state.settled or (state.round + 1 if arrivals and not gained else 0)
    return replace(state, best=best, settled=settled, round=state.round + 1)


def begin(task: Begin, local: Local) -> Done:
    mine: Mine = local.mine
    weights = task.weights
    if task.scatter:
        weights = scattered(local.model, depths.shallower(mine.weights, task.depth), local.key)
    return Done(Begun(local.data.weight.sum()), mine=replace(mine, weights=precision.stored(weights, task.precision)))


def train(task: Round, local: Local) -> Done:
    """Section 4.3 and Algorithm 1: passes over the local data; personal modules follow l, the bound head follows L."""
    mine: Mine = local.mine
    how, model = mine.how, local.model
    kept = {**mine.weights, **task.weights}  # what is averaged comes from the server
    begun = each(lambda w: w.float(), {name: precision.loaded(kept)[name] for name in task.weights})
    bound = frozenset(name for name in model.trainable if in_head(name, how.federate))
    last = last_layer(list(model.trainable), how.federate)  # V
    half = precision.form_of(kept) == "float16"
    aim, steps = unpacked(task.cud), torch.zeros(())
    lud = torch.zeros_like(aim)
    data = present(local.data, task.classes, how.first_classes, how.replay, local.key)
    rows, counts = batches(data, task.batch, how.recipe.epochs, local.key)
    for step in range(rows.shape[0]):
        batch = take(data, rows[step], counts[step])
        weights, values = precision.loaded(kept), loss_and_activity(model, batch, half)
        gradient, _ = bound_gradient(values, weights, bound, last, how.terms, aim.to(weights[last].dtype), task.cum)
        gradient = corrected(
            each(lambda g: g.float(), gradient), weights, begun, how.mu * (how.variant == "fprox"), task.control,
            mine.control,
        )  # fmt: skip
        if how.recipe.clip:
            gradient = dict(zip(gradient, clipped(list(gradient.values()), how.recipe.clip), strict=True))
        real = (counts[step].sum() > 0).float()  # an all-padding batch must not move anything
        if lud.numel():
            lud = lud + real * gradient[last].flatten()
        steps = steps + real
        moved = each(lambda w, g, real=real: w.float() - how.recipe.lr * real * g, weights, gradient)
        kept = precision.rounded(moved, kept, keys.fold(local.key, "step", step))
    trained, steps = precision.loaded(kept), steps.clamp_min(1.0)
    change = {name: trained[name].float() - begun[name] for name in task.weights}
    control = new_control(mine.control, task.control, change, steps, how.recipe.lr)
    drift = {name: control[name] - mine.control[name] for name in control}
    update = Report(packed(lud / steps, how.wire), accuracy(local, trained, half), change, drift)
    return Done(update, mine=Mine(kept, control, how))


def memory(task: Round, local: Local) -> int:
    """Bytes on a device: it trains by hand-written loops, one sample after another (section 6.1, `firmware/`)."""
    model, weights = local.model, local.mine.weights
    own = need(model, precision=precision.form_of(weights), layers=depths.layers(depths.of(weights))).total
    return own + sum(w.numel() * 4 for part in (task.weights, task.control) for w in part.values())


PROGRAMS = {Begin: begin, Round: train}
MEMORY = {Round: memory}


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
