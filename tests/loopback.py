"""The Flower engine without Flower: clients' machines in this process, on a wire that tests can meddle with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from potluck.deploy.holding import share
from potluck.deploy.household import Household, Owner
from potluck.deploy.stage import FlowerStage, rules_of, stage
from potluck.engines.flower.crowd import Crowd
from potluck.engines.flower.words import Envelope, Reply
from potluck.runs.build import federation_of
from potluck.runs.experiment import Experiment

Meddle = Callable[[int, Envelope, Envelope], list[Envelope | str]]  # node, ask, answer -> what arrives instead


class Loopback:
    """Nodes that answer at once; an answer is there at the next look."""

    def __init__(self, machines: Mapping[str, Household], meddle: Meddle | None = None) -> None:
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
            told = Reply(str(number), None, one, number) if isinstance(one, str) else Reply(str(number), one, "", number)
            self._there.append(told)
        return str(number)

    def pull(self, messages: Collection[str]) -> list[Reply]:
        wanted = set(messages)
        came = [reply for reply in self._there if reply.message in wanted]
        self._there = [reply for reply in self._there if reply.message not in wanted]
        return came


def machines(experiment: Experiment, folder: Path, **owner: Any) -> dict[str, Household]:
    """Each client's rows in a file of its own, and its machine."""
    folder.mkdir(parents=True, exist_ok=True)
    federation = federation_of(experiment)
    found = {}
    for place, name in enumerate(federation.names):
        share(federation, place, folder / f"{name}.npz")
        found[name] = Household(Owner(name, str(folder / f"{name}.npz"), folder / name, **owner))
    return found


def staged(experiment: Experiment, wire: Loopback, run: str = "run", patience: float = 2.0, **crowd: Any) -> FlowerStage:
    there = Crowd(wire, {"rules": rules_of(experiment)}, poll=0.0, **crowd)
    there.muster(len(wire.machines) - len(wire.away), patience)
    return stage(experiment, there, run, patience)
