"""Predictions, what they learn from, and what they say in words."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from potluck.keys import rng
from potluck.planner import backtest
from potluck.planner.interval import Interval
from potluck.planner.look import within
from potluck.planner.predict import Calibration, Fit, Seen, Strengths, odds, reaches, share

FACTS = {"classes": 4.0, "rows": 40.0, "skew": 0.2, "clients": 12.0}
STEPS = [(5.0, 50.0, 10.0, 0.0), (10.0, 100.0, 20.0, 0.0)]
GRID = [Strengths(1.0, 3.0, 1.0), Strengths(10.0, 10.0, 1.0)]
STRAIGHT = [k / 20 for k in range(21)]


def test_a_fit_finds_what_made_the_ends() -> None:
    draw = rng("fit")
    seen, ends = [], []
    for _ in range(200):
        about = {"classes": 4.0, "rows": float(draw.integers(10, 100)), "skew": float(draw.random()), "clients": 12.0}
        last = float(draw.uniform(0.3, 0.7))
        seen.append(Seen(about, {"plain": (0.25, last), "better": (0.25, share(odds(last) + 0.2))}))
        # a level that follows the looks, and a method that gains by skew
        ends.append({"plain": share(odds(last) + 0.5), "better": share(odds(last) + 0.5 + 0.8 * about["skew"])})
    fit = Fit.to(seen, ends, Strengths(1e-3, 1e-3, 1e-3))
    wrong = [abs(fit.at(one, m) - odds(end)) for one, row in zip(seen, ends, strict=True) for m, end in row.items()]
    assert max(wrong) < 0.02
    assert fit.usual["better"] - fit.usual["plain"] == pytest.approx(0.2)
    alone = Seen(seen[0].facts, {"plain": seen[0].looks["plain"]})  # a look at one method says as much of the other
    assert fit.at(alone, "better") == pytest.approx(fit.at(seen[0], "better"), abs=0.02)
    again = Fit.of(json.loads(json.dumps(fit.plain())))
    assert again.at(seen[3], "better") == pytest.approx(fit.at(seen[3], "better"), abs=1e-4)


def test_the_time_to_a_target_follows_the_curve() -> None:
    assert reaches(STRAIGHT, 0.2, 1.0, 0.6, STEPS) == pytest.approx((50.0, 10.0))  # half of the way, half of the passes
    assert reaches(STRAIGHT, 0.2, 0.55, 0.6, STEPS) is None
    assert reaches(STRAIGHT, 0.7, 0.9, 0.6, STEPS) == pytest.approx((0.0, 0.0))  # there from the start
    late = reaches(STRAIGHT, 0.2, 0.6, 0.6, STEPS)
    assert late == pytest.approx((100.0, 20.0))


def calibration(error: float = 0.5) -> Calibration:
    seen = [Seen(FACTS, {"fedavg": (0.25, 0.3 + 0.01 * k)}) for k in range(30)]
    ends = [{"fedavg": share(odds(one.looks["fedavg"][-1]) + 1)} for one in seen]
    fit = Fit.to(seen, ends, Strengths(1e-3, 1e-3, 1e-3))
    ranges = {name: (value, value) for name, value in FACTS.items()}
    return Calibration(fit, error, 0.3, 1.1, {"all": STRAIGHT}, ranges, 3, passes=20.0, model="mlp")


def looked(last: float, method: str = "fedavg") -> Seen:
    return Seen(FACTS, {method: (0.25, last)})


def test_a_prediction_has_an_interval_and_a_time() -> None:
    found = calibration().predict(looked(0.4), "fedavg", 0.6, STEPS)
    assert found is not None
    assert found.accuracy.value == pytest.approx(share(odds(0.4) + 1), abs=0.02)
    assert found.accuracy.low is not None
    assert found.accuracy.high is not None
    assert found.accuracy.low < found.accuracy.value < found.accuracy.high
    assert found.seconds is not None
    assert found.seconds.low is not None
    assert found.seconds.low < found.seconds.value < 100
    assert found.seconds.high == math.inf  # at the low end of the interval it never gets there
    never = calibration(0.1).predict(looked(0.3), "fedavg", 0.95, STEPS)
    assert never is not None
    assert (never.target, never.seconds) == (0.95, None)
    sure = calibration(9.0).predict(looked(0.4), "fedavg", None, STEPS)
    assert sure is not None
    assert (sure.accuracy.low, sure.accuracy.high) == (0.0, 1.0)


def test_nothing_is_predicted_where_the_archive_has_nothing_like_it() -> None:
    known = calibration()
    assert known.lacks(looked(0.4), "mlp", 20.0) == ""
    assert "model mlp" in known.lacks(looked(0.4), "cnn1d", 20.0)
    assert "20 local passes" in known.lacks(looked(0.4), "mlp", 200.0)
    assert "rows" in known.lacks(replace(looked(0.4), facts={**FACTS, "rows": 4000.0}), "mlp", 20.0)
    assert "a look at one of fedavg" in known.lacks(looked(0.4, "clusterfl"), "mlp", 20.0)
    assert known.predict(looked(0.4), "clusterfl", None, STEPS) is None


def test_an_accuracy_is_shown_where_the_back_test_says_that_it_beats_the_mean_of_other_data() -> None:
    known = replace(calibration(), errors={"fedavg": (0.128, 0.123, 120.0)}, reached=(0.47, 720.0))
    worse = known.predict(looked(0.4), "fedavg", None, STEPS)
    assert worse is not None
    assert worse.untold == "the mean of other data was closer, 12.3 points off against 12.8"
    assert known.never_when == "whether a run gets there was foreseen in 47 % of 720 tested runs"
    better = replace(known, errors={"fedavg": (0.08, 0.12, 120.0)}).predict(looked(0.4), "fedavg", None, STEPS)
    assert better is not None
    assert better.untold == ""
    untested = calibration().predict(looked(0.4), "fedavg", None, STEPS)
    assert untested is not None
    assert untested.untold == "its predictions were not tested"
    again = json.loads(json.dumps(known.plain()))
    assert again["errors"]["fedavg"] == [0.128, 0.123, 120.0]


def test_the_back_test_says_which_figures_to_leave_out() -> None:
    found = backtest.situations(made_archive(10, noise=0.15))
    judged = backtest.seen_by_others(found, GRID)
    known = backtest.tested(backtest.fitted(list(found.values()), GRID), judged)
    rows = backtest.accuracies(judged)
    for name in ("plain", "better"):
        own, mean, runs = known.errors[name]
        assert (own, mean, runs) == (rows[name]["planner"], rows[name]["mean elsewhere"], 40)
        assert bool(known.untold(name)) == (own >= mean)
    assert known.reached[1] == 80


def test_the_shipped_calibration_was_tested() -> None:
    from potluck.planner.predict import calibration as shipped

    known = shipped()
    assert known is not None
    assert set(known.errors) == set(known.fit.offsets)
    assert known.never_when  # no plan says when a target is reached


def test_a_look_stays_within_its_share() -> None:
    assert within([1.0 * k for k in range(1, 21)]) == 2.0
    assert within([0.83 * k for k in range(1, 21)]) == pytest.approx(1.66)
    assert within([5.0, 10.0, 20.0]) is None
    assert within([]) is None


def record(kind: str, situation: str, method: str, seed: int, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "situation": situation, "method": method, "seed": seed, **more}


def made_archive(sets: int, noise: float) -> list[dict[str, Any]]:
    """An archive in which the look says much of the end, and `better` is better than it looks."""
    draw, found = rng("archive", sets), []
    for k in range(sets):
        for part in ("people", "few"):
            name = f"set{k}/{part}/mixed"
            found.append(record("facts", name, "", 0, **FACTS))
            level = draw.uniform(-0.5, 0.5)
            for method, plus in (("plain", 0.0), ("better", 0.8)):
                last = share(level)
                found.append(
                    record("look", name, method, 1000, passes=[0.0, 2.0], scores=[0.25, last], share=0.1, wall=1.0)
                )
                for seed in (0, 1):
                    end = share(level + 1 + plus + noise * draw.standard_normal())
                    curve = {"passes": [0.0, 10.0, 20.0], "virtual": [0.0, 50.0, 100.0], "joules": [0.0, 1.0, 2.0]}
                    scores = [0.25, (0.25 + end) / 2, end]
                    ran = {"up": 10, "down": 20, "seconds": 100.0, "joules": 2.0, "passes": 20.0, "scores": scores}
                    found.append(record("full", name, method, seed, curve=curve, **ran))
                for seed in (0, 1000, 1001, 1002):
                    ran = {"up": 10, "down": 20, "seconds": 100.0 + (seed % 3), "joules": 2.0, "steps": curve}
                    found.append(record("dry", name, method, seed, **ran))
    return found


def test_a_plan_sees_a_tenth_of_a_look_that_the_archive_keeps_longer() -> None:
    records = made_archive(4, 0.1)
    before = backtest.situations(records)
    for one in records:
        if one["kind"] == "look":
            one |= {"passes": [0.0, 2.0, 8.0], "scores": [*one["scores"], 0.99], "share": 0.4}
    again = [{**one, "seed": 1500} for one in records if one["kind"] == "look"]  # a second look, and runs in small
    small = [{**one, "kind": "small 3"} for one in again]
    after = backtest.situations([*records, *again, *small])
    assert {name: one.seen for name, one in after.items()} == {name: one.seen for name, one in before.items()}
    for one in records:
        if one["kind"] == "look":
            one |= {"passes": [0.0, 8.0], "scores": [0.25, 0.99]}  # its first step is longer than a tenth
    assert backtest.situations(records) == {}


def test_every_set_is_predicted_by_the_others() -> None:
    found = backtest.situations(made_archive(10, noise=0.15))
    assert len(found) == 20
    judged = backtest.seen_by_others(found, GRID)
    rows = backtest.accuracies(judged)
    assert rows["all"]["planner"] < 0.05 < rows["all"]["last value"]
    assert 0.7 <= rows["all"]["80 % interval holds"] <= 0.95
    hits = backtest.recommendations(judged)
    assert hits["planner"] == hits["always better"] == (1.0, 0.0)
    assert hits["always plain"][0] == 0.0
    cost = backtest.costs(found.values())["synchronous"]
    assert (cost["bytes exact"], cost["time, worst"]) == (1.0, 0.0)
    assert backtest.times(judged)["median error of the time"] < 0.2


def test_a_test_cannot_learn_from_the_set_it_predicts() -> None:
    """A set whose ends contradict all others is predicted wrongly, as it should be."""
    records = made_archive(8, noise=0.05)
    for one in records:
        if one["kind"] == "full" and one["situation"].startswith("set3/"):
            one["scores"] = [0.25, 0.1, 0.05]
    judged = {one.name: one for one in backtest.seen_by_others(backtest.situations(records), GRID)}
    off = judged["set3/people/mixed"].predictions["plain"].accuracy
    assert isinstance(off, Interval)
    assert off.value > 0.5


def test_unfinished_situations_are_left_out() -> None:
    records = [
        one for one in made_archive(4, 0.1) if not (one["kind"] == "facts" and one["situation"].startswith("set0/"))
    ]
    assert len(backtest.situations(records)) == 6
    assert np.isfinite(backtest.fitted(list(backtest.situations(records).values()), GRID).apart)
