"""AP training: devices only gather samples, and their access points train the whole model on them.

The baseline of Centaur (Mo et al., section 5, "Baselines" 1). As printed, access points train on all samples. As
released, they train on the share P_M of Centaur's selection: `samples = "redrawn"` hands everything over and draws that
share anew in every epoch, `"selected"` lets the device draw it once and hand over no more. With `capped` a device hands
over no more samples than its storage holds. With `unconstrained` every client has all its samples in every round: the
upper bound of Fig. 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import ClassVar, Literal

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import Done, Fleet, Local, Params
from potluck.learn import Recipe
from potluck.methods import centaur
from potluck.methods.centaur import Mine, Retrain, Retrained, record, retrain, shared
from potluck.methods.parts import checks
from potluck.methods.parts.centaur import costs, pairs, samples, tiers
from potluck.methods.parts.centaur.handover import Handover, hand_over, sample_bytes
from potluck.methods.parts.centaur.mobility import Connection
from potluck.methods.parts.centaur.needed import NETWORK, PARTNERS
from potluck.methods.parts.centaur.partial import Encoding, FrozenEncoder, collected, parted
from potluck.methods.parts.centaur.samples import Counts, Samples
from potluck.methods.parts.centaur.tiers import Controls, Merge, Term
from potluck.methods.parts.selection import Queue, Rule, select
from potluck.needs import ACCESS_POINTS
from potluck.spaces import Range, Space

__all__ = [
    "NEEDS", "PAIRS", "PROGRAMS", "Config", "Controls", "Encoding", "Mine", "Queue", "Retrain", "Retrained", "Rule",
    "Samples", "State", "Term", "Upload", "Uploaded", "record", "server", "shared", "start", "upload",
]  # fmt: skip

PAIRS = True
NEEDS = {**PARTNERS, **NETWORK}
USES = (ACCESS_POINTS,)
BESIDE = samples.BESIDE
KEY_SETTINGS = ("recipe.lr", "samples", "unconstrained", "connection.connected")


@dataclass(frozen=True)
class Config:
    recipe: Recipe = Recipe(epochs=3, batch=64, lr=0.01, momentum=0.9)  # epochs is E0
    cohort: int = 8  # pairs per round; 0: all
    samples: Literal["all", "selected", "redrawn"] = "all"  # to train on: all | P_M by the device | P_M in every epoch
    selection: Rule = Rule()  # of "selected" and "redrawn": beta, gamma, by, outliers
    unconstrained: bool = False  # all samples of every client asked, whatever its connection
    capped: bool = False  # a device hands over what its storage holds, drawn at random
    storage_kb: float = 0.0  # of `capped`, at most what the device has; 0: all of that
    connection: Connection = Connection()
    encoder: Encoding = Encoding()  # of "selected": how a device runs it
    merge: Merge = Merge()  # of the access points; devices train nothing
    seed: int = 0
    UNUSED: ClassVar[tuple[str, ...]] = (
        "recipe.optimiser", "recipe.clip",
        *(f"selection.{name}" for name in ("alpha", "form", "queue", "hand_over", "redraw", "encode")),
    )  # fmt: skip
    MOVED: ClassVar[dict[str, str]] = {"ap_merge": "merge.ap"}

    def __post_init__(self) -> None:
        checks.unused(self)
        checks.at_least(self, "cohort", 0)
        checks.at_least(self, "storage_kb", 0.0)
        checks.one_of(self, "samples", ("all", "selected", "redrawn"))
        self.merge.only("ap")

    @property
    def drawn(self) -> Rule:
        """Which share of the samples; who draws it is said by `samples`."""
        rule = replace(self.selection, alpha=0.0, hand_over="first", encode="all")
        return replace(rule, redraw=self.samples == "redrawn")


SPACE: Space = {"recipe.lr": Range(0.001, 0.1, log=True)}


@dataclass(frozen=True)
class State:
    weights: Params
    control: Controls = field(default_factory=Controls)
    samples: Samples = field(default_factory=Samples)
    round: int = 0


@dataclass(frozen=True)
class Upload:
    """Server to device: hand samples to the access point, all that are gathered or those that it selects."""

    encoder: Params  # nothing where all samples are handed over
    classifier: Params
    rule: Rule
    encoding: Encoding
    order: Tensor
    share: float
    storage: float  # bytes; AMPLE: no limit


@dataclass(frozen=True)
class Uploaded:
    """Device to server."""

    MAY_BE_EMPTY: ClassVar[bool] = True  # its connection brought none
    examples: Tensor
    gathered: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights, tiers.begin(weights, cfg.merge))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    base = centaur.Config(
        recipe=cfg.recipe, selection=cfg.drawn, connection=cfg.connection, merge=cfg.merge, seed=cfg.seed
    )
    order, sample = keys.key(cfg.seed, "order"), sample_bytes(fleet.home.data)
    names = fleet.home.model.split(cfg.encoder.split).classifier
    capped = cfg.capped and not cfg.unconstrained
    if capped:
        pairs.check_storage(cfg.storage_kb, fleet)
    while True:
        model = parted(state.weights, names) if cfg.samples == "selected" else ({}, {})
        task = cache(partial(Upload, *model, cfg.drawn, cfg.encoder, order))
        offline, shares, tasks = {}, {}, {}
        for client in pairs.devices(fleet, cfg.cohort, cfg.seed, state.round):
            offline[client] = cfg.connection.offline(cfg.seed, client, state.round)
            shares[client] = 1.0 if cfg.unconstrained else cfg.connection.gathered(offline[client])
            room = pairs.storage(cfg.storage_kb, fleet.clients[client], sample) if capped else pairs.AMPLE
            tasks[client] = task(shares[client], room)
        came = {arrival.client: arrival.update for arrival in fleet.gather(tasks)}
        handed = {client: float(update.examples) for client, update in came.items()}
        counts = [
            Counts(float(came[client].gathered), 0.0, 0.0, n, n, n, 0.0, offline[client], 0.0)
            for client, n in handed.items()
        ]
        counted = samples.added(state.samples, counts, sample)
        # Steps 7 and 8 of Centaur, on what was handed over.
        waiting = {client: shares[client] for client, count in handed.items() if count >= 2}
        inner = centaur.State(state.weights, state.control, waiting, samples=counted, round=1)
        inner = centaur.ap_round(fleet, inner, base)
        state = State(inner.weights, inner.control, inner.samples, state.round + 1)
        yield state


def upload(task: Upload, local: Local) -> Done:
    data, _ = collected(local.data, task.share, task.order)
    gathered = data.weight.sum()
    if task.classifier:
        network = FrozenEncoder.of(task.encoding, local.model, task.encoder, data, True)
        losses, norms = network.losses(task.classifier), partial(network.norms, task.encoder | task.classifier)
        key = keys.fold(local.key, "select", 0)
        chosen = select(task.rule, losses, data.weight, key, norms=norms, lots=local.key)
        data = replace(data, weight=chosen.send)
    if task.storage < pairs.AMPLE:
        how = Handover.of(0, here=True, again=False, storage=task.storage)
        data = hand_over(data, data.weight * 0, data.weight, how, keys.fold(local.key, "store")).parcel
    return Done(Uploaded(data.weight.sum(), gathered), mine=Mine({}, torch.zeros(0)), handoff=data)


RELEASES = "devices hand over samples"
PROGRAMS = {Upload: upload, Retrain: retrain}
WORK = {Upload: costs.upload, Retrain: costs.ap_round}
