"""Who may take part and who is here: a million names cost little, and nobody who comes is overlooked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from helpers.toys import DEVICE, PLAIN, moments
from hypothesis import given
from hypothesis import strategies as st

from potluck.devices import Availability
from potluck.engines.local.idle import Others, Placed
from potluck.engines.local.roster import Presence, Roster

NEVER = float("inf")


@given(count=st.integers(0, 30), data=st.data())
def test_the_others_are_a_list_without_some(count: int, data: st.DataObject) -> None:
    names = [f"c{i}" for i in range(count)]
    without = data.draw(st.sets(st.integers(0, max(0, count - 1)), max_size=count)) if count else set()
    others, plain = Others(names, list(without)), [name for i, name in enumerate(names) if i not in without]
    assert len(others) == len(plain)
    assert list(others) == plain
    assert [others[k] for k in range(-len(plain), len(plain))] == plain + plain
    assert others[1:5] == plain[1:5]
    assert others[::-2] == plain[::-2]
    assert all(name in others for name in plain)
    for k in (len(plain), -len(plain) - 1):
        with pytest.raises(IndexError):
            others[k]


class Lazy(Sequence[str]):
    """A million names nobody has written down."""

    def __init__(self) -> None:
        self.asked = 0

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, i: int) -> str:  # type: ignore[override]
        self.asked += 1
        return f"c{i}"

    def index(self, value: str, start: int = 0, stop: int = 0) -> int:
        if not value.startswith("c"):
            raise ValueError(value)
        return int(value[1:])


def test_a_million_clients_are_looked_up_one_at_a_time() -> None:
    names = Lazy()
    roster = Roster(names, np.full(len(names), 5), [(DEVICE, PLAIN)], np.zeros(len(names), dtype=np.int64))
    assert roster.index_of("c777777") == 777_777
    assert roster["c999999"].samples == 5
    with pytest.raises(KeyError):
        roster["nobody"]
    others = Others(names, [0, 1, 500_000])
    assert len(others) == 999_997
    assert (others[0], others[499_998], others[-1]) == ("c2", "c500001", "c999999")
    assert Presence(roster, 0).away(0.0) is None
    assert names.asked < 10


def test_a_long_list_of_names_is_not_searched() -> None:
    """As a run with newcomers has one: some of many clients, by name."""

    class Searched(list[str]):
        def index(self, *_: object) -> int:  # type: ignore[override]
            raise AssertionError("searched from its start")

    names = Searched(f"name {i}" for i in range(200_001))
    roster = Roster(names, np.full(len(names), 5), [(DEVICE, PLAIN)], np.zeros(len(names), dtype=np.int64))
    assert roster.index_of("name 200000") == 200_000


def test_equipment_goes_by_code() -> None:
    fast = replace(DEVICE, name="fast")
    roster = Roster(["a", "b", "c"], np.array([1, 2, 3]), [(DEVICE, PLAIN), (fast, PLAIN)], np.array([1, 0, 1]))
    assert [roster[name].device for name in roster] == ["fast", "slow", "fast"]
    assert [roster[name].samples for name in roster] == [1, 2, 3]
    assert (len(roster), roster["a"].kind, roster["a"].partner) == (3, "client", None)


def presence_of(joins: list[float] | None, leaves: list[float] | None, shaky: list[bool], seed: int) -> Presence:
    link = replace(PLAIN, name="shaky", availability=Availability(0.5, 10.0))
    count = len(shaky)
    roster = Roster(
        [f"c{i}" for i in range(count)],
        np.ones(count),
        [(DEVICE, PLAIN), (DEVICE, link)],
        np.array([int(one) for one in shaky]),
        joins=None if joins is None else moments(*joins),
        leaves=None if leaves is None else moments(*leaves),
    )
    return Presence(roster, seed)


MOMENTS = st.one_of(st.just(0.0), st.floats(0.0, 40.0), st.just(NEVER))


@given(
    people=st.lists(st.tuples(MOMENTS, MOMENTS, st.booleans()), min_size=1, max_size=5),
    now=st.floats(0.0, 40.0),
    dated=st.tuples(st.booleans(), st.booleans()),
    without=st.sets(st.integers(0, 4)),
    seed=st.integers(0, 5),
)
def test_nobody_who_comes_is_overlooked(
    people: list[tuple[float, float, bool]], now: float, dated: tuple[bool, bool], without: set[int], seed: int
) -> None:
    joins, leaves, shaky = (list(column) for column in zip(*people, strict=True))
    presence = presence_of(joins if dated[0] else None, leaves if dated[1] else None, shaky, seed)
    everybody = range(len(people))
    gone = presence.away(now)
    assert [i for i in everybody if not presence.here(i, now)] == ([] if gone is None else gone.tolist())

    without &= set(everybody)
    coming = presence.next_coming(now, without)
    awaited = [i for i in everybody if i not in without and not presence.here(i, now)]
    if coming is not None:
        assert now < coming < NEVER
    for moment in np.linspace(now, min(coming or NEVER, now + 100.0), 50, endpoint=False):
        assert not any(presence.here(i, float(moment)) for i in awaited)


def test_somebody_really_comes_at_the_moment_named() -> None:
    presence = presence_of([0.0, 7.0, 0.0], [NEVER, NEVER, 20.0], [True, False, True], 0)
    now, seen = 0.0, set()
    while (coming := presence.next_coming(now)) is not None and coming < 100:
        arrived = [i for i in range(3) if presence.here(i, coming) and not presence.here(i, now)]
        assert arrived
        seen.update(arrived)
        now = coming
    assert {0, 1} <= seen
    assert presence.leaves(2) == 20.0
    assert presence.leaves(0) == NEVER


def test_clients_at_some_places_are_named_like_a_list() -> None:
    names = [f"c{i}" for i in range(50)]
    placed, plain = Placed(names, np.arange(3, 50, 4)), names[3::4]
    assert len(placed) == len(plain)
    assert list(placed) == plain
    assert placed[2:5] == plain[2:5]
    assert placed[-1] == plain[-1]
    assert "c7" in placed
    assert "c8" not in placed
    with pytest.raises(IndexError):
        placed[len(plain)]
