"""Mail: each leg reads the newest note that came before it, whenever the engine gets round to running it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import DEVICE, PLAIN

from potluck import keys
from potluck.devices import Trace
from potluck.devices.draws import uniform
from potluck.engines.local.post import Mail, Post, delays
from potluck.engines.local.roster import Roster


class Flight(NamedTuple):
    """All that a mailbox wants to know of a task."""

    sent: float
    starts: list[float]


MOMENTS = st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 5)), max_size=12)


def put(mail: Mail, clients: list[int], came: float, note: Any, now: float, flights: dict[int, Any]) -> None:
    if not mail.open:
        mail.start(3, flights)
    there = np.array(clients)
    mail.put(there, np.full(len(there), came), np.zeros(len(there)), Post(note, 8, now))


@given(posts=MOMENTS, runs=st.lists(st.floats(0, 15), min_size=3, max_size=3), again=st.booleans())
def test_what_a_leg_reads_does_not_depend_on_when_it_is_run(
    posts: list[tuple[float, float]], runs: list[float], again: bool
) -> None:
    """Posted at any moment, taking any time; legs begin at 2, 5 and 8 and are run then or later, in order."""
    task = Flight(sent=2.0, starts=[3.0, 5.0, 8.0])
    begins = [2.0, 5.0, 8.0]
    posts = sorted(posts)
    latest = 0.0
    turns = [latest := max(latest, begin, run) for begin, run in zip(begins, runs, strict=True)]

    mail, read, events = Mail(), [], [("post", moment, i) for i, (moment, _) in enumerate(posts)]
    events += [("leg", moment, leg) for leg, moment in enumerate(turns)] + [("begin", task.sent, 0)]
    order = ["begin", "leg", "post"]  # at one moment
    for kind, moment, number in sorted(events, key=lambda event: (event[1], order.index(event[0]))):
        if kind == "leg":
            letter = mail.read(0, begins[number])
            read.append(None if letter is None else letter.post.note)
        elif kind == "begin":
            mail.begin(0, task)  # type: ignore[arg-type]
        else:
            at_work = {0: task} if moment >= task.sent else {}
            put(mail, [0], moment + posts[number][1], number, moment, at_work)
        if again:  # saved and taken up between any two events
            mail = Mail.restored(mail.snapshot())

    expected, newest = [], -1
    for begin in begins:
        found = max((i for i, (moment, delay) in enumerate(posts) if moment + delay < begin), default=-1)
        expected.append(found if found > newest else None)
        newest = max(newest, found)
    assert read == expected


def test_boxes_stay_small() -> None:
    mail, task = Mail(), Flight(0.0, [1.0, 5.0, 9.0])
    for step in range(1000):
        put(mail, [0, 1], step * 0.01 + 0.5, step, step * 0.01, {0: task})
    assert len(mail.notes(0)) <= 4  # one for each leg, one for the next task
    assert len(mail.notes(1)) <= 60  # those on their way, and the newest that came
    assert mail.read(2, 100.0) is None


def test_boxes_are_right_whoever_has_more_legs() -> None:
    """Tasks of one leg and of four, begun after the first post; ends and begins in between."""
    mail = Mail()
    put(mail, [0, 1, 2], 0.5, "a", 0.0, {0: Flight(0.0, [0.0])})
    mail.begin(1, Flight(1.0, [1.0, 2.0, 3.0, 4.0]))  # type: ignore[arg-type]
    put(mail, [0, 1, 2], 2.5, "b", 1.5, {})
    put(mail, [0, 1, 2], 2.7, "c", 1.6, {})
    mail.end(0)
    assert [one.post.note for one in mail.notes(0)] == ["c"]  # for whatever task comes next, the newest
    assert [one.post.note for one in mail.notes(1)] == ["a", "c"]  # the first leg's, the third's
    assert [one.post.note for one in mail.notes(2)] == ["a", "b", "c"]  # may begin a task before b is there
    assert [letter and letter.post.note for letter in (mail.read(1, 1.0), mail.read(1, 2.0), mail.read(1, 3.0))] == [
        "a", None, "c",
    ]  # fmt: skip


@pytest.mark.parametrize("trace", [None, Trace((0.5, 2.0), 3.0)])
def test_delays_are_those_of_the_links(trace: Trace | None) -> None:
    wobbly = replace(PLAIN, name="wobbly", jitter=0.4, trace=trace)
    codes = np.array([0, 1, 1, 0, 1])
    roster = Roster([f"c{i}" for i in range(5)], np.ones(5), [(DEVICE, PLAIN), (DEVICE, wobbly)], codes)
    places, now = np.array([4, 0, 2, 1]), 7.5
    seconds, joules = delays(roster, places, 1000, now, seed=3)
    draws = uniform(places ^ np.int64(keys.number(3, "mail", str(now))), "mail")
    for place, u, found, spent in zip(places.tolist(), draws, seconds, joules, strict=True):
        link = roster.link(place)
        at = now + link.phase(keys.number(3, roster.names[place]))
        assert found == pytest.approx(link.transfer(1000, up=False, at=at, u=float(u)), rel=1e-9)
        assert spent == pytest.approx(link.down_watts * found)
    assert [len(part) for part in delays(roster, np.array([], dtype=np.int64), 1000, now, seed=3)] == [0, 0]
