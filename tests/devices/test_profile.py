import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.devices import Link, Trace, link

PLAIN = Link("l", "l", up=1e6, down=8e6, latency=0.25, jitter=0.0, up_watts=1, down_watts=1, dropout=0, sources={})


def test_transfer_by_hand():
    # 1000 bytes are 8000 bits: 8 ms up at 1 Mbit/s, 1 ms down at 8 Mbit/s, and a quarter second on the way.
    assert PLAIN.transfer(1000, up=True, at=0.0, u=0.5) == pytest.approx(0.258)
    assert PLAIN.transfer(1000, up=False, at=0.0, u=0.5) == pytest.approx(0.251)
    assert PLAIN.transfer(0, up=True, at=9.0, u=0.9) == 0.25


def test_transfer_follows_the_trace():
    # One second of sending: half of it at full speed, then the other half at a quarter of it.
    slow = dataclasses.replace(PLAIN, trace=Trace((1.0, 0.25), seconds=10.0))
    assert slow.transfer(125_000, up=True, at=9.5, u=0.5) == pytest.approx(0.25 + 0.5 + 2.0)


def test_jitter_has_mean_one_and_stretches_everything():
    shaky = dataclasses.replace(PLAIN, jitter=0.5)
    calm = PLAIN.transfer(10_000, up=True, at=0.0, u=0.5)
    draws = [shaky.transfer(10_000, up=True, at=0.0, u=u) for u in (np.arange(4000) + 0.5) / 4000]
    assert np.mean(draws) == pytest.approx(calm, rel=1e-3)
    assert np.std(np.log(draws)) == pytest.approx(0.5, rel=1e-2)


@given(u=st.sampled_from([0.0, 1e-300, 0.5, 1 - 2**-53]), nbytes=st.integers(1, 10**9), up=st.booleans())
def test_no_draw_is_free_or_endless(u, nbytes, up):
    lte = link("lte-moving")
    assert 0 < lte.transfer(nbytes, up, at=3.0, u=u) < 1e9


def test_a_negative_transfer_is_a_mistake():
    with pytest.raises(ValueError, match="negative"):
        PLAIN.transfer(-1, up=True, at=0.0, u=0.5)


def test_phase_only_where_there_is_a_trace():
    assert PLAIN.phase(5) == 0.0
    assert 0.0 < link("lte-varying").phase(5) < 900.0
