"""Centaur: a constrained device and its access point train one model together, each on the samples that suit it.

Mo et al., "Enhancing Efficiency in Multidevice Federated Learning through Data Selection". The model is a classifier C
behind an encoder E. Rounds alternate, with the same clients in both halves of a pair (Algorithm 1). First, devices
train C on the samples D_C that data selection keeps (Eqs. 2 and 3, `parts/selection.py`), and hand the most informative
samples D_M to their access points. Then the access points train E and C on those. Samples D_N are discarded.

Deviations, with reasons in docs/methods/centaur.md: P_N in the form of the released code (`selection.form`), features
kept for a device round (`encoder.cache`), encoder and batch statistics really frozen (`encoder.batch_norm`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import Arrival, Done, Fleet, Local, Params
from potluck.learn import Recipe, row_losses
from potluck.methods.parts import correction
from potluck.methods.parts.centaur import costs, pairs, samples, tiers
from potluck.methods.parts.centaur.declared import (
    BESIDE,
    KEY_SETTINGS,
    NEEDS,
    OLD_NAMES,
    PAIRS,
    SPACE,
    USES,
    checked,
)  # fmt: skip
from potluck.methods.parts.centaur.handover import Handover, hand_over, sample_bytes
from potluck.methods.parts.centaur.memory import chosen_before, known_after
from potluck.methods.parts.centaur.mobility import Connection
from potluck.methods.parts.centaur.partial import Encoding, FrozenEncoder, collected, fit, parted, whole
from potluck.methods.parts.centaur.samples import Counts, Samples, record
from potluck.methods.parts.centaur.tiers import Controls, Merge, Term
from potluck.methods.parts.cohort import awaited
from potluck.methods.parts.selection import Chosen, Queue, Rule, everything, no_losses, remembered, select
from potluck.tensors import zeros_like
from potluck.unforeseen import Unforeseen

__all__ = ["BESIDE", "KEY_SETTINGS", "NEEDS", "PAIRS", "SPACE", "USES", "record"]  # of the parts
AnyState = TypeVar("AnyState", bound=Any)  # of Centaur, or of a baseline with the same fields


@dataclass(frozen=True)
class Config:
    recipe: Recipe = Recipe(epochs=3, batch=64, lr=0.01, momentum=0.9)  # epochs is E0
    cohort: int = 8  # pairs per round; 0: all
    storage_kb: float = 0.0  # most that a device stores for its access point; 0: all the storage it has
    selection: Rule = Rule()
    connection: Connection = Connection()
    encoder: Encoding = Encoding()
    merge: Merge = Merge()
    seed: int = 0
    UNUSED: ClassVar[tuple[str, ...]] = ("recipe.optimiser", "recipe.clip")
    MOVED: ClassVar[dict[str, str]] = OLD_NAMES

    def __post_init__(self) -> None:
        checked(self)


@dataclass(frozen=True)
class State:
    weights: Params
    control: Controls = field(default_factory=Controls)
    waiting: dict[str, float] = field(default_factory=dict)  # device that handed samples over -> share it had gathered
    unused: dict[str, bool] = field(default_factory=dict)  # devices whose last samples no access point trained on
    samples: Samples = field(default_factory=Samples)
    round: int = 0  # even: devices are next; odd: their access points


@dataclass(frozen=True)
class Mine:
    control: Params  # SCAFFOLD's c_i
    stamps: Tensor  # per sample of the device: the pair in which it was chosen for the access point, negative once sent
    queue: Queue | None = None
    known: Tensor = field(default_factory=lambda: torch.zeros(0))  # losses, where `encode` is "kept"; negative: none


@dataclass(frozen=True)
class Collect:
    """Server to device: gather samples, select, train the classifier."""

    encoder: Params
    classifier: Params
    recipe: Recipe
    term: Term
    rule: Rule
    encoding: Encoding
    handover: Handover
    order: Tensor  # key of the order in which a device gathers its samples
    share: float  # of its samples that it has gathered by now
    offline: int  # units without a connection: as many epochs more than E0

    @staticmethod
    def of(state: Any, cfg: Config, names: frozenset[str], offline: int, handover: Handover) -> Collect:
        """The task of a device after so many offline units; `names` are the weights of C."""
        model = parted(state.weights, names)
        recipe, term = cfg.merge.local("device", cfg.recipe, state.control, names)
        order, share = keys.key(cfg.seed, "order"), cfg.connection.gathered(offline)
        return Collect(*model, recipe, term, cfg.selection, cfg.encoder, handover, order, share, offline)


@dataclass(frozen=True)
class Collected:
    """Device to server: the classifier, and what became of the samples."""

    MAY_BE_EMPTY: ClassVar[bool] = True  # all samples were handed over or left out
    classifier: Params
    buffers: Params  # batch statistics of the encoder, where they drift
    control: Params  # change of c_i
    examples: Tensor  # |D_C| of the first epoch
    counts: Tensor  # `Counts` in one tensor


@dataclass(frozen=True)
class Retrain:
    """Server to access point: train the whole model on what was handed over."""

    weights: Params
    recipe: Recipe
    term: Term
    rule: Rule
    more: int  # epochs beyond E0: the offline units of its device

    @staticmethod
    def of(state: Any, cfg: Config, more: int) -> Retrain:
        recipe, term = cfg.merge.local("ap", cfg.recipe, state.control, state.weights)
        return Retrain(state.weights, recipe, term, cfg.selection, more)


@dataclass(frozen=True)
class Retrained:
    """Access point to server."""

    MAY_BE_EMPTY: ClassVar[bool] = True  # nothing was handed over
    weights: Params
    control: Params  # change of c_i
    examples: Tensor  # |D_M| of the first epoch
    trained: Tensor  # sample-steps


def start(weights: Params, cfg: Config) -> State:
    return State(weights, tiers.begin(weights, cfg.merge))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    pairs.check_storage(cfg.storage_kb, fleet)
    while True:
        state = device_round(fleet, state, cfg) if state.round % 2 == 0 else ap_round(fleet, state, cfg)
        yield state


def device_round(fleet: Fleet, state: State, cfg: Config) -> State:
    """Steps 2 to 6: devices select and train; the server takes the mean of their classifiers."""
    pair, sample = state.round // 2, sample_bytes(fleet.home.data)
    chosen = pairs.devices(fleet, cfg.cohort, cfg.seed, pair)
    present = set(fleet.idle)
    names = fleet.home.model.split(cfg.encoder.split).classifier

    @cache  # equal tasks are one value: the engine prices it once and trains its devices in one stack
    def task(offline: int, *conditions: Any) -> Collect:
        return Collect.of(state, cfg, names, offline, Handover.of(pair, *conditions))

    tasks = {}
    for client in chosen:
        device = fleet.clients[client]
        offline, room = cfg.connection.offline(cfg.seed, client, pair), pairs.storage(cfg.storage_kb, device, sample)
        tasks[client] = task(offline, device.partner in present, client in state.unused, room)
    arrivals = fleet.gather(tasks)
    counts = {arrival.client: Counts.unpacked(arrival.update.counts) for arrival in arrivals}
    waiting, unused = samples.taken(state.unused, counts, cfg.connection.gathered)
    return replace(absorbed(fleet, state, arrivals, sample), waiting=waiting, unused=unused)


def absorbed(fleet: Fleet, state: AnyState, arrivals: Sequence[Arrival], sample: int) -> AnyState:
    """The state after a round of devices; `sample` is the size of a sample in bytes."""
    updates = [arrival.update for arrival in arrivals]
    weights = {**state.weights, **pairs.aggregated([(u.classifier, u.examples) for u in updates])}
    weights |= pairs.aggregated([(u.buffers, u.examples) for u in updates])
    control = tiers.moved(state.control, "device", [u.control for u in updates], pairs.count(fleet))
    counted = samples.added(state.samples, [Counts.unpacked(u.counts) for u in updates], sample)
    return replace(state, weights=weights, control=control, samples=counted, round=state.round + 1)


def ap_round(fleet: Fleet, state: State, cfg: Config) -> State:
    """Steps 7 and 8: the access points of the same clients train E and C; the server takes the mean of their models."""
    task = cache(lambda more: Retrain.of(state, cfg, more))
    partners = {client: fleet.clients[client].partner for client in state.waiting}
    awaited(fleet, [ap for ap in partners.values() if ap is not None])
    present = set(fleet.idle)
    more = {partners[client]: cfg.connection.units(share) for client, share in state.waiting.items()}
    tasks = {ap: task(more[ap]) for ap in partners.values() if ap is not None and ap in present}
    arrivals = fleet.gather(tasks) if tasks else []
    updates, trained = [arrival.update for arrival in arrivals], {arrival.client for arrival in arrivals}
    weights = {**state.weights, **pairs.aggregated([(u.weights, u.examples) for u in updates])}
    control = tiers.moved(state.control, "ap", [u.control for u in updates], pairs.count(fleet))
    unused = state.unused | {client: True for client, ap in partners.items() if ap not in trained}
    counted = replace(state.samples, ap_steps=state.samples.ap_steps + sum(float(u.trained) for u in updates))
    return State(weights, control, {}, unused, counted, state.round + 1)


def collect(task: Collect, local: Local) -> Done:
    """A device's round: losses with the received model, then selection and training epoch by epoch."""
    rule, none, control = task.rule, local.data.weight * 0, zeros_like(task.term.control)
    data, rows = collected(local.data, task.share, task.order)
    mine: Mine = local.mine or Mine(control, none, no_losses(rule.queue), none - 1.0 if rule.remembers else none[:0])
    known = chosen_before(rule, mine.known, rows, len(none), data.weight, local.key)
    asks = rule.selects and known is None
    network = FrozenEncoder.of(
        task.encoding, local.model, task.encoder, data, asks, None if known is None else known.keep
    )
    losses = network.losses(task.classifier) if asks else data.weight * 0

    def choose(epoch: int, now: Params, seen: Tensor, sent: Tensor) -> Chosen:
        if not asks:
            return known or everything(data.weight)
        key, norms = keys.fold(local.key, "select", epoch), partial(network.norms, now)
        fixed = sent if epoch and rule.hand_over == "first" else None
        return select(rule, seen, data.weight, key, queue=mine.queue, norms=norms, lots=local.key, sent=fixed)

    fitted = fit(
        network.objective, task.encoder, task.classifier, network.data, losses, choose, task.recipe, local,
        more=task.offline, pull=task.term.pull(task.classifier, mine.control), least=network.least,
    )  # fmt: skip
    # What is chosen now joins what could not be sent before.
    chosen = data.weight if rule.hand_over == "all" else fitted.send
    to_ap, key = none.scatter(0, rows, chosen), keys.fold(local.key, "store")
    handed = hand_over(local.data, mine.stamps, to_ap, task.handover, key)
    # First the losses of the received model, then those met in the last epoch.
    queue = remembered(mine.queue, (losses, data.weight), (fitted.losses, fitted.visited))
    control = task.term.new_own(task.classifier, mine.control, fitted, task.recipe.lr)
    counts = samples.counted(data.weight, losses, fitted, handed, task.offline)
    classifier = {name: fitted.weights[name] for name in task.classifier}
    change = correction.change(control, mine.control)
    update = Collected(classifier, network.buffers(fitted.weights), change, counts.kept, counts.packed())
    known_now = known_after(rule, mine.known, rows, len(none), fitted)
    return Done(update, mine=Mine(control, handed.left, queue, known_now), handoff=handed.parcel, own=fitted.weights)


def retrain(task: Retrain, local: Local) -> Done:
    """An access point's round: train the whole model on the samples in its parcel."""
    model, data = local.model, local.parcel
    mine: Mine = local.mine or Mine(zeros_like(task.term.control), torch.zeros(0))

    def choose(epoch: int, now: Params, seen: Tensor, sent: Tensor) -> Chosen:
        if not task.rule.redraw:
            return everything(data.weight)
        losses = row_losses(model, now, data)
        key = keys.fold(local.key, "select", epoch)
        drawn = select(replace(task.rule, alpha=0.0), losses, data.weight, key, lots=local.key)
        return Chosen(drawn.discard, keep=drawn.send, send=drawn.keep)

    least = 2 if any(name.endswith("running_mean") for name in task.weights) else 1  # for batch statistics
    fitted = fit(
        whole(model), {}, task.weights, data, data.weight * 0, choose, task.recipe, local,
        more=task.more, pull=task.term.pull(task.weights, mine.control), least=least,
    )  # fmt: skip
    control = task.term.new_own(task.weights, mine.control, fitted, task.recipe.lr)
    change = correction.change(control, mine.control)
    update = Retrained(fitted.weights, change, fitted.first.keep.sum(), fitted.trained)
    return Done(update, mine=Mine(control, mine.stamps))


RELEASES = "devices and access points report apart, with numbers that have no bound"
UNFORESEEN = Unforeseen("which samples a device trains on, hands over and leaves out")
PROGRAMS = {Collect: collect, Retrain: retrain}
WORK = {Collect: costs.device_round, Retrain: costs.ap_round}


def shared(state: State) -> Params:
    return state.weights
