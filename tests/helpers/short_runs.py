"""Short runs of a method on a few samples, for the tests of the Flower engine and of deployments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from helpers.fleets import made
from potluck import methods
from potluck.runs.build import build
from potluck.runs.experiment import Experiment
from potluck.testing.trial import DEEP, paired, settings_of

DEVICE = "pc-i7-9700"


def tiny(path: Path, clients: int = 6, rows: int = 24) -> str:
    """Write a dataset of a few samples per client to a file."""
    dealt = made([rows + 2 * i for i in range(clients)])
    x, y = (np.concatenate([one[part] for one in dealt]) for part in (0, 1))
    subject = np.concatenate([np.full(len(one[1]), i) for i, one in enumerate(dealt)])
    np.savez(path, x=x, y=y, subject=subject)
    return str(path)


def experiment_of(method: str, data: str, /, rounds: int = 2, **sections: Any) -> Experiment:
    """A short run of a method on a small model; the settings that make it short are set where the method has them."""
    loaded = methods.load(method)
    short: dict[str, Any] = {"epochs": 1, "batch": 8, "cohort": 0, "public_epochs": 1}
    short |= {"pretrain_epochs": 1, "compress_epochs": 1, "dilate_epochs": 1}
    short |= {"predictor": "always"}  # EchoPFL's own is trained first, which takes long
    special = {"fedcfc": {"name": "cfc", "hidden": 4, "backbone": 6, "head": 4}, "fedbn": DEEP}
    model = special.get(method, {"name": "mlp", "hidden": [6]})
    values: dict[str, Any] = {
        "data": {"source": data},
        "model": model,
        "method": {"name": method, **settings_of(loaded, short)},
        "server": {"share": 0.2},
        "stop": {"rounds": rounds},
        "fleet": {"devices": DEVICE, **({"access_point": DEVICE} if paired(loaded, {}) else {})},
    }
    for section, changes in sections.items():
        values[section] = {**values.get(section, {}), **changes}
    return Experiment.of(values)


def local_models(experiment: Experiment) -> dict[str, Any]:
    """Each client's personal model after the same run on the local engine."""
    parts = build(experiment)
    state = parts.method.start(parts.weights, parts.config)
    program = parts.method.server(parts.fleet, state, parts.config)
    rounds = experiment.stop.rounds
    assert rounds is not None
    while state.round < rounds:
        state = next(program)
        parts.fleet.progress = state.round / rounds  # as the driver does
    return {
        name: parts.method.personal(state, name, parts.fleet.mine(place))
        for place, name in enumerate(parts.federation.names)
    }
