import numpy as np
import pytest

from potluck.data.dataset import Dataset
from potluck.data.federate import federate
from potluck.data.spec import PartitionSpec


def series(**fields: object) -> Dataset:
    draw = np.random.default_rng(1)
    subject = np.repeat([0, 1], 20)
    x = draw.normal(size=(40, 5, 2)) * [3.0, 0.1] + np.array([10.0, -4.0]) + subject[:, None, None] * 100
    base = {
        "name": "s",
        "x": x.astype(np.float32),
        "y": np.tile([0, 1], 20),
        "classes": 2,
        "class_names": ("a", "b"),
    }
    return Dataset(**{**base, "subject": subject, **fields})


def test_each_client_by_its_own_training_rows():
    data = series()
    federation = federate(data, PartitionSpec())
    for i in (0, 1):
        x, *_ = federation.materialise(i, "train")
        np.testing.assert_allclose(x.mean(axis=(0, 1)), 0, atol=1e-4)
        np.testing.assert_allclose(x.std(axis=(0, 1)), 1, atol=1e-4)
        own = data.x[federation.train_rows(i)]
        test, *_ = federation.materialise(i, "test")
        expected = (data.x[federation.test_rows(i)] - own.mean(axis=(0, 1))) / own.std(axis=(0, 1))
        np.testing.assert_allclose(test, expected, atol=1e-3)


def test_statistics_have_the_same_bits_whoever_asks_first():
    a, b = federate(series(), PartitionSpec()), federate(series(), PartitionSpec())
    a.materialise_many([0, 1], "train", 40)
    first, *_ = a.materialise(1, "test")
    second, *_ = b.materialise(1, "test")
    np.testing.assert_array_equal(first, second)


def test_all_by_the_training_rows_of_all():
    data = series()
    federation = federate(data, PartitionSpec(), standardise="global")
    rows = np.concatenate([federation.train_rows(i) for i in (0, 1)])
    x = np.concatenate([federation.materialise(i, "train")[0] for i in (0, 1)])
    np.testing.assert_allclose(x.mean(axis=(0, 1)), 0, atol=1e-4)
    expected = (data.x[rows] - data.x[rows].mean(axis=(0, 1))) / data.x[rows].std(axis=(0, 1))
    np.testing.assert_allclose(x, expected, atol=1e-4)


def test_none_leaves_values_as_they_are():
    data = series()
    federation = federate(data, PartitionSpec(), standardise="none")
    np.testing.assert_array_equal(federation.materialise(0)[0], data.x[federation.train_rows(0)])


def test_features_are_standardised_one_by_one_and_constant_ones_only_centred():
    x = np.random.default_rng(0).normal(size=(30, 3)) * [1.0, 50.0, 0.0] + [0.0, 7.0, 0.3]
    data = Dataset("f", x.astype(np.float32), np.arange(30) % 2, 2, ("a", "b"), subject=np.zeros(30, int))
    got, *_ = federate(data, PartitionSpec()).materialise(0)
    np.testing.assert_allclose(got.std(axis=0), [1, 1, 0], atol=1e-4)
    np.testing.assert_allclose(got[:, 2], 0, atol=1e-6)


def test_steps_after_the_end_do_not_count_and_are_zero():
    length = np.tile([5, 3], 20)
    base = series()
    x = base.x.copy()
    x[length == 3, 3:] = 1e6
    federation = federate(series(x=x, length=length), PartitionSpec())
    got, _, _, lengths = federation.materialise(0)
    inside = np.concatenate([row[:n] for row, n in zip(got, lengths, strict=True)])
    np.testing.assert_allclose(inside.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(inside.std(axis=0), 1, atol=1e-4)
    assert not got[lengths == 3, 3:].any()
    _, _, weight, _, padded = federation.materialise_many([0], "train", 40)
    assert padded[weight == 0].tolist() == [1] * int((weight == 0).sum())


def test_what_was_not_measured_is_the_mean():
    x = series().x.copy()
    x[::4, 0, 0] = np.nan
    federation = federate(series(x=x, missing=True), PartitionSpec())
    got, *_ = federation.materialise(1)
    gone = np.isnan(x[federation.train_rows(1)])
    assert gone.any()
    assert not got[gone].any()
    np.testing.assert_allclose(got[..., 0][~gone[..., 0]].mean(), 0, atol=1e-4)
    np.testing.assert_allclose(got[..., 0][~gone[..., 0]].std(), 1, atol=1e-4)


def test_times_come_along():
    t = np.cumsum(np.ones((40, 5)), axis=1)
    federation = federate(series(t=t), PartitionSpec())
    _, _, weight, times, _ = federation.materialise_many([0, 1], "train", 16)
    assert times.dtype == np.float32
    assert times[0, 0].tolist() == [1, 2, 3, 4, 5]
    assert not times[weight == 0].any()


@pytest.mark.parametrize(("how", "mean", "std"), [("client", None, None), ("channel", 0, 1), ("global", 0, 1)])
def test_images_are_scaled_and_by_themselves_not_standardised(how, mean, std):
    raw = np.random.default_rng(0).integers(0, 256, size=(20, 6, 4, 3)).astype(np.uint8)
    data = Dataset("i", raw, np.arange(20) % 2, 2, ("a", "b"), subject=np.zeros(20, int))
    federation = federate(data, PartitionSpec(), standardise=how)
    got, *_ = federation.materialise(0)
    assert got.shape[1:] == (3, 6, 4)
    if mean is None:
        expected = raw[federation.train_rows(0)].transpose(0, 3, 1, 2) / np.float32(255)
        np.testing.assert_allclose(got, expected, atol=1e-6)
    else:
        np.testing.assert_allclose(got.mean(axis=(0, 2, 3)), mean, atol=1e-4)
        np.testing.assert_allclose(got.std(axis=(0, 2, 3)), std, atol=1e-4)


def test_statistics_are_remembered_only_up_to_a_bound(monkeypatch):
    monkeypatch.setattr("potluck.data.standardise.REMEMBER", 4)  # one client of two channels
    federation = federate(series(), PartitionSpec())
    x, *_ = federation.materialise_many([0, 1], "train", 15)
    np.testing.assert_array_equal(x[0], federation.materialise(0)[0])
    np.testing.assert_array_equal(x[1], federation.materialise(1)[0])
