"""A tiny method for the engine's tests: clients that tell what they see, and learning that waits for nobody."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from helpers.fleets import LINK, PC, fleet_of, made
from potluck import devices
from potluck.engines.local import LocalFleet
from potluck.engines.local.flight import Flight
from potluck.fleet import Arrival, ClientId, Done, Fleet, Local, Params
from potluck.learn import sgd
from potluck.methods import Method
from potluck.tensors import mean, mix

WIDTH = 1000  # MACs per feature and sample of every leg of `tell`
DEVICE = replace(PC, name="slow", macs_per_second=1e6, active_watts=2.0, idle_watts=0.5)
PLAIN = replace(LINK, name="plain", up=8_000.0, down=80_000.0, latency=0.25, up_watts=1.0, down_watts=0.25, trace=None)


@dataclass(frozen=True)
class Config:
    legs: int = 1
    buffer: int = 2  # arrivals averaged at once
    share: float = 0.5
    epochs: int = 1
    batch: int = 5
    lr: float = 0.1


@dataclass(frozen=True)
class State:
    weights: Params
    waiting: tuple[Params, ...] = ()
    steps: int = 0
    lost: int = 0


@dataclass(frozen=True)
class Ask:
    """Tell me what you see."""

    value: Tensor


@dataclass(frozen=True)
class Told:
    value: Tensor
    heard: Tensor  # the numbers of the notes read in each leg, 0 for none
    parcel: Tensor
    tasks: Tensor  # how many tasks this client finished before, by its private state
    draw: Tensor  # the first number of this leg's key
    examples: Tensor


@dataclass(frozen=True)
class Note:
    number: Tensor


@dataclass(frozen=True)
class Mine:
    tasks: Tensor


@dataclass(frozen=True)
class Heard:
    numbers: Tensor


@dataclass(frozen=True)
class Work:
    weights: Params
    epochs: int
    batch: int
    lr: float


@dataclass(frozen=True)
class Worked:
    weights: Params
    heard: Tensor
    examples: Tensor


@dataclass(frozen=True)
class Leg:
    weights: Params
    heard: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(torch.zeros(()))


def tell(task: Ask, local: Local) -> Done:
    number = torch.zeros(()) if local.mail is None else local.mail.number
    before = torch.zeros(0) if local.carry is None else local.carry.numbers
    heard = torch.cat([before, number[None]])
    busy = (local.data.x @ torch.zeros(local.data.x.shape[1], WIDTH)).sum()
    draw = local.key.to(torch.float64) / 2.0**40  # a check of every update refuses enormous numbers
    told = Told(
        task.value + 0 * busy,
        torch.cat([heard, torch.zeros(4)])[:4],
        torch.zeros(()) if local.parcel is None else local.parcel,
        local.mine.tasks,
        draw,
        local.data.weight.sum(),
    )
    return Done(told, mine=Mine(local.mine.tasks + 1), carry=Heard(heard), handoff=task.value)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    """Averages every `buffer` arrivals into the model; tells those at work what step it is."""
    while True:
        for client in fleet.idle:
            fleet.send(Work(state.weights, cfg.epochs, cfg.batch, cfg.lr), to=client, legs=cfg.legs)
        answer = fleet.receive()
        if isinstance(answer, Arrival):
            waiting = (*state.waiting, answer.update.weights)
            state = replace(state, waiting=waiting, steps=state.steps + 1)
            if len(waiting) == cfg.buffer:
                state = replace(state, weights=mix(state.weights, mean(waiting), cfg.share), waiting=())
            fleet.post(Note(torch.tensor(float(state.steps))), list(fleet.clients))
        elif answer is not None:
            state = replace(state, lost=state.lost + 1)
        yield state


def work(task: Work, local: Local) -> Done:
    before = Leg(task.weights, torch.zeros(())) if local.carry is None else local.carry
    number = torch.zeros(()) if local.mail is None else local.mail.number
    weights = sgd(
        local.model, before.weights, local.data, key=local.key, lr=task.lr, epochs=task.epochs, batch=task.batch
    )
    weights = {name: value * (1 - 0.001 * number) for name, value in weights.items()}  # mail matters
    heard = before.heard + number
    mine = Mine(local.mine.tasks + 1)
    return Done(Worked(weights, heard, local.data.weight.sum()), mine=mine, carry=Leg(weights, heard))


PROGRAMS = {Ask: tell, Work: work}


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return state.weights


TOY = Method("toy", sys.modules[__name__])


def telling(
    sizes: tuple[int, ...] = (4, 4, 4),
    *,
    gear: list[tuple[devices.Device, devices.Link]] | None = None,
    **options: Any,
) -> LocalFleet:
    """A fleet whose clients tell what they see."""
    fleet, _ = fleet_of(TOY, Config(), made(sizes), equipment=gear or [(DEVICE, PLAIN)], **options)
    return fleet


def ask(number: float = 1.0) -> Ask:
    return Ask(torch.tensor(float(number)))


def unlike(speeds: list[float]) -> list[tuple[devices.Device, devices.Link]]:
    """Equipment that differs in how fast it trains."""
    return [(replace(DEVICE, name=f"x{speed:g}", macs_per_second=1e6 * speed), PLAIN) for speed in speeds]


def moments(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)


def in_flight(fleet: LocalFleet) -> list[Flight]:
    """Copies of the tasks under way, as a checkpoint has them."""
    return [Flight(**saved) for saved in fleet.snapshot()["flights"]]


def stacks(fleet: LocalFleet) -> tuple[int, int]:
    """How many stacks were trained so far, and how many clients were in them."""
    count, clients = fleet.snapshot()["stacks"]
    return count, clients
