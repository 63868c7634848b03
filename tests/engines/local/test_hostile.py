"""Attackers in the simulator: what they send, what they do to their data, and that a bound limits the damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.short_runs import tiny
from runs.test_drive import contents

import potluck
from potluck.engines.local.hostile import ATTACKS, TARGET, Hostile, chosen, triggered
from potluck.errors import BadInput
from potluck.fleet import Data
from potluck.learn import Recipe
from potluck.methods.fedavg import Train, Trained
from potluck.runs import drive
from potluck.runs.experiment import Experiment

BASE = {"w": torch.tensor([1.0, 2.0])}
OWN = {"w": torch.tensor([1.5, 1.0])}


def sent(attack: str, client: str = "s00", count: int = 0) -> torch.Tensor:
    hostile = Hostile(frozenset({0}), attack, 10.0, seed=3)
    update = hostile.sends(Trained(OWN, torch.tensor(4.0)), Train(BASE, Recipe()), client, count)
    assert float(update.examples) == 4.0
    weights: torch.Tensor = update.weights["w"]
    return weights


def test_what_attackers_send() -> None:
    assert sent("sign").tolist() == [-4.0, 12.0]  # 1 - 10 * 0.5, 2 + 10 * 1
    assert sent("scale").tolist() == [6.0, -8.0]
    assert torch.equal(sent("labels"), OWN["w"])
    assert torch.equal(sent("collude"), sent("collude", "s01", 5))
    assert not torch.equal(sent("noise"), sent("noise", "s01"))


def test_attackers_are_a_share_of_the_clients_drawn_by_the_seed() -> None:
    assert chosen(0.0, 20, 1) == frozenset()
    assert chosen(0.05, 0, 1) == frozenset()  # a method may have no client of the kind
    assert len(chosen(0.05, 20, 1)) == 1
    assert len(chosen(0.001, 20, 1)) == 1
    assert len(chosen(0.15, 20, 1)) == 3
    assert len({chosen(0.15, 20, seed) for seed in range(8)}) > 1
    assert chosen(0.15, 20, 4) == chosen(0.15, 20, 4)


def test_a_backdoor_is_in_every_second_sample_of_attackers_only() -> None:
    clean = Data(torch.zeros(2, 4, 40), torch.full((2, 4), 2), torch.ones(2, 4))
    hostile = Hostile(frozenset({7}), "backdoor")
    poisoned = hostile.poisoned(lambda clients, capacity: clean)([5, 7], 4)
    assert torch.equal(poisoned.x[0], clean.x[0])
    assert poisoned.y.tolist() == [[2, 2, 2, 2], [TARGET, 2, TARGET, 2]]
    assert poisoned.x[1].sum(1).tolist() == [6.0, 0.0, 6.0, 0.0]  # two of forty features are 3
    assert float(clean.x.sum()) == 0.0  # what the cache keeps is not changed


@pytest.mark.parametrize(("shape", "touched"), [((20,), 1), ((20, 3), 6), ((1, 8, 8), 9)])
def test_triggers(shape: tuple[int, ...], touched: int) -> None:
    assert int((triggered(torch.zeros(1, 1, *shape)) == 3.0).sum()) == touched


def test_labels_are_reversed_after_a_drift() -> None:
    hostile = Hostile(frozenset({1}), "labels")
    assert hostile.labels(0, None, 3) is None
    assert hostile.labels(1, None, 3) == (2, 1, 0)
    assert hostile.labels(1, (1, 2, 0), 3) == (1, 0, 2)


def settings(data: str, out: Path, name: str = "run", **sections: Any) -> dict[str, Any]:
    return {
        "data": {"source": data},
        "model": {"name": "softmax"},
        "fleet": {"devices": "pc"},
        "method": {"name": "fedavg"},
        "stop": {"rounds": 6},
        "run": {"out": str(out), "name": name},
        **sections,
    }


def test_a_bound_limits_the_damage(tmp_path: Path) -> None:
    data = tiny(tmp_path / "tiny.npz", clients=10, rows=40)
    figures = {}
    for name, faults, clip in (("alone", {}, 3.0), ("open", {"hostile": 0.1}, 0.0), ("held", {"hostile": 0.1}, 3.0)):
        run = potluck.run(settings(data, tmp_path, name, faults=faults, wire={"clip": clip}))
        figures[name] = run.summary
    assert figures["alone"]["attack"] is None
    attack = figures["held"]["attack"]
    assert (attack["attack"], attack["scale"], len(attack["clients"])) == ("sign", 10.0, 1)
    assert figures["held"]["clipped_updates"] == 6
    assert figures["open"]["clipped_updates"] == figures["alone"]["clipped_updates"] == 0
    best = figures["alone"]["accuracy"]["mean"]
    assert attack["honest_accuracy"] > best - 0.05
    assert figures["open"]["attack"]["honest_accuracy"] < best - 0.15


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attacked_run_resumes_to_the_same_bits(tmp_path: Path, attack: str) -> None:
    data = tiny(tmp_path / "tiny.npz", clients=6)
    faults = {"hostile": 0.2, "attack": attack}
    whole = drive.start(Experiment.of(settings(data, tmp_path / "a", faults=faults)))
    paused = drive.start(Experiment.of(settings(data, tmp_path / "b", faults=faults)), pause=0.5)
    resumed = drive.resume(paused.folder)
    assert contents(resumed) == contents(whole)
    assert resumed.summary["attack"] == whole.summary["attack"]
    assert (whole.summary["attack"]["backdoor"] is not None) == (attack == "backdoor")


def test_unknown_attacks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"faults\.attack: .*sign"):
        Experiment.of(settings("made", tmp_path, faults={"hostile": 0.1, "attack": "flood"}))
