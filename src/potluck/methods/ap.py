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
from potluck.methods import centaur
from potluck.methods.centaur import Mine, Retrain, Retrained, Tally, retrain
from potluck.methods.parts import checks, pairs, tiers
from potluck.methods.parts.partial import collected
from potluck.methods.parts.selection import Queue, Rule, newest
from potluck.methods.parts.tiers import Controls

__all__ = [
    "PAIRS",
    "PROGRAMS",
    "Config",
    "Controls",
    "Data",
    "Mine",
    "Queue",
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
    epochs: int = 3  # E0
    batch: int = 64
    lr: float = 0.01
    momentum: float = 0.9
    unconstrained: bool = False  # all data of every client asked, whatever its connection
    capped: bool = False  # a device hands over what its storage holds, at random
    storage_kb: float = 5120.0
    base: float = 0.5  # share of its data a client has without offline time
    step: float = 0.2  # more of it per unit of offline time
    connected: float = 0.5  # lambda
    mobility: tuple[float, float] | None = None
    ap_merge: str = "fedavg"  # fedavg | fedprox | scaffold
    mu: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        checks.local_training(self)
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
    storage_kb: float


@dataclass(frozen=True)
class Uploaded:
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights, tiers.begin(weights, "fedavg", cfg.ap_merge))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    base = centaur.Config(
        epochs=cfg.epochs, batch=cfg.batch, lr=cfg.lr, momentum=cfg.momentum, base=cfg.base, step=cfg.step,
        connected=cfg.connected, mobility=cfg.mobility, ap_merge=cfg.ap_merge, mu=cfg.mu, seed=cfg.seed,
    )  # fmt: skip
    while True:
        chosen = pairs.devices(fleet, cfg.cohort, cfg.seed, state.round)
        units = {client: centaur.offline(base, client, state.round) for client in chosen}
        shares = {c: 1.0 if cfg.unconstrained else centaur.share_of(base, units[c]) for c in chosen}
        room = cfg.storage_kb if cfg.capped and not cfg.unconstrained else 0.0
        made = {share: Upload(keys.key(cfg.seed, "order"), share, room) for share in set(shares.values())}
        came = fleet.gather({client: made[shares[client]] for client in chosen})
        handed = {arrival.client: float(arrival.update.examples) for arrival in came}
        tally = replace(
            state.tally, collected=sum(handed.values()), handed=sum(handed.values()),
            offline=float(sum(units[c] for c in handed)), devices=float(len(handed)),
            most=max([state.tally.most, *handed.values()]),
            handed_so_far=state.tally.handed_so_far + sum(handed.values()),
        )  # fmt: skip
        waiting = {client: shares[client] for client, count in handed.items() if count >= 2}
        # Step 7 and 8 of Centaur, on everything.
        inner = centaur.State(state.weights, state.control, waiting, tally, 1)
        inner = centaur.ap_round(fleet, inner, base)
        state = State(inner.weights, inner.control, inner.tally, state.round + 1)
        yield state


def upload(task: Upload, local: Local) -> Done:
    data, _ = collected(local.data, task.share, task.order)
    if task.storage_kb:
        capacity = data.weight.shape[0]
        room = max(1, min(capacity, int(task.storage_kb * 1024 / centaur.sample_bytes(data))))
        place = newest(data.weight, room, keys.fold(local.key, "store"))
        data = centaur.rows_of(data, place, data.weight[place])
    return Done(Uploaded(data.weight.sum()), mine=Mine({}, torch.zeros(0)), handoff=data)


PROGRAMS = {Upload: upload, Retrain: retrain}
WORK = {Retrain: centaur.expected_retrain}


def shared(state: State) -> Params:
    return state.weights


def personal(state: State, client: ClientId, mine: Mine | None) -> Params:
    return state.weights


def record(state: State) -> dict[str, float]:
    return {name: float(getattr(state.tally, name)) for name in Tally.__dataclass_fields__}
