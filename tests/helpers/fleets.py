"""Small fleets for tests: a few clients with a few samples, every part in the caller's hands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from potluck import devices, keys
from potluck.engines.execute import Executor
from potluck.engines.local import Conditions, Faults, LocalFleet, Roster
from potluck.engines.local.boards import ExternalClient
from potluck.engines.local.conditions import Guard
from potluck.engines.local.kept import Kept
from potluck.engines.local.store import Store
from potluck.engines.price import Prices
from potluck.fleet import Data, Local
from potluck.methods import Method
from potluck.models import Model, build

PC = next(d for d in devices.catalogue().values() if d.kind == "pc")
# Methods made for one kind of model.
_MODELS: dict[str, tuple[str, dict[str, Any]]] = {"fedcfc": ("cfc", {"hidden": 4, "backbone": 6, "head": 4})}
LINK = replace(devices.link("ethernet"), jitter=0.0, dropout=0.0)


def made(
    sizes: Sequence[int], features: int = 4, classes: int = 3, seed: int = 0
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Clients whose samples lie around a mean per class, a little apart from client to client."""
    draw = keys.rng("tests", seed)
    centres = draw.normal(size=(classes, features))
    clients = []
    for n in sizes:
        y = draw.integers(0, classes, n)
        x = centres[y] + 0.3 * draw.normal(size=features) + 0.3 * draw.normal(size=(n, features))
        clients.append((x.astype(np.float32), y))
    return clients


def stacker(clients: Sequence[tuple[np.ndarray, np.ndarray]]) -> Any:
    """(positions, capacity) -> padded stacked data, as the engine asks for it."""

    def stacked(places: Sequence[int], capacity: int) -> Data:
        x = np.zeros((len(places), capacity, *clients[0][0].shape[1:]), dtype=np.float32)
        y = np.zeros((len(places), capacity), dtype=np.int64)
        weight = np.zeros((len(places), capacity), dtype=np.float32)
        for k, place in enumerate(places):
            rows, labels = clients[place]
            x[k, : len(rows)], y[k, : len(rows)], weight[k, : len(rows)] = rows, labels, 1.0
        return Data(torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(weight))

    return stacked


def fleet_of(
    method: Method,
    config: Any,
    clients: Sequence[tuple[np.ndarray, np.ndarray]],
    *,
    model: Model | None = None,
    device: devices.Device = PC,
    equipment: Sequence[tuple[devices.Device, devices.Link]] | None = None,
    seed: int = 0,
    faults: Faults | None = None,
    stacking: str = "auto",
    workers: int = 1,
    joins: np.ndarray | None = None,
    leaves: np.ndarray | None = None,
    kinds: Sequence[str] | None = None,
    partners: Sequence[int | None] | None = None,
    limit: int = 1 << 30,
    noise: float = 0.0,
    floor: float = 0.0,
    guard: Guard | None = None,
    pairs: bool = False,
    boards: Mapping[int, ExternalClient] | None = None,
    server_rows: bool = True,
    bound: float = 0.0,
) -> tuple[LocalFleet, Any]:
    """A fleet of these clients and the method's first state; `pairs`: each has an access point, without samples.

    The server has a copy of the first client's samples, or no rows where `server_rows` is False.
    """
    if pairs:
        count = len(clients)
        nobody = (clients[0][0][:0], clients[0][1][:0])
        clients = [*clients, *[nobody] * count]
        kinds, partners = ["device"] * count + ["access-point"] * count, [*range(count, 2 * count), *range(count)]
        joins = joins if joins is None or len(joins) > count else np.concatenate([joins, np.zeros(count)])
    name, settings = _MODELS.get(method.name, ("softmax", {}))
    model = model or build(name, clients[0][0].shape[1:], int(max(max(y, default=0) for _, y in clients)) + 1, settings)
    weights = model.init(seed)
    classes = method.classes
    private = method.private(weights, config)
    count = len(clients)
    gear = list(equipment or [(device, LINK)])
    roster = Roster(
        [f"c{i}" for i in range(count)],
        np.array([len(y) for _, y in clients]),
        gear,
        np.arange(count) % len(gear),
        kinds=kinds,
        partners=partners,
        joins=joins,
        leaves=leaves,
    )
    stacked = stacker(clients)
    one = stacked([0], len(clients[0][1]))
    own = len(one.y[0]) if server_rows else 0
    home = Local(model, Data(one.x[0, :own], one.y[0, :own], one.weight[0, :own]), None, keys.key(seed))
    fleet = LocalFleet(
        roster,
        Executor(model, method.programs, classes, stacked, workers, stacking),
        home,
        Kept(Store(classes), Store(classes)),
        Prices(method.programs, method.work, private, method.memory),
        private,
        Conditions(seed, faults or Faults(), limit, noise, floor, guard=guard, bound=bound),
        boards,
    )
    return fleet, method.start(weights, config)


def run(method: Method, config: Any, fleet: LocalFleet, state: Any, rounds: int, of: int = 0) -> Any:
    """The state after so many rounds; an asynchronous method yields at every arrival, many times in a round.

    `of` is the number of rounds of the whole run, for methods that plan by it.
    """
    program = method.server(fleet, state, config)
    end = state.round + rounds
    while state.round < end:
        state = next(program)
        fleet.progress = state.round / of if of else 0.0
    return state
