import io
import pickle

import numpy as np
import pytest

from potluck.data import exercises
from potluck.data.load import find, load
from potluck.errors import BadInput


def object_npy(value: object) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array(value, dtype=object), allow_pickle=True)
    return stream.getvalue()


@pytest.fixture
def package():
    path = exercises.installed()
    if path is None:
        pytest.skip("needs the watch data: pip install 'potluck[demo]'")
    return path


def test_only_arrays_come_out_of_the_unpickler():
    value = {"X": [np.arange(3.0)], "y": np.array([1, 2]), "side": np.float64(2)}
    got = exercises.unpickled(object_npy(value))
    np.testing.assert_array_equal(got["X"][0], [0, 1, 2])

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (exec, ("gotcha",))

    with pytest.raises(pickle.UnpicklingError, match=r"builtins\.exec is not part of an array"):
        exercises.unpickled(object_npy({"X": Evil()}))


def test_another_file_is_not_even_opened(tmp_path):
    path = tmp_path / "watch_dataset.npy"
    path.write_bytes(object_npy({"X": []}))
    with pytest.raises(BadInput, match="its sha256 differs"):
        exercises.read(path)


def test_windows_of_the_installed_file(package, monkeypatch):
    monkeypatch.setattr("potluck.data.load.find", lambda name: None)
    data = load("watch")
    assert data.x.shape == (3605, 128, 6)
    assert (data.classes, data.overlap) == (7, 1)
    assert len(data.natural_clients()[1]) == 20
    assert data.natural_clients()[1][:2] == ("p01-left", "p01-right")
    same = (data.group[1:] == data.group[:-1]).nonzero()[0]
    np.testing.assert_array_equal(data.x[same, 64:], data.x[same + 1, :64])
    assert len(np.unique(data.group)) == 140


def test_the_installed_file_and_the_shared_set_are_identical(package, shared_datasets):
    path = find("watch_exercises")
    assert path is not None
    with np.load(path, allow_pickle=False) as stored:
        ours = exercises.read(package)
        assert sorted(ours) == sorted(stored.files)
        for field in stored.files:
            np.testing.assert_array_equal(ours[field], stored[field])
            assert ours[field].dtype == stored[field].dtype
