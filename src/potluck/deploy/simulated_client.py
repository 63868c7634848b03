"""The client program of Flower's simulation: each Ray process acts as the client that a message is for."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from potluck import devices
from potluck.data import Federation
from potluck.deploy.client.machine import ClientMachine
from potluck.deploy.client.owner import THIS, Owner
from potluck.deploy.client.rows import LocalRows
from potluck.engines.flower.transport import from_records, to_records
from potluck.fleet import Profile
from potluck.runs.deal import federation_of
from potluck.runs.experiment import Experiment
from potluck.runs.rosters import roster_of

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    return _answered(message, context)


@app.query()
def query(message: Message, context: Context) -> Message:
    return _answered(message, context)


def _answered(message: Message, context: Context) -> Message:
    ask = from_records(message.content)
    place = int(context.node_config["partition-id"])
    answer = _machine(str(ask.head["folder"]), place).handle(ask)
    return Message(to_records(answer), reply_to=message)


@lru_cache(maxsize=2)
def _dealt(folder: str) -> tuple[Experiment, Federation]:
    experiment = Experiment.read(Path(folder) / "experiment.toml")
    return experiment, federation_of(experiment)


@lru_cache(maxsize=64)
def _machine(folder: str, place: int) -> ClientMachine:
    experiment, federation = _dealt(folder)
    name, roster = federation.names[place], roster_of(experiment, federation)
    device = roster.device(place).name
    partner = roster.partner(place)
    owner = Owner(
        name,
        experiment.data.source,
        Path(folder) / "nodes" / name,
        device if device in devices.catalogue() else THIS,
        None if partner is None else roster.device(partner).name,
    )
    names = [name] if partner is None else [name, roster.names[partner]]
    figures = {one: _figures(roster[one]) for one in names}
    return ClientMachine(owner, LocalRows(federation, place), figures)


def _figures(profile: Profile) -> dict[str, Any]:
    """What a client says of its device: the figures of the local engine's roster, own devices included."""
    known = ("device", "link", "memory", "storage", "macs_per_second")
    return {name: getattr(profile, name) for name in known}
