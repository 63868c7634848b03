"""Most rows without a label: which keep theirs, what the loss is, and that stacks train as clients do alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.func import vmap

import potluck
from potluck import _few_labels, keys, learn
from potluck.data import PartitionSpec, federate
from potluck.data.few import hide_labels
from potluck.data.load import load
from potluck.errors import BadInput
from potluck.fleet import Data
from potluck.models import build
from potluck.tasks import Classification


def few(mode: str, **more: float) -> Classification:
    return Classification(classes=3, unlabelled=mode, **more)  # type: ignore[arg-type]


def samples(n: int = 12, seed: int = 0) -> Data:
    x = torch.from_numpy(np.random.default_rng(seed).normal(size=(n, 4)).astype(np.float32))
    y = torch.arange(n) % 3
    return Data(x, torch.where(torch.arange(n) % 4 == 0, y, -1), torch.ones(n))


def test_every_client_keeps_a_share_of_its_labels() -> None:
    federation = federate(load("made"), PartitionSpec(valid_share=0.2), seed=1)
    before = {part: federation.materialise(0, part)[1] for part in ("train", "valid", "test")}
    hide_labels(federation, 0.1, seed=1)
    for part in ("valid", "test"):
        assert np.array_equal(federation.materialise(0, part)[1], before[part])
    for client in range(len(federation)):
        rows = federation.train_rows(client)
        y = federation.materialise(client)[1]
        for label in np.unique(federation.dataset.y[rows]):
            there = federation.dataset.y[rows] == label
            assert (y[there] == label).sum() == np.ceil(0.1 * there.sum())
            assert set(y[there]) <= {label, -1}
    again = federate(load("made"), PartitionSpec(valid_share=0.2), seed=1)
    hide_labels(again, 0.1, seed=1)
    assert np.array_equal(again.unlabelled, federation.unlabelled)


@pytest.mark.parametrize("mode", ["ignore", "pseudo", "consistency"])
def test_the_loss_by_hand(mode: str) -> None:
    task = few(mode, threshold=0.5, push=0.7, noise=0.2)
    model, data, key = build("mlp", (4,), 3, {"hidden": [5]}, task), samples(), keys.key(1)
    weights = {name: 4 * value for name, value in model.init(2).items()}  # sure of some rows
    found, _ = learn.mean_loss(model, weights, data, key)
    out, known = model.logits(weights, data.x), data.y >= 0
    wanted = F.cross_entropy(out[known], data.y[known])
    sure, label = out.softmax(-1).max(-1)
    counts = (sure >= 0.5) & ~known
    assert counts.any()
    assert not counts.all()
    if mode == "consistency":
        out = model.logits(weights, data.x + 0.2 * keys.normal(keys.fold(key, "noise"), data.x.shape))
    if mode != "ignore":  # a mean over all rows without a label, sure or not
        wanted = wanted + 0.7 * F.cross_entropy(out[counts], label[counts], reduction="sum") / (~known).sum()
    assert float(found) == pytest.approx(float(wanted), rel=1e-5)


def test_labelled_rows_stand_beside_every_batch() -> None:
    data = samples(10)
    rows, counts = learn.batches(data, 4, 2, keys.key(3))
    more, weight = _few_labels.beside(data, rows, counts, keys.key(3))
    assert more.shape == (6, 8)
    assert (data.y[more[:, :4]] >= 0).all()
    assert set(more[:, :4].flatten().tolist()) == {0, 4, 8}  # all labelled rows take their turn
    assert torch.equal(more[:, 4:], rows)
    assert torch.equal(weight[:, 4:], counts)


@pytest.mark.parametrize("mode", ["ignore", "pseudo", "consistency"])
def test_a_stack_trains_as_a_client_alone(mode: str) -> None:
    """The shorter client is padded in the stack."""
    model = build("mlp", (4,), 3, {"hidden": [5]}, few(mode, threshold=0.4))
    weights, parts = model.init(0), [samples(12, 1), samples(7, 2)]

    def trained(one: Data, key: torch.Tensor) -> Any:
        return learn.sgd(model, weights, one, key=key, lr=0.2, epochs=2, batch=4)

    def padded(value: torch.Tensor) -> torch.Tensor:
        return torch.cat([value, value.new_zeros(12 - len(value), *value.shape[1:])])

    stack = Data(*(torch.stack([padded(getattr(one, name)) for one in parts]) for name in ("x", "y", "weight")))
    own = torch.stack([keys.key(5), keys.key(6)])
    together = vmap(lambda x, y, w, k: trained(Data(x, y, w), k))(stack.x, stack.y, stack.weight, own)
    for i, one in enumerate(parts):
        alone = trained(one, own[i])
        assert all(torch.allclose(alone[name], together[name][i], atol=1e-5) for name in alone)


def test_a_run_with_few_labels(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "data": {"source": "made"}, "method": {"name": "fedavg"}, "fleet": {"devices": "pc"}, "stop": {"rounds": 3},
        "model": {"name": "mlp", "hidden": [8]}, "run": {"out": str(tmp_path)},
    }  # fmt: skip
    s = potluck.run({**values, "task": {"labels": 0.1, "unlabelled": "pseudo"}}).summary
    assert 0 < s["accuracy"]["mean"] <= 1
    assert any(note.startswith("Labels: ") for note in s["notes"])
    for method, why in (("fedproto", "clients share one prototype"), ("balancefl", "it balances")):
        with pytest.raises(BadInput, match=f"{method} needs the label of every row: {why}"):
            potluck.run({**values, "method": {"name": method}, "task": {"labels": 0.1}})
    with pytest.raises(BadInput, match=r"task.labels: must be 1 where labels drift"):
        potluck.run({**values, "drift": {"at": [10.0], "kind": "labels"}, "task": {"labels": 0.1}})
    with pytest.raises(BadInput, match=r"task.labels: works with the task classification, got 'ordinal'"):
        potluck.run({**values, "task": {"labels": 0.1, "name": "ordinal"}})
