"""A microcontroller behind one node of a Flower fleet, the others plain machines: the same end as all simulated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.boards import emulation, series
from safetensors.torch import load_file

from potluck.deploy.client.machine import ClientMachine
from potluck.deploy.client.owner import Owner
from potluck.engines.serial.board import Board
from potluck.errors import BadInput
from potluck.firmware.boards import BOARDS
from potluck.firmware.emulator import Emulator
from potluck.firmware.image import build
from potluck.runs import drive
from potluck.runs.experiment import Experiment
from potluck.runs.watcher import Silent
from potluck.testing.loopback import Loopback, kept_models, machines, staged

MISSING = emulation()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


METHODS: dict[str, tuple[dict[str, Any], int]] = {  # the model, and trainings on the board in three rounds
    "fedcfc": ({"name": "cfc", "hidden": 6, "backbone": 8, "head": 6}, 3),
    "ditto": ({"name": "mlp", "hidden": [7]}, 6),
    "fedbits": ({"name": "cfc", "hidden": 6, "backbone": 8, "head": 6}, 3),
}


@pytest.mark.parametrize("method", METHODS)
def test_a_board_among_flower_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    model, trainings = METHODS[method]
    x, y = series(3 * 14, classes=3)
    np.savez(tmp_path / "waves.npz", x=x, y=y, subject=np.arange(len(y)) % 3)
    sections: dict[str, Any] = {
        "data": {"source": str(tmp_path / "waves.npz")},
        "partition": {"kind": "subject", "valid_share": 0.2},
        "fleet": {"devices": "raspberry-pi-4"},
        "model": model,
        "method": {"name": method, "recipe.batch": 4, "recipe.lr": 0.05},
        "stop": {"rounds": 3},
        "run": {"out": str(tmp_path / "runs"), "evaluate_every": 3},
    }
    experiment = Experiment.of(sections)
    simulated = drive.start(experiment)
    asked, train, fit = [], Board.train, Board.fit
    monkeypatch.setattr(Board, "train", lambda self, task, cud: asked.append(self.name) or train(self, task, cud))
    monkeypatch.setattr(Board, "fit", lambda self, order: asked.append(self.name) or fit(self, order))
    there = machines(experiment, tmp_path / "machines")
    image = build(BOARDS["nrf52832"], 30_000)
    with Emulator(image.elf, f"unix:{tmp_path / 'line'}", tmp_path / "flash") as emulator:
        there["s01"] = ClientMachine(replace(there["s01"].owner, board=emulator.address))
        folder = tmp_path / "run"
        folder.mkdir()
        drive.carry_out(folder, staged(experiment, Loopback(there)), Silent())
    assert asked == ["s01"] * trainings
    found = kept_models(there)
    assert len(found) == 3
    for name, weights in found.items():
        (file,) = (simulated.folder / "models").rglob(f"{name}.safetensors")
        ours = load_file(file)
        assert max(float((ours[part] - weights[part]).abs().max()) for part in ours) < 1e-5, name


def test_an_address_that_no_board_can_have_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="an address must be tcp:HOST:PORT"):
        ClientMachine(Owner("s01", "s01.npz", tmp_path, board="/dev/ttyACM0"))
