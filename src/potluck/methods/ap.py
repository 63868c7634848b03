"""AP training: devices only collect, and their access points train the whole model on everything collected.

The baseline of Centaur (Mo et al., section 5, "Baselines" 1). `capped` lets a device hand over no more samples than its
storage holds; `unconstrained` is the upper bound of Fig. 5: all data of every client, in every round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Recipe
from potluck.methods import centaur
from potluck.methods.centaur import Mine, Retrain, Retrained, retrain
from potluck.methods.parts import checks
from potluck.methods.parts.centaur import costs as expected
from potluck.methods.parts.centaur import pairs, tiers
from potluck.methods.parts.centaur import samples as tally
from potluck.methods.parts.centaur.handover import hand_over, sample_bytes
from potluck.methods.parts.centaur.mobility import gathered, offline
from potluck.methods.parts.centaur.partial import collected
from potluck.methods.parts.centaur.samples import Tally
from potluck.methods.parts.centaur.tiers import Controls
from potluck.methods.parts.selection import Queue, Rule

__all__ = [
    "PAIRS",
    "PROGRAMS",
    "Config",
    "Controls",
    "Data",
    "Mine",
    "Queue",
    "Recipe",
    "Retrain",
    "Retrained",
    "Rule",
    "State",
    "Tally",
    "Upload",
    "Uploaded",
    "personal",
    "record",
    "server",
    "shared",
    "start",
    "upload",
]

PAIRS = True


@dataclass(frozen=True)
class Config:
    cohort: int = 8  # pairs asked per round; 0 asks everybody
    recipe: Recipe = Recipe(epochs=3, batch=64, lr=0.01, momentum=0.9)  # epochs is E0
    unconstrained: bool = False  # all data of every client asked, whatever its connection
    capped: bool = False  # a device hands over what its storage holds, at random
    storage_kb: float = 0.0  # of `capped`, within what the device has; 0: all of that
    base: float = 0.5  # share of its data a client has without offline time
    step: float = 0.2  # more of it per unit of offline time
    connected: float = 0.5  # lambda
    mobility: tuple[float, float] | None = None
    ap_merge: str = "fedavg"  # fedavg | fedprox | scaffold
    mu: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.uses(self.recipe, "epochs", "batch", "lr", "momentum")
        pairs.check(self)


@dataclass(frozen=True)
class State:
    weights: Params
    control: Controls = field(default_factory=Controls)
    tally: Tally = field(default_factory=Tally)
    round: int = 0


@dataclass(frozen=True)
class Upload:
    """Server to device: hand everything collected to the access point."""

    order: Tensor
    share: float
    storage: float  # bytes; 0: as much as there is


@dataclass(frozen=True)
class Uploaded:
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights, tiers.begin(weights, "fedavg", cfg.ap_merge))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    base = centaur.Config(
        recipe=cfg.recipe, base=cfg.base, step=cfg.step,
        connected=cfg.connected, mobility=cfg.mobility, ap_merge=cfg.ap_merge, mu=cfg.mu, seed=cfg.seed,
    )  # fmt: skip
    while True:
        chosen = pairs.devices(fleet, cfg.cohort, cfg.seed, state.round)
        units = {client: offline(cfg, client, state.round) for client in chosen}
        shares = {c: 1.0 if cfg.unconstrained else gathered(cfg, units[c]) for c in chosen}
        made: dict[tuple[float, float], Upload] = {}
        tasks, sample = {}, sample_bytes(fleet.home.data)
        for client in chosen:
            capped = cfg.capped and not cfg.unconstrained
            kind = shares[client], pairs.storage(cfg.storage_kb, fleet.clients[client], sample) if capped else 0.0
            tasks[client] = made.setdefault(kind, Upload(keys.key(cfg.seed, "order"), *kind))
        came = fleet.gather(tasks)
        handed = {arrival.client: float(arrival.update.examples) for arrival in came}
        most = max([state.tally.most, *handed.values()])
        counted = replace(
            state.tally, collected=sum(handed.values()), chosen=sum(handed.values()), handed=sum(handed.values()),
            offline=float(sum(units[c] for c in handed)), devices=float(len(handed)),
            most=most, most_kb=most * sample / 1024,
            handed_so_far=state.tally.handed_so_far + sum(handed.values()),
        )  # fmt: skip
        waiting = {client: shares[client] for client, count in handed.items() if count >= 2}
        # Step 7 and 8 of Centaur, on everything.
        inner = centaur.State(state.weights, state.control, waiting, tally=counted, round=1)
        inner = centaur.ap_round(fleet, inner, base)
        state = State(inner.weights, inner.control, inner.tally, state.round + 1)
        yield state


def upload(task: Upload, local: Local) -> Done:
    data, _ = collected(local.data, task.share, task.order)
    if task.storage:
        now = torch.ones(())
        data = hand_over(
            data, data.weight * 0, data.weight, now, now, task.storage, keys.fold(local.key, "store")
        ).parcel
    return Done(Uploaded(data.weight.sum()), mine=Mine({}, torch.zeros(0)), handoff=data)


PROGRAMS = {Upload: upload, Retrain: retrain}
WORK = {Upload: expected.upload, Retrain: expected.ap_round}


def shared(state: State) -> Params:
    return state.weights


def personal(state: State, client: ClientId, mine: Mine | None) -> Params:
    return state.weights


def record(state: State) -> dict[str, float]:
    return tally.figures(state.tally)
