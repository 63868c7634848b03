import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.devices.trace import Trace, synthetic
from potluck.errors import BadInput

FACTORS = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0, 1.7, 3.0]), min_size=1, max_size=6).filter(any)


def test_work_inside_one_step_is_divided_by_its_factor():
    trace = Trace((1.0, 0.5), seconds=10.0)
    assert trace.stretch(4.0, at=0.0) == 4.0
    assert trace.stretch(4.0, at=11.0) == 8.0


def test_work_across_steps_by_hand():
    # From 8 s: 2 s at factor 1 do 2, then 10 s at one half do 5, then 3 more seconds at 1 finish the 10.
    assert Trace((1.0, 0.5), seconds=10.0).stretch(10.0, at=8.0) == 15.0


def test_whole_periods_are_skipped_exactly():
    # A period of 20 s does 15; 1500 takes a hundred of them.
    assert Trace((1.0, 0.5), seconds=10.0).stretch(1500.0, at=3.0) == pytest.approx(2000.0, abs=1e-9)


def test_an_outage_is_waited_for():
    trace = Trace((1.0, 0.0), seconds=10.0)
    assert trace.stretch(1.0, at=12.0) == 9.0
    # Work that ends just as the outage begins does not wait for its end.
    assert trace.stretch(5.0, at=5.0) == 5.0
    assert trace.stretch(0.0, at=12.0) == 0.0


@given(
    factors=FACTORS,
    work=st.floats(0.01, 30.0),
    at=st.floats(0.0, 100.0),
    seconds=st.sampled_from([0.5, 1.0, 3.0]),
)
def test_stretch_against_small_steps(factors, work, at, seconds):
    trace = Trace(tuple(factors), seconds)
    exact = trace.stretch(work, at)
    steps = 20_000
    middle = at + (np.arange(steps) + 0.5) * exact / steps
    index = (middle % trace.period / seconds).astype(int) % len(factors)
    done = np.array(factors)[index].sum() * exact / steps
    # Each of the steps that straddle an edge may be wrong by its whole height.
    edges = exact / seconds + 2
    assert done == pytest.approx(work, abs=edges * max(factors) * exact / steps + 1e-9)


@given(factors=FACTORS, first=st.floats(0.01, 10.0), second=st.floats(0.01, 10.0), at=st.floats(0.0, 50.0))
def test_two_pieces_take_as_long_as_one(factors, first, second, at):
    trace = Trace(tuple(factors), 2.0)
    whole = trace.stretch(first + second, at)
    begin = trace.stretch(first, at)
    assert begin + trace.stretch(second, at + begin) == pytest.approx(whole, abs=1e-6 * (1 + whole))


def test_at_repeats():
    trace = Trace((1.0, 0.5, 2.0), seconds=2.0)
    assert [trace.at(moment) for moment in (0.0, 1.9, 2.0, 5.0, 6.0, 8.5)] == [1.0, 1.0, 0.5, 2.0, 1.0, 0.5]


def test_synthetic_is_seeded_bounded_and_has_mean_one():
    settings = {"seconds": 1.0, "steps": 500, "sigma": 0.8, "correlation": 0.9, "floor": 0.1, "ceiling": 3.0}
    trace = synthetic(seed=3, title="t", **settings)
    assert trace == synthetic(seed=3, title="t", **settings)
    assert trace != synthetic(seed=4, title="t", **settings)
    assert np.mean(trace.factors) == pytest.approx(1.0)
    assert max(trace.factors) / min(trace.factors) <= 30.0 + 1e-9
    logs = np.log(trace.factors)
    assert np.corrcoef(logs[:-1], logs[1:])[0, 1] > 0.8


def test_phases_differ_and_stay_inside_the_period():
    trace = Trace((1.0, 0.5), seconds=10.0)
    phases = [trace.phase(number) for number in range(50)]
    assert len(set(phases)) == 50
    assert 0 <= min(phases) < max(phases) < 20.0
    assert trace.phase(7) == phases[7]


@pytest.mark.parametrize(("factors", "seconds"), [((0.0,), 1.0), ((), 1.0), ((-1.0,), 1.0), ((1.0,), 0.0)])
def test_impossible_traces_are_refused(factors, seconds):
    with pytest.raises(BadInput, match="trace"):
        Trace(factors, seconds)
