"""The choice of beta: trials on validation rows, and bounds of alpha, beta and rho."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.fleets import fleet_of, made, run
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck import methods
from potluck.errors import BadInput
from potluck.methods import clusterfl
from potluck.methods.parts.clusterfl import tuning
from potluck.methods.parts.clusterfl.tuning import best, strength

METHOD = methods.load("clusterfl")
QUICK: dict[str, Any] = {"recipe.epochs": 2, "recipe.batch": 5, "recipe.lr": 0.05, "f_every": 2, "beta": 0.3}
WEAK = {name: value for name, value in QUICK.items() if name != "beta"}


def test_equally_good_candidates_give_the_weaker() -> None:
    config = METHOD.configure({**QUICK, "beta": "auto", "tuning.candidates": [1.0, 0.1]})
    state = replace(clusterfl.start({"w": torch.zeros(1)}, config), scores={"1.0": 0.5, "0.1": 0.5})
    assert best(state).beta == 0.1


@given(st.floats(0.01, 0.99), st.floats(1e-4, 1.0), st.integers(1, 500))
@settings(max_examples=50, deadline=None)
def test_strength_is_a_share_of_the_way(coupling: float, lr: float, steps: int) -> None:
    found = strength(coupling, torch.tensor(lr).double(), torch.tensor(steps).double())
    assert float(1.0 - (1.0 - found * lr) ** steps) == pytest.approx(coupling)


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
        ({"beta": 0.1, "coupling": 0.5}, "coupling: must not be given together with beta"),
        ({"coupling": 1.0}, "coupling: must be"),
        ({"alpha": 0.5}, "alpha: must be given together with beta"),
        ({"tuning.couplings": [1.5]}, r"tuning\.couplings"),
    ],
)
def test_settings_without_a_bound_are_refused(given_settings: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        METHOD.configure(given_settings)


def test_rho_below_four_beta_is_allowed_with_the_guard_off() -> None:
    assert METHOD.configure({"mode": "admm", "beta": 1.0, "rho": 3.0, "guard": False}).rho == 3.0


@pytest.mark.parametrize("killed", [1, 2])
def test_auto_resumes_from_any_state(killed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run killed between two rounds ends as one never killed: the candidates are in the state."""
    config = METHOD.configure({**WEAK, "coupling": "auto", "tuning.couplings": [0.3, 0.6], "tuning.trial_rounds": 2})
    ends = []
    for stops in ((4,), (killed, 4 - killed)):
        scores = iter((0.5, 0.7))  # these small fleets have no validation rows
        monkeypatch.setattr(tuning, "mean_accuracy", lambda fleet, scores=scores: next(scores))
        fleet, state = fleet_of(METHOD, config, made((9, 9, 9)))
        for rounds in stops:
            state = run(METHOD, config, fleet, state, rounds)
        ends.append((state, METHOD.personal(state, "c0", fleet.mine(0))["fc.weight"]))
    (one, model), (other, same) = ends
    assert (one.coupling, one.round, one.trials, one.owed) == (0.6, 4, (), ())
    assert torch.equal(one.table.weights, other.table.weights)
    assert torch.equal(model, same)
    assert other.scores == {"0.3": 0.5, "0.6": 0.7}


def test_while_candidates_are_tried_a_client_has_a_model_of_the_middle_one() -> None:
    config = METHOD.configure({**WEAK, "coupling": "auto", "tuning.couplings": [0.1, 0.3, 0.6]})
    fleet, state = fleet_of(METHOD, config, made((9, 9, 9)))
    state = run(METHOD, config, fleet, state, 2)
    weights = METHOD.personal(state, "c1", fleet.mine(1))
    middle = state.trials[1]
    flat = torch.cat([weights[name].reshape(-1) for name in weights])
    torch.testing.assert_close(flat, middle.table.weights[1])
    assert state.round == middle.round == 2
