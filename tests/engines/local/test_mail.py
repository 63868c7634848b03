"""Mail: each leg reads the newest note that came before it, whenever the engine gets round to running it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.toys import DEVICE, PLAIN
from hypothesis import given
from hypothesis import strategies as st

from potluck import keys
from potluck.devices import Trace
from potluck.devices.draws import uniform
from potluck.engines.local.mail import LEAST, Mail, Post, delays, soonest
from potluck.engines.local.roster import Roster

MOMENTS = st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 5)), max_size=12)


def mail_of(taking: Callable[[Any], float] = lambda note: 0.5, least: float = 0.0) -> Mail:
    """Three clients; how long a note takes is a matter of the note."""
    return Mail(["a", "b", "c"], lambda client, post: (taking(post.note), 0.0), lambda client, nbytes: least)


@given(
    posts=MOMENTS, runs=st.lists(st.floats(0, 15), min_size=3, max_size=3), saved=st.booleans(), tidied=st.booleans()
)
def test_what_a_leg_reads_does_not_depend_on_when_it_is_run(
    posts: list[tuple[float, float]], runs: list[float], saved: bool, tidied: bool
) -> None:
    """Posted at any moment, taking any time; legs begin at 2, 5 and 8 and are run then or later, in order."""
    begins = [2.0, 5.0, 8.0]
    posts = sorted(posts)
    latest = 0.0
    turns = [latest := max(latest, begin, run) for begin, run in zip(begins, runs, strict=True)]

    mail, read = mail_of(lambda note: posts[note][1], least=min((delay for _, delay in posts), default=0.0)), []
    events = [("post", moment, i) for i, (moment, _) in enumerate(posts)]
    events += [("leg", moment, leg) for leg, moment in enumerate(turns)]
    order = ["leg", "post"]  # at one moment
    for kind, moment, number in sorted(events, key=lambda event: (event[1], order.index(event[0]))):
        if kind == "leg":
            letter = mail.read(0, begins[number]) if number else mail.first(0, begins[0])
            read.append(None if letter is None else letter.post.note)
        else:
            mail.put(number, 8, moment, ["a"])
        ahead = {0: begins[len(read) :]} if moment >= 2.0 else {}  # the task is sent when its first leg's mail closes
        if tidied:
            mail.tidy(moment, ahead)
        if saved:  # and taken up between any two events
            again = mail_of(lambda note: posts[note][1])
            again.restore(mail.snapshot(moment, ahead))
            mail = again

    last = max((i for i, (moment, _) in enumerate(posts) if moment < begins[0]), default=-1)
    there = last >= 0 and sum(posts[last]) < begins[0]  # the first leg reads the last note, or none
    expected, newest = [last if there else None], last if there else last - 1
    for begin in begins[1:]:
        found = max((i for i, (moment, delay) in enumerate(posts) if moment + delay < begin), default=-1)
        expected.append(found if found > max(newest, -1) else None)
        newest = max(newest, found)
    assert read == expected


def test_what_nobody_will_read_is_dropped() -> None:
    mail = mail_of()
    for step in range(2000):
        mail.put(step, 8, step * 0.01, ["a", "b"])
        if mail.crowded:
            mail.tidy(step * 0.01, {0: [5.0, 9.0]})
    assert len(mail.notes(0, 20.0, [5.0, 9.0])) <= 3 * 52  # the newest for each leg and for later, those on the way
    assert len(mail._posts) <= 1550 + 52 + LEAST  # nothing older than what the first leg wants
    assert [mail.read(0, leg).post.note for leg in (5.0, 9.0)] == [449, 849]  # type: ignore[union-attr]
    mail.tidy(20.0, {})
    assert len(mail._posts) <= 53
    assert mail.read(2, 100.0) is None
    letter = mail.read(1, 20.0)
    assert letter is not None
    assert letter.post.note == 1949


def test_who_gets_nothing_does_not_look_through_the_same_notes_again() -> None:
    asked = []
    mail = Mail(["a", "b"], lambda client, post: asked.append(post.note) or (0.5, 0.0))  # type: ignore[func-returns-value]

    class Watched(frozenset[str]):
        def __contains__(self, name: object) -> bool:
            looked.append(name)
            return super().__contains__(name)

    looked: list[object] = []
    for step in range(10):
        mail.put(step, 8, float(step), Watched(["a"]))
    assert mail.read(1, 20.0) is None
    assert mail.read(1, 20.0) is None
    assert looked == ["b"] * 10
    assert not asked
    mail.put(10, 8, 10.0, ["b"])
    letter = mail.read(1, 20.0)
    assert letter is not None
    assert letter.post.note == 10


def test_notes_are_those_that_may_yet_be_read() -> None:
    """Tasks of one leg and of four; the second note overtakes nobody, the third takes as long."""
    mail = mail_of(lambda note: {"a": 0.5, "b": 1.0, "c": 1.1}[note])
    everybody = ["a", "b", "c"]
    for note, at in (("a", 0.0), ("b", 1.5), ("c", 1.6)):
        mail.put(note, 8, at, everybody)
    assert [one.post.note for one in mail.notes(0, 3.0)] == ["c"]  # for whatever task comes next, the newest
    everything = [one.post.note for one in mail.notes(1, 3.0, [1.0, 2.0, 2.9, 4.0])]
    assert everything == ["a", "b", "c"]  # the first leg's, what was on its way when the second began, the third's
    assert [one.post.note for one in mail.notes(2, 1.7)] == ["a", "b", "c"]  # may begin a task before b is there
    assert [letter and letter.post.note for letter in (mail.first(1, 1.0), mail.read(1, 2.0), mail.read(1, 3.0))] == [
        "a", None, "c",
    ]  # fmt: skip
    assert mail.first(2, 1.7) is None  # c has replaced a and b, and is not there yet
    assert mail.read(2, 2.6) is None
    letter = mail.read(2, 3.0)
    assert letter is not None
    assert letter.post.note == "c"


def test_a_list_that_changes_later_changes_nothing() -> None:
    mail, to = mail_of(), ["a"]
    mail.put("note", 8, 0.0, to)
    to.append("b")
    assert mail.read(1, 9.0) is None
    assert mail.read(0, 9.0) is not None


@pytest.mark.parametrize("trace", [None, Trace((0.5, 2.0), 3.0)])
def test_delays_are_those_of_the_links(trace: Trace | None) -> None:
    wobbly = replace(PLAIN, name="wobbly", jitter=0.4, trace=trace)
    codes = np.array([0, 1, 1, 0, 1])
    roster = Roster([f"c{i}" for i in range(5)], np.ones(5), [(DEVICE, PLAIN), (DEVICE, wobbly)], codes)
    delay, post = delays(roster, seed=3), Post(None, 1000, 7.5, roster.names)
    found = [delay(place, post) for place in range(5)]
    for place, (seconds, joules) in enumerate(found):
        link = roster.link(place)
        u = float(uniform(place ^ keys.number(3, "mail", "7.5"), "mail")[0])
        at = 7.5 + link.phase(keys.number(3, roster.names[place]))
        assert seconds == link.transfer(1000, up=False, at=at, u=u)
        assert joules == pytest.approx(link.down_watts * seconds)
    assert len({seconds for seconds, _ in found}) == 4  # the plain link has no jitter
    assert found != [delay(place, replace(post, at=8.5)) for place in range(5)]
    least = soonest(roster)
    assert all(least(place, 900) <= seconds for place, (seconds, _) in enumerate(found))
    assert [least(place, 1000) > 0.0 for place in range(5)] == [code == 0 or trace is None for code in codes.tolist()]
