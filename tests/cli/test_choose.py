"""`potluck choose`: from data that nobody prepared to a recommendation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Potluck

QUICK = ["--model", "softmax", "--fleet", "pc", "--seeds", 1, "--jobs", 1]


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes a second; the tests of compare look at the pictures."""
    monkeypatch.setattr("potluck.report.write_figures", lambda runs, folder: [])


def test_it_proposes_compares_and_recommends(potluck: Potluck, here: Path) -> None:
    result = potluck("choose", "made", *QUICK, "--trials", 0, "--set", "partition.most_rows=16")
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    assert "the baseline that learning together must beat" in said
    assert "leave out" in said
    assert "Recommendation Use " in said
    assert "What would change it" in said
    assert "Fewer rows: with 8 labelled rows per client" in said
    assert "again potluck choose made" in said
    folder = here / "runs" / "choose-made"
    choice = json.loads((folder / "choice.json").read_text(encoding="utf-8"))
    assert choice["recommendation"]["method"] in [one["what"] for one in choice["proposal"]["methods"]]
    assert choice["facts"]["rows"] == 16
    assert (folder / "comparison.json").exists()
    assert (folder / "half-the-rows" / "comparison.json").exists()
    before = (folder / "choice.json").read_bytes()
    again = potluck("choose", "made", *QUICK, "--trials", 0, "--set", "partition.most_rows=16", "--resume", "--json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["recommendation"] == choice["recommendation"]
    assert json.loads(before)["proposal"] == json.loads(again.stdout)["proposal"]


@pytest.mark.slow
def test_it_tunes_on_validation_rows_first(potluck: Potluck, here: Path) -> None:
    result = potluck("compare", "auto", "--data", "made", *QUICK, "--set", "partition.most_rows=16")
    assert result.exit_code == 0, result.output
    tuned = json.loads((here / "runs" / "choose-made" / "tuning" / "tuning.json").read_text(encoding="utf-8"))
    assert set(tuned["methods"]) >= {"local", "fedavg", "ftl"}
    assert tuned["seeds"] == [1000]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["choose", "nowhere.npz"], "'nowhere.npz'"),
        (["choose", "made", "--trials", 1], "--trials: must be 0, or 2 and more, got 1"),
        (["compare", "auto"], "compare auto: must have --data, got none"),
        (["compare", "auto", "--data", "made", "--experiment", "x.toml"], "must not have --experiment"),
    ],
)
def test_mistakes_are_named(potluck: Potluck, args: list[object], sentence: str) -> None:
    result = potluck(*args)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())
