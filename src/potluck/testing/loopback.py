"""The Flower engine without Flower: client machines in this process, over a transport that a test can interfere with.

`flwr` need not be installed: only the transport below the engine is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from potluck.deploy.client.machine import ClientMachine
from potluck.deploy.client.owner import Owner
from potluck.deploy.client.rows import write_rows
from potluck.deploy.server.open_session import members_of, open_session
from potluck.deploy.server.session import FlowerSession
from potluck.engines.flower.protocol import Envelope, Reply
from potluck.fleet import Params
from potluck.runs import drive
from potluck.runs.deal import federation_of
from potluck.runs.experiment import Experiment
from potluck.runs.watcher import Silent

Meddle = Callable[[int, Envelope, Envelope], list[Envelope | str]]  # node, request, answer -> what arrives instead


class Loopback:
    """A transport to client machines in this process: each answers at once; the next pull gets its answer."""

    def __init__(self, machines: Mapping[str, ClientMachine], meddle: Meddle | None = None) -> None:
        self.machines = {number: (name, one) for number, (name, one) in enumerate(machines.items(), start=1)}
        self.since = dict.fromkeys(self.machines, "first")
        self.away: set[int] = set()
        self.meddle = meddle
        self.asked: list[tuple[str, Envelope]] = []
        self._numbers = count(1)
        self._arrived: list[Reply] = []

    def nodes(self) -> dict[int, tuple[str, str]]:
        return {n: (name, self.since[n]) for n, (name, _) in self.machines.items() if n not in self.away}

    def push(self, node: int, envelope: Envelope, ttl: float) -> str | None:
        if node in self.away:
            return None
        name, machine = self.machines[node]
        self.asked.append((name, envelope))
        number = next(self._numbers)
        answer = machine.handle(envelope)
        for one in [answer] if self.meddle is None else self.meddle(node, envelope, answer):
            content, error = (None, one) if isinstance(one, str) else (one, "")
            self._arrived.append(Reply(str(number), content, error, number))
        return str(number)

    def pull(self, messages: Collection[str]) -> list[Reply]:
        wanted = set(messages)
        came = [reply for reply in self._arrived if reply.message in wanted]
        self._arrived = [reply for reply in self._arrived if reply.message not in wanted]
        return came


def machines(experiment: Experiment, folder: Path, **owner: Any) -> dict[str, ClientMachine]:
    """Write each client's samples to a file of its own, and make its machine; `owner` has the settings of all."""
    folder.mkdir(parents=True, exist_ok=True)
    federation = federation_of(experiment)
    found = {}
    for index, name in enumerate(federation.names):
        write_rows(federation, index, folder / f"{name}.npz")
        found[name] = ClientMachine(Owner(name, str(folder / f"{name}.npz"), folder / name, **owner))
    return found


def staged(
    experiment: Experiment,
    transport: Loopback,
    run: str = "run",
    patience: float = 2.0,
    count: int | None = None,
    **settings: Any,
) -> FlowerSession:
    """Open the server's side of a run, once `count` or all machines have joined; `settings` are those of `Members`."""
    members = members_of(experiment, transport, poll=0.0, **settings)
    members.wait_for(len(transport.machines) - len(transport.away) if count is None else count, patience)
    return open_session(experiment, members, run, patience)


def kept_models(machines: Mapping[str, ClientMachine], run: str = "run") -> dict[str, Params]:
    """Read each client's personal model, as its own machine keeps it."""
    return {name: load_file(one.owner.home / "models" / run / f"{name}.safetensors") for name, one in machines.items()}


def owners(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of each client machine: its devices, and the method and model that its owner allows."""
    allow = (str(experiment.method["name"]), str(experiment.model.get("name")))
    return {"device": experiment.fleet.devices, "access_point": experiment.fleet.partner, "allow": allow}


def models(experiment: Experiment, folder: Path) -> dict[str, Params]:
    """Run an experiment to its end on the Flower engine; return each client's personal model."""
    homes = machines(experiment, folder / "machines", **owners(experiment))
    (folder / "run").mkdir()
    drive.carry_out(folder / "run", staged(experiment, Loopback(homes)), Silent())
    return kept_models(homes)
