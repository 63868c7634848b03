"""Costs by device, days, wishes and intervals."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from potluck.data.load import load
from potluck.errors import BadInput
from potluck.planner import sizes
from potluck.planner.api import made
from potluck.planner.costs import DeviceCost, Figures, Joules, figures
from potluck.planner.day import day_of
from potluck.planner.dry import dry_run
from potluck.planner.interval import Interval
from potluck.planner.wish import Wish
from potluck.runs import compare_plan


def dry(method: str, devices: object = "mixed", **fleet: object) -> tuple[Figures, dict[str, object]]:
    values = {"data": {"source": "made"}, "fleet": {"devices": devices, **fleet}, "budget": {"local_passes": 2}}
    experiment = compare_plan.plan(values, [method], 1, ["method.recipe.epochs=1"]).runs[0].experiment
    with dry_run(experiment) as (run, session):
        return figures(run, session), run.summary


@pytest.mark.parametrize("rest", ["awake", "sleep"])
def test_the_parts_add_up_to_the_run(rest: str) -> None:
    found, summary = dry("fedavg", rest=rest)
    energy = summary["energy"]
    assert isinstance(energy, dict)
    for cause in ("training", "radio", "idle", "sleep", "total"):
        assert getattr(found.joules, cause) == pytest.approx(energy[cause], abs=1e-9)
    assert sum(one.bytes_up * one.clients for one in found.devices) == pytest.approx(found.bytes_up)
    assert sum(one.clients for one in found.devices) == summary["clients"] == 12
    unfit = summary["unfit_clients"]
    assert isinstance(unfit, list)
    assert sum(one.unfit for one in found.devices) == len(unfit) > 0
    assert not found.asynchronous


def test_the_straggler_is_the_slow_device() -> None:
    devices = {"pc-i7-9700": 11, "raspberry-pi-4@ble": 1}
    found, _ = dry("fedavg", devices)
    assert (found.straggler, found.straggles) == ("raspberry-pi-4", 1.0)
    by_name = {one.device: one for one in found.devices}
    assert by_name["raspberry-pi-4"].task_seconds > by_name["pc-i7-9700"].task_seconds
    assert dry("fedbuff", devices)[0].asynchronous


COST = DeviceCost(
    "pixel-4a", "wifi", "phone", 4, 0, 1000, 3600.0, 10, 10.0, 1.0, 0.5, 4e6, 5e6, 1e7, Joules(20, 30, 50), 120.0
)
RUN = Figures(
    1.0, 10, 1000.0, 100.0, 1, 1, Joules(), 0.0, 20.0, False, ((20.0, 1000.0, 1.0, 1.0),), (COST,), "", 0.0, ""
)


def test_a_day_holds_what_time_and_wishes_allow() -> None:
    free = day_of(RUN, Wish())
    assert (free.rounds, free.days, free.limit) == (10, 1, "the run")
    assert free.devices[0].battery == pytest.approx(120 / 3600)
    assert free.devices[0].battery_days == pytest.approx(30)
    assert (free.devices[0].bytes, free.devices[0].joules.total) == (9e6, 100)
    slow = day_of(replace(RUN, seconds=10 * 86400.0), Wish())
    assert (slow.rounds, slow.days, slow.limit) == (1, 10, "time")
    few = day_of(RUN, Wish(bytes_a_day=2.5e6))  # a round is 1 MB for the client that moves most
    assert (few.rounds, few.days, few.limit) == (2, 5, "bytes")
    assert few.devices[0].most_bytes == pytest.approx(2e6)
    tiny = day_of(RUN, Wish(battery_a_day=0.001))  # a third of a round's 12 J
    assert tiny.limit == "battery"
    assert tiny.rounds == pytest.approx(0.3)
    assert tiny.devices[0].battery == pytest.approx(0.001)
    mains = day_of(replace(RUN, devices=(replace(COST, battery=0.0),)), Wish(battery_a_day=0.001))
    assert (mains.limit, mains.devices[0].battery) == ("the run", None)


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("accuracy 0.85", Wish(accuracy=0.85)),
        ("Accuracy of at least 85 %", Wish(accuracy=0.85)),
        ("at most 2 MB per device and day", Wish(bytes_a_day=2e6)),
        ("500 kB a day", Wish(bytes_a_day=5e5)),
        ("battery 20 % a day", Wish(battery_a_day=0.2)),
        ("within 3 days; accuracy 0.9", Wish(accuracy=0.9, seconds=3 * 86400.0)),
        ("at most 90 min", Wish(seconds=5400.0)),
    ],
)
def test_wishes_are_read_as_people_write_them(text: str, wish: Wish) -> None:
    assert Wish.of([text]) == wish


@pytest.mark.parametrize("text", ["accuracy", "accuracy 0", "battery 120 % a day", "fast", "2 MB"])
def test_other_wishes_are_refused_with_examples(text: str) -> None:
    with pytest.raises(BadInput, match=r"--wish: must be such as: accuracy 0\.85"):
        Wish.of([text])


def test_two_wishes_of_one_kind_are_refused() -> None:
    with pytest.raises(BadInput, match=r"--wish: must be one of each kind, got 'accuracy 0\.9'"):
        Wish.of(["accuracy 0.8", "within 3 days", "accuracy 0.9"])


def test_a_fleet_on_which_nothing_fits_is_told_what_to_shrink(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[devices.node]\nlike = "raspberry-pi-4"\nmemory = 120_000\n')
    values = {"fleet": {"devices": "node", "file": str(file)}, "partition": {"clients": 4}}
    found = made(values, ["fedavg"], rows=50, shape=(16, 3), classes=3, seeds=1)
    (one,) = found.methods
    assert one.figures is None
    assert (found.clients, found.model) == (4, "mlp")
    assert found.parameters > 0
    assert one.hints[0].startswith("--set method.recipe.batch=")
    assert found.advice.use == "No method can run here."
    assert found.advice.would_change == (f"fedavg with a smaller load: {one.hints[0]}.",)
    assert found.json()["methods"]["fedavg"]["shrink"] == list(one.hints)
    page = found.write(tmp_path / "plan.html").read_text(encoding="utf-8")
    assert one.hints[0] in page
    assert ".swatch{background:currentColor}" in page  # else the legend of the bars has no colours


def test_an_interval_holds_the_next_value_as_often_as_it_says() -> None:
    from potluck.keys import rng

    draws = rng("interval").standard_normal((4000, 4))
    held = [Interval.of(row[:3]).holds(row[3]) for row in draws.tolist()]
    assert 0.78 < sum(held) / len(held) < 0.84  # it is widened to hold its first value
    assert Interval.of([5.0]) == Interval(5.0)
    assert Interval(2.0, 1.0, math.inf).times(3) == Interval(6.0, 3.0, math.inf)


def test_sizes_are_a_data_set() -> None:
    found = load(sizes.source((12, 3), 4, 100))
    assert (found.x.shape, found.kind, found.classes, len(set(found.y.tolist()))) == ((100, 12, 3), "series", 4, 4)
    for shape, classes, rows in (
        ((0,), 4, 100),
        ((2,) * 4, 4, 100),
        ((3,), 1, 100),
        ((3,), 4, 3),
        ((100_000,), 2, 10**6),
    ):
        with pytest.raises(BadInput):
            sizes.source(shape, classes, rows)
    with pytest.raises(BadInput, match=r"function in potluck\.planner\.sizes"):
        load("potluck.planner.sizes:rows_many")
