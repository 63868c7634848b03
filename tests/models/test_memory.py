"""What training takes in memory, and what `potluck fit` says of it."""

from __future__ import annotations

import json
import shutil

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
    assert parts.samples == 0  # they stay in flash
    record, adjoints = 6 + 16 + 16 + 48 + 48, 16 + 48 + 48 + 6
    assert parts.activations == (125 * 16 + 4 * (record + adjoints) + 3 * 16 + 6 + 2 * 16) * 4
    assert parts.messages == 16 * 16 * 4
    assert parts.total == parts.weights + parts.gradients + parts.activations + parts.samples + parts.messages


def test_what_is_kept_and_how_it_is_stored() -> None:
    model = build("cfc", (125, 6), 6, CFC)
    everything, states, segments = (need(model, keep=keep).activations for keep in ("all", "states", "segments"))
    assert everything > states > segments
    assert need(model, keep="states").activations > need(model, keep="states", second_order=False).activations
    assert need(model, precision="int8").weights < need(model).weights / 3.5
    mlp = build("mlp", (10,), 3, {"hidden": [32]})
    assert need(mlp, batch=3).samples == 3 * need(mlp).samples
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


@pytest.mark.parametrize(
    ("shape", "settings", "precision", "keep"),
    [
        ((125, 6), {"hidden": 32, "backbone": 32, "head": 32}, "float32", "segments"),
        ((125, 6), {"hidden": 32, "backbone": 32, "head": 32, "layers": (1, 1, 1)}, "int8", "segments"),
        ((125, 6), {"hidden": 16, "backbone": 192, "head": 16}, "float32", "states"),
        ((13, 3), {"hidden": 5, "backbone": 7, "head": 9, "layers": (2, 1, 1)}, "int8", "all"),
        ((1, 1), {"hidden": 1, "backbone": 1, "head": 1}, "float32", "segments"),
        ((125, 6), {"hidden": 32, "backbone": 32, "head": 32}, "float32", "fours"),
        ((3, 2), {"hidden": 5, "backbone": 7, "head": 9}, "float32", "fours"),
    ],
)
def test_fit_and_firmware_give_one_figure(
    shape: tuple[int, int], settings: dict[str, object], precision: str, keep: str
) -> None:
    """`potluck fit` says what the client in C takes, byte for byte."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler: cc is not on this machine")
    from potluck.firmware.shape import memory_needed, setup_of
    from potluck.methods.fedcfc import Config

    model = build("cfc", shape, 6, settings)
    setup = setup_of(model, Config(), keep=keep, form=precision)
    assert need(model, precision=precision, keep=keep).total == memory_needed(setup)
