"""UCD training: constrained devices train the classifier on all their samples; the encoder is never trained.

The baseline of Centaur (Mo et al., section 5, "Baselines" 2): no selection, and no help by access points. The encoder
is sent once to each device; after that only the classifier is. `exposure = "collected"` gives a device the share of its
samples that Centaur's has gathered, for a comparison on equal data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import ClassVar, Literal

import torch

from potluck.fleet import Done, Fleet, Local, Params, Work
from potluck.learn import Recipe
from potluck.methods import centaur
from potluck.methods.centaur import Collect, Collected, collect, record, shared
from potluck.methods.parts import checks
from potluck.methods.parts.centaur import costs, pairs, samples, tiers
from potluck.methods.parts.centaur.handover import Handover
from potluck.methods.parts.centaur.mobility import Connection
from potluck.methods.parts.centaur.needed import DRIFTING, NETWORK
from potluck.methods.parts.centaur.partial import Encoding
from potluck.methods.parts.centaur.samples import Samples
from potluck.methods.parts.centaur.tiers import Controls, Merge, Term
from potluck.methods.parts.selection import EVERYTHING, Queue, Rule
from potluck.spaces import Range, Space

__all__ = [
    "NEEDS", "PAIRS", "PROGRAMS", "Collect", "Collected", "Config", "Controls", "Encoding", "Handover", "Mine", "Queue",
    "Recipe", "Rule", "Samples", "State", "Term", "Tune", "record", "server", "shared", "start", "tune",
]  # fmt: skip

PAIRS = True
NEEDS = {**NETWORK, **DRIFTING}
BESIDE = samples.BESIDE
KEY_SETTINGS = ("recipe.lr", "recipe.epochs", "exposure", "connection.connected")


@dataclass(frozen=True)
class Config:
    recipe: Recipe = Recipe(epochs=3, batch=64, lr=0.01, momentum=0.9)  # epochs is E0
    cohort: int = 8  # devices per round; 0: all
    exposure: Literal["all", "collected"] = "all"
    connection: Connection = Connection()
    encoder: Encoding = Encoding()
    merge: Merge = Merge()  # of the devices; access points train nothing
    seed: int = 0
    UNUSED: ClassVar[tuple[str, ...]] = ("recipe.optimiser", "recipe.clip")
    MOVED: ClassVar[dict[str, str]] = {"ucd_bn": "encoder.batch_norm", "device_merge": "merge.device"}

    def __post_init__(self) -> None:
        checks.unused(self)
        checks.at_least(self, "cohort", 0)
        self.merge.only("device")


SPACE: Space = {"recipe.lr": Range(0.001, 0.1, log=True)}


@dataclass(frozen=True)
class State:
    weights: Params
    control: Controls = field(default_factory=Controls)
    equipped: dict[str, bool] = field(default_factory=dict)  # devices that have the encoder
    samples: Samples = field(default_factory=Samples)
    round: int = 0


@dataclass(frozen=True)
class Mine:
    encoder: Params
    control: Params


@dataclass(frozen=True)
class Tune:
    """Server to device: Centaur's task, without the encoder for a device that has it."""

    collect: Collect

    @property
    def recipe(self) -> Recipe:
        """Where the engine finds the size of a batch."""
        return self.collect.recipe


def start(weights: Params, cfg: Config) -> State:
    return State(weights, tiers.begin(weights, cfg.merge))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        state = round_of(fleet, state, cfg)
        yield state


def round_of(fleet: Fleet, state: State, cfg: Config) -> State:
    """Steps 2 to 6 of Centaur on all samples, without an access point."""
    names = fleet.home.model.split(cfg.encoder.split).classifier
    base = centaur.Config(
        cfg.recipe, selection=EVERYTHING, connection=cfg.connection, encoder=cfg.encoder, merge=cfg.merge, seed=cfg.seed
    )

    @cache
    def task(offline: int, equipped: bool) -> Tune:
        full = Collect.of(state, base, names, offline, Handover.of(0, here=False, again=False, storage=0.0))
        full = replace(full, share=1.0) if cfg.exposure == "all" else full
        return Tune(replace(full, encoder={}) if equipped else full)

    tasks = {}
    for client in pairs.devices(fleet, cfg.cohort, cfg.seed, state.round):
        # Where batch statistics drift, the device no longer has the encoder it was given.
        equipped = client in state.equipped and cfg.encoder.batch_norm == "eval"
        tasks[client] = task(cfg.connection.offline(cfg.seed, client, state.round), equipped)
    arrivals = fleet.gather(tasks)
    now = state.equipped | {arrival.client: True for arrival in arrivals}
    return replace(centaur.absorbed(fleet, state, arrivals, 0), equipped=now)


def tune(task: Tune, local: Local) -> Done:
    whole = _with_encoder(task, local)
    mine = None if local.mine is None else centaur.Mine(local.mine.control, torch.zeros(0))
    done = collect(whole, replace(local, mine=mine))
    return Done(done.update, mine=Mine(whole.encoder, done.mine.control), own=done.own)


def _with_encoder(task: Tune, local: Local) -> Collect:
    """Centaur's task with the encoder: the one that came, or the one that the device has."""
    encoder = task.collect.encoder or ({} if local.mine is None else local.mine.encoder)
    return replace(task.collect, encoder=encoder)


def expected_tune(task: Tune, local: Local, samples: int) -> list[Work]:
    """As Centaur's, with the encoder that the device has."""
    parts = costs.device_round(_with_encoder(task, local), local, samples)
    return [replace(part, task=Tune(part.task)) for part in parts]


RELEASES = "devices report numbers that have no bound"
PROGRAMS = {Tune: tune}
WORK = {Tune: expected_tune}
