"""The clients of a run that train on a microcontroller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from potluck.data import Federation
from potluck.data.federation import Part
from potluck.engines.local.boards import ExternalClient
from potluck.errors import BadInput, Code
from potluck.fleet import ClientProgram, Data
from potluck.models import Model
from potluck.runs.evaluate import stacked
from potluck.runs.experiment import Experiment
from potluck.wire.codec import walk


def boards_of(
    experiment: Experiment, federation: Federation, model: Model, config: Any, programs: Mapping[type, ClientProgram]
) -> Mapping[int, ExternalClient]:
    """Connect the clients that train on a microcontroller, real or emulated."""
    addresses = experiment.fleet.boards
    if not addresses:
        return {}
    if experiment.drift.at:
        raise BadInput(Code.BOARD_SETTINGS, "fleet.boards: a board's samples stay as they are; leave out drift.at.")
    from potluck.firmware.attach import attach

    def rows(place: int) -> tuple[Data, Data | None]:
        judged = bool(np.any(federation.valid_sizes > 0))
        return alone(federation, place, "train"), alone(federation, place, "valid") if judged else None

    return attach(
        addresses, {name: i for i, name in enumerate(federation.names)}, model, config, rows, programs, federation.scale
    )


def alone(federation: Federation, place: int, split: Part) -> Data:
    """Return the rows of one client, without the axis of a stack."""
    sizes = federation.sizes if split == "train" else federation.valid_sizes
    rows: Data = walk(stacked(federation, [place], split, int(sizes[place])), lambda stack: stack[0])
    return rows
