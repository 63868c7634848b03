"""What a dry run says of a method: time, bytes, joules and memory, for the whole fleet and for each kind of device."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from potluck.devices import Device, rest_watts
from potluck.engines.local import Roster
from potluck.engines.log import UNFIT
from potluck.planner.dry import DrySession
from potluck.runs.energy import NO_TIME
from potluck.runs.results import Run


@dataclass(frozen=True)
class Joules:
    """Of one client over the run, by cause (`devices.Spent`)."""

    training: float = 0.0
    radio: float = 0.0  # what sending and receiving add
    idle: float = 0.0  # awake without training
    sleep: float = 0.0

    @property
    def total(self) -> float:
        return self.training + self.radio + self.idle + self.sleep

    @classmethod
    def mean(cls, found: Sequence[tuple[Joules, float]]) -> Joules:
        """The weighted sum of some, by cause."""
        return cls(*(sum(getattr(one, name) * weight for one, weight in found) for name in CAUSES))


CAUSES = ("training", "radio", "idle", "sleep")


@dataclass(frozen=True)
class DeviceCost:
    """What a method costs clients with one device on one link. Amounts are means over them, for the whole run."""

    device: str
    link: str
    kind: str
    clients: int
    unfit: int  # clients whose device has too little memory
    memory: int  # bytes that training has on the device
    battery: float | None  # joules of a full one; 0: on the mains; None: not known
    needs: int  # bytes that the largest task needs
    tasks: float
    task_seconds: float  # median, from sending the task to the arrival of the update
    training_seconds: float  # median, of a task
    bytes_up: float
    bytes_down: float
    most_bytes: float  # up and down, of the client that moves most
    joules: Joules
    most_joules: float  # of the client that uses most


@dataclass(frozen=True)
class Figures:
    """One dry run."""

    share: float  # of the run that was simulated
    rounds: int
    seconds: float
    round_seconds: float  # median
    bytes_up: int
    bytes_down: int
    joules: Joules  # of all clients together
    macs: float
    passes: float
    asynchronous: bool
    steps: tuple[tuple[float, float, float, float], ...]  # passes, seconds, joules of tasks, bytes, of all clients
    devices: tuple[DeviceCost, ...]
    straggler: str  # device
    straggles: float  # share of the rounds in which it was the last
    ended: str


Task = Mapping[str, Any]


def figures(run: Run, session: DrySession) -> Figures:
    """Read a dry run; one that was paused is made longer by proportion."""
    summary, roster, steps = run.summary, session.fleet.clients, run.table("steps")
    tasks = run.table("tasks")
    scale = 1.0 if summary["ended"] != "paused" else 1.0 / max(1e-9, float(summary["progress"]))
    seconds = float(summary["virtual_seconds"])
    devices = tuple(_devices(tasks, roster, seconds, session.experiment.fleet.rest, scale))
    rounds = _rounds(steps)
    straggler, straggles = _straggler(tasks, steps, roster)
    return Figures(
        share=1.0 / scale,
        rounds=round(len(rounds) * scale),
        seconds=seconds * scale,
        round_seconds=float(np.median(np.diff([0.0, *rounds]))) if rounds else 0.0,
        bytes_up=round(summary["bytes"]["up"] * scale),
        bytes_down=round(summary["bytes"]["down"] * scale),
        joules=Joules.mean([(one.joules, float(one.clients)) for one in devices]),
        macs=float(summary["macs"]) * scale,
        passes=float(summary["local_passes"]) * scale,
        asynchronous=any(step["at_work"] for step in steps),
        steps=tuple((s["passes"], s["virtual"], s["joules"], s["bytes_up"] + s["bytes_down"]) for s in steps),
        devices=devices,
        straggler=straggler,
        straggles=straggles,
        ended=str(summary["ended"]),
    )


def _rounds(steps: Sequence[Task]) -> list[float]:
    """The moment at which each round was over."""
    last = {step["round"]: float(step["virtual"]) for step in steps}
    return [last[number] for number in sorted(last) if number]


def _devices(tasks: Iterable[Task], roster: Roster, seconds: float, rest: str, scale: float) -> Iterable[DeviceCost]:
    by_client: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        by_client[task["client"]].append(task)
    groups: dict[int, list[int]] = defaultdict(list)
    for i in range(len(roster)):
        groups[int(roster.codes[i])].append(i)
    for code in sorted(groups, key=lambda one: -len(groups[one])):
        yield _device(code, groups[code], by_client, roster, seconds, rest, scale)


def _device(
    code: int, places: Sequence[int], by_client: Mapping[str, Sequence[Task]], roster: Roster, seconds: float,
    rest: str,
    scale: float,
) -> DeviceCost:  # fmt: skip
    device, link = roster.equipment[code]
    mine = [by_client.get(roster.names[i], ()) for i in places]
    unfit = [any(task["reason"].startswith(UNFIT) for task in tasks) for tasks in mine]
    done = [task for tasks in mine for task in tasks if task["outcome"] == "accepted"]
    moved = [sum(task["bytes_up"] + task["bytes_down"] for task in tasks) * scale for tasks in mine]
    used = [_joules(tasks, device, seconds, rest, scale) for tasks in mine]
    count = len(places)
    return DeviceCost(
        device=device.name,
        link=link.name,
        kind=device.kind,
        clients=count,
        unfit=sum(unfit),
        memory=device.memory,
        battery=device.battery,
        needs=max((task["memory"] for tasks in mine for task in tasks), default=0),
        tasks=len(done) * scale / count,
        task_seconds=_median(task["arrived"] - task["sent"] for task in done),
        training_seconds=_median(task["trained"] - task["started"] for task in done),
        bytes_up=sum(task["bytes_up"] for tasks in mine for task in tasks) * scale / count,
        bytes_down=sum(task["bytes_down"] for tasks in mine for task in tasks) * scale / count,
        most_bytes=max(moved),
        joules=Joules.mean([(one, 1 / count) for one in used]),
        most_joules=max(one.total for one in used),
    )


def _joules(tasks: Sequence[Task], device: Device, seconds: float, rest: str, scale: float) -> Joules:
    """What one client uses, as `runs.energy` adds it up: by its tasks, and waiting for the rest of the time."""
    training, radio, work = (sum(task[key] for task in tasks) for key in ("train_joules", "radio_joules", "joules"))
    busy = sum(task["arrived"] - task["sent"] - task["waited"] for task in tasks if task["outcome"] not in NO_TIME)
    waiting = rest_watts(device, rest) * max(0.0, seconds - busy)
    asleep = waiting if rest == "sleep" else 0.0
    idle = work - training - radio + waiting - asleep
    return Joules(training * scale, radio * scale, idle * scale, asleep * scale)


def _straggler(tasks: Iterable[Task], steps: Iterable[Task], roster: Roster) -> tuple[str, float]:
    """The device that is most often the last of a round, and the share of the rounds in which it is."""
    number = {step["step"]: step["round"] for step in steps}
    last: dict[int, Task] = {}
    for task in tasks:
        place = number.get(task["step"])
        if task["outcome"] != "accepted" or place is None:
            continue
        if place not in last or task["arrived"] > last[place]["arrived"]:
            last[place] = task
    names = Counter(roster.device(roster.index_of(task["client"])).name for task in last.values())
    if not names:
        return "", 0.0
    name, often = names.most_common(1)[0]
    return name, often / len(last)


def _median(values: Iterable[float]) -> float:
    found = list(values)
    return float(np.median(found)) if found else 0.0
