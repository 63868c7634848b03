"""What training takes in memory, and what `potluck fit` says of it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from potluck.cli import app
from potluck.errors import BadInput
from potluck.models import build
from potluck.models.memory import need

CFC = {"hidden": 16, "backbone": 16, "head": 16}


def test_a_small_cfc_part_by_part() -> None:
    model = build("cfc", (125, 6), 6, CFC)
    parts = need(model, keep="states", second_order=False)
    assert parts.weights == parts.gradients == 2102 * 4
    assert parts.samples == 125 * 6 * 4
    step = 16 + 48 + 48
    assert parts.activations == (126 * 16 + 2 * step) * 4
    assert parts.messages == 16 * 16 * 4
    assert parts.total == parts.weights + parts.gradients + parts.activations + parts.samples + parts.messages


def test_what_is_kept_and_how_it_is_stored() -> None:
    model = build("cfc", (125, 6), 6, CFC)
    everything, states, segments = (need(model, keep=keep).activations for keep in ("all", "states", "segments"))
    assert everything > states > segments
    assert need(model, keep="states").activations == 2 * need(model, keep="states", second_order=False).activations
    assert need(model, precision="int8").weights * 4 == need(model).weights
    assert need(model, batch=3).samples == 3 * need(model).samples
    with pytest.raises(BadInput, match="precision"):
        need(model, precision="int4")


def test_other_models_are_asked() -> None:
    """A perceptron keeps the hidden layer's output for the backward pass."""
    parts = need(build("mlp", (10,), 3, {"hidden": [32]}), batch=4)
    assert parts.weights == (10 * 32 + 32 + 32 * 3 + 3) * 4
    assert parts.activations >= 4 * 32 * 4
    assert parts.activations < 4 * 32 * 4 * 6
    assert parts.messages == 0


def fitted(*args: str) -> tuple[int, dict[str, object]]:
    result = CliRunner().invoke(app, ["fit", *args, "--shape", "125x6", "--json"])
    return result.exit_code, json.loads(result.stdout)


def test_fit_says_yes() -> None:
    code, found = fitted("cfc", "--device", "arduino-nano-33-ble-sense", "--set", "model.hidden=16")
    assert code == 0
    assert found["fits"]
    assert found["hints"] == []


def test_fit_knows_the_board_as_the_paper_calls_it() -> None:
    assert fitted("cfc", "--device", "arduino-nano-ble-sense")[1]["device"] == "arduino-nano-33-ble-sense"


def test_fit_says_no_and_what_to_shrink() -> None:
    code, found = fitted("cfc", "--device", "arduino-nano-33-ble-sense", "--set", "model.hidden=96", "--keep", "all")
    assert code == 1
    assert not found["fits"]
    assert any("model.hidden=" in str(hint) for hint in found["hints"])  # type: ignore[union-attr]


def test_fit_refuses_in_a_sentence() -> None:
    result = CliRunner().invoke(app, ["fit", "cfc", "--device", "arduino-nano-33-ble"])
    assert result.exit_code == 2
    assert "arduino-nano-33-ble-sense" in result.stderr
    assert CliRunner().invoke(app, ["fit", "cfc", "--device", "esp32", "--shape", "wide"]).exit_code == 2
