"""The asynchronous and semi-asynchronous baselines against their equations, and the engine's promises to them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.fleets import LINK, PC, fleet_of, made
from helpers.short_runs import experiment_of, tiny
from helpers.toys import stacks

from potluck import methods
from potluck.errors import BadInput
from potluck.fleet import Arrival, Lost
from potluck.methods import fedasync, fedsea, oort
from potluck.methods.parts.shared_map import SharedMap
from potluck.methods.parts.staleness import hinge, polynomial
from potluck.runs import drive
from potluck.tensors import mean

SLOW = replace(PC, macs_per_second=PC.macs_per_second / 1e4)
UNLIKE = [(PC, LINK), (SLOW, LINK)]


def arrivals_of(fleet: Any) -> list[Arrival]:
    """A list that fills with what the server receives."""
    seen: list[Arrival] = []
    receive = fleet.receive

    def spy(until: float | None = None) -> Any:
        answer = receive(until)
        if isinstance(answer, Arrival):
            seen.append(answer)
        return answer

    fleet.receive = spy
    return seen


def test_polynomial_staleness() -> None:
    assert polynomial(0, 0.5) == 1.0
    assert polynomial(3, 0.5) == 0.5
    assert polynomial(3, 0.0) == 1.0


def test_hinge_staleness() -> None:
    """1 up to an age of b, then 1 / (a (age - b) + 1)."""
    assert [hinge(age, 0.5, 4) for age in (0, 4, 5, 6)] == [1.0, 1.0, pytest.approx(1 / 1.5), 0.5]


@pytest.mark.parametrize(("form", "weight"), [("constant", 1.0), ("polynomial", 0.25), ("hinge", 0.5)])
def test_fedasync_has_three_forms_of_staleness(form: str, weight: float) -> None:
    cfg = fedasync.Config(staleness=form, power=1.0, grace=2)
    assert fedasync.weight(0, cfg) == 1.0
    assert fedasync.weight(3, cfg) == weight


def test_fedasync_refuses_a_form_it_does_not_know() -> None:
    with pytest.raises(BadInput, match=r"method\.staleness"):
        methods.load("fedasync").configure({"staleness": "linear"})


def test_fedasync_mixes_each_arrival_by_its_age() -> None:
    method = methods.load("fedasync")
    cfg = method.configure({"recipe.batch": 5, "recipe.lr": 0.1, "alpha": 0.5, "power": 1.0})
    fleet, state = fleet_of(method, cfg, made((12, 7, 20)), equipment=UNLIKE)
    seen = arrivals_of(fleet)
    program = method.server(fleet, state, cfg)
    weights = state.weights
    for step in range(8):
        state = next(program)
        update = seen[-1].update
        age = step - int(update.version)
        alpha = 0.5 / (age + 1)
        weights = {n: (1 - alpha) * weights[n] + alpha * update.weights[n] for n in weights}
        torch.testing.assert_close(state.weights, weights)
    assert fedasync.record(state)["staleness_max"] > 0


def test_fedbuff_steps_once_per_full_buffer() -> None:
    method = methods.load("fedbuff")
    cfg = method.configure({"recipe.batch": 5, "recipe.lr": 0.1, "buffer": 3})
    fleet, state = fleet_of(method, cfg, made((12, 7, 20)), equipment=UNLIKE)
    seen = arrivals_of(fleet)
    program = method.server(fleet, state, cfg)
    before = state.weights
    for _ in range(2):
        state = next(program)
        assert state.weights is before
    state = next(program)
    step = mean([a.update.change for a in seen])  # all fresh: equal weights
    torch.testing.assert_close(state.weights, {n: before[n] + step[n] for n in before})
    assert state.version == 1
    assert state.count == 0


def test_fedbuff_counts_a_stale_change_less_and_divides_by_the_buffer() -> None:
    method = methods.load("fedbuff")
    cfg = method.configure({"recipe.batch": 5, "recipe.lr": 0.1, "buffer": 2, "global_lr": 0.5, "power": 1.0})
    fleet, state = fleet_of(method, cfg, made((12, 7, 20)), equipment=UNLIKE)
    seen = arrivals_of(fleet)
    program = method.server(fleet, state, cfg)
    ages: list[int] = []
    while not any(ages[-2:]):
        before, version = state.weights, state.version
        state = next(program)
        state = next(program)
        ages += [version - int(a.update.version) for a in seen[-2:]]
    for name, value in before.items():
        summed = sum(a.update.change[name] / (1 + age) for a, age in zip(seen[-2:], ages[-2:], strict=True))
        torch.testing.assert_close(state.weights[name], value + 0.5 * summed / 2)


def test_fedsea_does_not_wait_for_the_slow_and_does_not_drop_them() -> None:
    method = methods.load("fedsea")
    cfg = method.configure({"recipe.batch": 5, "recipe.lr": 0.1, "share": 0.5})
    fleet, state = fleet_of(method, cfg, made((12, 7, 20, 9)), equipment=UNLIKE)
    seen = arrivals_of(fleet)
    program = method.server(fleet, state, cfg)
    state = next(program)
    assert {a.client for a in seen} == {"c0", "c2"}  # the fast half
    for _ in range(400):
        if {"c1", "c3"} <= {a.client for a in seen}:
            break
        state = next(program)
    late = next(a for a in seen if a.client == "c1")
    assert state.round - int(late.update.version) >= 1
    assert fedsea.record(state)["staleness_max"] >= 1


def test_fedsea_waits_for_somebody_where_those_expected_are_late() -> None:
    """A point at which nobody has come is none: it would only make those at work look older."""
    method = methods.load("fedsea")
    cfg = method.configure({"recipe.batch": 5, "share": 0.1})
    fleet, state = fleet_of(method, cfg, made((12, 7, 20, 9)), equipment=UNLIKE)
    known = fedsea.Known(seconds=1e-6, sent=0.0)  # much too hopeful
    state = replace(state, clients=SharedMap.of({client: known for client in fleet.clients}))
    seen = arrivals_of(fleet)
    program = method.server(fleet, state, cfg)
    for merged in range(1, 4):
        state = next(program)
        assert state.round == merged
        assert state.arrivals >= merged
    assert len(seen) == state.arrivals


def test_fedsea_expects_nobody_whose_task_was_lost() -> None:
    method = methods.load("fedsea")
    cfg = method.configure({"recipe.batch": 5, "share": 0.5})
    fleet, state = fleet_of(method, cfg, made((12, 7, 20)))
    receive = fleet.receive

    def losing(until: float | None = None) -> Any:
        answer = receive(until)
        gone = isinstance(answer, Arrival) and answer.client == "c1"  # the fastest
        return Lost(answer.client, answer.task, answer.at, "left") if gone else answer

    fleet.receive = losing  # type: ignore[method-assign]
    state = next(method.server(fleet, state, cfg))
    assert sorted(state.clients) == ["c0", "c2"]


def test_fedsea_synchronises_when_there_is_something_to_aggregate(tmp_path: Path) -> None:
    """Clients that rest until they have new rows are not at work: no point is set by when they would have answered."""
    paced = {"rows_per_hour": 3600.0, "passes": 4.0}
    experiment = experiment_of(
        "fedsea", tiny(tmp_path / "tiny.npz", clients=8), rounds=0, fleet=paced, budget={"local_passes": 4.0},
        run={"out": str(tmp_path)},
    )  # fmt: skip
    run = drive.start(experiment)
    assert run.summary["local_passes"] == pytest.approx(4.0)
    aggregated = {one["step"] for one in run.table("tasks") if one["outcome"] == "accepted"}
    assert len(aggregated) == run.summary["rounds"]


def test_fedsea_with_a_period_synchronises_on_the_clock() -> None:
    method = methods.load("fedsea")
    cfg = method.configure({"recipe.batch": 5, "period": 2.5})
    fleet, state = fleet_of(method, cfg, made((12, 7)))
    program = method.server(fleet, state, cfg)
    moments = []
    for _ in range(3):
        next(program)
        moments.append(fleet.now)
    assert moments == [2.5, 5.0, 7.5]


def test_oort_prefers_useful_clients_and_spares_slow_ones() -> None:
    cfg = oort.Config(explore=0.0, least=0.0)
    state = oort.State({}, round=10, pace=2.0, step=2.0)
    useful, slow, dull = (oort.Judged(utility=u, seconds=s, round=9) for u, s in ((8.0, 1.0), (8.0, 4.0), (1.0, 1.0)))
    assert oort.worth(slow, state, cfg) == pytest.approx(oort.worth(useful, state, cfg) / 4)  # (2 / 4)^2
    seen = SharedMap.of({"a": useful, "b": slow, "c": dull})
    assert oort.select(["a", "b", "c"], seen, state, cfg, 2) == ["a", "b"]
    assert oort.select(["a", "b", "c", "d"], seen, state, replace(cfg, explore=1.0, decay=1.0), 2) == ["a", "d"]


def test_oort_counts_the_first_answers_of_those_it_asked() -> None:
    method = methods.load("oort")
    cfg = method.configure({"recipe.batch": 5, "cohort": 2, "over": 2.0})
    fleet, state = fleet_of(method, cfg, made((12, 7, 20, 9)), equipment=UNLIKE)
    state = next(method.server(fleet, state, cfg))
    assert sorted(state.seen) == ["c0", "c2"]
    assert all(math.isfinite(known.utility) and known.utility > 0 for known in state.seen.values())


def test_oort_takes_a_mean_square_below_zero_for_nothing() -> None:
    """A client may lie, and the noise of a private run may turn a small one over."""
    method = methods.load("oort")
    cfg = method.configure({"recipe.batch": 5, "cohort": 2})
    fleet, state = fleet_of(method, cfg, made((12, 7, 20, 9)), equipment=UNLIKE)
    honest = fleet.receive

    def lied(*args: Any, **more: Any) -> Any:
        answer = honest(*args, **more)
        return replace(answer, update=replace(answer.update, squares=torch.tensor(-1.0)))

    fleet.receive = lied  # type: ignore[method-assign]
    state = next(method.server(fleet, state, cfg))
    assert {known.utility for known in state.seen.values()} == {0.0}


def test_oort_does_not_wait_for_those_beyond_the_first_answers() -> None:
    """The round is over when as many are back as count; who is slower is still at work then, and not merged later."""
    method = methods.load("oort")
    cfg = method.configure({"recipe.batch": 5, "cohort": 2, "over": 2.0})
    fleet, state = fleet_of(method, cfg, made((12, 7, 20, 9)), equipment=UNLIKE)
    seen = arrivals_of(fleet)
    program = method.server(fleet, state, cfg)
    state = next(program)
    assert sorted(a.client for a in seen) == ["c0", "c2"]
    assert fleet.now == max(a.at for a in seen)
    assert list(fleet.idle) == ["c0", "c2"]
    count = 0
    while not {"c1", "c3"} & {a.client for a in seen[count:]}:
        count = len(seen)
        state = next(program)
    merged = [a for a in seen[count:] if a.client in ("c0", "c2")]  # not the slow, who come during this round
    expected = mean([a.update.weights for a in merged], [a.update.examples for a in merged])
    torch.testing.assert_close(state.weights, expected)
    assert sorted(state.seen) == ["c0", "c2"]


# -- the engine's promises -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["echopfl", "fedasync", "fedbuff"])
def test_work_in_flight_is_trained_in_stacks(name: str) -> None:
    method = methods.load(name)
    cfg = method.configure({"recipe.batch": 5, **({"broadcast.predictor": "ewma"} if name == "echopfl" else {})})
    fleet, state = fleet_of(method, cfg, made((10,) * 12), equipment=UNLIKE)
    program = method.server(fleet, state, cfg)
    for _ in range(36):
        state = next(program)
    count, clients = stacks(fleet)
    assert clients / count > 2.0


def test_who_is_idle_is_the_same_however_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The few that are kept by hand are those that counting gives."""
    from potluck.engines.local import idle

    method = methods.load("fedasync")
    cfg = method.configure({"recipe.batch": 5})

    def names(few: int) -> list[list[str]]:
        monkeypatch.setattr(idle, "FEW", few)
        fleet, state = fleet_of(method, cfg, made((10,) * 6), equipment=UNLIKE)
        program = method.server(fleet, state, cfg)
        found = []
        for _ in range(20):
            next(program)
            found.append(list(fleet.idle))
        return found

    assert names(64) == names(0)
