"""What the methods with sub-models have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers.fleets import fleet_of, made, run
from helpers.submodels import EXPERIMENT

from potluck import methods
from potluck.errors import BadInput
from potluck.models import build
from potluck.runs.build import build as build_run
from potluck.runs.experiment import Experiment


@pytest.mark.parametrize("name", ["heterofl", "fedrolex", "hermes", "tailorfl", "standalone", "fedmd", "fedconv"])
def test_everybody_trains_a_model_of_its_own_width(name: str) -> None:
    method = methods.load(name)
    settings: dict[str, Any] = {"recipe.epochs": 1, "recipe.batch": 5}
    config = method.configure(settings)
    model = build("mlp", (4,), 3, {"hidden": [8]})
    fleet, state = fleet_of(method, config, made((12, 9, 9, 9, 9)), model=model)
    state = run(method, config, fleet, state, 2)
    sizes = sorted(len(fleet.mine(place).weights["fc1.bias"]) for place in range(5))
    assert sizes == [2, 4, 6, 6, 8]
    for place, client in enumerate(fleet.clients):
        logits = model.logits(method.personal(state, client, fleet.mine(place)), torch.zeros(2, 4))
        assert bool(torch.isfinite(logits).all())


def test_unlike_widths_are_evaluated_together() -> None:
    parts = build_run(Experiment.of({**EXPERIMENT, "method": {"name": "heterofl", "recipe.epochs": 1}}))
    state = next(parts.method.server(parts.fleet, parts.method.start(parts.weights, parts.config), parts.config))
    found = parts.evaluate(state)
    assert np.isfinite(found.accuracy).all()


@pytest.mark.parametrize("name", ["fedmd", "serveralone"])
def test_methods_that_train_on_server_rows_need_some(name: str) -> None:
    with pytest.raises(BadInput, match=r"server.share: must be above 0, got 0"):
        build_run(Experiment.of({**EXPERIMENT, "server": {"share": 0.0}, "method": {"name": name}}))
