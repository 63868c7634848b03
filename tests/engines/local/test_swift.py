"""Single tasks that nothing disturbs: the same bits as any other task, and resumed from any moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.fleets import fleet_of, made
from helpers.toys import DEVICE, PLAIN

from potluck.devices import Availability
from potluck.engines.local import LocalFleet, swift
from potluck.engines.local.conditions import Conditions
from potluck.engines.local.idle import SEARCHED, Idle
from potluck.engines.local.roster import Presence, Roster
from potluck.engines.local.swift import Swift, Swifts
from potluck.methods import load
from potluck.wire.codec import decode, encode

SIZES = (4, 9, 4, 6) * 6
GEAR = [
    (DEVICE, replace(PLAIN, name="lossy", jitter=0.2, dropout=0.2)),
    (replace(DEVICE, name="quick", macs_per_second=5e6, speed_jitter=0.3), PLAIN),
    (replace(DEVICE, name="away"), replace(PLAIN, name="away", availability=Availability(0.6, 40.0))),
]


def fleet(name: str = "fedasync", gear: Any = GEAR, **options: Any) -> tuple[LocalFleet, Any, Any]:
    method = load(name)
    config = method.config()
    made_, state = fleet_of(method, config, made(SIZES), equipment=gear, **options)
    return made_, method.server(made_, state, config), state


def seen(given: LocalFleet, program: Any, steps: int) -> tuple[Any, ...]:
    """All that can be seen of so many steps."""
    states = [next(program) for _ in range(steps)]
    return encode(states[-1]), *given.log.drain(), given.now, encode(given.snapshot())


@pytest.mark.parametrize("name", ["fedasync", "fedbuff"])
@pytest.mark.parametrize("limit", [1 << 30, 30])  # with 30 bytes every update is refused
def test_a_swift_task_is_as_any_other(name: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, program, _ = fleet(name, limit=limit)
    quick = seen(ours, program, 150)
    assert limit == 30 or any(isinstance(flight, Swift) for flight in ours._flights.values())
    monkeypatch.setattr(Swifts, "kind", lambda *given: None)
    monkeypatch.setattr(Swifts, "way", lambda *given: None)
    theirs, program, _ = fleet(name, limit=limit)
    assert seen(theirs, program, 150) == quick
    assert not any(isinstance(flight, Swift) for flight in theirs._flights.values())
    outcomes = {task.outcome for task in quick[1]}
    assert outcomes == {"lost", "accepted" if limit > 30 else "refused"}


def test_columns_plan_as_one_task_alone_does(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for few in (1, 1000):
        monkeypatch.setattr(swift, "FEW", few)
        ours, program, _ = fleet()
        found.append(seen(ours, program, 100))
    assert found[0] == found[1]


@pytest.mark.parametrize("steps", [1, 30, 77])
def test_a_run_goes_on_from_any_moment_with_the_same_bits(steps: int) -> None:
    whole, program, _ = fleet(seed=3)
    state = [next(program) for _ in range(steps)][-1]
    saved, kept = encode(whole.snapshot()), encode(state)
    whole.log.drain()
    method = load("fedasync")
    again, _, _ = fleet(seed=3)
    again.restore(decode(saved, method.classes))
    resumed = method.server(again, decode(kept, method.classes), method.config())
    assert seen(again, resumed, 60) == seen(whole, program, 60)


def test_workers_change_no_bit() -> None:
    one, program, _ = fleet()
    two, other, _ = fleet(workers=2)
    assert seen(one, program, 100) == seen(two, other, 100)


def test_what_a_swift_task_costs_is_what_its_flight_says() -> None:
    ours, program, _ = fleet(gear=GEAR[1:2])
    for _ in range(60):
        next(program)
    flights = [flight for flight in ours._flights.values() if isinstance(flight, Swift)]
    assert flights
    for flight in flights:
        whole = flight.whole
        assert (flight.starts, flight.trained, flight.arrives) == (whole.starts, whole.trained, whole.arrives)
        assert flight.memory == whole.memory > 0
        assert flight.joules == flight.record.joules == whole.joules > 0


# -- so many clients at once -----------------------------------------------------------------------------------------


def limited(most: int, **options: Any) -> tuple[LocalFleet, Any]:
    ours, program, _ = fleet(**options)
    conditions = Conditions(at_once=most)
    ours._conditions = ours._swifts._conditions = conditions
    return ours, program


def test_no_more_clients_work_at_once_than_may() -> None:
    ours, program = limited(5)
    clients = set()
    for _ in range(400):
        next(program)
        assert ours.at_work <= 5
        clients |= {task.client for task in ours.log.drain()[0]}
    assert len(clients) == len(SIZES)  # all have their turns
    one, other = limited(5), limited(5)
    assert seen(*one, 80) == seen(*other, 80)


def test_of_a_large_fleet_those_who_are_there_are_drawn() -> None:
    count = 10 * SEARCHED
    link = replace(PLAIN, availability=Availability(0.3, 100.0))
    joins = np.where(np.arange(count) % 7 == 0, 1e9, 0.0)
    codes = np.arange(count) % 2
    roster = Roster(
        [f"c{i}" for i in range(count)], np.full(count, 4), [(DEVICE, link), (DEVICE, PLAIN)], codes, joins=joins
    )
    presence = Presence(roster, 0)
    idle, busy = Idle(roster, presence), dict.fromkeys(range(1, count, 2), 0)  # only clients that come and go are free
    drawn = [idle.some(30, 50.0, key, busy) for key in range(20)]
    for names in drawn:
        assert len(set(names)) == 30
        places = [roster.index_of(name) for name in names]
        assert all(place % 2 == 0 and presence.here(place, 50.0) for place in places)
        assert presence.here_many(np.array(places), 50.0).all()
    assert len({name for names in drawn for name in names}) > 400
    assert idle.some(30, 50.0, 3, busy) == drawn[3]
    everybody = np.arange(count)
    assert presence.here_many(everybody, 50.0).tolist() == [presence.here(i, 50.0) for i in everybody.tolist()]
    few = dict.fromkeys(range(2, count), 0)
    assert set(idle.some(30, 50.0, 1, few)) <= {"c0", "c1"}


def test_few_clients_are_drawn_one_by_one_as_they_are_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3 * SEARCHED
    roster = Roster([f"c{i}" for i in range(count)], np.full(count, 4), [(DEVICE, PLAIN)], np.zeros(count, np.int64))
    idle, busy = Idle(roster, Presence(roster, 0)), dict.fromkeys(range(0, count, 3), 0)
    drawn = [idle.some(many, 1.0, key, busy) for key in range(30) for many in (1, 2, 6)]
    monkeypatch.setattr("potluck.engines.local.idle.DRAWN_SINGLY", 0)
    assert [idle.some(many, 1.0, key, busy) for key in range(30) for many in (1, 2, 6)] == drawn
