"""A short benchmark of this machine: training tasks of unlike networks, and the device figures that follow.

No server and no network take part. Each network trains one client's rows a few times. The median processor time counts,
so that other work on the machine disturbs less; one thread trains, as on every client. What the
figures do for a network that the fit has not seen is said with them: the error of leaving out each network in turn.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from potluck import compiled
from potluck.calibrate import plan
from potluck.calibrate.fit import Speed, Timed, fit_speed
from potluck.calibrate.plan import Network, experiment_of
from potluck.engines.log import TaskRecord
from potluck.runs.build import build

ROWS = 320
LEAST, MOST = 3, 50  # how often a network trains
NETWORKS = (*plan.FIT, *plan.MORE)


def measure(
    seconds: float = 5.0,
    networks: Sequence[Network] = NETWORKS,
    kernels: bool = False,
    say: Callable[[str], None] = lambda what: None,
    now: Callable[[], float] = time.process_time,
) -> tuple[Speed, list[Timed]]:
    """Measure this machine for about so many seconds per network; `kernels` also uses the extra `fast`."""
    tasks = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "windows.npz"
        plan.write_windows(data, [replace(plan.CLIENTS[0], rows=ROWS)])
        for network in networks:
            tasks += _timed(network, data, Path(folder), seconds, kernels, now)
            say(f"{network.name}: {np.median([task.worked for task in tasks if task.network == network.name]):.3g} s")
    return fit_speed(tasks), tasks


def _timed(
    network: Network, data: Path, folder: Path, seconds: float, kernels: bool, now: Callable[[], float]
) -> list[Timed]:
    """The median task of a network. The first step counts and warms up; it is not timed."""
    file = folder / "counting.toml"
    file.write_text(f'[devices.counting]\nlike = "{plan.LIKE}"\nop_seconds = 1e-6\n', encoding="utf-8")
    experiment = experiment_of(network, "fedavg", data, MOST + 1, folder, devices="counting", file=str(file))
    session = build(experiment.with_(run={"stacking": "never"}))
    took: list[float] = []
    try:
        state = session.method.start(session.weights, session.config)
        steps = iter(session.method.server(session.fleet, state, session.config))
        ended = now() + seconds
        while len(took) < LEAST or (now() < ended and len(took) < MOST):
            began = now()
            if kernels:
                next(steps)
            else:
                with compiled.off():
                    next(steps)
            took.append(now() - began)
        records, _ = session.fleet.log.drain()
    finally:
        session.close()
    return [_task(network, records[-1], float(np.median(took[1:])))]


def _task(network: Network, record: TaskRecord, worked: float) -> Timed:
    return Timed(
        network=network.name,
        method="fedavg",
        client="here",
        order=0,
        macs=record.macs,
        ops=record.ops,
        recorded=record.recorded,
        moved=record.moved,
        memory=record.memory,
        fresh=record.fresh,
        bytes_down=record.bytes_down,
        bytes_up=record.bytes_up,
        worked=worked,
        seconds=worked,
        arrived=worked,
    )
