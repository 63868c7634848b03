"""The costs of each kind of device, and why some updates did not count, over the runs of a method."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from potluck.report.reading.groups import Group
from potluck.report.reading.run_figures import RunFigures


@dataclass(frozen=True)
class DeviceCost:
    """One kind of device under one method: means over its clients and seeds, of a whole run each."""

    device: str | None  # None for clients beyond the sample that is evaluated
    clients: float | None  # in one run
    accuracy: float | None
    tasks: float | None  # per client
    seconds: float | None  # per task, from its sending to the arrival of its update
    bytes_up: float | None
    bytes_down: float | None
    macs: float | None
    joules: float | None
    memory: int | None  # the most that a training needed


def device_costs(group: Group) -> list[DeviceCost]:
    runs = group.counted
    names = {client.device for one in runs for client in one.clients}
    found = [_of_device(runs, name) for name in sorted(names)]
    if any(row.device is None for one in runs for row in one.spent):
        found.append(_of_device(runs, None))
    return found


def _of_device(runs: list[RunFigures], device: str | None) -> DeviceCost:
    spent = [row for one in runs for row in one.spent if row.device == device]
    clients = [client for one in runs for client in one.clients if client.device == device]
    accuracies = [client.accuracy for client in clients if client.accuracy is not None]
    present: int | None = len(clients)
    if device is None:
        beyond = [one.fleet - len(one.clients) for one in runs if one.fleet is not None]
        present = sum(beyond) if len(beyond) == len(runs) else None
    carried = sum(row.carried for row in spent)

    def each(field: str) -> float | None:
        return sum(getattr(row, field) for row in spent) / present if present else None

    return DeviceCost(
        device=device,
        clients=None if present is None else present / len(runs),
        accuracy=float(np.mean(accuracies)) if accuracies else None,
        tasks=each("tasks"),
        seconds=sum(row.seconds for row in spent) / carried if carried else None,
        bytes_up=each("bytes_up"),
        bytes_down=each("bytes_down"),
        macs=each("macs"),
        joules=each("joules") if all(one.metered for one in runs) else None,
        memory=max((row.memory for row in spent), default=0) or None,
    )


@dataclass(frozen=True)
class Reason:
    outcome: str
    reason: str
    times: int  # in all of the method's runs
    example: str  # one of the clients concerned


def reasons(group: Group) -> list[Reason]:
    """Why updates did not count, the most frequent reason first."""
    times: Counter[tuple[str, str]] = Counter()
    example: dict[tuple[str, str], str] = {}
    for one in group.runs:
        for trouble in one.troubles:
            kind = trouble.outcome, trouble.reason
            times[kind] += trouble.times
            example.setdefault(kind, trouble.example)
    return [Reason(*kind, n, example[kind]) for kind, n in sorted(times.items(), key=lambda item: (-item[1], item[0]))]
