"""Flower's own simulation, and stacks spread over a Ray cluster: other places, the same models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.short_runs import experiment_of, local_models, tiny
from safetensors.torch import load_file

from potluck.runs import drive

Capture = pytest.CaptureFixture[str]

pytest.importorskip("ray", reason="needs the extra ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("method", ["ftl", "echopfl", "centaur"])
def test_flower_sim_gives_the_models_of_the_local_engine(method: str, tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="needs the extra flower")
    experiment = experiment_of(
        method, tiny(tmp_path / "tiny.npz", clients=3), run={"engine": "flower-sim", "out": str(tmp_path / "runs")}
    )
    run = drive.start(experiment)
    assert run.summary["rounds"] == 2
    assert (run.summary["lost_clients"], run.summary["refused_updates"]) == (0, 0)
    if method == "echopfl":
        return
    for client, weights in local_models(experiment).items():
        found = load_file(run.folder / "nodes" / client / "models" / run.name / f"{client}.safetensors")
        for name, value in weights.items():
            torch.testing.assert_close(found[name], value, atol=1e-5, rtol=1e-5)


def test_flower_sim_trains_the_clients_that_the_local_engine_trains(tmp_path: Path, capfd: Capture) -> None:
    pytest.importorskip("flwr", reason="needs the extra flower")
    experiment = experiment_of(
        "fedavg",
        tiny(tmp_path / "tiny.npz", clients=3),
        model={"name": "mlp", "hidden": [4000]},
        fleet={"devices": ["pc-i7-9700", "arduino-nano-33-ble-sense", "pc-i7-9700"]},
        run={"out": str(tmp_path / "runs")},
        server={"share": 0.0},
    )
    here = drive.start(experiment)
    there = drive.start(experiment.with_(run={"engine": "flower-sim"}))
    assert here.summary["unfit_clients"] == there.summary["unfit_clients"] == ["s01"]
    assert there.summary["per_client"] == pytest.approx(here.summary["per_client"], abs=1e-6)
    said = capfd.readouterr()
    assert "deprecated" not in (said.out + said.err).lower()


@pytest.mark.parametrize(
    ("method", "model"), [("ftl", {"name": "mlp", "hidden": [6]}), ("echopfl", {"name": "mlp", "hidden": [6]})]
)
def test_workers_on_ray_give_the_same_bits(method: str, model: dict[str, object], tmp_path: Path) -> None:
    here = experiment_of(method, tiny(tmp_path / "tiny.npz"), model=model, run={"stacking": "never"})
    there = here.with_(run={"workers": "ray"})
    one, other = local_models(here), local_models(there)
    for client, weights in one.items():
        assert all(torch.equal(other[client][name], value) for name, value in weights.items())
    stacked = experiment_of(method, str(tmp_path / "tiny.npz"), model=model)
    one, other = local_models(stacked), local_models(stacked.with_(run={"workers": "ray"}))
    for client, weights in one.items():
        assert all(torch.equal(other[client][name], value) for name, value in weights.items())
