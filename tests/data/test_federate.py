import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.data.dataset import Dataset
from potluck.data.federate import federate
from potluck.data.made import made
from potluck.data.spec import PartitionSpec
from potluck.errors import BadInput


def windows(recordings: int = 12, per_recording: int = 10, subjects: int = 3) -> Dataset:
    """Overlapping windows: recording r is of class r % 2 and of subject r % subjects."""
    recording = np.repeat(np.arange(recordings), per_recording)
    x = np.random.default_rng(0).normal(size=(len(recording), 6, 2)).astype(np.float32)
    return Dataset(
        name="windows",
        x=x,
        y=recording % 2,
        classes=2,
        class_names=("a", "b"),
        subject=recording % subjects,
        group=recording,
        overlap=1,
    )


def rows_of(federation):
    return {
        part: [rows(i) for i in range(len(federation))]
        for part, rows in (
            ("train", federation.train_rows),
            ("test", federation.test_rows),
            ("valid", federation.valid_rows),
        )
    }


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(["subject", "iid", "dirichlet", "classes", "gamma", "sizes", "longtail", "scenario"]),
    split=st.sampled_from(["auto", "random", "tail"]),
    valid=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 30),
)
def test_every_client_has_its_own_rows_on_both_sides(kind, split, valid, seed):
    data = made()
    spec = PartitionSpec(kind=kind, split=split, valid_share=valid)
    federation = federate(data, spec, seed=seed)
    rows = rows_of(federation)
    everything = np.concatenate([r for part in rows.values() for r in part])
    assert len(np.unique(everything)) == len(everything)
    assert (federation.sizes >= 1).all()
    assert (federation.test_sizes >= 1).all()
    for part, counts in (
        ("train", federation.sizes),
        ("test", federation.test_sizes),
        ("valid", federation.valid_sizes),
    ):
        assert [len(r) for r in rows[part]] == counts.tolist()
    again = rows_of(federate(data, spec, seed=seed))
    for part in rows:
        for a, b in zip(rows[part], again[part], strict=True):
            np.testing.assert_array_equal(a, b)


def test_subjects_are_the_clients():
    data = made()
    federation = federate(data, PartitionSpec())
    assert federation.names[:2] == ("s01", "s02")
    assert federation.sizes.tolist() == [45] * 12
    assert federation.test_sizes.tolist() == [15] * 12
    assert set(data.subject[federation.train_rows(4)]) == {5}


def test_the_partition_seed_outlives_the_seed_of_the_run():
    data = made()
    fixed = PartitionSpec(kind="iid", clients=4, seed=7)
    a, b = federate(data, fixed, seed=1), federate(data, fixed, seed=2)
    np.testing.assert_array_equal(a.train_rows(0), b.train_rows(0))
    loose = PartitionSpec(kind="iid", clients=4)
    c, d = federate(data, loose, seed=1), federate(data, loose, seed=2)
    assert not np.array_equal(c.train_rows(0), d.train_rows(0))


def test_fewer_subjects_are_chosen_by_the_seed_and_more_are_refused():
    federation = federate(made(), PartitionSpec(kind="subject", clients=5))
    assert len(federation) == 5
    assert "5 of 12 subjects take part" in federation.notes[0]
    with pytest.raises(BadInput, match=r"partition.clients: must be at most 12, the subjects of made, got 13"):
        federate(made(), PartitionSpec(kind="subject", clients=13))


def test_without_subjects_clients_are_numbered():
    data = made()
    bare = Dataset("bare", data.x, data.y, data.classes, data.class_names)
    federation = federate(bare, PartitionSpec())
    assert list(federation.names) == [f"c{i:04d}" for i in range(10)]
    with pytest.raises(BadInput, match="needs an array `subject`"):
        federate(bare, PartitionSpec(kind="subject"))


def test_training_rows_asked_per_client_are_what_they_get():
    sizes = (22, 25, 10, 1)
    dealt = federate(made(), PartitionSpec(kind="sizes", sizes=sizes, valid_share=0.2))
    assert dealt.sizes.tolist() == list(sizes)
    thinned = federate(made(), PartitionSpec(kind="subject", sizes=(5,) * 12))
    assert thinned.sizes.tolist() == [5] * 12
    assert thinned.test_sizes.tolist() == [15] * 12
    five = federate(made(), PartitionSpec(kind="scenario", scenario="A", sizes=(9, 8, 7, 6, 5)))
    assert five.sizes.tolist() == [9, 8, 7, 6, 5]
    with pytest.raises(BadInput, match=r"partition.sizes: must be at most 45 training rows for s01, got 46"):
        federate(made(), PartitionSpec(kind="subject", sizes=(46,) + (5,) * 11))


@pytest.mark.parametrize("kind", ["subject", "iid", "dirichlet", "classes"])
def test_most_rows_limits_training_and_validation_rows_together(kind):
    clients = None if kind == "subject" else 4
    whole = federate(made(), PartitionSpec(kind=kind, clients=clients, valid_share=0.25))
    few = federate(made(), PartitionSpec(kind=kind, clients=clients, valid_share=0.25, most_rows=8))
    assert (few.sizes == np.minimum(whole.sizes, 6)).all()
    assert (few.valid_sizes == np.minimum(whole.valid_sizes, 2)).all()
    assert few.test_sizes.tolist() == whole.test_sizes.tolist()
    for i in range(len(few)):
        assert set(few.train_rows(i)) <= set(whole.train_rows(i))
    other = federate(made(), PartitionSpec(kind=kind, clients=clients, most_rows=8, seed=1))
    assert (other.valid_sizes == 0).all()
    assert (other.sizes <= 8).all()
    assert set(other.train_rows(0)) != set(few.train_rows(0))


def test_most_rows_is_refused_where_it_makes_no_sense():
    with pytest.raises(BadInput, match=r"partition.most_rows: must be 1 or more, got 0"):
        PartitionSpec(most_rows=0)
    with pytest.raises(BadInput, match=r"partition.most_rows: must be 2 or more, got 1"):
        PartitionSpec(most_rows=1, valid_share=0.2)
    with pytest.raises(BadInput, match=r"partition.most_rows: must be left out with partition.samples"):
        PartitionSpec(kind="iid", samples=10, most_rows=5)


@pytest.mark.parametrize("kind", ["subject", "iid", "dirichlet"])
def test_recordings_never_stand_on_both_sides(kind):
    data = windows()
    federation = federate(data, PartitionSpec(kind=kind, clients=3 if kind != "subject" else None))
    trained = {int(data.group[r]) for i in range(len(federation)) for r in federation.train_rows(i)}
    tested = {int(data.group[r]) for i in range(len(federation)) for r in federation.test_rows(i)}
    assert not trained & tested
    assert federation.check.leak.both_sides == 0


def test_a_single_recording_per_class_is_cut_in_time_with_a_gap():
    data = windows(recordings=6, per_recording=10, subjects=3)
    federation = federate(data, PartitionSpec(test_share=0.3))
    assert federation.test_rows(0).tolist() == [7, 8, 9, 37, 38, 39]
    assert federation.train_rows(0).tolist() == [*range(6), *range(30, 36)]
    assert federation.check.leak.touching == 0
    assert "6 of 6 groups are cut in time" in federation.notes[0]


def test_a_random_split_of_overlapping_windows_warns_with_the_count():
    federation = federate(windows(), PartitionSpec(split="random"))
    assert federation.check.leak.touching == 12
    assert federation.notes[0].startswith("Leak: in 12 of 12 groups")


def test_the_given_split_is_used_when_it_serves_every_client():
    data = windows()
    given = (data.group >= 6).astype(np.int64)
    served = Dataset("g", data.x, data.y, 2, ("a", "b"), subject=data.subject, split=given, group=data.group)
    federation = federate(served, PartitionSpec())
    assert all((given[federation.test_rows(i)] == 1).all() for i in range(3))
    by_subject = (data.subject == 2).astype(np.int64)
    unserved = Dataset("u", data.x, data.y, 2, ("a", "b"), subject=data.subject, split=by_subject)
    assert len(federate(unserved, PartitionSpec())) == 3
    with pytest.raises(BadInput, match="none of 3 clients"):
        federate(unserved, PartitionSpec(split="given"))
    with pytest.raises(BadInput, match=r"partition.split: 'given' needs a split, but windows has none"):
        federate(data, PartitionSpec(split="given"))
    with pytest.raises(BadInput, match="needs groups"):
        federate(unserved, PartitionSpec(split="group"))


def test_clients_too_small_are_left_out_with_a_note_and_keep_their_names():
    data = made()
    subject = data.subject.copy()
    subject[data.subject == 3] = 1
    subject[np.flatnonzero(data.subject == 3)[0]] = 3  # one row only
    thin = Dataset("thin", data.x, data.y, 4, data.class_names, subject=subject)
    federation = federate(thin, PartitionSpec())
    assert len(federation) == 11
    assert "s03" not in federation.names
    assert "1 of 12 clients are left out" in federation.notes[0]
    with pytest.raises(BadInput, match="none of 12 clients"):
        federate(data, PartitionSpec(min_samples=1000))


def test_duplicates_across_the_split_are_counted():
    x = np.repeat(np.arange(20, dtype=np.float32)[:, None], 2, axis=0)  # each row twice
    data = Dataset("twice", x, np.arange(40) // 2 % 2, 2, ("a", "b"))
    federation = federate(data, PartitionSpec(kind="iid", clients=2))
    trained = {float(x[r, 0]) for i in (0, 1) for r in federation.train_rows(i)}
    across = sum(float(x[r, 0]) in trained for i in (0, 1) for r in federation.test_rows(i))
    assert federation.check.twins_across == across > 0
    assert f"{across} test rows equal a training row" in federation.notes[-1]


def test_stacks_hold_what_single_clients_hold():
    data = windows()
    federation = federate(data, PartitionSpec(kind="dirichlet", clients=4, alpha=0.5), seed=3)
    ids = list(range(len(federation)))[::-1]
    x, y, weight, t, length = federation.materialise_many(ids, "test", 50)
    assert (t, length) == (None, None)
    assert x.dtype == weight.dtype == np.float32
    for k, i in enumerate(ids):
        n = int(federation.test_sizes[i])
        alone_x, alone_y, *_ = federation.materialise(i, "test")
        np.testing.assert_array_equal(x[k, :n], alone_x)
        np.testing.assert_array_equal(y[k, :n], alone_y)
        assert weight[k].tolist() == [1.0] * n + [0.0] * (50 - n)
        assert not x[k, n:].any()
    with pytest.raises(BadInput, match="capacity: must be 44 or more, the train rows of client c0001, got 1"):
        federation.materialise_many(ids, "train", 1)
    with pytest.raises(BadInput, match="did you mean 'train'"):
        federation.materialise(0, "trian")


def test_stacks_of_nobody_and_of_empty_parts():
    federation = federate(made(), PartitionSpec())
    x, y, weight, *_ = federation.materialise_many([], "train", 5)
    assert x.shape == (0, 5, 32, 3)
    x, y, weight, *_ = federation.materialise_many([0, 1], "valid", 4)
    assert (x.shape, y.shape, weight.sum()) == ((2, 4, 32, 3), (2, 4), 0.0)


def test_settings_of_other_parts_are_refused():
    with pytest.raises(BadInput, match="did you mean 'client'"):
        federate(made(), PartitionSpec(), standardise="clients")


@pytest.mark.parametrize("samples", [None, 20])
def test_classes_are_counted_like_the_rows_of_each_client(samples, monkeypatch):
    monkeypatch.setattr("potluck.data.federation._AT_ONCE", 3)
    kind = "dirichlet" if samples is None else "iid"
    data = made()
    federation = federate(data, PartitionSpec(kind=kind, alpha=0.3, clients=8, samples=samples, valid_share=0.2))
    some = federation.among(np.array([5, 1]), [federation.train_rows(5)[:4], np.zeros(0, np.int64)])
    for one, ids in ((federation, [7, 0, 3, 3, 2]), (some, [1, 0])):
        for part, rows in (("train", one.train_rows), ("test", one.test_rows)):
            wanted = [np.bincount(data.y[rows(i)], minlength=data.classes) for i in ids]
            np.testing.assert_array_equal(one.class_counts(ids, part), wanted)


def test_some_of_some_clients_keep_their_own_statistics():
    federation = federate(made(), PartitionSpec(kind="dirichlet", alpha=0.3, clients=8))
    few = federation.among(np.array([5, 1, 6])).among(np.array([2, 0]))
    for place, client in enumerate((6, 5)):
        for part in ("test", "train"):
            np.testing.assert_array_equal(few.materialise(place, part)[0], federation.materialise(client, part)[0])
