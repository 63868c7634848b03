"""Noise, clipping, budgets and charges between a fleet and a method, and across kills and resumes."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from potluck.errors import BadInput
from potluck.privacy import account
from potluck.privacy.account import Charge
from potluck.privacy.plan import Plan
from potluck.runs import checkpoint, drive
from potluck.runs.build import build
from potluck.runs.experiment import Experiment
from potluck.runs.private_fleet import PrivateFleet, Protection
from potluck.runs.results import Run
from potluck.runs.sums import PlainAdder
from potluck.runs.watcher import Silent

CLIENTS = 8


def experiment(folder: Path, method: str = "fedavg", rounds: int = 2, **privacy: Any) -> Experiment:
    own = {"recipe.lr": 0.05, "recipe.epochs": 1} if method != "fedcfc" else {}
    return Experiment.of(
        {
            "data": {"source": "made"},
            "partition": {"clients": CLIENTS},
            "fleet": {"devices": "boards"},
            "method": {"name": method, **own},
            "stop": {"rounds": rounds},
            "privacy": privacy,
            "run": {"out": str(folder), "evaluate_every": 1},
        }
    )


def summary(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run.folder / "summary.json").read_text())
    return found


def shared(run: Run) -> torch.Tensor:
    session = build(Experiment.read(run.folder / "experiment.toml"))
    saved = checkpoint.load(run.folder / "checkpoint", session.method.classes)
    assert saved is not None
    weights = session.method.shared(saved["state"])
    assert weights is not None
    return torch.cat([weights[name].reshape(-1) for name in sorted(weights)])


def test_noise_on_the_sum_has_the_width_that_epsilon_assumes(tmp_path: Path) -> None:
    noise, clip = 3.0, 1e-6  # so small a bound leaves noise alone
    quiet = Experiment.of(experiment(tmp_path).model_dump() | {"stop": {"rounds": 1}, "privacy": {}})
    start = torch.cat([value.reshape(-1) for _, value in sorted(build(quiet).weights.items())])
    run = drive.start(experiment(tmp_path, rounds=1, unit="client", clip=clip, noise=noise))
    spread = float((shared(run) - start).double().std())
    assert spread == pytest.approx(noise * clip / CLIENTS, rel=0.1)


@pytest.mark.parametrize("method", ["fedavg", "fedbuff", "fedasync", "ifca", "scaffold"])
def test_each_device_is_charged_what_dp_accounting_says(method: str, tmp_path: Path) -> None:
    told = summary(drive.start(experiment(tmp_path, method, unit="client", clip=0.5, noise=4.0)))["privacy"]
    counted = (1.0 + 0.25**2) ** 0.5 if method == "ifca" else 1.0
    possible = {account.epsilon([(Charge(4.0 / counted), times)], 1e-5) for times in range(1, 30)}
    assert len(told["per_client"]) == CLIENTS
    # A client that is twice in a buffer is charged for another noise, which is discretised by itself.
    for spent in told["per_client"].values():
        assert min(abs(spent - one) for one in possible) < (1e-6 if method == "fedbuff" else 1e-9)
    if method == "fedavg":
        assert told["spent"] == pytest.approx(account.epsilon([(Charge(4.0), 2)], 1e-5), abs=1e-9)
    if method == "ifca":
        assert max(told["per_cluster"].values()) == told["spent"]


def test_a_client_twice_in_a_sum_is_charged_for_twice_the_sensitivity() -> None:
    """Not for two releases: both of its updates are under the same noise."""
    plan = Plan("client", 1.0, 4.0, 1e-5)
    fleet = PrivateFleet(None, Protection({}, PlainAdder(1.0), 0, plan, 0, None), None)
    fleet._charge(["a", "b", "a"])
    assert fleet.ledger.charges("a") == {Charge(2.0): 1}
    assert fleet.ledger.charges("b") == {Charge(4.0): 1}


def test_a_sampled_round_is_charged_to_all_who_could_have_been_drawn(tmp_path: Path) -> None:
    run = drive.start(experiment(tmp_path, rounds=5, unit="client", clip=0.5, noise=2.0, rate=0.2, accountant="rdp"))
    told = summary(run)["privacy"]
    wanted = account.epsilon([(Charge(2.0, 0.2), 5)], 1e-5, "rdp")
    assert len(told["per_client"]) == CLIENTS
    assert set(told["per_client"].values()) == {wanted}
    assert told["releases"] == 5  # also of rounds in which nobody was drawn


def test_the_run_ends_before_the_budget_is_exceeded(tmp_path: Path) -> None:
    run = drive.start(experiment(tmp_path, rounds=50, unit="client", clip=0.5, noise=4.0, epsilon=2.0))
    told = summary(run)
    most = account.most(Charge(4.0), 2.0, 1e-5)
    assert 0 < most < 50
    assert told["rounds"] == most
    assert told["privacy"]["spent"] <= 2.0
    assert told["ended"] == "privacy: the budget of epsilon 2 is spent"


@pytest.mark.parametrize("method", ["fedavg", "ifca"])
def test_the_least_noise_for_an_epsilon_lasts_for_all_rounds(method: str, tmp_path: Path) -> None:
    told = summary(drive.start(experiment(tmp_path, method, rounds=3, unit="client", clip=0.5, epsilon=8.0)))
    assert told["rounds"] == 3
    assert 7.9 < told["privacy"]["spent"] <= 8.0


class _Killed(Exception):
    pass


@pytest.mark.parametrize("method", ["fedavg", "fedbuff"])
@pytest.mark.parametrize("kill", [1, 3])
def test_a_killed_run_ends_with_the_same_bits_and_the_same_charges(
    method: str, kill: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"unit": "client", "clip": 0.5, "noise": 4.0, "rate": 0.5 if method == "fedavg" else 1.0}
    whole = drive.start(experiment(tmp_path / "a", method, rounds=4, **settings))
    wanted = summary(whole)["privacy"]
    saves: list[int] = []

    def save(folder: Path, value: Any) -> None:
        original(folder, value)
        saves.append(1)

    original = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", save)
    monkeypatch.setattr(type(build(experiment(tmp_path))), "checkpoint_seconds", 0.0)

    class Watcher(Silent):
        steps = 0

        def step(self, progress: Any) -> None:
            Watcher.steps += 1
            if Watcher.steps == kill + 1:
                raise _Killed  # after the release, before its checkpoint

    with pytest.raises(_Killed):
        drive.start(experiment(tmp_path / "b", method, rounds=4, **settings), Watcher())
    assert saves
    folder = next(path for path in (tmp_path / "b").iterdir() if path.is_dir())
    again = drive.resume(folder)
    assert summary(again)["privacy"] == wanted
    assert torch.equal(shared(again), shared(whole))


def test_small_clusters_are_not_released(tmp_path: Path) -> None:
    run = drive.start(experiment(tmp_path, "ifca", rounds=1, unit="client", clip=0.5, noise=1.0, smallest=100))
    with sqlite3.connect(run.folder / "run.db") as database:
        rows = database.execute("SELECT detail FROM events WHERE kind = 'privacy'").fetchall()
    assert any("not released" in detail for (detail,) in rows)


@pytest.mark.parametrize(
    ("method", "privacy", "sentence"),
    [
        ("centralised", {"unit": "client", "noise": 1.0}, "hand over"),
        ("fedasync", {"unit": "client", "noise": 1.0, "rate": 0.1}, "rate"),
        ("oort", {"unit": "sample", "noise": 1.0}, "privacy.unit: must be client"),
        ("fedavg", {"noise": 1.0}, "needs privacy.unit"),
        ("fedavg", {"unit": "client"}, "privacy.noise: missing"),
        ("fedavg", {"unit": "client", "noise": 0.5, "epsilon": 0.1}, "privacy.epsilon: must be at least"),
        ("fedavg", {"unit": "client", "noise": 1.0, "noise_at": "client", "correlation": "tree"}, "noise_at"),
    ],
)
def test_settings_for_which_no_epsilon_holds_are_refused(
    method: str, privacy: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=sentence):
        build(experiment(tmp_path, method, **privacy))


def test_tree_noise_runs_and_costs_less_than_independent_noise_of_the_same_error(tmp_path: Path) -> None:
    told = summary(
        drive.start(
            experiment(tmp_path, "fedbuff", 3, unit="client", clip=0.5, noise=8.0, correlation="tree", leaves=64)
        )
    )["privacy"]
    assert 0 < told["spent"] < np.inf
