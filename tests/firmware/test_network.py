"""The C client's network against PyTorch: gradient, bound gradient, one whole step."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from helpers.board_stages import apart, case, firmware, pytorch

CASES: dict[str, dict[str, Any]] = {
    "two layers": {},
    "one layer": {"settings": {"layers": (1, 1, 1)}},
    "mixed layers": {"settings": {"layers": (2, 1, 1)}},
    "g of two layers": {"settings": {"layers": (1, 2, 1)}},
    "gated": {"settings": {"gate": "gated"}},
    "irregular": {"timed": True},
    "ragged": {"timed": True, "ragged": True, "samples": 4},
    "printed": {"terms.ra_form": "printed"},
    "first round": {"aimed": False},
    "within the magnitude": {"cum": 1e3},
    "not clipped": {"recipe.clip": 0.0},
    "activity is enough": {"terms.v": -5.0},
    "direction alone": {"terms.lambda_m": 0.0, "terms.lambda_a": 0.0},
    "one sample": {"samples": 1},
    "wide": {"settings": {"hidden": 16, "backbone": 24, "head": 16}, "channels": 6},
    "one step": {"steps": 1},
    "every fourth state": {"keep": "fours", "ragged": True, "steps": 11},
}


@pytest.mark.parametrize("name", CASES)
def test_every_stage(name: str) -> None:
    """In double precision, where rounding is out of the way and mistakes in the maths would show; and as the board
    computes it: float32, with its own exp, tanh and log, under the sanitizers."""
    one = case(**CASES[name])
    theirs = pytorch(one)
    for ours, near in ((firmware(one, double=True), 2e-12), (firmware(one, sanitize=True), 1e-6)):
        for stage in fields(ours):
            assert apart(getattr(ours, stage.name), getattr(theirs, stage.name)) < near, stage.name


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 9, 17, 20])
def test_what_is_kept_does_not_change_the_gradient(steps: int) -> None:
    """All, states, segments, fours: the same bits, since the same numbers are computed again in the same order."""
    kinds = [
        firmware(case(steps=steps, keep=keep, ragged=steps > 9)) for keep in ("all", "states", "segments", "fours")
    ]
    for stage in fields(kinds[0]):
        values = [getattr(kind, stage.name) for kind in kinds]
        for value in values[1:]:
            assert apart(value, values[0]) == 0.0, stage.name


def test_kept_int8_activations_cost_about_a_percent() -> None:
    shape = {"hidden": 16, "backbone": 24, "head": 16}
    exact, rounded = (
        firmware(case(steps=60, channels=6, settings=shape, kept=kept, keep="states")) for kept in ("float32", "int8")
    )
    assert 0 < apart(rounded.gradient, exact.gradient) < 0.03
    assert exact.gradient @ rounded.gradient > 0.999 * exact.gradient.norm() * rounded.gradient.norm()


def test_int8_weights_move_as_the_simulated_ones_do() -> None:
    """The same draws from the same key: a value may end one off only where float32 rounding tips a floor."""
    one = case(form="int8", **{"recipe.clip": 0.0, "recipe.lr": 0.5})
    ours, theirs = firmware(one, sanitize=True), pytorch(one)
    before = pytorch(replace(one, config=replace(one.config, recipe=replace(one.config.recipe, lr=1e-12)))).weights
    assert apart(ours.bound, theirs.bound) < 1e-6
    assert float((ours.weights != theirs.weights).double().mean()) < 0.005
    assert float((theirs.weights != before).double().mean()) > 0.2


def test_a_detached_q_would_be_seen() -> None:
    """The second-order terms are live: without them the bound gradient is the plain one, and far off."""
    one = case(**{"terms.lambda_a": 0.0})
    ours = firmware(one, double=True)
    assert apart(ours.gradient, pytorch(one).bound) > 1e-2
    assert apart(ours.bound, pytorch(one).bound) < 2e-12
