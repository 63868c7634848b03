"""Model files: equal runs leave equal bytes, and a file that cannot be read is named in one sentence."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import potluck
from potluck.errors import BadInput, Code
from potluck.runs import model_files
from potluck.runs.drive import start
from potluck.runs.experiment import Experiment

WEIGHTS = {"fc.weight": torch.arange(6.0).reshape(2, 3), "fc.bias": torch.zeros(2)}
ABOUT = {"model": "softmax", "shape": [3], "classes": 2, "settings": {"a": 1, "b": 2}, "kind": "features"}


def small(tmp_path: Path, **changes: object) -> Experiment:
    return Experiment.of(
        {
            "data": {"source": "made"},
            "partition": {"clients": 3},
            "method": {"name": "local"},
            "model": {"name": "softmax"},
            "fleet": {"devices": "pc"},
            "stop": {"rounds": 1},
            "run": {"out": str(tmp_path)},
            **changes,
        }
    )


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model_files.save(path, WEIGHTS, ABOUT)
    weights, about = model_files.load(path)
    assert about == ABOUT
    assert weights.keys() == WEIGHTS.keys()
    assert all(torch.equal(weights[name], WEIGHTS[name]) for name in WEIGHTS)


def test_no_tensors_and_nothing_to_say_is_a_readable_file(tmp_path: Path) -> None:
    model_files.save(tmp_path / "inputs.safetensors", {}, {})
    assert model_files.load(tmp_path / "inputs.safetensors") == ({}, {})


def test_the_order_of_the_keys_does_not_change_the_bytes(tmp_path: Path) -> None:
    model_files.save(tmp_path / "one.safetensors", WEIGHTS, ABOUT)
    model_files.save(tmp_path / "two.safetensors", WEIGHTS, dict(reversed(ABOUT.items())))
    assert (tmp_path / "one.safetensors").read_bytes() == (tmp_path / "two.safetensors").read_bytes()


@pytest.mark.parametrize("method", ["fedavg", "local"])
def test_equal_runs_leave_equal_bytes(tmp_path: Path, method: str) -> None:
    """Several times: a map in random order agrees with another one by chance."""
    found = []
    for number in range(4):
        run = start(small(tmp_path / str(number), method={"name": method}))
        files = sorted((run.folder / "models").rglob("*.safetensors"))
        found.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files})
    assert len(found[0]) > 1
    assert found.count(found[0]) == len(found)


def test_an_older_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "global.safetensors"
    save_file(WEIGHTS, path, metadata={"model": "softmax", "shape": "[3]", "classes": "2"})
    with pytest.raises(BadInput, match=r"older version of Potluck.*run the experiment again") as refusal:
        model_files.load(path)
    assert refusal.value.code is Code.RUN_DAMAGED


@pytest.mark.parametrize("content", [b"", b"nothing of the kind", b"\x02\x00\x00\x00\x00\x00\x00\x00[]"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "global.safetensors"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"global\.safetensors.*must be a safetensors file") as refusal:
        model_files.load(path)
    assert refusal.value.code is Code.RUN_DAMAGED


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there is no file .*global\.safetensors") as refusal:
        model_files.load(tmp_path / "global.safetensors")
    assert refusal.value.code is Code.RUN_DAMAGED


def test_the_personal_model_of_images_predicts(tmp_path: Path) -> None:
    """Images have no scale per client, so models/inputs.safetensors holds no tensor."""
    generator = np.random.Generator(np.random.Philox(0))
    images = generator.integers(0, 256, size=(60, 6, 6), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", x=images, y=np.arange(60) % 3)
    run = start(small(tmp_path, data={"source": str(tmp_path / "images.npz")}))
    assert potluck.open_run(run.folder).personal(run.clients[0]).predict(images[:5]).shape == (5,)


def test_a_run_without_its_inputs_file_says_so(tmp_path: Path) -> None:
    run = start(small(tmp_path))
    (run.folder / "models" / "inputs.safetensors").unlink()
    with pytest.raises(BadInput, match=r"inputs\.safetensors"):
        run.personal(run.clients[0])
