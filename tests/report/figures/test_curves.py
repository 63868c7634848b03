"""Curves over seeds, what an accuracy cost, and the lines of clients and devices."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.made_runs import flat, made_run

from potluck.report.drawing.axes import score_range as share_range
from potluck.report.figures.costs import device_costs, reasons
from potluck.report.figures.curves import AXES, MOST_POINTS, client_lines, curve, curves, logarithmic, ranked, reached
from potluck.report.reading.groups import group
from potluck.units import nice_ticks

ROUNDS, TIME, BYTES, JOULES = AXES


def test_mean_and_deviation_by_round(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, seed=0, rounds=flat(0.2, 0.6)), made_run(tmp_path, seed=1, rounds=flat(0.4, 0.8))]
    (one,) = group(runs).groups
    found = curve(one, ROUNDS)
    assert found is not None
    assert found.x == [1, 2]
    assert found.mean == pytest.approx([0.3, 0.7])
    assert found.std == pytest.approx([0.02**0.5, 0.02**0.5])  # 0.1 to either side, n - 1 = 1


def test_the_axes_are_what_was_spent(tmp_path: Path) -> None:
    (one,) = group([made_run(tmp_path, rounds=flat(0.2, 0.6))]).groups
    spent = {axis.name: found.x for axis in AXES if (found := curve(one, axis))}
    assert spent == {"round": [1, 2], "virtual": [10, 20], "bytes": [300, 600], "joules": [5, 10]}


def test_a_run_that_ended_earlier_keeps_its_last_accuracy(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, seed=0, rounds=flat(0.4)), made_run(tmp_path, seed=1, rounds=flat(0.2, 0.6))]
    found = curve(group(runs).groups[0], TIME)
    assert found is not None
    assert found.x == [10, 20]
    assert found.mean == pytest.approx([0.3, 0.5])


def test_long_curves_are_thinned_and_keep_their_ends(tmp_path: Path) -> None:
    found = curve(group([made_run(tmp_path, rounds=flat(*[i / 1000 for i in range(1000)]))]).groups[0], ROUNDS)
    assert found is not None
    assert len(found.x) <= MOST_POINTS
    assert (found.x[0], found.x[-1]) == (1, 1000)


def test_a_logarithmic_axis_where_ends_are_far_apart(tmp_path: Path) -> None:
    near = made_run(tmp_path, "local", rounds=flat(0.5))
    far = made_run(tmp_path, "fedavg", rounds=flat(*[0.5] * 30))
    drawn = curves(group([near, far]).groups, TIME)
    assert logarithmic(drawn, TIME)
    assert not logarithmic(drawn[:1], TIME)
    assert not logarithmic(curves(group([near, far]).groups, ROUNDS), ROUNDS)


def test_what_an_accuracy_cost(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, seed=0, rounds=flat(0.2, 0.8)), made_run(tmp_path, seed=1, rounds=flat(0.2, 0.4, 0.7))]
    runs.append(made_run(tmp_path, seed=2, rounds=flat(0.1)))
    (one,) = group(runs).groups
    found = reached(one, 0.7)
    assert found is not None
    assert (found.seeds, found.of) == (2, 3)
    assert (found.virtual.mean, found.virtual.std) == (25, pytest.approx(50**0.5))  # 20 s and 30 s
    assert found.virtual.high == pytest.approx(25 + 12.7062 * 5, rel=1e-5)  # t with one degree of freedom
    assert found.bytes.mean == 750
    assert found.joules.mean == 12.5
    assert reached(one, 0.9) is None


def test_clients_worst_first_over_seeds(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path, "fedavg", 0, [{"a": 0.9, "b": 0.2}], device="pixel-6"),
        made_run(tmp_path, "fedavg", 1, [{"a": 0.7, "b": 0.4}], device="jetson-nano"),
        made_run(tmp_path, "local", 0, [{"a": 0.1, "b": 0.5}]),
    ]
    groups = group(runs).groups
    lines = client_lines(groups, "fedavg")
    assert [line.name for line in lines] == ["b", "a"]
    assert lines[0].accuracy == {"fedavg": pytest.approx(0.3), "local": 0.5}
    assert lines[0].devices == ["pixel-6 on wifi", "jetson-nano on wifi"]
    assert (lines[0].train, lines[0].test) == ((41, 41), (11, 11))
    assert [line.name for line in client_lines(groups, None)] == ["b", "a"]  # means 0.4 and 0.45
    assert [line.name for line in client_lines(groups, "local")] == ["a", "b"]


def test_sorted_clients_keep_whom_a_seed_left_untrained(tmp_path: Path) -> None:
    """Each seed's clients in their own order, then means by place; means by client would be 0.5 for everybody."""
    runs = [
        made_run(tmp_path, "fedavg", 0, [{"a": 0.1, "b": 0.9, "c": 0.5}]),
        made_run(tmp_path, "fedavg", 1, [{"a": 0.9, "b": 0.1, "c": 0.5}]),
    ]
    (one,) = group(runs).groups
    assert ranked(one) == pytest.approx([0.1, 0.5, 0.9])
    (fewer,) = group([*runs, made_run(tmp_path, "fedavg", 2, [{"a": 0.1, "b": 0.9}])]).groups
    assert ranked(fewer) == pytest.approx([0.1, 0.5, 0.9])  # stretched over three places
    (young,) = group([made_run(tmp_path, "local", 0, [], ended=None)]).groups
    assert ranked(young) == []


def test_costs_of_a_device_are_per_client(tmp_path: Path) -> None:
    tasks = [("a", "accepted", ""), ("b", "refused", "no"), ("b", "lost", "gone"), ("a", "post", "")]
    (cost,) = device_costs(group([made_run(tmp_path, tasks=tasks)]).groups[0])
    assert (cost.device, cost.clients) == ("pixel-6", 2)
    assert cost.accuracy == pytest.approx(0.6)
    assert cost.tasks == 1.5  # 3 tasks; mail and repeats are none
    assert cost.seconds == 4  # of the two that were carried through
    assert (cost.bytes_up, cost.bytes_down, cost.joules, cost.macs) == (200, 400, 10, 2000)
    assert cost.memory == 5000


def test_clients_beyond_the_sample_have_a_line_of_their_own(tmp_path: Path) -> None:
    run = made_run(tmp_path, tasks=[("stranger", "accepted", "")], summary={"clients": 12})
    costs = device_costs(group([run]).groups[0])
    assert [cost.device for cost in costs] == ["pixel-6", None]
    assert (costs[1].clients, costs[1].bytes_up) == (10, 10)  # 100 B over the ten that were not evaluated


def test_reasons_are_summed_over_seeds(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path, seed=0, tasks=[("a", "lost", "gone"), ("b", "lost", "gone"), ("a", "refused", "no")]),
        made_run(tmp_path, seed=1, tasks=[("b", "lost", "gone")]),
    ]
    found = reasons(group(runs).groups[0])
    assert [(one.outcome, one.reason, one.times, one.example) for one in found] == [
        ("lost", "gone", 3, "a"),
        ("refused", "no", 1, "a"),
    ]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (1, 12, [2, 4, 6, 8, 10, 12]), (0.3, 0.9, [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])],
)
def test_ticks_are_round_numbers(low: float, high: float, ticks: list[float]) -> None:
    assert nice_ticks(low, high) == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("values", "range_"),
    [([0.43, 0.78], (0.4, 0.8)), ([0.0, 1.0], (0.0, 1.0)), ([1.0], (0.8, 1.0)), ([0.5], (0.5, 0.7))],
)
def test_accuracies_are_shown_between_whole_tenths(values: list[float], range_: tuple[float, float]) -> None:
    assert share_range(values) == pytest.approx(range_)
