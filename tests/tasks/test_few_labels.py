"""Most rows without a label: which keep theirs, what the loss is, and that stacks train as clients do alone."""

from __future__ import annotations

import re
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
from potluck.data.intake.spec import Intake, Window
from potluck.data.load import load
from potluck.data.pose import posed
from potluck.errors import BadInput
from potluck.fleet import Data
from potluck.models import build
from potluck.runs.deal import federation_of
from potluck.runs.experiment import Experiment
from potluck.tasks import Classification
from potluck.tasks.spec import TaskSpec


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
    with pytest.raises(BadInput, match=r"drift.kind: labels needs the label of every row"):
        potluck.run({**values, "drift": {"at": [10.0], "kind": "labels"}, "task": {"labels": 0.1}})
    with pytest.raises(BadInput, match=r"task.labels: works with the task classification, got 'ordinal'"):
        potluck.run({**values, "task": {"labels": 0.1, "name": "ordinal"}})


def blanks(folder: Path, groups: bool = False) -> Path:
    """A table of four people whose rows have a label in one of five cases; recordings of ten rows if asked."""
    draw = np.random.default_rng(3)
    lines = ["person,label,a,b" + (",recording" if groups else "")]
    for i in range(800):
        kind, person, take = i % 3, i // 200, i // 10
        known = take % 5 == 0 if groups else draw.random() < 0.2
        a, b = draw.normal(size=2) + [(0, 0), (3, 0), (0, 3)][kind]
        label = ["sit", "walk", "run"][kind] if known else ""
        lines.append(f"p{person},{label},{a:.3f},{b:.3f}" + (f",{take}" if groups else ""))
    path = folder / ("takes.csv" if groups else "rows.csv")
    path.write_text("\n".join(lines))
    return path


def test_rows_of_a_file_without_a_label_are_trained_on(tmp_path: Path) -> None:
    path = blanks(tmp_path)
    values: dict[str, Any] = {
        "data": {"source": str(path)}, "method": {"name": "fedavg"}, "fleet": {"devices": "pc"}, "stop": {"rounds": 3},
        "model": {"name": "mlp", "hidden": [8]}, "run": {"out": str(tmp_path)},
    }  # fmt: skip
    with pytest.raises(BadInput, match=r"have no label, .* task.unlabelled to pseudo or consistency to train on them"):
        potluck.run(values)
    found = {}
    for how in ("ignore", "pseudo", "consistency"):
        run = potluck.run({**values, "task": {"unlabelled": how, "threshold": 0.6}})
        found[how] = run.summary
        assert run.summary["accuracy"]["mean"] > 0.5
    federation = federation_of(Experiment.of({**values, "task": {"unlabelled": "pseudo"}}))
    for client in range(4):
        assert (federation.materialise(client, "test")[1] >= 0).all()
        y = federation.materialise(client)[1]
        assert (y == -1).sum() > 100
        assert federation.class_counts([client]).sum() == (y >= 0).sum()
    labelled = sum(1 for line in path.read_text().splitlines()[1:] if line.split(",")[1])
    used = sum(int((federation.materialise(k, part)[1] >= 0).sum()) for k in range(4) for part in ("train", "test"))
    assert used == labelled
    assert any(re.match(r"Labels: \d+ training rows have one, \d+ have none\.", note) for note in federation.notes)
    macs = [found[how]["macs"] for how in ("ignore", "pseudo")]
    assert macs[0] == macs[1] > potluck.run({**values, "data": {**values["data"], "missing": "drop"}}).summary["macs"]


def test_a_recording_with_test_rows_gives_no_rows_without_a_label(tmp_path: Path) -> None:
    path = blanks(tmp_path, groups=True)
    lines = path.read_text().splitlines()
    for i in (3, 7):  # one labelled recording has rows without a label, too
        person, _, *rest = lines[1 + i].split(",")
        lines[1 + i] = ",".join([person, "", *rest])
    path.write_text("\n".join(lines))
    for seed in range(4):
        settings = {"data": {"source": str(path)}, "task": {"unlabelled": "pseudo"}, "method": {"name": "fedavg"}}
        federation = federation_of(Experiment.of({**settings, "run": {"seed": seed}}))
        data = federation.dataset
        assert data.group is not None
        tested = {data.group[row] for k in range(4) for row in federation.test_rows(k)}
        trained = {data.group[row] for k in range(4) for row in federation.train_rows(k)}
        assert not tested & trained
        assert len(tested) == 4


@pytest.mark.parametrize("values", [["0", "1", ""], [0, 1, -1], ["sit", "walk", "nan"], [0.0, 1.0, np.nan]])
def test_how_a_file_says_that_a_row_has_no_label(tmp_path: Path, values: list[Any]) -> None:
    y, x = np.array(values * 20), np.random.default_rng(0).normal(size=(60, 2))
    np.savez(tmp_path / "one.npz", x=x, y=y)
    data = load(str(tmp_path / "one.npz"), Intake(unlabelled=True))
    assert data.y.tolist() == [0, 1, -1] * 20
    assert data.classes == 2
    with pytest.raises(BadInput, match=r"no label|-1 marks rows without a label, set task.unlabelled"):
        load(str(tmp_path / "one.npz"))
    with pytest.raises(BadInput, match=r"partition.kind: must be 'subject' or 'iid'"):
        federate(data, PartitionSpec(kind="dirichlet", clients=2))
    assert sum(federate(data, PartitionSpec(clients=2)).sizes) > 40
    with pytest.raises(BadInput, match="ordinal needs the label of every row"):
        posed(data, TaskSpec(name="ordinal"))


def test_numbers_without_a_label_are_no_classes(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(60, 2)), np.array([0.5, 1.25, np.nan] * 20)
    np.savez(tmp_path / "one.npz", x=x, y=y)
    for asked in (Intake(), Intake(unlabelled=True)):
        with pytest.raises(BadInput, match=r"20 of 60 rows have no label.* to leave them out\.\n"):
            load(str(tmp_path / "one.npz"), asked)


def test_windows_without_a_label(tmp_path: Path) -> None:
    """Half of a recording is labelled: its windows, and those of the other half, are kept apart."""
    label = ["walk"] * 40 + [""] * 40 + ["sit"] * 40
    lines = ["time,person,label,a"] + [f"{i / 10},p{k},{label[i]},{i % 7}" for k in range(2) for i in range(120)]
    (tmp_path / "r.csv").write_text("\n".join(lines))
    data = load(str(tmp_path / "r.csv"), Intake(unlabelled=True, window=Window(samples=20, overlap=0)))
    assert sorted(data.y.tolist()) == [-1] * 4 + [0] * 4 + [1] * 4
    assert data.class_names == ("sit", "walk")
