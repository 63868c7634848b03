"""The choice of beta: trials on validation rows, and bounds of alpha, beta and rho."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.fleets import fleet_of, made

from potluck import methods
from potluck.errors import BadInput
from potluck.methods import clusterfl
from potluck.methods.parts.clusterfl.tuning import choose
from potluck.models import build

METHOD = methods.load("clusterfl")
QUICK: dict[str, Any] = {"recipe.epochs": 2, "recipe.batch": 5, "recipe.lr": 0.05, "f_every": 2, "beta": 0.3}


def test_equally_good_candidates_give_the_smaller() -> None:
    config = METHOD.configure({**QUICK, "beta": "auto", "tuning.candidates": [1.0, 0.1]})
    state = replace(clusterfl.start({"w": torch.zeros(1)}, config), scores={"1.0": 0.5, "0.1": 0.5})
    fleet, _ = fleet_of(METHOD, config, made((9, 9)))
    chosen = list(choose(fleet, state, config, clusterfl.start, clusterfl.server))[-1]
    assert chosen.beta == 0.1


@pytest.mark.parametrize(
    ("given_settings", "says"),
    [
        ({"mode": "admm", "beta": 5e-4, "rho": 2e-3}, r"rho.*more than 4 beta.*Try rho = 0.005"),
        ({"mode": "admm", "beta": 5e-4, "rho": 1e-3, "guard": False}, "2 beta"),
        ({"beta": 1.0, "alpha": 0.1}, r"alpha.*Try alpha = 1"),
        ({"beta": -1.0}, "beta"),
        ({"beta": "some"}, "beta"),
        ({"mode": "sgd"}, "mode"),
        ({"tuning.candidates": [], "beta": "auto"}, r"tuning\.candidates"),
        ({"f_every": 0}, "f_every"),
    ],
)
def test_settings_without_a_bound_are_refused(given_settings: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        METHOD.configure(given_settings)


def test_rho_below_four_beta_is_allowed_with_the_guard_off() -> None:
    assert METHOD.configure({"mode": "admm", "beta": 1.0, "rho": 3.0, "guard": False}).rho == 3.0


def test_beta_auto_resumes_from_any_state() -> None:
    """A run killed between two trials ends as one never killed: the scores are in the state."""
    config = METHOD.configure({**QUICK, "beta": "auto", "tuning.candidates": [0.1, 0.3], "tuning.trial_rounds": 2})
    state = replace(clusterfl.start(build("softmax", (4,), 3, {}).init(0), config), scores={"0.1": 0.5, "0.3": 0.7})
    fleet, _ = fleet_of(METHOD, config, made((9, 9, 9)))
    after = next(METHOD.server(fleet, state, config))
    assert (after.beta, after.alpha) == (0.3, 0.3)
