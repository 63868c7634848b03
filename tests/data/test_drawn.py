import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.data.draw import distinct
from potluck.data.federate import federate
from potluck.data.made import made
from potluck.data.spec import PartitionSpec
from potluck.errors import BadInput


@settings(max_examples=60, deadline=None)
@given(pool=st.integers(1, 300), part=st.floats(0.01, 1.0), key=st.integers(0, 2**64 - 1))
def test_a_keyed_permutation_gives_distinct_numbers_below_the_pool(pool, part, key):
    count = max(1, int(part * pool))
    (drawn,) = distinct(np.array([key], dtype=np.uint64), count, pool)
    assert len(set(drawn.tolist())) == count
    assert drawn.min() >= 0
    assert drawn.max() < pool


def test_all_numbers_are_drawn_about_equally_often():
    drawn = distinct(np.arange(4000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15), 5, 50)
    counts = np.bincount(drawn.reshape(-1), minlength=50)
    assert abs(counts - 400).max() < 100  # five deviations of a fair draw


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "classes"])
def test_a_million_clients_cost_little_and_are_the_same_each_time(kind):
    federation = federate(made(), PartitionSpec(kind=kind, clients=1_000_000, samples=30, valid_share=0.1))
    assert len(federation) == 1_000_000
    assert federation.names[999_999] == "c999999"
    assert federation.sizes.strides == (0,)
    assert int(federation.sizes[123]) == 30
    ids = [5, 999_999]
    _, y, weight, *_ = federation.materialise_many(ids, "train", 32)
    assert weight.sum() == 60
    for k, i in enumerate(ids):
        rows = federation.train_rows(i)
        np.testing.assert_array_equal(rows, federation.train_rows(i))
        np.testing.assert_array_equal(y[k, :30], federation.dataset.y[rows])
        assert len(federation.test_rows(i)) == federation.test_sizes[i] == 11
        assert len(federation.valid_rows(i)) == federation.valid_sizes[i] == 3
    assert not np.array_equal(federation.train_rows(5), federation.train_rows(6))
    assert "Clients share rows" in federation.notes[0]


def test_drawn_rows_are_never_on_two_sides():
    federation = federate(made(), PartitionSpec(kind="iid", clients=200, samples=50))
    trained = np.unique(np.concatenate([federation.train_rows(i) for i in range(200)]))
    tested = np.unique(np.concatenate([federation.test_rows(i) for i in range(200)]))
    assert not np.intersect1d(trained, tested).size
    assert len(trained) + len(tested) == 720
    assert all(len(set(federation.train_rows(i).tolist())) == 50 for i in range(200))


def test_drawn_clients_have_their_own_mix_of_classes():
    federation = federate(made(), PartitionSpec(kind="classes", classes_per_client=2, clients=50, samples=20))
    held = federation.class_counts(range(50)) > 0
    tested = federation.class_counts(range(50), "test") > 0
    assert ((held | tested).sum(axis=1) <= 2).all()
    assert held.any(axis=0).all()
    with pytest.raises(
        BadInput, match=r"partition.samples: 600 train rows per client are needed, but the data has 540"
    ):
        federate(made(), PartitionSpec(kind="iid", clients=5, samples=600))


def test_numbered_names_know_their_place():
    names = federate(made(), PartitionSpec(kind="iid", clients=12_345, samples=4)).names
    assert names[0] == "c00000"
    assert names[-1] == "c12344"
    assert names[3:5] == ["c00003", "c00004"]
    assert names.index("c00042") == 42
    assert "c12344" in names
    assert "c12345" not in names
    assert "c42" not in names
    assert 3 not in names
    with pytest.raises(IndexError):
        names[12_345]
    with pytest.raises(ValueError, match="not one of"):
        names.index("s01")
