"""The clients of a run and their devices, by the section `[fleet]`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from potluck import devices
from potluck.data import Federation
from potluck.data.dataset import Ints
from potluck.devices import Device, Link
from potluck.engines.local import Roster
from potluck.errors import Code, unknown
from potluck.runs.certificate import read_certificate
from potluck.runs.experiment import Experiment
from potluck.runs.pairing import with_access_points


def equipment(
    experiment: Experiment,
) -> tuple[list[tuple[Device, Link]], devices.Mix, Mapping[str, Device], Mapping[str, Link]]:
    """Return the fleet's (device, link) pairs, the mix that deals them out, and all known devices and links."""
    if experiment.fleet.certificate is not None:
        read_certificate(Path(experiment.fleet.certificate))  # raises BadInput before there is a folder
    own_devices, own_links = {}, {}
    if experiment.fleet.file is not None:
        own = devices.read_devices(Path(experiment.fleet.file))
        own_devices, own_links = dict(own.devices), dict(own.links)
    mix = devices.Mix.parse(
        experiment.fleet.devices,
        seed=deal_seed(experiment),
        link=experiment.fleet.link,
        devices=own_devices,
        links=own_links,
    )
    every_device = devices.either(own_devices, devices.catalogue())
    every_link = devices.either(own_links, devices.links())
    gear = [(every_device[d], every_link[k]) for d, k in zip(mix.devices, mix.links, strict=True)]
    return gear, mix, every_device, every_link


def deal_seed(experiment: Experiment) -> int:
    """The seed that deals out the devices."""
    return experiment.run.seed if experiment.fleet.seed is None else experiment.fleet.seed


def chance_seed(experiment: Experiment) -> int:
    """The seed of what differs from task to task."""
    return experiment.run.seed if experiment.fleet.chance is None else experiment.fleet.chance


def roster_of(
    experiment: Experiment,
    federation: Federation,
    places: Ints | None = None,
    sizes: Ints | None = None,
    gone: int = 0,
) -> Roster:
    """The clients of a federation and their devices; of those at `places`, with so many samples each.

    The last `gone` of them are registered but never here.
    """
    gear, mix, every_device, every_link = equipment(experiment)
    roster = Roster(
        federation.names,
        federation.sizes,
        gear,
        mix.codes(len(federation.names)),
        joins=_moments(experiment.fleet.joins, federation, "joins", 0.0),
        leaves=_moments(experiment.fleet.leaves, federation, "leaves", np.inf),
    )
    if places is not None and sizes is not None:
        roster = roster.among(places, sizes)
    if gone:
        roster.leaves = np.repeat([np.inf, 0.0], [len(roster) - gone, gone])
    partner = experiment.fleet.partner
    return roster if partner is None else with_access_points(roster, partner, every_device, every_link)


def _moments(given: dict[str, float], federation: Federation, field: str, otherwise: float) -> Any:
    if not given:
        return None
    places = {name: i for i, name in enumerate(federation.names)}
    moments = np.full(len(places), otherwise)
    for client, moment in given.items():
        if client not in places:
            raise unknown(Code.UNKNOWN_CLIENT, f"fleet.{field}: client", client, list(places)[:50])
        moments[places[client]] = moment
    return moments
