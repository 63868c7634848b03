import numpy as np
import pytest

from potluck.devices import Hours, hours_of
from potluck.errors import BadInput
from potluck.runs.experiment import Experiment

HOUR = 3600.0


def test_a_night_is_the_same_for_everybody():
    night = hours_of("night", (23.0, 6.0), begins=20.0)  # opens three hours after the run begins
    numbers = np.arange(5)
    assert not night.available_many(numbers, 2.9 * HOUR).any()
    assert night.available_many(numbers, 3.0 * HOUR).all()
    assert night.available_many(numbers, 9.9 * HOUR).all()
    assert not night.available_many(numbers, 10.0 * HOUR).any()
    assert night.available(7, 27.5 * HOUR)  # and again the next day
    assert night.next_change_many(numbers, 0.0) == pytest.approx(np.full(5, 3 * HOUR))
    assert night.next_change_many(numbers, 3 * HOUR) == pytest.approx(np.full(5, 10 * HOUR))


def test_charging_differs_by_client_and_changes_exactly_at_its_edges():
    charging = hours_of("charging", (23.0, 6.0), begins=0.0)
    numbers = np.arange(500)
    first = charging.next_change_many(numbers, 12 * HOUR)
    assert first.min() >= 21.5 * HOUR
    assert first.max() <= 24.5 * HOUR
    assert np.std(first) > 0.5 * HOUR
    for number, edge in zip(numbers[:20], first[:20], strict=True):
        assert not charging.available(number, edge - 1.0)
        assert charging.available(number, edge)


def test_open_seconds_are_the_integral_of_being_available():
    charging = hours_of("charging", (23.0, 6.0), begins=20.0)
    numbers, end = np.arange(8), 30 * HOUR
    grid = np.arange(0.0, end, 60.0)
    by_hand = np.sum([charging.available_many(numbers, at) for at in grid], axis=0) * 60.0
    found = charging.open_seconds(numbers, np.zeros(8), np.full(8, end))
    assert found == pytest.approx(by_hand, abs=180.0)
    assert charging.open_seconds(numbers, np.full(8, end), np.full(8, end)).sum() == 0


def test_always_has_no_windows():
    assert hours_of("always", (23.0, 6.0), 0.0) is None


@pytest.mark.parametrize("given", [(23.0, 23.0), (-1.0, 6.0), (3.0, 24.0)])
def test_hours_are_hours_of_the_day(given):
    with pytest.raises(BadInput, match=r"fleet\.hours: must be"):
        Hours(*given)


@pytest.mark.parametrize("when", ["always", "night"])
def test_an_experiment_refuses_other_hours_even_where_it_does_not_need_them(when):
    with pytest.raises(BadInput, match=r"fleet\.hours.*must be less than 24, got 25"):
        Experiment.of({"data": {"source": "made"}, "fleet": {"train_when": when, "hours": [25.0, 6.0]}})


def test_charging_for_an_hour_cannot_differ_by_more():
    with pytest.raises(BadInput, match="hours apart"):
        hours_of("charging", (23.0, 0.0), 0.0)
