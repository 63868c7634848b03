"""Where the energy of a simulated run went: training, radio, idle and sleep, over all clients and the whole run.

A client that never had a task waited as well, so its waiting counts. Work is what the tasks cost; the rest of the time
that a client was registered it was awake or asleep, as `fleet.rest` says. That holds also while it has a task and waits
for the rows to train on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potluck.devices import Hours, rest_watts
from potluck.engines.local import Roster
from potluck.engines.local.roster import hour_numbers, keeps_hours

Query = Callable[..., list[tuple[Any, ...]]]  # SQL -> rows of the run's database
Floats = NDArray[np.float64]

NO_TIME = ("post", "repeat")  # outcomes of tasks that take no time of their own
_OWN_TIME = f"outcome NOT IN {NO_TIME}"
_WORK = f"""
    SELECT client, sum((arrived - sent - coalesce(waited, 0.0)) * ({_OWN_TIME})), sum(joules),
           coalesce(sum(train_joules), 0.0), coalesce(sum(radio_joules), 0.0)
    FROM tasks GROUP BY client"""


def energy_of(
    rows: Query, roster: Roster, now: float, rest: str, windows: Hours | None, train_when: str, seed: int
) -> dict[str, Any]:
    """Joules by cause, their total, the share that was idle or asleep, and the part that came from batteries."""
    clients = len(roster)
    work, joules, training, radio = (np.zeros(clients) for _ in range(4))
    for name, *found in rows(_WORK):
        place = roster.index_of(name)
        work[place], joules[place], training[place], radio[place] = found
    watts = np.array([rest_watts(device, rest) for device, _ in roster.equipment])[roster.codes]
    present = _present(roster, now)
    waiting = watts * np.clip(present - work, 0.0, None)
    total = joules + waiting
    shown: dict[str, Any] = {
        "training": float(training.sum()),
        "radio": float(radio.sum()),
        "idle": float((joules - training - radio).sum() + (waiting.sum() if rest == "awake" else 0.0)),
        "sleep": float(waiting.sum()) if rest == "sleep" else 0.0,
        "total": float(total.sum()),
        "waiting": float(waiting.sum()) if rest == "awake" else 0.0,
    }
    aside = shown["idle"] + shown["sleep"]
    shown["idle_share"] = aside / shown["total"] if shown["total"] else None
    charged = np.zeros(clients)
    if windows is not None and train_when == "charging":
        charged = _charged(rows, roster, windows, seed, joules, np.maximum(watts, 0.0), present, work)
    shown["from_batteries"] = _from_batteries(roster, total - charged)
    shown["by_device"] = _by_device(roster, training, radio, joules - training - radio, waiting)
    return shown


def _present(roster: Roster, now: float) -> Floats:
    """How long each client was registered."""
    start = np.zeros(len(roster)) if roster.joins is None else np.minimum(roster.joins, now)
    end = np.full(len(roster), now) if roster.leaves is None else np.minimum(roster.leaves, now)
    return np.asarray(np.clip(end - start, 0.0, None))


def _charged(
    rows: Query,
    roster: Roster,
    windows: Hours,
    seed: int,
    joules: Floats,
    watts: Floats,
    present: Floats,
    work: Floats,
) -> Floats:
    """Joules of each client that came from its charger: tasks and rest by the share of their time in its windows."""
    plugged = np.flatnonzero([keeps_hours(device) for device, _ in roster.equipment])
    places = np.flatnonzero(np.isin(roster.codes, plugged))
    numbers = hour_numbers(windows, roster.names, places, seed)
    start = np.zeros(len(roster)) if roster.joins is None else roster.joins
    open_all = windows.open_seconds(numbers, start[places], (start + present)[places])
    tasks = rows(f"SELECT client, sent + coalesce(waited, 0.0), arrived, joules FROM tasks WHERE {_OWN_TIME}")
    row_of = {int(place): i for i, place in enumerate(places)}
    kept = [(row_of[roster.index_of(name)], *rest) for name, *rest in tasks if roster.index_of(name) in row_of]
    charged = np.zeros(len(roster))
    open_work = np.zeros(len(places))
    if kept:
        who, sent, arrived, spent = (np.array(column) for column in zip(*kept, strict=True))
        inside = windows.open_seconds(numbers[who.astype(int)], sent, arrived)
        share = np.divide(inside, arrived - sent, out=np.zeros_like(inside), where=arrived > sent)
        np.add.at(open_work, who.astype(int), inside)
        np.add.at(charged, places[who.astype(int)], share * spent)
    charged[places] += watts[places] * np.clip(open_all - open_work, 0.0, (present - work)[places].clip(0.0))
    return np.minimum(charged, joules + watts * np.clip(present - work, 0.0, None))


def _from_batteries(roster: Roster, joules: Floats) -> float | None:
    """The part of these joules that batteries gave; None where it is not known which devices have one."""
    batteries = [device.battery for device, _ in roster.equipment]
    if any(battery is None for battery in batteries):
        return None
    return float(joules[np.array([bool(battery) for battery in batteries])[roster.codes]].sum())


def _by_device(roster: Roster, training: Floats, radio: Floats, idle: Floats, waiting: Floats) -> dict[str, Any]:
    """Sums over the clients of each kind of device; `waiting` is awake or asleep."""
    names = [device.name for device, _ in roster.equipment]
    found = {}
    for name in dict.fromkeys(names):
        mine = np.isin(roster.codes, [code for code, other in enumerate(names) if other == name])
        if mine.any():
            sums = {"training": training, "radio": radio, "idle": idle, "waiting": waiting}
            found[name] = {"clients": int(mine.sum())} | {key: float(each[mine].sum()) for key, each in sums.items()}
            found[name]["total"] = sum(found[name][key] for key in sums)
    return found
