"""Private state: what was put comes back, from memory or from disk, whatever happened in between."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck import keys
from potluck.engines.local.store import Store


@dataclass(frozen=True)
class Mine:
    control: Any
    steps: int = 0


CLASSES = {"Mine": Mine}


def mine(client: int, version: int = 0, length: int = 25) -> Mine:
    """100 bytes of tensors by default."""
    return Mine({"w": keys.normal(keys.key(client, version), (length,))}, version)


def same(a: Any, b: Any) -> bool:
    return a.steps == b.steps and torch.equal(a.control["w"], b.control["w"])


def in_memory(store: Store) -> list[int]:
    return list(store._here)


def test_what_was_put_comes_back() -> None:
    store = Store(CLASSES)
    assert store.get(3) is None
    assert store.get(3, "nothing yet") == "nothing yet"
    assert 3 not in store
    store.put(3, mine(3))
    assert 3 in store
    assert same(store.get(3, "nothing yet"), mine(3))
    assert len(store) == 1


def test_the_longest_unused_goes_to_disk_and_comes_back_whole() -> None:
    store = Store(CLASSES, budget=300)
    for client in range(3):
        store.put(client, mine(client))
    assert in_memory(store) == [0, 1, 2]
    store.get(0)  # used: 1 is the longest unused now
    store.put(3, mine(3))
    assert in_memory(store) == [2, 0, 3]
    store.put(4, mine(4))
    assert in_memory(store) == [0, 3, 4]
    assert list(store) == [0, 1, 2, 3, 4]
    assert len(store) == 5
    for client in range(5):
        assert client in store
        assert same(store.get(client), mine(client))


def test_the_newest_value_counts_wherever_the_older_one_lies() -> None:
    store = Store(CLASSES, budget=200)
    for version in range(4):
        for client in range(6):
            store.put(client, mine(client, version))
        assert len(store) == 6
        for client in range(6):
            assert same(store.get(client), mine(client, version))
    assert store._bytes <= 200


def test_values_may_grow_and_shrink_on_disk() -> None:
    store = Store(CLASSES, budget=1)
    lengths = [5, 500, 3, 200, 500, 1]
    for version, length in enumerate(lengths):
        store.put(0, mine(0, version, length))
        store.put(1, mine(1, version, 10))
        store.put(2, mine(2, version, length))
        for client, expected in ((0, length), (1, 10), (2, length)):
            assert same(store.get(client), mine(client, version, expected))


def test_a_value_larger_than_the_room_is_kept() -> None:
    store = Store(CLASSES, budget=10)
    store.put(0, mine(0, length=1000))
    assert same(store.get(0), mine(0, length=1000))
    store.put(1, mine(1, length=1000))
    assert same(store.get(0), mine(0, length=1000))
    assert in_memory(store) == [1]


def test_slots_on_disk_are_used_again() -> None:
    store = Store(CLASSES, budget=1)
    for version in range(50):
        for client in range(4):
            store.put(client, mine(client, version))
    slot = store._slots[0][2]
    assert store._end < 6 * slot


def test_the_file_has_no_name_and_lies_where_it_is_told(tmp_path: Path) -> None:
    store = Store(CLASSES, budget=1, folder=tmp_path)
    for client in range(5):
        store.put(client, mine(client))
    assert store._file is not None
    assert list(tmp_path.iterdir()) == []  # it goes with the process
    assert os.fstat(store._file.fileno()).st_dev == tmp_path.stat().st_dev
    file = store._file
    del store
    assert file.closed


def test_what_is_put_is_a_copy() -> None:
    """A row of a stack does not keep the stack alive, and what happens to it later changes nothing."""
    stack = torch.ones(1000, 5)
    store = Store(CLASSES)
    store.put(0, Mine({"w": stack[3]}))
    stack[3] = 7.0
    kept = store.get(0).control["w"]
    assert kept.tolist() == [1.0] * 5
    assert kept.untyped_storage().nbytes() == 20
    store.put(1, Mine({"w": torch.ones(4, 3).T}))
    assert store.get(1).control["w"].is_contiguous()


def test_many_clients() -> None:
    store = Store(CLASSES, budget=100 * 50)
    for client in range(500):
        store.put(client, mine(client))
    assert len(store) == 500
    assert len(in_memory(store)) == 50
    for client in (0, 1, 277, 449, 450, 499):
        assert same(store.get(client), mine(client))
    assert list(store) == list(range(500))


@given(
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 40)), max_size=40),
    budget=st.integers(0, 400),
)
def test_it_is_a_dictionary(steps: list[tuple[bool, int, int]], budget: int) -> None:
    store, plain = Store(CLASSES, budget=budget), {}
    for version, (put, client, length) in enumerate(steps):
        if put:
            plain[client] = mine(client, version, length)
            store.put(client, plain[client])
        elif client in plain:
            assert same(store.get(client), plain[client])
        else:
            assert store.get(client) is None
        assert sorted(plain) == list(store)
        assert len(store) == len(plain)
    assert all(same(store.get(client), value) for client, value in plain.items())
