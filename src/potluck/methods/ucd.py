"""UCD training: constrained devices train the classifier on all their data, the encoder stays as it came.

The baseline of Centaur (Mo et al., section 5, "Baselines" 2): no selection, no access point's help. The encoder crosses
the link once per device; after that only the classifier does. `exposure = "collected"` gives a device the share of its
data that Centaur's has gathered, for a comparison at equal data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch

from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params, Work
from potluck.learn import Recipe
from potluck.methods import centaur
from potluck.methods.centaur import Collect, Collected, collect
from potluck.methods.parts import checks
from potluck.methods.parts.centaur import costs as expected
from potluck.methods.parts.centaur import pairs, tiers
from potluck.methods.parts.centaur import samples as tally
from potluck.methods.parts.centaur.mobility import offline
from potluck.methods.parts.centaur.samples import Tally
from potluck.methods.parts.centaur.tiers import Controls
from potluck.methods.parts.selection import EVERYTHING, Queue, Rule

__all__ = [
    "PAIRS",
    "PROGRAMS",
    "Collect",
    "Collected",
    "Config",
    "Controls",
    "Data",
    "Mine",
    "Queue",
    "Recipe",
    "Rule",
    "State",
    "Tally",
    "Tune",
    "personal",
    "record",
    "server",
    "shared",
    "start",
    "tune",
]

PAIRS = True


@dataclass(frozen=True)
class Config:
    cohort: int = 8  # devices asked per round; 0 asks everybody
    recipe: Recipe = Recipe(epochs=3, batch=64, lr=0.01, momentum=0.9)  # epochs is E0
    exposure: str = "all"  # all | collected
    split: str = ""  # the classifier's first layer; the closing linear layers unless told
    base: float = 0.5
    step: float = 0.2
    connected: float = 0.5  # lambda
    mobility: tuple[float, float] | None = None
    cache: bool = True
    ucd_bn: str = "eval"  # eval | train
    stream: int = 4
    device_merge: str = "fedavg"  # fedavg | fedprox | scaffold
    mu: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.uses(self.recipe, "epochs", "batch", "lr", "momentum")
        pairs.check(self)
        checks.one_of(self, "exposure", ("all", "collected"))
        checks.one_of(self, "ucd_bn", ("eval", "train"))


@dataclass(frozen=True)
class State:
    weights: Params
    control: Controls = field(default_factory=Controls)
    equipped: dict[str, bool] = field(default_factory=dict)  # devices that have the encoder
    tally: Tally = field(default_factory=Tally)
    round: int = 0


@dataclass(frozen=True)
class Mine:
    encoder: Params
    control: Params


@dataclass(frozen=True)
class Tune:
    """Server to device: Centaur's task, without an encoder for a device that has it."""

    work: Collect
    batch: int  # of its recipe, which engines look for here


def start(weights: Params, cfg: Config) -> State:
    return State(weights, tiers.begin(weights, cfg.device_merge, "fedavg"))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    names = [field.name for field in Config.__dataclass_fields__.values() if field.name != "exposure"]
    base = centaur.Config(alpha=0.0, beta=0.0, **{name: getattr(cfg, name) for name in names})
    classifier = fleet.home.model.split(cfg.split).classifier
    while True:
        chosen = pairs.devices(fleet, cfg.cohort, cfg.seed, state.round)
        inner = centaur.State(state.weights, state.control)
        made: dict[tuple[int, bool], Tune] = {}
        tasks = {}
        for client in chosen:
            # Where batch statistics drift, the encoder is not the one the device was given.
            kind = offline(cfg, client, state.round), client in state.equipped and cfg.ucd_bn == "eval"
            if kind not in made:
                work = centaur.collect_task(inner, base, classifier, state.round, kind[0], False, 0.0)
                work = replace(work, share=1.0 if cfg.exposure == "all" else work.share, rule=EVERYTHING)
                made[kind] = Tune(replace(work, encoder={}) if kind[1] else work, cfg.recipe.batch)
            tasks[client] = made[kind]
        arrivals = fleet.gather(tasks)
        came = [arrival.update for arrival in arrivals]
        weights = {**state.weights, **pairs.merged([(u.classifier, u.examples) for u in came])}
        weights |= pairs.merged([(u.buffers, u.examples) for u in came])
        control = tiers.moved(state.control, "device", [u.control for u in came], pairs.count(fleet))
        counted = tally.counted(state.tally, came, 0)  # nothing waits for an access point
        equipped = state.equipped | {arrival.client: True for arrival in arrivals}
        state = State(weights, control, equipped, counted, state.round + 1)
        yield state


def tune(task: Tune, local: Local) -> Done:
    encoder = task.work.encoder or ({} if local.mine is None else local.mine.encoder)
    mine = None if local.mine is None else centaur.Mine(local.mine.control, torch.zeros(0))
    done = collect(replace(task.work, encoder=encoder), replace(local, mine=mine))
    return Done(done.update, mine=Mine(encoder, done.mine.control))


def expected_tune(task: Tune, local: Local, samples: int) -> list[Work]:
    """As Centaur's, with the encoder that the device has."""
    encoder = task.work.encoder or ({} if local.mine is None else local.mine.encoder)
    parts = expected.device_round(replace(task.work, encoder=encoder), local, samples)
    return [replace(part, task=replace(task, work=part.task, batch=part.task.recipe.batch)) for part in parts]


PROGRAMS = {Tune: tune}
WORK = {Tune: expected_tune}


def shared(state: State) -> Params:
    return state.weights


def personal(state: State, client: ClientId, mine: Mine | None) -> Params:
    return state.weights


def record(state: State) -> dict[str, float]:
    return tally.figures(state.tally)
