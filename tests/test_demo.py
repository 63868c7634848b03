from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

import pytest

from potluck import demo
from potluck.data.load import load
from potluck.errors import Missing
from potluck.methods import METHODS
from potluck.report import Comparison, Row, Spread
from potluck.runs import compare
from potluck.runs.deal import federation_of

BEFORE = Path(__file__).parents[1] / "experiments" / "demo" / "before_tuning.toml"


def read(path: Path) -> tuple[dict[str, object], list[str], list[str]]:
    return compare.of_file(tomllib.loads(path.read_text(encoding="utf-8")))


def test_the_five_systems_meet_ftl_fedavg_and_local_training() -> None:
    planned = demo.plan("runs", seeds=2)
    names = {run.method for run in planned.runs}
    assert names == {"local", "fedavg", "ftl", "clusterfl", "echopfl", "fedcfc", "centaur", "fedconv"}
    assert len(planned.runs) == 2 * len(names)


def test_everybody_gets_the_same_time_rows_and_devices() -> None:
    chosen = [run.experiment for run in demo.plan("runs", seeds=2).runs]
    assert {tuple(one.budget.limits.items()) for one in chosen} == {(("virtual_seconds", 180.0),)}
    assert {(one.fleet.devices, one.fleet.pace, one.server.share) for one in chosen} == {
        ("mixed", chosen[0].fleet.pace, 0.02)
    }
    assert all(one.partition == chosen[0].partition for one in chosen)
    (short, *_) = demo.plan("runs", seeds=1, seconds=5.0).runs
    assert short.experiment.budget.limits == {"virtual_seconds": 5.0}


def test_two_minutes_are_labelled_and_one_split_holds_for_all_seeds() -> None:
    """With a split per seed, a row that tests one run could have tuned another."""
    try:
        load("watch_exercises_10hz")
    except Missing as missing:
        pytest.skip(str(missing))
    first, second = (federation_of(run.experiment) for run in demo.plan("runs", seeds=2).runs[::8])
    assert (first.side == second.side).all()
    sizes = [first.sizes[i] for i in range(len(first))]
    assert len(sizes) == 20
    assert max(sizes) * demo.ROW_SECONDS == pytest.approx(120, abs=demo.ROW_SECONDS)


def test_only_tuned_settings_differ_from_the_file_that_was_tuned() -> None:
    (values, names, own), (before, old_names, old_own) = read(demo.FILE), read(BEFORE)
    assert values == before
    assert sorted(names) == sorted(old_names)
    assert set(old_own) <= set(own)
    assert all(one.partition(":")[2].startswith("method.") for one in set(own) - set(old_own))


def test_the_beginning_says_what_is_compared_and_at_which_budget() -> None:
    told = demo.welcome(demo.plan("runs", seeds=2)).replace("\N{NO-BREAK SPACE}", " ")
    assert "centaur" in told
    assert "2 seeds each" in told
    assert "47 labelled rows, which are 2 minutes of movement" in told
    assert "from microcontrollers to PCs" in told
    assert "180 s of virtual time" in told
    assert f"{len(METHODS) - 8} more methods" in told


def row(method: str, accuracy: float, moved: float) -> Row:
    nothing = {field.name: None for field in dataclasses.fields(Row)}
    given = {"method": method, "name": method, "seeds": [0, 1], "finished": True, "unfinished": [], "best": False}
    figures = {"accuracy": accuracy, "bytes_up": moved, "bytes_down": moved, "joules": moved / 1e4}
    return Row(**(nothing | given | {name: Spread(value, 0.0) for name, value in figures.items()}))


def test_findings_end_with_costs_and_the_other_regime() -> None:
    rows = [row("ftl", 0.9, 1e6), row("fedavg", 0.8, 2e6), row("local", 0.7, 1e3)]
    comparison = Comparison("watch", 20, rows, "ftl", "ftl is ahead.", ["Three could not train."])
    told = [text.replace("\N{NO-BREAK SPACE}", " ") for text in demo.findings(comparison, [])]
    assert told == [
        "ftl is ahead.",
        "Three could not train.",
        "fedavg sends the most: 4 MB and 200 J for 80.0 %. local sends the least: 2 kB and 100 mJ for 70.0 %.",
        demo.ALL_ROWS,
    ]
