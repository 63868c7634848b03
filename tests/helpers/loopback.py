"""The Flower engine without Flower: clients' machines in this process, on a wire that tests can meddle with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from potluck.deploy.client.machine import ClientMachine
from potluck.deploy.client.owner import Owner
from potluck.deploy.client.rows import write_rows
from potluck.deploy.server.open_session import open_session, rules_of
from potluck.deploy.server.session import FlowerSession
from potluck.engines.flower.protocol import Envelope, Reply
from potluck.engines.flower.server.members import Members
from potluck.runs.build import federation_of
from potluck.runs.experiment import Experiment

Meddle = Callable[[int, Envelope, Envelope], list[Envelope | str]]  # node, ask, answer -> what arrives instead


class Loopback:
    """Nodes that answer at once; an answer is there at the next look."""

    def __init__(self, machines: Mapping[str, ClientMachine], meddle: Meddle | None = None) -> None:
        self.machines = {number: (name, one) for number, (name, one) in enumerate(machines.items(), start=1)}
        self.since = dict.fromkeys(self.machines, "first")
        self.away: set[int] = set()
        self.meddle = meddle
        self.asked: list[tuple[str, Envelope]] = []
        self._numbers = count(1)
        self._there: list[Reply] = []

    def nodes(self) -> dict[int, tuple[str, str]]:
        return {n: (name, self.since[n]) for n, (name, _) in self.machines.items() if n not in self.away}

    def push(self, node: int, envelope: Envelope, ttl: float) -> str | None:
        if node in self.away:
            return None
        name, machine = self.machines[node]
        self.asked.append((name, envelope))
        number = next(self._numbers)
        answer = machine.handle(envelope)
        arrives = [answer] if self.meddle is None else self.meddle(node, envelope, answer)
        for one in arrives:
            told = (
                Reply(str(number), None, one, number) if isinstance(one, str) else Reply(str(number), one, "", number)
            )
            self._there.append(told)
        return str(number)

    def pull(self, messages: Collection[str]) -> list[Reply]:
        wanted = set(messages)
        came = [reply for reply in self._there if reply.message in wanted]
        self._there = [reply for reply in self._there if reply.message not in wanted]
        return came


def machines(experiment: Experiment, folder: Path, **owner: Any) -> dict[str, ClientMachine]:
    """Each client's rows in a file of its own, and its machine."""
    folder.mkdir(parents=True, exist_ok=True)
    federation = federation_of(experiment)
    found = {}
    for place, name in enumerate(federation.names):
        write_rows(federation, place, folder / f"{name}.npz")
        found[name] = ClientMachine(Owner(name, str(folder / f"{name}.npz"), folder / name, **owner))
    return found


def staged(
    experiment: Experiment, wire: Loopback, run: str = "run", patience: float = 2.0, **members: Any
) -> FlowerSession:
    there = Members(wire, {"rules": rules_of(experiment)}, poll=0.0, **members)
    there.wait_for(len(wire.machines) - len(wire.away), patience)
    return open_session(experiment, there, run, patience)


def tiny(path: Path, clients: int = 6, rows: int = 24) -> str:
    """A set of a few rows per client, in a file."""
    import numpy as np

    from helpers.fleets import made

    dealt = made([rows + 2 * i for i in range(clients)])
    x, y = (np.concatenate([one[part] for one in dealt]) for part in (0, 1))
    subject = np.concatenate([np.full(len(one[1]), i) for i, one in enumerate(dealt)])
    np.savez(path, x=x, y=y, subject=subject)
    return str(path)


def experiment_of(method: str, data: str, rounds: int = 2, **sections: Any) -> Experiment:
    """A short run of a method on a small model; what a method needs to be short is set where it has it."""
    from potluck import methods

    loaded = methods.load(method)
    short = {
        "recipe.epochs": 1,
        "recipe.batch": 8,
        "cohort": 0,
        "e_p": 1,
        "e_c": 1,
        "e_t": 1,
        "e_a": 1,
        "public_epochs": 1,
    }
    short |= {"predictor": "always"}  # EchoPFL's own is trained first, which takes long
    model = (
        {"name": "cfc", "hidden": 4, "backbone": 6, "head": 4} if method == "fedcfc" else {"name": "mlp", "hidden": [6]}
    )
    values: dict[str, Any] = {
        "data": {"source": data},
        "model": model,
        "method": {"name": method, **loaded.suited(short)[0]},
        "server": {"share": 0.2},
        "stop": {"rounds": rounds},
        "fleet": {"devices": DEVICE, **({"access_point": DEVICE} if loaded.pairs else {})},
    }
    for section, changes in sections.items():
        values[section] = {**values.get(section, {}), **changes}
    return Experiment.of(values)


DEVICE = "pc-i7-9700"


def owners(experiment: Experiment) -> dict[str, Any]:
    """What the clients of this experiment say of themselves."""
    return {"device": DEVICE, "access_point": experiment.fleet.access_point}


def local_models(experiment: Experiment) -> dict[str, Any]:
    """Everybody's personal model after the same run on the local engine."""
    from potluck.runs.build import build

    parts = build(experiment)
    state = parts.method.start(parts.weights, parts.config)
    program = parts.method.server(parts.fleet, state, parts.config)
    rounds = experiment.stop.rounds
    assert rounds is not None
    while state.round < rounds:
        state = next(program)
    return {
        name: parts.method.personal(state, name, parts.fleet.mine(place))
        for place, name in enumerate(parts.federation.names)
    }


def kept_models(machines: Mapping[str, ClientMachine], run: str = "run") -> dict[str, Any]:
    """Everybody's personal model, as her own machine keeps it."""
    from safetensors.torch import load_file

    return {name: load_file(one.owner.home / "models" / run / f"{name}.safetensors") for name, one in machines.items()}
