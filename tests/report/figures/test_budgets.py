"""Methods at equal budgets, checked with pencil and paper: a made round takes 10 s, 300 B, 5 J and one pass."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from helpers.made_runs import made_run

from potluck.report.figures.budgets import Limit, accuracy_at, area, basis, limit_of, line_of
from potluck.report.figures.comparison import compare, spread
from potluck.report.reading.groups import group
from potluck.report.reading.run_figures import run_figures
from potluck.runs.results import Run


def flat(*means: float) -> list[dict[str, float]]:
    return [{"a": mean, "b": mean} for mean in means]


def with_start(run: Run, mean: float) -> Run:
    """The run with an evaluation before its first step."""
    with sqlite3.connect(run.folder / "run.db") as db:
        db.execute("INSERT INTO steps VALUES (0, 0, 0.0, 0.0, 0, 0, 0, 0.0, 0.0, 0.0)")
        db.execute("INSERT INTO evaluations VALUES (0, ?, 0, ?, ?, ?, 1.0, NULL)", (mean, mean, mean, mean))
    return run


def test_the_accuracy_at_a_limit_is_that_of_the_last_evaluation_at_or_before_it(tmp_path: Path) -> None:
    run = run_figures(with_start(made_run(tmp_path, rounds=flat(0.4, 0.6, 0.5)), 0.1))
    for amount, wanted in ((5.0, 0.1), (10.0, 0.4), (29.9, 0.6), (30.0, 0.5), (1e6, 0.5)):
        assert accuracy_at(run, Limit("virtual_seconds", amount, given=True)) == wanted
    assert accuracy_at(run, Limit("local_passes", 2.0, given=True)) == 0.6
    assert accuracy_at(run, Limit("bytes", 599.0, given=True)) == 0.4
    assert accuracy_at(run, Limit("joules", 10.0, given=True)) == 0.6


def test_the_area_is_the_mean_accuracy_on_the_way(tmp_path: Path) -> None:
    run = run_figures(with_start(made_run(tmp_path, rounds=flat(0.4, 0.6)), 0.1))
    assert area(run, Limit("virtual_seconds", 20.0, given=True)) == pytest.approx((0.1 + 0.4) / 2)
    assert area(run, Limit("virtual_seconds", 40.0, given=True)) == pytest.approx((0.1 + 0.4 + 0.6 + 0.6) / 4)
    assert area(run_figures(made_run(tmp_path, seed=1)), Limit("virtual_seconds", 20.0, given=True)) is None


def test_figures_of_a_run_with_a_budget_stop_at_the_budget(tmp_path: Path) -> None:
    last = {"a": 0.9, "b": 0.9}
    run = run_figures(made_run(tmp_path, rounds=[*flat(0.4, 0.6), last], settings={"budget.virtual_seconds": 25.0}))
    assert run.last is not None
    assert run.last.mean == 0.6
    assert {client.accuracy for client in run.clients} == {0.6}
    assert len(run.points) == 3


def test_the_first_evaluation_counts_beyond_the_budget_too(tmp_path: Path) -> None:
    run = run_figures(made_run(tmp_path, rounds=flat(0.4, 0.6), settings={"budget.virtual_seconds": 5.0}))
    assert run.last is not None
    assert run.last.mean == 0.4
    assert {client.accuracy for client in run.clients} == {0.4}


def test_equal_time_is_the_budget_or_else_the_median_of_the_methods(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, name, rounds=flat(*[0.5] * n)) for name, n in (("fedavg", 2), ("local", 4), ("ftl", 9))]
    found = limit_of(group(runs).groups, "virtual_seconds")
    assert found == Limit("virtual_seconds", 40.0, given=False)
    assert found.label.replace("\u00a0", " ") == "median run: 40 s"
    budget = {"budget.virtual_seconds": 25.0}
    given = [made_run(tmp_path / "b", name, settings=budget) for name in ("fedavg", "local")]
    groups = group(given).groups
    assert limit_of(groups, "virtual_seconds") == Limit("virtual_seconds", 25.0, given=True)
    assert line_of(groups, "virtual") == Limit("virtual_seconds", 25.0, given=True)
    assert line_of(groups, "bytes") is None  # nobody gave a budget of bytes
    assert line_of(groups, "round") is None


def test_the_first_line_says_what_is_equal_and_warns_of_rounds(tmp_path: Path) -> None:
    rounds = [made_run(tmp_path, name, rounds=flat(0.5, 0.6)) for name in ("fedavg", "local")]
    assert basis(group(rounds).groups).replace("\u00a0", " ") == (
        "Rounds mean different things. One round is: fedavg 1 pass and 10 s; local 1 pass and 10 s. "
        "Compare at equal time or passes instead."
    )
    settings = {"budget.local_passes": 2.0, "fleet.rows_per_hour": 60.0, "fleet.passes": 2.0, "fleet.duty": 0.5}
    equal = [made_run(tmp_path / "b", name, settings=settings) for name in ("fedavg", "local")]
    assert basis(group(equal).groups).replace("\u00a0", " ") == (
        "Equal budget: every run ends at 2 local passes. Pace of the devices: 60 labelled rows arrive at a client in "
        "an hour, and each row is visited at most 2 times, and a device trains for at most 50 % of the time."
    )
    assert basis(group(rounds[:1]).groups) == ""


def test_a_comparison_has_both_columns_with_intervals_over_seeds(tmp_path: Path) -> None:
    runs = [
        with_start(made_run(tmp_path, name, seed, rounds=flat(*means)), 0.1)
        for seed in range(3)
        for name, means in (("fedavg", (0.5 + seed / 100, 0.8)), ("local", (0.6, 0.6, 0.7, 0.7)))
    ]
    found = compare(runs)
    assert found.time == Limit("virtual_seconds", 30.0, given=False)
    assert found.passes == Limit("local_passes", 3.0, given=False)
    fedavg, local = found.rows
    assert fedavg.at_time is not None
    assert local.at_passes is not None
    assert (fedavg.at_time.mean, local.at_passes.mean) == pytest.approx((0.8, 0.7))
    assert fedavg.area is not None
    assert fedavg.area.mean == pytest.approx((0.1 + 0.51 + 0.8) / 3)
    assert fedavg.area.low is not None
    assert fedavg.area.low < fedavg.area.mean


def test_the_interval_of_a_spread_is_that_of_t() -> None:
    found = spread([1.0, 2.0, 3.0])
    assert found is not None
    assert (found.mean, found.std) == (2.0, 1.0)
    assert found.high == pytest.approx(2.0 + 4.302653 / 3**0.5)
    assert spread([1.0]) == type(found)(1.0, None)


def test_runs_of_an_older_release_have_no_passes(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, name, rounds=flat(0.5, 0.6)) for name in ("fedavg", "local")]
    for run in runs:
        with sqlite3.connect(run.folder / "run.db") as db:
            db.execute("ALTER TABLE steps DROP COLUMN passes")
            db.execute("ALTER TABLE tasks DROP COLUMN passes")
    found = compare(runs)
    assert found.passes is None
    assert all(row.at_passes is None and row.local_passes is None for row in found.rows)
    assert "fedavg 10 s; local 10 s" in found.basis.replace("\u00a0", " ")
