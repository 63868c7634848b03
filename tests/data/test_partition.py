import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.data.partition import NO_CLIENT, class_sets, overlapping_sets, plan
from potluck.data.spec import PartitionSpec
from potluck.errors import BadInput
from potluck.keys import rng

Y = np.repeat(np.arange(10), 100)


def dealt(y: np.ndarray = Y, seed: int = 0, **fields: object) -> tuple[np.ndarray, list[str]]:
    """Counts (clients, classes) of a plan dealt to the pool it was made for."""
    classes = int(y.max()) + 1
    made, notes = plan(PartitionSpec(**fields), y, classes, rng(seed, "plan"))
    client = made.deal(y, rng(seed, "deal"))
    counts = np.zeros((made.clients, classes), dtype=np.int64)
    np.add.at(counts, (client[client != NO_CLIENT], y[client != NO_CLIENT]), 1)
    return counts, notes


@settings(max_examples=30, deadline=None)
@given(
    kind=st.sampled_from(["iid", "dirichlet", "classes", "sizes", "gamma"]),
    clients=st.integers(1, 30),
    seed=st.integers(0, 50),
)
def test_no_row_is_dealt_twice_and_the_seed_decides(kind, clients, seed):
    counts, _ = dealt(kind=kind, clients=clients, seed=seed)
    again, _ = dealt(kind=kind, clients=clients, seed=seed)
    assert (counts.sum(axis=0) <= 100).all()
    np.testing.assert_array_equal(counts, again)


def test_iid_sizes_differ_by_at_most_one():
    counts, _ = dealt(kind="iid", clients=7)
    sizes = counts.sum(axis=1)
    assert sizes.sum() == 1000
    assert sizes.max() - sizes.min() <= 1


def test_a_small_alpha_concentrates_classes_and_a_large_one_spreads_them():
    few, _ = dealt(kind="dirichlet", clients=20, alpha=0.05)
    many, _ = dealt(kind="dirichlet", clients=20, alpha=1000.0)
    assert few.sum() == many.sum() == 1000

    def largest_share(counts):
        return (counts.max(axis=1) / np.maximum(counts.sum(axis=1), 1)).mean()

    assert largest_share(few) > 0.6
    assert largest_share(many) < 0.2
    assert many.min() >= 3


def test_classes_per_client():
    counts, _ = dealt(kind="classes", clients=25, classes_per_client=2)
    assert ((counts > 0).sum(axis=1) == 2).all()
    assert (counts.sum(axis=0) == 100).all()
    held = class_sets(25, 10, 2, rng(1))
    assert held.sum(axis=0).tolist() == [5] * 10
    with pytest.raises(
        BadInput, match=r"partition.classes_per_client: must be at most 10, the classes of the data, got 11"
    ):
        dealt(kind="classes", classes_per_client=11)


def test_classes_with_a_spread_are_unbalanced():
    counts, _ = dealt(kind="classes", clients=10, classes_per_client=2, sigma=1.0)
    assert counts.sum(axis=1).max() > 2 * counts.sum(axis=1).min()


def test_given_sizes_are_kept():
    counts, _ = dealt(kind="sizes", sizes=(22, 25, 10))
    assert counts.sum(axis=1).tolist() == [22, 25, 10]
    with pytest.raises(
        BadInput, match=r"partition.sizes: the sizes must add up to at most 1000, the rows of the data, got 1002"
    ):
        dealt(kind="sizes", sizes=(1000, 2))


def test_log_normal_sizes():
    counts, _ = dealt(kind="sizes", clients=20)
    sizes = counts.sum(axis=1)
    assert sizes.sum() == 1000
    assert sizes.max() > 2 * np.median(sizes)
    even, _ = dealt(kind="sizes", clients=20, sigma=0.0)
    assert even.sum(axis=1).tolist() == [50] * 20


@pytest.mark.parametrize(("gamma", "clients", "classes"), [(1.0, 12, 6), (0.0, 5, 10), (0.5, 4, 10), (0.5, 12, 27)])
def test_gamma_holds_exactly_where_it_can(gamma, clients, classes):
    held, notes = overlapping_sets(clients, classes, gamma, rng(0))
    assert notes == []
    meet = held.astype(int) @ held.T.astype(int)
    sizes = held.sum(axis=1)
    assert (sizes >= 1).all()
    for p in range(clients):
        for q in range(clients):
            if p != q:
                assert meet[p, q] == pytest.approx(gamma * sizes[p])


def test_gamma_zero_with_more_clients_than_classes_shares_sets_and_says_so():
    held, notes = overlapping_sets(12, 6, 0.0, rng(0))
    assert (held.sum(axis=1) == 1).all()
    assert (held.sum(axis=0) == 2).all()
    assert "12 disjoint class sets, the data has 6 classes" in notes[0]


def test_gamma_that_cannot_hold_is_near_and_says_how_near():
    held, notes = overlapping_sets(12, 6, 0.5, rng(0))
    meet = (held.astype(int) @ held.T.astype(int))[~np.eye(12, dtype=bool)] / held.sum(axis=1)[0]
    assert 0.4 < meet.mean() < 0.6
    assert "cannot hold for every pair" in notes[0]
    assert f"{meet.mean():.2f}" in notes[0]


def test_the_long_tail_falls_geometrically_and_tau_sets_how_many_classes_a_client_has():
    y = np.repeat(np.arange(5), 1000)
    fine, _ = dealt(y, kind="longtail", clients=10, tau=1, ratio=0.01)
    totals = fine.sum(axis=0)
    np.testing.assert_allclose(totals, 1000 * 0.01 ** (np.arange(5) / 4), atol=1)
    coarse, _ = dealt(y, kind="longtail", clients=10, tau=100, ratio=0.01)
    assert coarse.sum(axis=0).tolist() == totals.tolist()
    assert (fine[:, 0] == 100).all()
    assert (coarse > 0).sum(axis=1).mean() < (fine > 0).sum(axis=1).mean()


def test_echopfl_table_4_data():
    mixed, _ = dealt(kind="scenario", scenario="B")
    rows = mixed.sum(axis=1)
    np.testing.assert_allclose(rows, 100 / 2.25, atol=2)  # class 2 is asked for 2.25 times
    np.testing.assert_allclose(mixed[:2, :4] / rows[:2, None], 0.25, atol=0.05)
    np.testing.assert_allclose(mixed[2:4, :2] / rows[2:4, None], 0.5, atol=0.05)
    np.testing.assert_allclose(mixed[4, :2] / rows[4], [0.25, 0.75], atol=0.05)
    assert mixed[:, 4:].sum() == 0
    same, _ = dealt(kind="scenario", scenario="C")
    assert (same == 20).all()
    with pytest.raises(BadInput, match=r"partition.scenario: D needs 4 classes, but the data has 3"):
        dealt(np.repeat(np.arange(3), 10), kind="scenario", scenario="D")


def test_a_plan_gives_training_and_test_the_same_mix():
    test = np.repeat(np.arange(10), 40)
    made, _ = plan(PartitionSpec(kind="dirichlet", clients=5, alpha=0.3), Y, 10, rng(0))
    for c in range(10):
        train_part = np.bincount(made.deal(Y, rng(1))[c == Y], minlength=5) / 100
        test_part = np.bincount(made.deal(test, rng(2))[test == c], minlength=5) / 40
        np.testing.assert_allclose(train_part, test_part, atol=0.04)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"kind": "dirichlett"}, "did you mean 'dirichlet'"),
        ({"split": "tial"}, "did you mean 'tail'"),
        ({"scenario": "E"}, "partition.scenario"),
        ({"clients": 0}, "partition.clients: must be 1 or more, got 0"),
        ({"clients": 2.5}, "partition.clients: must be a whole number, got 2.5"),
        ({"alpha": 0.0}, "partition.alpha: must be above 0, got 0.0"),
        ({"alpha": "x"}, "partition.alpha: must be a number, got 'x'"),
        ({"gamma": 1.5}, "at least 0 and at most 1"),
        ({"test_share": 1.0}, "partition.test_share: must be above 0 and below 1, got 1.0"),
        (
            {"kind": "subject", "samples": 5},
            "partition.samples: works with the kinds iid, dirichlet, classes, got kind 'subject'",
        ),
        ({"kind": "scenario", "clients": 6}, "partition.clients: must be 5 for a scenario, got 6"),
        (
            {"kind": "scenario", "sizes": (9, 9)},
            "partition.sizes: must be 5 sizes, because a scenario has 5 clients, got 2",
        ),
        (
            {"kind": "iid", "sizes": (1, 2)},
            "partition.sizes: works with the kinds sizes, subject or scenario, got kind 'iid'",
        ),
        (
            {"kind": "sizes", "sizes": (1, 0)},
            r"partition.sizes: must be whole numbers of training rows, each 1 or more, got \[1, 0\]",
        ),
        (
            {"kind": "sizes", "sizes": (1, 2), "clients": 3},
            "partition.sizes: must be one size for each of the 3 clients, got 2 sizes",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(fields, sentence):
    with pytest.raises(BadInput, match=sentence):
        PartitionSpec(**fields)
