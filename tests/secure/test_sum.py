"""Secure sums: equal to the plain sum, whoever goes away; single vectors stay hidden; secrets need enough shares."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.errors import BadInput
from potluck.secure import field, graph
from potluck.secure.client import SumClient
from potluck.secure.fixed import Fixed
from potluck.secure.run import secure_sum
from potluck.secure.server import NotRecovered, SumServer


def vectors(clients: int, length: int, gone: set[int], seed: int = 0) -> dict[str, np.ndarray | None]:
    draw, fixed = np.random.default_rng(seed), Fixed(4.0, clients)
    made = {f"c{i}": fixed.write(draw.normal(size=length)) for i in range(clients)}
    return {name: None if int(name[1:]) in gone else value for name, value in made.items()}


def plain(given: dict[str, np.ndarray | None]) -> np.ndarray:
    total: np.ndarray = np.sum([one for one in given.values() if one is not None], axis=0, dtype=np.uint32)
    return total


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 24), st.integers(1, 40), st.integers(0, 1 << 30), st.data())
def test_the_sum_is_the_plain_sum_of_those_who_stayed(
    clients: int, length: int, seed: int, data: st.DataObject
) -> None:
    gone = data.draw(st.sets(st.integers(0, clients - 1), max_size=max(0, int(0.3 * clients))))
    given_ = vectors(clients, length, gone, seed)
    total, stayed = secure_sum(given_)
    assert np.array_equal(total, plain(given_))
    assert stayed == [name for name, one in given_.items() if one is not None]


def test_a_sparse_graph_recovers_three_in_ten() -> None:
    gone = set(np.random.default_rng(3).permutation(160)[:48].tolist())
    given_ = vectors(160, 50, gone)
    degree, threshold = graph.sizes(160, 0.3, 0.1)
    assert threshold < degree < 159
    assert np.array_equal(secure_sum(given_)[0], plain(given_))


@pytest.mark.slow
def test_a_thousand_clients_with_a_hundred_thousand_numbers() -> None:
    gone = set(np.random.default_rng(5).permutation(1000)[:300].tolist())
    given_ = vectors(1000, 100_000, gone)
    assert np.array_equal(secure_sum(given_)[0], plain(given_))


def test_too_many_that_went_away_lose_the_sum_and_show_nothing() -> None:
    with pytest.raises(NotRecovered):
        secure_sum(vectors(10, 5, set(range(7))))


def test_a_masked_vector_tells_nothing_of_the_vector() -> None:
    """The same vector of zeros is masked by bits that look random, and otherwise in every sum."""
    seen = []
    for number in ("1", "2"):
        clients = {name: SumClient(name, number) for name in ("a", "b", "c")}
        server = SumServer(list(clients), number, 0.3, 0.1)
        known = server.neighbours({name: one.keys() for name, one in clients.items()})
        held = server.held({name: clients[name].shares(known[name], 2) for name in clients})
        seen.append(clients["a"].masked(np.zeros(20_000, np.uint32), held["a"]))
    for one in seen:
        ones = np.unpackbits(one.view(np.uint8)).mean()
        assert abs(ones - 0.5) < 0.005
    assert not np.array_equal(*seen)


def test_no_client_opens_both_shares_of_a_neighbour_or_twice() -> None:
    clients = {name: SumClient(name, "1") for name in ("a", "b", "c")}
    server = SumServer(list(clients), "1", 0.3, 0.1)
    known = server.neighbours({name: one.keys() for name, one in clients.items()})
    held = server.held({name: clients[name].shares(known[name], 2) for name in clients})
    clients["a"].masked(np.zeros(3, np.uint32), held["a"])
    with pytest.raises(BadInput):
        clients["a"].opened(["b"], ["b"])
    clients["a"].opened(["b", "c"], [])
    with pytest.raises(BadInput):
        clients["a"].opened([], ["b", "c"])
    with pytest.raises(BadInput):
        clients["a"].masked(np.zeros(3, np.uint32), held["a"])


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 12), st.integers(0, 1 << 30), st.data())
def test_any_threshold_of_shares_gives_the_secret(holders: int, seed: int, data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, holders))
    draw = np.random.default_rng(seed)
    secrets = draw.integers(0, 256, (4, 32), dtype=np.uint8)
    shares = field.share(secrets, holders, threshold)
    some = np.array([draw.permutation(holders)[:threshold] for _ in range(4)])
    picked = np.take_along_axis(shares, some[:, :, None], 1)
    assert np.array_equal(field.combine(some + 1, picked), secrets)


def test_one_share_too_few_fits_every_secret() -> None:
    """With threshold 2 one share is uniform, whatever the secret is."""
    shares = field.share(np.zeros((4000, 32), np.uint8), 3, 2)[:, 0].astype(np.float64) / field.P
    assert abs(shares.mean() - 0.5) < 0.01
    assert abs(shares.std() - 12**-0.5) < 0.01


def test_fixed_point_is_near_and_never_wraps() -> None:
    fixed = Fixed(2.0, 1000)
    values = np.linspace(-3, 3, 1001)
    assert np.abs(fixed.read(fixed.write(values)) - np.clip(values, -2, 2)).max() <= 2.0 ** -(fixed.bits + 1)
    most = np.sum([fixed.write(np.full(4, 9.0))] * 1000, axis=0, dtype=np.uint32)
    assert np.allclose(fixed.read(most), 2000.0)
    with pytest.raises(BadInput, match=r"secure\.largest"):
        Fixed(1e6, 1000)


@pytest.mark.parametrize("clients", [50, 200, 1000, 5000])
def test_the_graph_is_even_and_its_threshold_is_out_of_reach_of_the_corrupt(clients: int) -> None:
    found = graph.graph_of(clients, 0.3, 0.1, 1)
    assert found.neighbours.shape == (clients, found.degree)
    counts = np.bincount(found.neighbours.reshape(-1), minlength=clients)
    assert (counts == found.degree).all()
    assert found.threshold > 0.1 * found.degree
    assert found.threshold < 0.7 * found.degree
