"""How many epochs fast clients train."""

from __future__ import annotations

from dataclasses import replace

from potluck.methods.parts.echopfl import tempo
from potluck.methods.parts.echopfl.tempo import Pace, Tempo
from potluck.methods.parts.shared_map import SharedMap


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


def test_nobody_waits_more_than_four_times_as_long_as_another() -> None:
    """At equal waiting the larger gain goes first; a client that opened a cluster (gain 0) counts as usual."""

    class Waiting:
        idle = ("small", "large", "opener", "new")
        now = 10.0

    pace = Tempo(
        gains=SharedMap.of({"small": 0.001, "large": 100.0, "opener": 0.0}),
        pushed=SharedMap.of({"small": 5.0, "large": 5.0, "opener": 5.0}),
    )
    assert tempo.in_order(Waiting(), pace) == ["new", "large", "opener", "small"]  # type: ignore[arg-type]
    longer = replace(pace, pushed=pace.pushed.put("large", 9.0))  # 1 s instead of 5
    assert tempo.in_order(Waiting(), longer)[-1] == "large"  # type: ignore[arg-type]
