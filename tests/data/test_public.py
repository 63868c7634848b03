import numpy as np
import pytest

from potluck.data import irregular
from potluck.data.federate import federate
from potluck.data.load import load
from potluck.data.public import PUBLIC
from potluck.data.spec import PartitionSpec


def stays() -> dict[str, np.ndarray]:
    """Three stays of two, none and three time stamps; HR, MechVent and a temperature of 3 degrees."""
    names = sorted([*irregular.PLAUSIBLE, "MechVent"])
    x = np.full((5, len(names)), np.nan, dtype=np.float32)
    x[0, names.index("HR")] = 80
    x[1, names.index("Temp")] = 3
    x[3, names.index("HR")] = 60
    x[4, names.index("MechVent")] = 1
    return {
        "x": x,
        "t": np.array([0, 30, 10, 70, 130], dtype=np.int32),
        "offset": np.array([0, 2, 2, 5]),
        "y": np.array([0, 1, 1]),
        "icu_type": np.array([1, 2, 4]),
        "static": np.array([[50, 1, 0], [60, 0, 0], [70, 0, 0]], dtype=np.float32),
        "params": np.array(names),
    }


def test_stays_are_carried_forward_within_their_own_record():
    arrays = stays()
    names = arrays["params"].tolist()
    data = irregular.physionet2012(arrays)
    hr, temp, vent = names.index("HR"), names.index("Temp"), names.index("MechVent")
    assert data.length.tolist() == [2, 3]
    assert data.y.tolist() == [0, 1]
    assert data.x[0, :2, hr].tolist() == [80, 80]
    assert np.isnan(data.x[0, 1, temp])  # three degrees are a slip of the pen
    assert np.isnan(data.x[1, 0, hr])  # nothing is carried over from another stay
    assert data.x[1, 1:3, hr].tolist() == [60, 60]
    assert data.x[1, :3, vent].tolist() == [0, 0, 1]
    assert data.x[1, :3, len(names) + hr].tolist() == [0, 1, 0]  # measured just then
    assert data.x[1, :3, -2].tolist() == [70] * 3
    np.testing.assert_allclose(data.t[1, :5], [10 / 60, 70 / 60, 130 / 60, 130 / 60, 130 / 60])
    assert not data.x[0, 2:].any()
    assert data.natural_clients()[1] == ("coronary", "surgical")


def test_air_windows_have_gaps_and_never_cross_a_month():
    n = 60
    x = np.arange(n * 3, dtype=np.float32).reshape(n, 3)
    x[5, 1] = np.nan
    arrays = {
        "x": x,
        "t": np.arange(n, dtype=np.float32),
        "y": np.where(np.arange(n) == 12, -1, np.arange(n) % 4),
        "subject": np.arange(n) // 30,
        "names": np.array(["CO_GT", "S1", "T"]),
    }
    data = irregular.air_quality(arrays)
    assert data.sample_shape == (12, 2)
    # Hour 5 is out of order and hour 12 has no label: the first window is hours 4, 6, 7 ... 16.
    assert data.t[0].tolist() == [0, *range(2, 13)]
    assert (data.y >= 0).all()
    assert data.natural_clients()[1] == ("2004-Mar", "2004-Apr")
    hours = (data.x[:, :, 0] - 1) / 3
    assert ((hours // 30).max(axis=1) == (hours // 30).min(axis=1)).all()
    assert 5.0 not in hours


def test_cnc_moments_are_in_order_and_always_the_same():
    arrays = {
        "x": np.tile(np.arange(1024, dtype=np.int16)[:, None], (4, 1, 3)),
        "y": np.array([0, 1, 0, 1]),
        "subject": np.array([1, 1, 2, 3]),
        "run": np.arange(4),
    }
    a, b = irregular.bosch_cnc_irregular(arrays), irregular.bosch_cnc_irregular(arrays)
    np.testing.assert_array_equal(a.x, b.x)
    assert a.x.shape == (4, 128, 3)
    np.testing.assert_allclose(a.t, (a.x[:, :, 0] - a.x[:, :1, 0]) / 2)
    assert (np.diff(a.t) > 0).all()


EXPECTED = {
    "air_quality": ((12, 8), 4, 14),
    "bosch_cnc": ((1024, 3), 2, 3),
    "bosch_cnc_irregular": ((128, 3), 2, 3),
    "chars74k_digits": ((1, 28, 28), 10, 10),
    "cifar10": ((3, 32, 32), 10, 10),
    "clusterfl_depth": ((1, 36, 36), 5, 9),
    "clusterfl_imu": ((100, 9), 3, 10),
    "clusterfl_uwb": ((55,), 2, 8),
    "cmapss_fd001": ((30, 14), 4, 100),  # a number to predict: its classes are groups of similar targets
    "mnist": ((1, 28, 28), 10, 10),
    "motionsense": ((128, 6), 6, 24),
    "motionsense_10hz": ((25, 6), 6, 24),
    "physionet2012": ((128, 76), 2, 4),
    "sp_sw_har": ((128, 6), 5, 46),
    "spoken_digits": ((32, 40), 10, 6),
    "uci_har": ((128, 9), 6, 30),
    "uci_har_10hz": ((25, 9), 6, 30),
    "uci_har_25hz": ((64, 9), 6, 30),
    "uci_har_30hz": ((76, 9), 6, 30),
    "uci_har_100hz": ((256, 9), 6, 30),
    "utd_mhad_inertial": ((326, 6), 27, 8),
    "utd_mhad_skeleton": ((125, 60), 27, 8),
    "utd_mhad_inertial_10hz": ((65, 6), 27, 8),
    "utd_mhad_skeleton_10hz": ((41, 60), 27, 8),
    "watch_exercises": ((128, 6), 7, 20),
    "watch_exercises_10hz": ((25, 6), 7, 20),
    "wiar": ((250, 90), 16, 3),
}


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_set_loads_and_splits_without_a_leak(name, shared_datasets, monkeypatch):
    monkeypatch.setenv("POTLUCK_DATA", str(shared_datasets))
    data = load(name)
    federation = federate(data, PartitionSpec())
    assert (data.sample_shape, data.classes, len(federation)) == EXPECTED[name]
    assert set(np.unique(data.y)) == set(range(data.classes))
    x, y, t, length = federation.materialise(0, "test")
    assert np.isfinite(x).all()
    assert x.shape == (len(y), *data.sample_shape)
    assert federation.check.leak is None or federation.check.leak.touching == 0
    if t is not None:
        assert (np.diff(t, axis=1) >= 0).all()
    if length is not None:
        assert length.min() >= 1


def test_the_watch_data_as_the_demo_uses_it(shared_datasets, monkeypatch):
    monkeypatch.setenv("POTLUCK_DATA", str(shared_datasets))
    data = load("watch")
    federation = federate(data, PartitionSpec(test_share=0.3))
    assert (federation.class_counts(range(20)) > 0).all()
    assert (federation.class_counts(range(20), "test") > 0).all()
    for i in range(20):
        for g in np.unique(data.group[federation.train_rows(i)]):
            last_trained = federation.train_rows(i)[data.group[federation.train_rows(i)] == g].max()
            first_tested = federation.test_rows(i)[data.group[federation.test_rows(i)] == g].min()
            assert first_tested - last_trained == 2  # one window between them, so no reading is shared
