"""How many epochs fast clients train."""

from __future__ import annotations

from potluck.methods.parts.echopfl import tempo
from potluck.methods.parts.echopfl.tempo import Pace, Tempo


def test_fast_clients_fill_the_time_of_the_slowest() -> None:
    pace = Tempo()
    assert tempo.epochs(pace, "a", 2, Pace(1.0, 20)) == 2  # nothing is known yet
    for client, seconds in (("slow", 20.0), ("a", 2.0), ("b", 5.0)):
        pace = tempo.noted(pace, client, seconds, 2)
    assert [tempo.epochs(pace, client, 2, Pace(1.0, 20)) for client in ("slow", "a", "b")] == [2, 20, 8]
    assert [tempo.epochs(pace, client, 2, Pace(0.5, 20)) for client in ("slow", "a", "b")] == [2, 6, 4]
    assert [tempo.epochs(pace, client, 2, Pace(0.0, 20)) for client in ("slow", "a", "b")] == [2, 2, 2]
    assert tempo.epochs(pace, "a", 2, Pace(1.0, 7)) == 7
    pace = tempo.noted(pace, "a", 20.0, 20)  # what a longer task took, per epoch
    assert tempo.epochs(pace, "a", 2, Pace(1.0, 20)) == 20
