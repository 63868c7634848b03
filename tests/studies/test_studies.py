"""The studies on small made data: angles by hand, rates, irregular times, new classes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from potluck import keys
from potluck.data.dataset import Dataset
from potluck.data.resample import resampled
from potluck.errors import BadInput
from potluck.fleet import Data
from potluck.keys import rng
from potluck.learn import adam
from potluck.models import build
from potluck.runs.experiment import Experiment
from potluck.studies import incremental, models, plots, volatility
from potluck.studies.incremental import Stage


def waves(n: int = 60, classes: int = 3, steps: int = 10, timed: bool = False) -> Dataset:
    """Sines, one speed per class."""
    draw = rng("waves")
    y = np.arange(n) % classes
    t = np.sort(draw.random((n, steps)), axis=1) * steps if timed else np.broadcast_to(np.arange(steps), (n, steps))
    x = np.sin(t * (0.3 + 0.5 * y[:, None]))[..., None] + 0.1 * draw.normal(size=(n, steps, 2))
    names = tuple(f"w{c}" for c in range(classes))
    clock = t.astype(np.float32) if timed else None
    return Dataset("waves", x.astype(np.float32), y, classes, names, t=clock)


def test_principal_angle_by_hand() -> None:
    e1, e2, e3 = torch.eye(3)
    plane = torch.stack((e1, e2), 1)
    tilted = torch.stack((e1, math.cos(0.5) * e2 + math.sin(0.5) * e3), 1)
    assert volatility.angle(plane, tilted) == pytest.approx(math.degrees(0.5), abs=1e-4)
    assert volatility.angle(plane, plane @ torch.tensor([[2.0, 1.0], [0.0, 1.0]])) == pytest.approx(0.0, abs=1e-3)
    assert volatility.angle(e1[:, None], e3[:, None]) == pytest.approx(90.0)


def test_span_is_the_product_of_a_heads_layers() -> None:
    weights = {
        "f.1.weight": torch.tensor([[1.0, 2.0, 0.0]]),
        "f.2.weight": torch.tensor([[3.0]]),
        "f.1.bias": torch.ones(1),
    }
    assert volatility.span(weights, "f").tolist() == [[3.0], [6.0], [0.0]]


def test_volatility_of_every_pair_of_networks(tmp_path: Path) -> None:
    found = volatility.measure(waves(), {"hidden": 3, "backbone": 5, "head": 3}, rows=8, epochs=1)
    assert len(found.accuracy) == 3
    assert {head: len(angles) for head, angles in found.angles.items()} == {"f": 3, "g": 3, "h": 3}
    assert all(0 <= a <= 90 for angles in found.angles.values() for a in angles)
    plots.angles([found], tmp_path / "angles.svg")
    assert "<svg" in (tmp_path / "angles.svg").read_text()
    with pytest.raises(BadInput, match=r"model\.backbone"):
        volatility.measure(waves(), {"hidden": 5, "backbone": 5})


def test_resampling_keeps_means_and_splines_hit_what_is_known() -> None:
    x = np.arange(10.0, dtype=np.float32)[None, :, None]
    half, t = resampled(x, 50.0, 25.0)
    assert half[0, :, 0].tolist() == [0.5, 2.5, 4.5, 6.5, 8.5]
    assert t.tolist() == pytest.approx([0.0, 0.04, 0.08, 0.12, 0.16])
    slower, t = resampled(x, 50.0, 30.0)  # intervals of 5/3 samples: the first is 0 and two thirds of 1
    assert slower.shape == (1, 6, 1)
    assert slower[0, 0, 0] == pytest.approx((0 + 2 / 3 * 1) / (5 / 3), abs=1e-6)
    assert slower[0, :, 0].sum() * 5 / 3 == pytest.approx(45.0, abs=1e-4)
    faster, t = resampled(x, 50.0, 100.0)
    assert faster.shape == (1, 20, 1)
    assert faster[0, 2:5, 0].tolist() == pytest.approx([0.75, 1.25, 1.75], abs=1e-5)  # a line stays one
    assert t[1] == pytest.approx(0.01)


def test_sampling_tests_at_three_rates() -> None:
    rows = models.sampling(waves(steps=20), ["cfc", "rnn"], models.Training([0, 1], hidden=3, epochs=1))
    assert [row.model for row in rows] == ["cfc", "rnn"]
    for row in rows:
        assert list(row.scores) == ["50 Hz", "30 Hz", "100 Hz"]
        assert all(len(values) == 2 and 0 <= min(values) <= max(values) <= 1 for values in row.scores.values())


def test_every_network_gets_the_learning_rate_that_suits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the validation rows; the test rows are not looked at before it is settled."""
    asked: list[int] = []
    counted = models.stacks.accuracies

    def spy(model: Any, weights: Any, data: Any, balanced: bool = False) -> list[float]:
        asked.append(len(data.y))
        return counted(model, weights, data, balanced)

    monkeypatch.setattr(models.stacks, "accuracies", spy)
    monkeypatch.setattr(models, "RATES", (1e-7, 0.02))
    told: list[str] = []
    how = models.Training([0], hidden=6, epochs=30, say=told.append)
    (row,) = models.irregular(waves(n=120, classes=2, timed=True), ["cfc"], how)
    assert row.lr == 0.02
    assert row.scores["balanced accuracy"][0] > 0.8
    assert len(asked) == 3
    assert asked[0] == asked[1] != asked[2]
    assert told[-1] == "cfc: 1 networks, learning rate 0.02"


def test_irregular_series_are_learned() -> None:
    how = models.Training([0], hidden=6, epochs=30, lr=0.02)
    (row,) = models.irregular(waves(n=90, classes=2, timed=True), ["cfc"], how)
    assert row.scores["balanced accuracy"][0] > 0.8


def test_incremental_follows_the_classes() -> None:
    settings = {
        "data": {"source": "made"},
        "model": {"name": "cfc", "hidden": 3, "backbone": 4, "head": 3},
        "method": {
            "name": "fedcfc",
            "classes.first": 2,
            "classes.every": 1,
            "recipe.batch": 64,
            "terms.second": "difference",
        },
        "fleet": {"devices": "pc-i7-9700"},
        "partition": {"kind": "iid", "clients": 2, "samples": 40},
    }
    stages = incremental.measure(Experiment.of(settings))
    classes = [stage.classes for stage in stages]
    assert classes == list(range(2, classes[-1] + 1))
    assert all(len(stage.new) == len(stage.old) == 2 for stage in stages)
    with pytest.raises(BadInput, match=r"classes\.first"):
        incremental.measure(Experiment.of({"method": {"name": "fedavg"}}))


def test_forgetting_is_what_was_known_and_is_not() -> None:
    stages = [Stage(2, [0.9, 0.9], [0.8, 1.0]), Stage(3, [0.7, float("nan")], [0.6, 0.7])]
    assert incremental.forgotten(stages, 0) == 0.0
    assert incremental.forgotten(stages, 1) == pytest.approx(0.9 - 0.65)


def test_pictures_show_every_network_and_class(tmp_path: Path) -> None:
    rows = [models.Row(name, 10, 0.01, {"50 Hz": [0.5, 0.7], "30 Hz": [0.4, 0.6]}) for name in ("cfc", "gru")]
    plots.scores(rows, tmp_path / "scores.svg")
    stages = [Stage(2, [0.9], [0.8]), Stage(3, [float("nan")], [0.6])]
    plots.classes([stages], tmp_path / "classes.png")
    assert (tmp_path / "classes.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "scores.svg").read_text()


@pytest.mark.parametrize("name", ["angles.txt", "nowhere/angles.svg"])
def test_a_picture_that_cannot_be_written_is_refused_first(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="--picture"):
        plots.check(tmp_path / name)


def test_adam_by_torchs_own_with_and_without_clipping() -> None:
    model = build("softmax", (4,), 3, {})
    begin = model.init(0)
    x, y = 20.0 * keys.normal(keys.key("adam"), (8, 4)), torch.arange(8) % 3
    data = Data(x, y, torch.ones(8))
    for clip in (0.0, 0.5):
        ours = adam(model, begin, data, key=keys.key(1), lr=0.1, epochs=5, batch=8, clip=clip)
        theirs = [value.clone().requires_grad_() for value in begin.values()]
        optimiser = torch.optim.Adam(theirs, lr=0.1)
        for _ in range(5):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model.logits(dict(zip(begin, theirs, strict=True)), x), y).backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(theirs, clip)
            optimiser.step()
        for name, value in zip(begin, theirs, strict=True):
            torch.testing.assert_close(ours[name], value.detach(), atol=1e-4, rtol=1e-4)
