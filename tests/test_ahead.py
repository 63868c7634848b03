"""What other threads fetch while modules are imported changes nothing in what is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from potluck import ahead
from potluck.data.npz import read_npz
from potluck.errors import BadInput
from potluck.runs import early

ARRAYS = {
    "x": np.arange(60, dtype=np.float32).reshape(5, 4, 3),
    "y": np.array([0, 1, 0, 1, 1]),
    "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "names": np.array(["a", "bcd"]),
    "one": np.array(7),
    "none": np.zeros((0, 4)),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_are_the_same_and_may_be_changed(save, tmp_path, monkeypatch):
    path = tmp_path / "some.npz"
    save(path, **ARRAYS)
    monkeypatch.setattr(ahead, "STEP", 7)
    usual = read_npz(path)
    ahead.samples(path)
    monkeypatch.setattr(np, "load", None)  # nobody reads it again
    found = read_npz(path)
    assert found.keys() == usual.keys() == ARRAYS.keys()
    for name, array in found.items():
        assert array.dtype == usual[name].dtype
        assert array.flags.writeable
        np.testing.assert_array_equal(array, usual[name])
    assert ahead.unpacked(path) == {}  # its memory goes with the arrays


def test_another_file_of_this_name_is_read_itself(tmp_path):
    path = tmp_path / "some.npz"
    np.savez(path, x=np.zeros(3))
    ahead.samples(path)
    np.savez(path, x=np.ones(4))
    np.testing.assert_array_equal(read_npz(path)["x"], np.ones(4))


def test_what_is_wrong_is_said_as_usual(tmp_path, monkeypatch):
    broken, objects, missing = tmp_path / "broken.npz", tmp_path / "objects.npz", tmp_path / "missing.npz"
    np.savez(broken, x=np.zeros(1000))
    content = bytearray(broken.read_bytes())
    content[500] ^= 1
    broken.write_bytes(content)
    np.savez(objects, x=np.array([{}], dtype=object))
    for path in (broken, objects, missing):
        ahead.samples(path)
    with pytest.raises(BadInput, match="the file is damaged"):
        read_npz(broken)
    with pytest.raises(BadInput, match="holds Python objects"):
        read_npz(objects)
    assert ahead.unpacked(missing) == {}


def test_large_archives_are_left_alone(tmp_path, monkeypatch):
    path = tmp_path / "large.npz"
    np.savez(path, x=np.zeros(1000))
    monkeypatch.setattr(ahead, "MOST", 100)
    ahead.samples(path)
    assert ahead.unpacked(path) == {}


def test_a_run_names_its_samples_by_flag_or_file(tmp_path, monkeypatch):
    asked: list[Path] = []
    monkeypatch.setattr(ahead, "samples", asked.append)
    monkeypatch.setenv("POTLUCK_DATA", str(tmp_path))
    for name in ("mine", "clusterfl_uwb"):
        np.savez(tmp_path / f"{name}.npz", x=np.zeros(1))
    experiment = tmp_path / "some.toml"
    experiment.write_text(f'[data]\nsource = "{tmp_path}/mine.npz"\n')
    early.begin("clusterfl_uwb")
    early.begin(None, experiment)
    early.begin("made", experiment)
    early.begin(None)
    for wrong in ("[data", "data = 1", "[data]\nsource = 1", f"a = {5000 * chr(91)}"):
        experiment.write_text(wrong)
        early.begin(None, experiment)
    assert asked == [tmp_path / "clusterfl_uwb.npz", tmp_path / "mine.npz"]
