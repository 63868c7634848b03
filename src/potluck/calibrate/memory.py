"""What a client's process needs beyond itself: the larger of a task and of evaluating a part of its test rows.

An engine counts the memory of a task with one mini-batch. A method may also pass all its rows through the network,
which it does by parts. So here a task is counted with more rows than a part has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from potluck._batches import PART
from potluck._peak import Peak
from potluck.calibrate import plan
from potluck.calibrate.plan import Client, Network, experiment_of
from potluck.engines.price import blank, memory_at, nbytes_of
from potluck.fleet import Local
from potluck.runs.build import build
from potluck.wire.codec import flatten

FEW = 40  # rows of each client in the run that shows what a method's tasks are
ROWS = PART + 1  # of the counted task


def process_bytes(network: Network, method: str, clients: Sequence[Client], folder: Path) -> int:
    """The bytes that a client's process needs at most beyond itself: its task, or its evaluation."""
    data = folder / "few.npz"
    plan.write_windows(data, [replace(one, rows=FEW) for one in clients])
    session = build(experiment_of(network, method, data, 1, folder, devices=plan.LIKE))
    try:
        state = session.method.start(session.weights, session.config)
        next(iter(session.method.server(session.fleet, state, session.config)))
        task, local = session.fleet.prices.last
        needed = memory_at(session.method.programs[type(task)], task, local, ROWS)
        return max(needed, _evaluating(session.model, session.weights, session.fleet.home))
    finally:
        session.close()


def _evaluating(model: Any, weights: Any, home: Local) -> int:
    data = blank(home.data, PART)
    with torch.no_grad(), Peak(flatten((weights, data))[1]) as peak:
        model.losses(model.logits(weights, data.x, t=data.t, length=data.length), data.y)
    return nbytes_of((weights, data.x, data.y)) + peak.peak
