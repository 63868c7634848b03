"""Centaur: a constrained device and its access point train one model together, each on the samples it is good for.

Mo et al., "Enhancing Efficiency in Multidevice Federated Learning through Data Selection". The model is a classifier C
behind an encoder E. Rounds alternate, with the same clients in both halves of a pair (Algorithm 1): devices train C on
the samples D_C that data selection keeps (Eqs. 2 and 3, `parts.selection`), and hand the most telling ones, D_M, to
their access points, which train E and C. Useless samples, D_N, never see a backward pass.

Deviations, with reasons in docs/methods/centaur.md: P_N in the form of the released code (`pn_form`), the encoder run
once per device round and its features kept (`cache`), encoder and batch statistics really frozen on devices (`ucd_bn`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Recipe
from potluck.methods.parts import checks
from potluck.methods.parts.centaur import costs as expected
from potluck.methods.parts.centaur import pairs, tiers
from potluck.methods.parts.centaur import samples as tally
from potluck.methods.parts.centaur.handover import hand_over, sample_bytes, waiting
from potluck.methods.parts.centaur.mobility import gathered, offline
from potluck.methods.parts.centaur.partial import collected, features_of, fit
from potluck.methods.parts.centaur.samples import Tally
from potluck.methods.parts.centaur.tiers import Controls
from potluck.methods.parts.selection import Chosen, Queue, Rule, enqueue, gradient_norm, no_losses, select
from potluck.models.layers import Pass

PAIRS = True  # devices come with an access point each (fleet.access_point)


@dataclass(frozen=True)
class Config:
    cohort: int = 8  # pairs asked per round; 0 asks everybody
    recipe: Recipe = Recipe(epochs=3, batch=64, lr=0.01, momentum=0.9)  # epochs is E0
    alpha: float = 5.0  # exponent of discarding; 0 is off, as for all three
    beta: float = 3.0  # of handing over
    gamma: float = 0.0  # of handing over by gradient norm
    pn_form: str = "coded"  # coded | printed
    selection: str = "loss"  # loss | random
    outliers: float = 0.0  # share of the highest losses set aside
    queue: int = 0  # losses remembered for the distribution; 0: those of all samples gathered
    storage_kb: float = 0.0  # for samples to hand over, within what the device has; 0: all of that
    split: str = ""  # the classifier's first layer; the closing linear layers unless told
    base: float = 0.5  # share of its data a client has without offline time
    step: float = 0.2  # more of it per unit of offline time
    connected: float = 0.5  # lambda: probability that a connection succeeds
    mobility: tuple[float, float] | None = None  # range of lambda over places and times of day; None: lambda for all
    ap_selection: str = "handed"  # handed | redraw: drawn anew by P_M at every epoch, among what was handed over
    cache: bool = True  # features kept for the round; false: encoded again at every step
    ucd_bn: str = "eval"  # eval | train: batch statistics drift on the device, as in the released code
    stream: int = 4  # samples the device encodes at a time
    device_merge: str = "fedavg"  # fedavg | fedprox | scaffold, for the classifiers of the devices
    ap_merge: str = "fedavg"  # the same, for the models of the access points
    mu: float = 0.01  # of fedprox
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.uses(self.recipe, "epochs", "batch", "lr", "momentum")
        pairs.check(self)
        checks.at_least(self, "queue", 0)
        checks.one_of(self, "ap_selection", ("handed", "redraw"))
        checks.one_of(self, "ucd_bn", ("eval", "train"))
        _ = self.rule

    @property
    def rule(self) -> Rule:
        return Rule(self.alpha, self.beta, self.gamma, self.pn_form, self.selection, self.outliers)


@dataclass(frozen=True)
class State:
    weights: Params
    control: Controls = field(default_factory=Controls)
    waiting: dict[str, float] = field(default_factory=dict)  # device that handed over -> share of its data it had
    unused: dict[str, bool] = field(default_factory=dict)  # devices whose last samples no access point trained on
    tally: Tally = field(default_factory=Tally)
    round: int = 0  # even: devices are next; odd: their access points


@dataclass(frozen=True)
class Mine:
    control: Params  # SCAFFOLD's c_i
    stamps: Tensor  # per sample of the device: the pair in which it was chosen for the access point, negative once sent
    queue: Queue | None = None


@dataclass(frozen=True)
class Collect:
    """Server to device: gather, choose, train the classifier."""

    encoder: Params
    classifier: Params
    control: Params
    pair: Tensor  # its number, from 1
    here: Tensor  # 1 where the access point is there to take samples
    again: Tensor  # 1 where those it took last were in vain: they wait once more
    order: Tensor  # key of the order in which a device meets its samples
    offline: int  # units without a connection: as many epochs more than the recipe's
    share: float  # of the device's samples gathered by now
    recipe: Recipe
    mu: float
    rule: Rule
    split: str
    queue: int
    storage: float  # bytes for samples to hand over
    cache: bool
    ucd_bn: str
    stream: int

    @property
    def epochs(self) -> int:
        return self.recipe.epochs + self.offline


@dataclass(frozen=True)
class Collected:
    """Device to server: the classifier, and how the samples were parted."""

    classifier: Params
    buffers: Params  # batch statistics of the encoder, where ucd_bn lets them drift
    control: Params
    examples: Tensor  # |D_C| of the first epoch
    offline: Tensor
    counts: Tensor  # collected, discarded, chosen for the access point, handed over, stored, not a number
    trained: Tensor  # sample-steps


@dataclass(frozen=True)
class Retrain:
    """Server to access point: train the whole model on what was handed over."""

    weights: Params
    control: Params
    recipe: Recipe
    mu: float
    rule: Rule
    redraw: bool
    more: int  # epochs beyond the recipe's

    @property
    def epochs(self) -> int:
        return self.recipe.epochs + self.more


@dataclass(frozen=True)
class Retrained:
    """Access point to server."""

    weights: Params
    control: Params
    examples: Tensor  # |D_M| of the first epoch
    trained: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights, tiers.begin(weights, cfg.device_merge, cfg.ap_merge))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        state = device_round(fleet, state, cfg) if state.round % 2 == 0 else ap_round(fleet, state, cfg)
        yield state


def device_round(fleet: Fleet, state: State, cfg: Config) -> State:
    """Steps 2 to 6: devices select and train; the mean of their classifiers."""
    split = fleet.home.model.split(cfg.split)
    pair, sample = state.round // 2, sample_bytes(fleet.home.data)
    chosen = pairs.devices(fleet, cfg.cohort, cfg.seed, pair)
    idle = set(fleet.idle)
    made: dict[tuple[int, bool, float, bool], Collect] = {}
    tasks = {}
    for client in chosen:
        profile = fleet.clients[client]
        room = pairs.storage(cfg.storage_kb, profile, sample)
        kind = offline(cfg, client, pair), profile.partner in idle, room, client in state.unused
        made.setdefault(kind, collect_task(state, cfg, split.classifier, pair, *kind))
        tasks[client] = made[kind]
    arrivals = fleet.gather(tasks)
    came = [arrival.update for arrival in arrivals]
    weights = {**state.weights, **pairs.merged([(u.classifier, u.examples) for u in came])}
    weights |= pairs.merged([(u.buffers, u.examples) for u in came])
    control = tiers.moved(state.control, "device", [u.control for u in came], pairs.count(fleet))
    counted = tally.counted(state.tally, came, sample)
    handed = {arrival.client: float(arrival.update.counts[3]) for arrival in arrivals}
    served = {
        arrival.client: gathered(cfg, int(arrival.update.offline))
        for arrival in arrivals
        if handed[arrival.client] >= 2  # one sample alone is nothing to train a network on
    }
    unused = {client: True for client in state.unused if client not in handed}
    unused |= {client: True for client, count in handed.items() if count == 1}
    return State(weights, control, served, unused, counted, state.round + 1)


def ap_round(fleet: Fleet, state: State, cfg: Config) -> State:
    """Steps 7 and 8: the access points of the same clients train the whole model; the mean of their models."""
    idle = set(fleet.idle)
    made: dict[int, Retrain] = {}
    tasks = {}
    for client, share in state.waiting.items():
        ap = fleet.clients[client].partner
        if ap in idle:
            more = int((share - cfg.base) / cfg.step + 1e-9)
            made.setdefault(more, retrain_task(state, cfg, more))
            tasks[ap] = made[more]
    arrivals = fleet.gather(tasks) if tasks else []
    came = [arrival.update for arrival in arrivals]
    trained = {fleet.clients[arrival.client].partner for arrival in arrivals}
    unused = state.unused | {client: True for client in state.waiting if client not in trained}
    weights = {**state.weights, **pairs.merged([(u.weights, u.examples) for u in came])}
    control = tiers.moved(state.control, "ap", [u.control for u in came], pairs.count(fleet))
    counted = replace(state.tally, ap_steps=state.tally.ap_steps + sum(float(u.trained) for u in came))
    return State(weights, control, {}, unused, counted, state.round + 1)


def collect_task(
    state: State,
    cfg: Config,
    classifier: frozenset[str],
    pair: int,
    units: int,
    here: bool,
    storage: float,
    again: bool = False,
) -> Collect:
    return Collect(
        encoder={name: value for name, value in state.weights.items() if name not in classifier},
        classifier={name: value for name, value in state.weights.items() if name in classifier},
        control={name: value for name, value in state.control.device.items() if name in classifier},
        pair=torch.tensor(float(pair + 1)), here=torch.tensor(float(here)), again=torch.tensor(float(again)),
        order=keys.key(cfg.seed, "order"),
        offline=units, share=gathered(cfg, units), recipe=tiers.recipe(cfg.recipe, cfg.device_merge),
        mu=cfg.mu if cfg.device_merge == "fedprox" else 0.0, rule=cfg.rule, split=cfg.split, queue=cfg.queue,
        storage=storage, cache=cfg.cache, ucd_bn=cfg.ucd_bn, stream=cfg.stream,
    )  # fmt: skip


def retrain_task(state: State, cfg: Config, more: int) -> Retrain:
    return Retrain(
        weights=state.weights, control=state.control.ap, recipe=tiers.recipe(cfg.recipe, cfg.ap_merge), more=more,
        mu=cfg.mu if cfg.ap_merge == "fedprox" else 0.0, rule=cfg.rule, redraw=cfg.ap_selection == "redraw",
    )  # fmt: skip


def collect(task: Collect, local: Local) -> Done:
    """A device's round: losses with the received model, selection and training epoch by epoch, samples to hand over."""
    model, rule = local.model, task.rule
    data, rows = collected(local.data, task.share, task.order)
    split = model.split(task.split, [name for name in ("t", "length") if getattr(data, name) is not None])
    mine: Mine = local.mine or Mine(tiers.zeros(task.control), local.data.weight * 0, no_losses(task.queue))
    everything = Chosen(data.weight * 0, data.weight, data.weight * 0)
    drifts = task.ucd_bn == "train"
    cached = task.cache and not drifts
    moving = [name for name in task.classifier if name in model.trainable]
    features = features_of(split, task.encoder, data, task.stream) if cached or rule.selects else None
    losses = data.weight * 0
    if features is not None:
        losses = model.losses(split.classify(task.classifier, features), data.y)
    bad = (torch.isnan(losses).to(losses.dtype) * data.weight).sum()
    queue = mine.queue  # as the last round left it: what this round meets goes in at its end

    def choose(epoch: int, now: Params, seen: Tensor) -> Chosen:
        def norms() -> Tensor:
            known = features if cached and features is not None else features_of(split, now, data, task.stream)
            return gradient_norm(split.classify(now, known), data.y, split.last_input(now, known))

        if not rule.selects:
            return everything
        key = keys.fold(local.key, "select", epoch)
        return select(rule, seen, data.weight, key, queue=queue, norms=norms, lots=local.key)

    def objective(now: Params, part: Data, key: Tensor) -> tuple[Tensor, Params]:
        if drifts:  # the released code: batch statistics of a frozen encoder are used, and move
            out, buffers = model.train_logits(now, part.x, weight=part.weight, key=key, t=part.t, length=part.length)
            return model.losses(out, part.y), buffers
        known = part.x if cached else features_of(split, now, part, task.stream)
        return model.losses(split.classify(now, known, Pass(part.weight, key)), part.y), {}

    fitted = fit(
        objective, task.encoder | task.classifier, moving,
        replace(data, x=features, t=None, length=None) if cached and features is not None else data, losses, choose,
        task.recipe, key=local.key, epochs=task.epochs,
        pull=tiers.pull(task.mu, task.classifier, task.control, mine.control), least=2 if drifts else 1,
    )  # fmt: skip
    first = fitted.first or everything

    # Step 2: D_M of every epoch joins what could not be sent before.
    to_ap = (local.data.weight * 0).scatter(0, rows, fitted.send)
    waits = waiting(mine.stamps, task.again)
    handed = hand_over(local.data, waits, to_ap, task.pair, task.here, task.storage, keys.fold(local.key, "store"))
    if queue is not None:  # first the losses of the received model, then those met in the last epoch
        queue = enqueue(enqueue(queue, losses, data.weight), fitted.losses, fitted.visited)

    control, change = tiers.variate(moving, task.classifier, fitted, task.control, mine.control, task.recipe.lr)
    sizes = [data.weight.sum(), first.discard.sum(), first.send.sum()]
    counts = [*sizes, handed.parcel.weight.sum(), handed.stored, bad]
    return Done(
        Collected(
            {name: fitted.weights[name] for name in task.classifier},
            {name: fitted.weights[name] for name in task.encoder if drifts and name not in model.trainable},
            change,
            first.keep.sum(),
            torch.as_tensor(float(task.offline)) + data.weight.sum() * 0,
            torch.stack(counts),
            fitted.trained,
        ),
        mine=Mine(control, handed.left, queue),
        handoff=handed.parcel,
    )


def retrain(task: Retrain, local: Local) -> Done:
    """An access point's round: the whole model on the samples in its parcel."""
    model, data = local.model, local.parcel
    mine = local.mine or Mine(tiers.zeros(task.control), torch.zeros(0))

    def choose(epoch: int, now: Params, seen: Tensor) -> Chosen:
        if not task.redraw:
            return Chosen(data.weight * 0, data.weight, data.weight * 0)
        losses = model.losses(model.logits(now, data.x, t=data.t, length=data.length), data.y)
        key = keys.fold(local.key, "select", epoch)
        drawn = select(replace(task.rule, alpha=0.0), losses, data.weight, key, lots=local.key)
        return Chosen(drawn.discard, drawn.send, drawn.keep)

    def objective(now: Params, part: Data, key: Tensor) -> tuple[Tensor, Params]:
        out, buffers = model.train_logits(now, part.x, weight=part.weight, key=key, t=part.t, length=part.length)
        return model.losses(out, part.y), buffers

    moving = [name for name in task.weights if name in model.trainable]
    fitted = fit(
        objective, task.weights, moving, data, data.weight * 0, choose,
        task.recipe, key=local.key, epochs=task.epochs,
        pull=tiers.pull(task.mu, task.weights, task.control, mine.control),
        least=2 if any(name.endswith("running_mean") for name in task.weights) else 1,
    )  # fmt: skip
    first = fitted.first
    examples = data.weight.sum() if first is None else first.keep.sum()
    control, change = tiers.variate(moving, task.weights, fitted, task.control, mine.control, task.recipe.lr)
    return Done(Retrained(fitted.weights, change, examples, fitted.trained), mine=Mine(control, mine.stamps))


PROGRAMS = {Collect: collect, Retrain: retrain}
WORK = {Collect: expected.device_round, Retrain: expected.ap_round}


def shared(state: State) -> Params:
    return state.weights


def personal(state: State, client: ClientId, mine: Mine | None) -> Params:
    return state.weights


def record(state: State) -> dict[str, float]:
    """The shares of the last pair and the sums so far, as counted on the devices."""
    return tally.figures(state.tally)
