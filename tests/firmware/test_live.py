"""A board by itself: readings become windows as on the host, are classified, recorded with labels, and learnt from."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
import torch
from helpers.boards import series

from potluck.firmware.layers import layered_setup
from potluck.firmware.shape import cfc_setup
from potluck.firmware.toolchain import host_program
from potluck.models import build

STEPS, CHANNELS, CLASSES = 12, 3, 3
NETWORKS = {
    "gru": (build("gru", (STEPS, CHANNELS), CLASSES, {"hidden": 8}), layered_setup),
    "cfc": (build("cfc", (STEPS, CHANNELS), CLASSES, {"hidden": 8, "backbone": 8, "head": 8}), cfc_setup),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_windows_are_the_host_s_and_corrections_are_learnt(name: str) -> None:
    """Raw readings in, labels out: standardised, cut and classified as on the host. Then it learns without one."""
    model, setup = NETWORKS[name]
    program = host_program("live", sanitize=True, defines={"PL_ARENA": 20_000, "PL_FLASH": 131072})
    by, epochs, lr = (3, 60, 0.1) if name == "gru" else (1, 100, 0.03)  # windows differ, and training is steady
    weights, every = {part: by * w for part, w in model.init(3).items()}, 5
    mean, deviation = np.array([2.0, -1.0, 0.5], "<f4"), np.array([3.0, 0.5, 1.5], "<f4")
    stream = np.random.default_rng(0).normal(size=(60, CHANNELS)).astype("<f4")
    windows = np.stack([stream[at : at + STEPS] for at in range(0, 60 - STEPS + 1, every)])
    labelled, truth = series(30, STEPS, CHANNELS, CLASSES)
    parts = [setup(model).pack(), mean.tobytes(), (1 / deviation).astype("<f4").tobytes()]
    parts += [w.numpy().astype("<f4").tobytes() for w in weights.values()]
    parts += [(stream[: STEPS + every * (len(windows) - 1)] * deviation + mean).astype("<f4").tobytes()]
    for x, y in zip(labelled, truth, strict=True):
        parts += [int(y).to_bytes(2, "little"), (x * deviation + mean).astype("<f4").tobytes()]
    done = subprocess.run(
        [str(program), str(len(windows)), str(every), str(epochs), str(lr)],
        input=b"".join(parts),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr.decode()[-2000:])
    labels, said = done.stdout.decode().splitlines()
    theirs = model.logits(weights, torch.from_numpy(windows)).argmax(1)
    assert [int(word) for word in labels.split()] == theirs.tolist()
    assert len(set(theirs.tolist())) > 1
    words = said.split()
    recorded, before, after, found = int(words[0]), int(words[2]), int(words[5]), int(words[-4])
    assert (recorded, found) == (30, 30)
    assert after > before + 5
    assert after >= 22
