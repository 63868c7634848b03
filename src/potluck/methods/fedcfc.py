"""FedCFC: personal continuous-time networks that share only the direction and size of one small gradient.

Dai and Tan, "FedCFC: On-Device Personalized Federated Learning with Closed-Form Continuous-Time Neural Networks", 2024,
Algorithm 1: the bound local updater (section 4.3, `parts/fedcfc/bind.py`) on the clients, the bound updates aggregator
(section 4.4, `parts/fedcfc/cud.py`) on the server. Each client keeps a whole model. Only its module f is coordinated,
through the gradient by V, the weights of f's last layer. The variants (section 5.1): `fbind` binds f; `favg`, `fprox`
and `fscaf` average f's weights (`parts/fedcfc/variants.py`); `fgh` binds f and averages g and h with control variates.
Deviations: CUD in closed form (the paper's semidefinite program is `cud = "sdp"`); R_a as a hinge that raises activity,
as the text intends (`terms.ra_form = "printed"` lowers it); mini-batches of 32 rather than 1; gradients clipped at
norm 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from potluck.errors import BadInput, Code
from potluck.fleet import Arrival, ClientId, Done, Fleet, Local, Params
from potluck.learn import Recipe, batches, clipped, step_keys, take
from potluck.methods.parts import correction
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.fedcfc import cud, declared, depths, precision
from potluck.methods.parts.fedcfc.bind import Terms, bound_gradients
from potluck.methods.parts.fedcfc.classes import Classes, present, so_far
from potluck.methods.parts.fedcfc.compiled import compiled
from potluck.methods.parts.fedcfc.convergence import record, watched
from potluck.methods.parts.fedcfc.cud import Aim
from potluck.methods.parts.fedcfc.declared import KEY_SETTINGS, NEEDS, SPACE, headline, uses
from potluck.methods.parts.fedcfc.memory import memory
from potluck.methods.parts.fedcfc.quantised import Vector, packed, unpacked
from potluck.methods.parts.fedcfc.readout import accuracy, loss_and_activity
from potluck.methods.parts.fedcfc.start import Begin, Begun, begin, downloaded, needed, prepared
from potluck.methods.parts.fedcfc.variants import BINDS, CONTROLS, Head, Variant, averaged, averaged_names
from potluck.methods.parts.starts import PRETRAINS, Pretrain
from potluck.models.cfc import in_head, last_layer
from potluck.release import Release
from potluck.tensors import each, zeros_like

__all__ = ["KEY_SETTINGS", "NEEDS", "PRETRAINS", "SPACE", "headline", "record", "uses"]  # of the parts


@dataclass(frozen=True)
class Config:
    variant: Variant = "fbind"  # fbind and fgh bind; favg, fprox, fscaf and fgh average modules
    terms: Terms = Terms()  # the three terms that bind f
    recipe: Recipe = Recipe(lr=0.01, clip=5.0)  # lr is eta
    mu: float = 0.01  # weight of the proximal term of fprox
    cud: Literal["closed", "sdp"] = "closed"  # how the server finds CUD
    unit: bool = True  # CUD from unit gradients; off: from the gradients as they are
    federate: Head = "f"  # which module is coordinated
    lud: Literal["bound", "task"] = "bound"  # LUD is ∂L/∂V, as printed; task: ∂l/∂V, without the terms' part
    wire: precision.Format = "float32"  # format of LUD and CUD on the wire
    common_start: bool = True  # off: each client draws its own first weights
    pretrain: Pretrain = Pretrain()  # training of the common start on the server rows
    precisions: tuple[precision.Format, ...] = ("float32",)  # formats of the clients' weights, given to them in turn
    scales: Literal["tensor", "row"] = "tensor"  # what one scale of int8 weights is for
    precision_cluster: bool = True  # one CUD and CUM per precision
    depths: tuple[depths.Depth, ...] = ()  # layers of f, g and h, given to the clients in turn; (): those of the model
    classes: Classes = Classes()  # class-incremental data
    settle: float = 0.0  # end once no client's validation gains more than this share of its best; 0.0005 in the paper
    cohort: int = 0  # clients per round; 0: all
    seed: int = 0
    UNUSED: ClassVar[tuple[str, ...]] = ("recipe.optimiser",)
    MOVED: ClassVar[dict[str, str]] = declared.OLD_NAMES

    def __post_init__(self) -> None:
        declared.checked(self)

    def cluster(self, index: int) -> int:
        """The precision cluster of the client with this index."""
        return index % len(self.precisions) if self.precision_cluster else 0


@dataclass(frozen=True)
class State:
    starts: tuple[Params, ...]  # the common start, one for each depth
    ready: bool  # they are pre-trained, if the settings ask for it
    begun: dict[ClientId, int]  # the clients that have the common start, and their cluster
    aims: tuple[Aim, ...]  # one per cluster
    weights: Params  # averaged modules; empty for fbind
    control: Params  # c of SCAFFOLD on them
    best: dict[ClientId, float]  # validation accuracy
    agreement: float = 1.0  # mean cosine between the gradients of two clients
    settled: int = 0  # the round in which no client gained any more
    round: int = 0


@dataclass(frozen=True)
class Mine:
    weights: Params  # the whole personal model, at the client's precision; never sent
    control: Params  # c_i
    cfg: Config  # installed with the program, so that settings do not travel


@dataclass(frozen=True)
class Round:
    """Server to client: CUD and CUM (D + 1 numbers), and the averaged modules of the variants that have some."""

    cud: Vector
    cum: Tensor
    weights: Params
    control: Params
    batch: int
    classes: int  # how many exist by now; 0: all


@dataclass(frozen=True)
class Report:
    """Client to server: LUD = ∂L/∂V (D numbers) and one figure, and the changes of the averaged modules."""

    BOUNDED: ClassVar[dict[str, str]] = {"lud": "", "weights": "", "control": ""}
    lud: Vector
    valid: Tensor  # accuracy on the validation rows, -1 without
    weights: Params
    control: Params


def start(weights: Params, cfg: Config) -> State:
    if not all(f"{head}.1.weight" in weights for head in "fgh"):
        raise BadInput(Code.METHOD_NEEDS, 'model: fedcfc needs the heads f, g and h. Set model.name = "cfc".')
    size = weights[last_layer(list(weights), cfg.federate)].numel()
    shared = {name: weights[name] for name in averaged_names(weights, cfg.variant, cfg.federate)}
    control = zeros_like(shared) if cfg.variant in CONTROLS else {}
    clusters = len(cfg.precisions) if cfg.precision_cluster else 1
    aims = (Aim(torch.zeros(size if cfg.variant in BINDS else 0), torch.tensor(-1.0)),) * clusters
    starts = tuple(depths.shallower(weights, depth) for depth in cfg.depths or ("",))
    return State(starts, not cfg.pretrain.epochs, {}, aims, shared, control, {})


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights, start(weights, cfg).control, cfg)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    """Algorithm 1: CUD and CUM go out, gradients come back and give the next CUD and CUM."""
    index = {client: i for i, client in enumerate(fleet.clients)}
    first = needed(cfg)
    if not state.ready:
        state = prepared(fleet, state, cfg)
    while True:
        if first:
            before, state = state, downloaded(fleet, state, cfg, index)
            if not before.begun and state.begun:  # the first download counts as a round
                state = replace(state, round=state.round + 1)
                yield state
                continue  # as a resumed run does: clients whose download was lost get it now
        asked = [c for c in sample(fleet, cfg.cohort, cfg.seed, state.round) if c in state.begun or not first]
        known, done = cfg.pretrain.epochs > 0, state.round - first
        classes = so_far(cfg.classes, known, fleet.home.model.classes, done)
        arrivals = fleet.gather({client: task_of(state, cfg, cfg.cluster(index[client]), classes) for client in asked})
        weights, control = averaged(state.weights, state.control, arrivals, fleet.clients)
        state = _bound(replace(state, weights=weights, control=control, round=state.round + 1), cfg, arrivals, index)
        state = watched(state, arrivals, cfg.settle)
        yield state
        if state.settled and cfg.settle > 0:
            return


def task_of(state: State, cfg: Config, cluster: int, classes: int) -> Round:
    """The task of a client in this cluster: the CUD in the wire's format, and what the variant averages."""
    aim = state.aims[cluster]
    return Round(packed(aim.cud, cfg.wire), aim.cum, state.weights, state.control, cfg.recipe.batch, classes)


def _bound(state: State, cfg: Config, arrivals: Sequence[Arrival], index: Mapping[ClientId, int]) -> State:
    """Section 4.4 for each cluster, one gradient at a time. A cluster without an answer keeps its aim."""
    if cfg.variant not in BINDS:
        return state
    running = [cud.nothing(state.aims[0].cud.numel())] * len(state.aims)
    luds: list[list[Tensor]] = [[] for _ in state.aims]  # for the semidefinite program only
    for arrival in arrivals:
        k, lud = cfg.cluster(index[arrival.client]), unpacked(arrival.update.lud)
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


def train(task: Round, local: Local) -> Done:
    """Section 4.3: passes over the local data. Personal modules follow the loss l, the bound head follows L."""
    mine: Mine = local.mine
    cfg, model, recipe = mine.cfg, local.model, mine.cfg.recipe
    terms = cfg.terms if cfg.variant in BINDS else Terms(0.0, 0.0, 0.0)
    kept = {**mine.weights, **task.weights}  # averaged modules come from the server
    first = each(lambda w: w.float(), {name: precision.loaded(kept)[name] for name in task.weights})
    pull = correction.pull_of(cfg.mu if cfg.variant == "fprox" else 0.0, first, task.control, mine.control)
    bound = frozenset(name for name in model.trainable if in_head(name, cfg.federate))
    last = last_layer(list(model.trainable), cfg.federate)  # V
    half = precision.form_of(kept) == "float16"
    aim = Aim(unpacked(task.cud), task.cum)
    data = present(local.data, task.classes, cfg.classes, local.key)
    rows, counts = batches(data, task.batch, recipe.epochs, local.key)
    steps = (counts.sum(1) > 0).float().sum()  # a batch of padding only moves nothing
    fast = compiled(model, kept, data, rows, counts, recipe, pull, cfg.federate, terms, aim, cfg.lud)
    if fast is not None:
        kept, lud = fast
    else:
        lud, own_keys = torch.zeros_like(aim.cud), step_keys(local.key, counts)
        velocity = zeros_like(each(lambda w: w.float(), precision.loaded(kept))) if recipe.momentum else {}
        for step in range(rows.shape[0]):
            weights = precision.loaded(kept)
            values = loss_and_activity(model, take(data, rows[step], counts[step]), half)
            towards = aim.cud.to(weights[last].dtype)
            gradient, q, _ = bound_gradients(values, weights, bound, last, terms, towards, aim.cum)
            gradient = correction.corrected(each(lambda g: g.float(), gradient), weights, pull)
            real = counts[step].sum() > 0
            if recipe.clip:
                gradient = dict(zip(gradient, clipped(list(gradient.values()), recipe.clip), strict=True))
            if lud.numel():
                lud = lud + real * (gradient[last] if cfg.lud == "bound" else q.float()).flatten()
            if velocity:
                new = each(lambda v, g: recipe.momentum * v + g, velocity, gradient)
                gradient = velocity = each(lambda v, n, real=real: torch.where(real, n, v), velocity, new)
            moved = each(lambda w, g, real=real: w.float() - recipe.lr * real * g, weights, gradient)
            kept = precision.rounded(moved, kept, own_keys[step])
    trained = precision.loaded(kept)
    after = {name: trained[name].float() for name in task.weights}
    control = correction.new_own(mine.control, task.control, first, after, steps, recipe.lr, task.control)
    update = Report(
        packed(lud / steps.clamp_min(1.0), cfg.wire),
        accuracy(local, trained, half),
        correction.change(after, first),
        correction.change(control, mine.control),
    )
    # Without averaged modules the private model is all that there is.
    own = each(lambda w: w.float(), trained) if task.weights else None
    return Done(update, mine=Mine(kept, control, cfg), own=own)


MESSAGES = (Begin, Begun, Round, Report)  # all that crosses the wire


def classes_for(cfg: Config) -> str:
    return "method.classes.first lets classes arrive one after another" if cfg.classes.first else ""


def releases(cfg: Config) -> dict[type, Release]:
    """The direction of the gradient, the changes of averaged modules, and the accuracy on validation rows."""
    why = "the semidefinite program takes each gradient" if cfg.cud == "sdp" else ""
    if cfg.unit and cfg.wire != "int8":
        told = Release(changes=("valid", "weights", "control"), directions=("lud",), single=why)
    else:
        told = Release(changes=("lud", "valid", "weights", "control"), single=why)
    return {Report: told, Begun: Release(counts=("examples",))}


PROGRAMS = {Begin: begin, Round: train}
MEMORY = {Round: memory}


def clusters(state: State) -> Mapping[ClientId, int]:
    """Precision clusters, if there are several."""
    return state.begun if len(state.aims) > 1 else {}


def received(state: State, client: ClientId) -> Params | None:
    """The common start with the averaged modules, where the server sends either; a client that has begun keeps its own.

    Otherwise None: gradients alone travel.
    """
    sends = bool(state.weights or state.begun)
    return {**state.starts[0], **state.weights} if sends and client not in state.begun else None


VISIBLE = ("weights",)  # the averaged part; the rest is the client's own


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    """The client's own model; averaged modules with their newest mean, which it downloads next."""
    return {**each(lambda w: w.float(), precision.loaded(mine.weights)), **state.weights}
