"""`server.pretrain` trains the first model of any method on the server rows, once, at the server's cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as nn_f

import potluck
from potluck import keys
from potluck._batches import batches
from potluck.errors import BadInput
from potluck.learn import training_macs
from potluck.runs import compare, needs, server_rows
from potluck.runs.build import build
from potluck.runs.experiment import Experiment

pytestmark = pytest.mark.quick


def experiment(name: str = "fedavg", **sections: dict[str, Any]) -> Experiment:
    values: dict[str, Any] = {
        "data": {"source": "made"},
        "model": {"name": "softmax"},
        "stop": {"rounds": 1},
        "server": {"share": 0.1, "pretrain": 2, "pretrain_batch": 8, "pretrain_lr": 0.1},
        **sections,
    }
    return Experiment.of({**values, "method": {"name": name, **sections.get("method", {})}})


def test_it_equals_an_independent_loop() -> None:
    session = build(experiment())
    model, rows = session.model, session.fleet.home.data
    weight, bias = (session.model.init(0)[name].clone().requires_grad_() for name in sorted(model.trainable)[::-1])
    order, counts = batches(rows, 8, 2, keys.key(0, "server pretrain"))
    for step in range(order.shape[0]):
        chosen = order[step][counts[step] > 0]
        loss = nn_f.cross_entropy(rows.x[chosen].flatten(1) @ weight.T + bias, rows.y[chosen])
        with torch.enable_grad():
            slopes = torch.autograd.grad(loss, [weight, bias])
        norm = torch.sqrt(sum((slope**2).sum() for slope in slopes))
        with torch.no_grad():
            for value, slope in zip((weight, bias), slopes, strict=True):
                value -= 0.1 * slope * min(1.0, 5.0 / float(norm))
    found = [session.weights[name] for name in sorted(model.trainable)[::-1]]
    for value, mine in zip(found, (weight, bias), strict=True):
        torch.testing.assert_close(value, mine.detach(), rtol=1e-4, atol=1e-5)


def test_all_methods_start_from_the_same_weights() -> None:
    first, second = (build(experiment(each)).weights for each in ("fedavg", "local"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    untrained = build(experiment(server={"share": 0.1})).weights
    assert any(not torch.equal(first[name], untrained[name]) for name in first)


def test_the_servers_clock_is_charged_once(tmp_path: Path) -> None:
    run = potluck.run(experiment(run={"out": str(tmp_path), "checkpoint_seconds": 0.0}))
    told = [row["detail"] for row in run.table("events") if row["kind"] == "server"]
    assert [line.startswith("pre-training on") for line in told] == [True]
    plain = potluck.run(experiment(server={"share": 0.1}, run={"out": str(tmp_path)}))
    session = build(experiment())
    rows = session.fleet.home.data
    seconds = 2 * len(rows.y) * training_macs(session.model, session.weights, rows) / server_rows.SERVER_SPEED
    assert run.summary["virtual_seconds"] - plain.summary["virtual_seconds"] == pytest.approx(seconds, rel=1e-6)
    longer = potluck.runs.drive.resume(run.folder, rounds=2)
    assert len([row for row in longer.table("events") if row["kind"] == "server"]) == 1


def test_without_server_rows_it_is_refused() -> None:
    with pytest.raises(BadInput, match=r"server.pretrain: needs server rows to train on"):
        build(experiment(server={"pretrain": 3}))


@pytest.mark.parametrize(("method", "own"), [("fedconv", "server.pretrain_epochs"), ("lotteryfl", "pretrain.epochs")])
def test_nobody_is_pretrained_twice(method: str, own: str) -> None:
    group, _, key = own.partition(".")
    assert needs.filled(experiment(method, model={"name": "mlp"})).method[group][key] == 0
    with pytest.raises(BadInput, match="would be pre-trained twice"):
        needs.filled(experiment(method, model={"name": "mlp"}, method={own: 4}))


def test_a_comparison_pretrains_every_method(tmp_path: Path) -> None:
    values = experiment().model_dump(exclude_unset=True)
    plan = compare.plan(values, ["fedavg", "local"], 1)
    assert {run.experiment.server.pretrain for run in plan.runs} == {2}
