import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.devices import Availability
from potluck.errors import BadInput


@pytest.mark.parametrize("on_share", [0.1, 0.5, 0.85])
def test_share_over_clients_and_over_time(on_share):
    absence = Availability(on_share, period=100.0)
    at_once = absence.available_many(np.arange(20_000), 12_345.0)
    assert at_once.mean() == pytest.approx(on_share, abs=0.02)
    one = [absence.available(7, moment) for moment in np.arange(0.0, 50_000.0, 21.0)]
    assert np.mean(one) == pytest.approx(on_share, abs=0.05)


@given(number=st.integers(-(2**63), 2**63 - 1), at=st.floats(0.0, 1e6), on_share=st.floats(0.05, 0.95))
def test_next_change_is_where_the_answer_changes(number, at, on_share):
    absence = Availability(on_share, period=60.0)
    change = absence.next_change(number, at)
    assert at < change <= at + 3 * 60.0
    before = absence.available(number, at)
    assert absence.available(number, change) != before
    # Nothing changes on the way.
    on_the_way = np.linspace(at, change, 50, endpoint=False)
    assert (absence.available_many(np.full(50, number), on_the_way) == before).all()


def test_the_mean_cycle_is_the_period():
    absence, moment, changes = Availability(0.6, period=10.0), 0.0, 0
    while moment < 10_000.0:
        moment = absence.next_change(3, moment)
        changes += 1
    assert changes / 2 == pytest.approx(1000, abs=2)


def test_many_equals_one_by_one():
    absence, numbers = Availability(0.4, period=30.0), np.arange(-20, 20)
    together = absence.available_many(numbers, 77.0)
    changes = absence.next_change_many(numbers, 77.0)
    assert [absence.available(int(number), 77.0) for number in numbers] == together.tolist()
    assert [absence.next_change(int(number), 77.0) for number in numbers] == changes.tolist()


def test_more_than_one_part():
    absence, numbers = Availability(0.4, period=30.0), np.arange(40_000)
    together = absence.available_many(numbers, 77.0)
    changes = absence.next_change_many(numbers, 77.0)
    for number in (0, 16_383, 16_384, 39_999):
        assert absence.available(number, 77.0) == together[number]
        assert absence.next_change(number, 77.0) == changes[number]


def test_always_there():
    always = Availability(1.0, period=30.0)
    assert always.available(1, 5.0)
    assert always.next_change(1, 5.0) == float("inf")


@pytest.mark.parametrize(("on_share", "period"), [(0.0, 1.0), (1.1, 1.0), (float("nan"), 1.0), (0.5, 0.0)])
def test_impossible_figures_are_refused(on_share, period):
    with pytest.raises(BadInput, match="must be"):
        Availability(on_share, period)
