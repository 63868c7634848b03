"""How the server waits for its clients."""

from __future__ import annotations

import pytest

from potluck.engines.flower.server import members
from potluck.engines.flower.server.members import Members
from potluck.testing.loopback import Loopback


def test_the_pause_grows_to_three_times_its_length_and_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after an hour of silence: 1.2 to the power of 3900 is more than a float can hold."""
    pauses: list[float] = []
    monkeypatch.setattr(members.time, "sleep", pauses.append)
    waiting = Members(Loopback({}), {"rules": {}}, poll=0.3)
    for _ in range(5000):
        waiting.rest()
    assert pauses[:2] == pytest.approx([0.3, 0.36])
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(0.9)
