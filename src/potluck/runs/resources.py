"""Which resources a run has and uses beyond its clients' training rows; a comparison lists them by method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from potluck import methods
from potluck.fleet import Profile
from potluck.needs import ACCESS_POINTS, POOLED_ROWS, PRETRAINING, RESOURCES, SERVER_ROWS, VALIDATION_ROWS
from potluck.runs.build import config_of
from potluck.runs.experiment import Experiment
from potluck.runs.needs import paired


def resources(experiment: Experiment, clients: Mapping[Any, Profile] | None = None) -> tuple[str, ...]:
    """What the run's method can use, as far as the experiment has it; `clients` are those of its fleet."""
    method = methods.load(str(experiment.method["name"]))
    config, server = config_of(experiment, method), experiment.server
    has_rows = bool(server.share or server.source)
    there = {
        SERVER_ROWS: has_rows,
        VALIDATION_ROWS: bool(experiment.partition.get("valid_share")),
        ACCESS_POINTS: method.pairs and paired(experiment, clients),
        POOLED_ROWS: True,
    }
    found = {one for one in method.uses(config) if there.get(one, False)}
    own = 0 if method.pretrains is None else _number(config, method.pretrains)
    if has_rows and (server.pretrain or own):
        found |= {SERVER_ROWS, PRETRAINING}
    if has_rows and server.epochs:
        found |= {SERVER_ROWS}
    return tuple(one for one in RESOURCES if one in found)


def _number(config: object, path: str) -> int:
    for name in path.split("."):
        config = getattr(config, name)
    return int(config)  # type: ignore[call-overload, no-any-return]
