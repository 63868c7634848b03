"""What a deployed run leaves on the server: models, and where the others are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.short_runs import experiment_of, tiny

from potluck.errors import BadInput
from potluck.runs import drive, model_files
from potluck.runs.results import Run
from potluck.runs.watcher import Progress, Silent
from potluck.testing.loopback import Loopback, machines, owners, staged


def run_without_the_last(method: str, folder: Path, **sections: Any) -> Run:
    """A run of three clients, the last of which goes offline before the models are saved."""
    experiment = experiment_of(method, tiny(folder / "tiny.npz", clients=3), **sections)
    wire = Loopback(machines(experiment, folder / "machines", **owners(experiment)))

    class LastLeaves(Silent):
        def step(self, progress: Progress) -> None:
            if progress.round == experiment.stop.rounds:
                wire.away = {3}

    (folder / "run").mkdir()
    return drive.carry_out(folder / "run", staged(experiment, wire), LastLeaves())


def test_the_model_of_a_client_that_was_away_at_the_end_can_be_used(tmp_path: Path) -> None:
    run = run_without_the_last("fedavg", tmp_path)
    with pytest.raises(BadInput, match=r"'s00' stays on its own machine, in .*s00\.safetensors"):
        run.personal("s00")
    away = run.personal("s02")
    shared, about = model_files.load(run.folder / "models" / "global.safetensors")
    assert all(torch.equal(away.weights[name], value) for name, value in shared.items())
    assert about == away.about
    with np.load(tmp_path / "tiny.npz") as data:
        assert away.predict(data["x"][:5]).shape == (5,)


def test_a_model_that_only_the_server_has_is_written_there(tmp_path: Path) -> None:
    """EchoPFL's clients keep nothing: their models are those of the clusters in the server's state."""
    run = run_without_the_last("echopfl", tmp_path)
    assert [path.stem for path in (run.folder / "models" / "personal").iterdir()] == ["s02"]
    assert run.personal("s02").weights


def test_private_state_that_the_model_does_not_need_is_not_missed(tmp_path: Path) -> None:
    """SCAFFOLD's clients keep control variates, their model is the shared one."""
    run = run_without_the_last("scaffold", tmp_path)
    assert not (run.folder / "models" / "personal").exists()
    shared, _ = model_files.load(run.folder / "models" / "global.safetensors")
    assert all(torch.equal(run.personal("s02").weights[name], value) for name, value in shared.items())


def test_a_model_that_needs_private_state_stays_with_its_client(tmp_path: Path) -> None:
    run = run_without_the_last("ftl", tmp_path)
    with pytest.raises(BadInput, match=r"'s02' is on its own machine, which was offline when the run ended"):
        run.personal("s02")
    with pytest.raises(BadInput, match="client: 's99' is not known"):
        run.personal("s99")
