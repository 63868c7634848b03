"""Optuna as a sampler: its candidates, repeated exactly, and its study in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from tune.test_tuning import Nobody, tuned

from potluck.errors import Missing
from potluck.spaces import Choice, Range, Space
from potluck.tune.candidates import Settings
from potluck.tune.request import Request

SPACE: Space = {"recipe.lr": Range(0.01, 1.0, log=True), "buffer": Range(1, 8, whole=True), "kind": Choice("a", "b")}
DEFAULT: Settings = {"recipe.lr": 0.05, "buffer": 2, "kind": "a"}


def test_without_optuna_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(Missing, match=r"optuna: not installed.*\[tune\]"):
        tuned(tmp_path, request=Request(trials=4, seeds=1, sampler="optuna"))


def drawn(seed: int) -> list[Settings]:
    pytest.importorskip("optuna")
    from potluck.tune.optuna_sampler import Optuna

    sampler = Optuna(SPACE, DEFAULT, seed, "fedavg")
    found: list[Settings] = []
    for wave in range(4):
        new = sampler.ask(sampler.wave)
        told = [(one, 1.0 - abs(float(one["recipe.lr"]) - 0.3)) for one in new]
        sampler.tell([*([(DEFAULT, 0.5)] if not wave else []), *told])
        found += new
    return found


def test_the_same_scores_give_the_same_candidates() -> None:
    found = drawn(1)
    assert found == drawn(1)
    assert found != drawn(2)
    assert DEFAULT not in found
    assert len(found) == 16
    for one in found:
        assert 0.01 <= float(one["recipe.lr"]) <= 1.0
        assert one["buffer"] in range(1, 9)
        assert one["kind"] in ("a", "b")


def test_a_tuning_by_optuna_is_repeatable_and_leaves_its_study(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    request = Request(trials=7, seeds=1, sampler="optuna")
    found = tuned(tmp_path, request=request)["methods"]["fedavg"]
    assert len(found["candidates"]) == 7
    idle = Nobody()
    assert tuned(tmp_path, request=request, take_up=True, watch=idle)["methods"]["fedavg"] == found
    assert not idle.names
    study = optuna.load_study(study_name="fedavg", storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert [one.user_attrs["settings"] for one in study.trials] == [one["settings"] for one in found["candidates"]]
    assert study.best_value == found["chosen_accuracy"]
    complete = [one for one in study.trials if one.state == optuna.trial.TrialState.COMPLETE]
    assert 1 < len(complete) < 7
    assert not list(tmp_path.glob(".study*"))
