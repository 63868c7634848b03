"""The recommendation, on comparisons whose figures one can check by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from helpers.made_runs import flat, made_run

from potluck.choose.advice import Advice, advise
from potluck.choose.facts import Facts
from potluck.report import Comparison, compare
from potluck.report.figures.advice import Beyond
from potluck.report.figures.advice import advise as advise_on

FACTS = Facts("made", "series", 32, 12, True, 45, 45, 4, 0.0, "mlp", 1000, {"pixel-4a": 12}, 1.0, 10**9, 0)
QUIET = {"local": 0.0, "fedavg": 0.0, "ftl": 0.0}


def compared(parent: Path, **methods: list[float]) -> Comparison:
    return compare([
        made_run(parent, method, seed, flat(value))
        for method, values in methods.items()
        for seed, value in enumerate(values)
    ])  # fmt: skip


def advice(parent: Path, **methods: list[float]) -> Advice:
    return advise(compared(parent, **methods), FACTS, QUIET)


def test_a_clear_winner_is_recommended_with_its_gain_over_local_training(tmp_path: Path) -> None:
    found = advice(tmp_path, local=[0.50, 0.51, 0.49], fedavg=[0.60, 0.62, 0.61], ftl=[0.70, 0.71, 0.70])
    assert found.method == "ftl"
    assert found.equals == []
    text = " ".join(found.sentences)
    assert "Use ftl: 70.3" in text
    assert "+20.3 points against local training only (95 % interval" in text
    assert "The next best, fedavg, is 9.3 points behind, larger than the noise." in text


def test_pooled_training_is_no_answer_and_few_seeds_are_said(tmp_path: Path) -> None:
    found = advise_on(compared(tmp_path, centralised=[0.9], fedavg=[0.6], local=[0.5]), Beyond(12, {}, tuned=False))
    assert found is not None
    assert found.method == "fedavg"
    assert found.runner_up == ["The next best, local, is 10.0 points behind, too few seeds to tell."]
    assert "of it idle" in found.cost
    assert any("--tune 20" in sentence for sentence in found.would_change)
    assert advise_on(compared(tmp_path / "one", fedavg=[0.6]), Beyond(12, {})) is None


def test_a_lead_that_comes_from_small_devices_is_said(tmp_path: Path) -> None:
    small = {"unfit": {"b": "too small"}}
    runs = [made_run(tmp_path, "ftl", seed, [{"a": 0.8, "b": 0.8}], **small) for seed in range(2)]
    runs += [made_run(tmp_path, "local", seed, [{"a": 0.9, "b": 0.2}], **small) for seed in range(2)]
    found = advise_on(compare(runs), Beyond(2, {}))
    assert found is not None
    assert found.method == "ftl"
    said = " ".join(found.would_change).replace("\u00a0", " ")
    assert "1 of 2 clients cannot hold its training; of those that trained local leads (90.0 %, ftl 80.0 %)." in said


def test_of_methods_that_cannot_be_told_apart_the_cheapest_is_recommended(tmp_path: Path) -> None:
    comparison = compared(tmp_path, fedavg=[0.70, 0.71, 0.69], ftl=[0.705, 0.70, 0.70])
    cheap = next(row for row in comparison.rows if row.method == "fedavg")
    assert cheap.bytes_up is not None
    cheaper = replace(cheap, bytes_up=replace(cheap.bytes_up, mean=1.0))
    rows = [cheaper if row is cheap else row for row in comparison.rows]
    found = advise(replace(comparison, rows=rows), FACTS, QUIET)
    assert comparison.best == "ftl"
    assert found.method == "fedavg"
    assert found.equals == ["ftl"]
    assert any("cannot tell it from ftl; fedavg sends the fewest bytes" in one for one in found.sentences)


def test_a_large_gap_within_the_noise_still_goes_to_the_best_and_says_so(tmp_path: Path) -> None:
    found = advice(tmp_path, fedavg=[0.50, 0.90, 0.60], ftl=[0.90, 0.70, 0.80])
    assert found.method == "ftl"
    assert any("not larger than the noise" in one for one in found.sentences)
    assert any("More seeds:" in one for one in found.would_change)


def test_where_local_training_wins_it_says_that_learning_together_does_not_pay(tmp_path: Path) -> None:
    found = advice(tmp_path, local=[0.90, 0.91, 0.92], fedavg=[0.60, 0.62, 0.61])
    assert found.method == "local"
    assert "Learning together does not pay here." in found.sentences[0]


def test_curves_that_still_rise_are_named(tmp_path: Path) -> None:
    comparison = compared(tmp_path, local=[0.5, 0.5, 0.6], fedavg=[0.60, 0.62, 0.61])
    flat_curves = advise(comparison, FACTS, QUIET)
    rising = advise(comparison, FACTS, {"local": 0.0, "fedavg": 0.031})
    assert any("no curve rises any more" in one for one in flat_curves.would_change)
    assert any("fedavg (+3.1 points)" in one for one in rising.would_change)


def test_what_fewer_rows_do_is_said_where_it_was_run(tmp_path: Path) -> None:
    comparison = compared(tmp_path / "all", local=[0.90, 0.91, 0.92], fedavg=[0.60, 0.62, 0.61])
    half = compared(tmp_path / "half", local=[0.40, 0.41, 0.42], fedavg=[0.60, 0.62, 0.61])
    found = advise(comparison, FACTS, QUIET, half.rows)
    (line,) = [one for one in found.would_change if one.startswith("Fewer rows")]
    assert line.replace("\u00a0", " ") == (
        "Fewer rows: with 22 labelled rows per client local falls behind fedavg (fedavg 61.0 % and local 41.0 %)."
    )
