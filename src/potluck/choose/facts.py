"""What a choice depends on and data and devices tell before any training: rows, people, classes, memory, speed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from potluck.data import Federation
from potluck.devices import Device
from potluck.engines.local import Roster
from potluck.runs.build import model_of
from potluck.runs.deal import federation_of
from potluck.runs.experiment import Experiment
from potluck.runs.rosters import roster_of


@dataclass(frozen=True)
class Facts:
    """The figures that the proposal's sentences quote."""

    data: str
    kind: str  # of the data: features, series or image
    steps: int  # of a series, else 0
    clients: int
    natural: bool  # whether the data says which client a row belongs to
    rows: int  # training rows of the median client
    least_rows: int
    classes: int
    skew: float  # mean total variation distance between a client's classes and all clients' classes, 0 to 1
    model: str
    parameters: int
    devices: dict[str, int]  # device -> clients
    speed_ratio: float  # fastest device over slowest
    smallest_memory: int  # bytes
    constrained: int  # clients on microcontrollers and watches


CONSTRAINED = ("microcontroller", "wearable")  # kinds of devices


def facts(experiment: Experiment) -> Facts:
    """Load the data, deal it out, and look. Nothing is trained, and no test label is read."""
    federation = federation_of(experiment)
    roster = roster_of(experiment, federation)
    model = model_of(experiment, federation)
    weights = model.init(0)
    data = federation.dataset
    series = data.kind == "series"
    used = _used(roster)
    speeds = [device.macs_per_second for device in used]
    return Facts(
        data=data.name,
        kind=data.kind,
        steps=int(data.sample_shape[0]) if series else 0,
        clients=len(federation),
        natural=data.subject is not None,
        rows=int(np.median(federation.sizes)),
        least_rows=int(np.min(federation.sizes)),
        classes=data.classes,
        skew=skew(federation),
        model=model.name,
        parameters=sum(weights[name].numel() for name in model.trainable),
        devices=_counted(roster, len(federation)),
        speed_ratio=max(speeds) / min(speeds),
        smallest_memory=min(device.memory for device in used),
        constrained=sum(roster.device(i).kind in CONSTRAINED for i in range(len(federation))),
    )


def skew(federation: Federation) -> float:
    """How unlike the clients' class shares are: 0 if all have the same, near 1 if no two share a class."""
    places = np.unique(np.linspace(0, len(federation) - 1, min(len(federation), 500)).round().astype(int))
    counts = np.asarray(federation.class_counts(places), dtype=float)
    shares = counts / np.maximum(1.0, counts.sum(1, keepdims=True))
    overall = counts.sum(0) / max(1.0, counts.sum())
    return float(0.5 * np.abs(shares - overall).sum(1).mean())


def _used(roster: Roster) -> list[Device]:
    """The different devices that clients have."""
    return [roster.equipment[int(code)][0] for code in np.unique(roster.codes)]


def _counted(roster: Roster, clients: int) -> dict[str, int]:
    names, counts = np.unique([roster.device(i).name for i in range(clients)], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {str(names[i]): int(counts[i]) for i in order}
