import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.data import split
from potluck.data.split import TEST, TRAIN, UNUSED
from potluck.keys import rng


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    share=st.floats(0.05, 0.9),
    seed=st.integers(0, 100),
)
def test_a_random_split_takes_the_exact_share_of_each_client(sizes, share, seed):
    client = np.repeat(np.arange(len(sizes)), sizes)
    y = rng(seed, "y").integers(0, 3, len(client))
    side = split.at_random(y, client, share, rng(seed))
    for k, n in enumerate(sizes):
        expected = 0 if n == 1 else min(max(round(share * n), 1), n - 1)
        assert (side[client == k] == TEST).sum() == expected


def test_a_random_split_keeps_classes_in_proportion():
    client, y = np.repeat(ints(0, 1), 40), np.tile(np.repeat(ints(0, 1), 20), 2)
    side = split.at_random(y, client, 0.25, rng(3))
    for k in (0, 1):
        for c in (0, 1):
            assert (side[(client == k) & (y == c)] == TEST).sum() == 5


def test_the_tail_leaves_a_gap():
    side = split.by_tail(np.zeros(10, dtype=np.int64), 0.3, gap=1)
    assert side.tolist() == [TRAIN] * 6 + [UNUSED] + [TEST] * 3


def test_a_group_too_short_for_a_tail_is_for_training():
    assert split.by_tail(ints(0, 0, 1, 1, 1, 1), 0.25, gap=1).tolist() == [
        TRAIN,
        TRAIN,
        TRAIN,
        TRAIN,
        UNUSED,
        TEST,
    ]


def test_whole_groups_go_to_one_side_and_both_sides_get_some():
    group = np.repeat(np.arange(8), 5)
    client = np.repeat(ints(0, 1), 20)
    y = np.repeat(np.tile(ints(0, 0, 1, 1), 2), 5)
    side, lonely = split.by_group(y, client, group, 0.25, rng(0))
    for g in range(8):
        assert len(set(side[group == g])) == 1
    for k in (0, 1):
        for c in (0, 1):
            assert set(side[(client == k) & (y == c)]) == {TRAIN, TEST}
    assert not lonely.any()


def test_the_share_of_groups_follows_their_rows():
    group = np.repeat(np.arange(20), 3)
    side, _ = split.by_group(np.zeros(60, int), np.zeros(60, int), group, 0.25, rng(1))
    assert (side == TEST).sum() == 15


def test_auto_cuts_a_group_that_is_alone_in_time():
    group = np.repeat(ints(0, 1), 8)
    y = np.repeat(ints(0, 1), 8)
    side = split.sides("auto", y, np.zeros(16, int), group, 0.25, 1, rng(0))
    assert side.tolist() == ([TRAIN] * 5 + [UNUSED] + [TEST] * 2) * 2


def test_a_group_of_several_classes_stays_whole():
    group = np.repeat(np.arange(4), 4)
    y = np.tile(ints(0, 1), 8)
    side = split.sides("group", y, np.zeros(16, int), group, 0.25, 0, rng(0))
    assert all(len(set(side[group == g])) == 1 for g in range(4))
    assert (side == TEST).sum() == 4


def test_leaks_are_counted():
    group = ints(0, 0, 0, 0, 1, 1, 1, 1, 2, 2)
    side = np.array([0, 0, 1, 1, 0, 3, 1, 1, 0, 0], dtype=np.int8)
    found = split.leak(group, side, overlap=1)
    assert (found.groups, found.both_sides, found.touching) == (3, 2, 1)
    wider = split.leak(group, side, overlap=2)
    assert wider.touching == 2


def test_equal_rows_across_the_split_are_counted():
    twin = ints(0, 0, 2, 2, 4)
    side = np.array([TRAIN, TEST, TEST, TEST, TRAIN], dtype=np.int8)
    assert split.crossing_twins(twin, side) == 1
