"""`potluck fit --widths`."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from potluck.cli import app


def test_the_widest_that_fits_is_named() -> None:
    asked = ["fit", "cnn", "--device", "arduino-nano-33-ble-sense", "--shape", "1x28x28", "--classes", "10"]
    result = CliRunner().invoke(app, [*asked, "--widths", "1,0.5,0.05", "--json"])
    found = json.loads(result.stdout)
    assert [row["parameters"] for row in found["widths"]] == [20490, 9098, 520]
    assert found["widths"][0]["nbytes"] == 4 * 20490
    assert found["fits"] == (result.exit_code == 0)
    assert found["widest"] in (1.0, 0.5, 0.05, None)


def test_a_width_above_one_is_refused() -> None:
    result = CliRunner().invoke(
        app, ["fit", "cnn", "--device", "raspberry-pi-4", "--shape", "1x28x28", "--widths", "2"]
    )
    assert result.exit_code != 0
