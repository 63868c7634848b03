import numpy as np
import pytest

from potluck.data import load as module_or_function  # the package must not shadow the module
from potluck.data.intake.spec import Intake
from potluck.data.load import find, load, loaded, names, roots
from potluck.data.public import PUBLIC
from potluck.errors import BadInput, Missing


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """No public set on this machine."""
    monkeypatch.setattr("potluck.data.load.roots", lambda: [tmp_path])
    monkeypatch.setattr("potluck.data.exercises.installed", lambda: None)
    return tmp_path


def test_the_module_keeps_its_name():
    assert module_or_function.load is load


def test_every_set_has_one_line():
    assert {"made", "uci_har", "watch_exercises", "bosch_cnc_irregular"} <= set(names())
    assert all(line and "\n" not in line for line in names().values())


def test_a_missing_set_says_how_to_get_it(nowhere):
    for name in PUBLIC:
        with pytest.raises(Missing, match="not on this machine; it comes from"):
            load(name)
    with pytest.raises(Missing, match=r"-m pip install .*\[demo\]'"):
        load("watch")


def test_the_environment_names_the_first_place_to_look(tmp_path, monkeypatch):
    monkeypatch.setenv("POTLUCK_DATA", str(tmp_path))
    assert roots()[0] == tmp_path
    arrays = {
        "x": np.zeros((4, 55), "f4"),
        "y": np.array([0, 1, 0, 1]),
        "subject": np.array([0, 0, 7, 7]),
    }
    np.savez(tmp_path / "clusterfl_uwb.npz", **arrays)
    assert find("clusterfl_uwb") == tmp_path / "clusterfl_uwb.npz"
    assert load("clusterfl_uwb").natural_clients()[1] == ("parking-2", "room-3")
    (tmp_path / "clusterfl_uwb").mkdir()
    np.savez(tmp_path / "clusterfl_uwb" / "clusterfl_uwb.npz", x=arrays["x"])
    with pytest.raises(BadInput, match="the array 'y' of the set clusterfl_uwb is missing"):
        load("clusterfl_uwb")


def test_the_other_places(tmp_path, monkeypatch):
    monkeypatch.delenv("POTLUCK_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    places = roots()
    assert places[0] == tmp_path / "shared" / "datasets"
    assert places[-1] == tmp_path / "cache" / "potluck"


def test_a_path_of_the_same_name_does_not_hide_a_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made").mkdir()
    assert load("made").name == "made"
    with pytest.raises(BadInput, match=r"holds no \.npz files"):
        load("./made")


def test_the_last_set_is_read_again_only_when_its_file_changed(tmp_path, monkeypatch):
    monkeypatch.setenv("POTLUCK_DATA", str(tmp_path))

    def written(rows):
        np.savez(
            tmp_path / "clusterfl_uwb.npz",
            x=np.zeros((rows, 55), "f4"), y=np.arange(rows) % 2, subject=np.arange(rows) // 2,
        )  # fmt: skip

    written(4)
    first = loaded("clusterfl_uwb", Intake())
    assert loaded("clusterfl_uwb", Intake()) is first
    assert load("clusterfl_uwb") is not first  # whoever may change its arrays has a set of his own
    written(6)
    assert len(loaded("clusterfl_uwb", Intake())) == 6
    with pytest.raises(BadInput, match=r"data\.kind: works with files of your own"):
        loaded("clusterfl_uwb", Intake(kind="series"))
