"""`[secure]` on the local engine and over Flower's protocol: the model as without, and nobody's update in sight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.short_runs import experiment_of, tiny

from potluck.engines.flower.protocol import Envelope
from potluck.errors import BadInput
from potluck.runs import checkpoint, drive
from potluck.runs.build import build
from potluck.runs.results import Run
from potluck.runs.watcher import Silent
from potluck.testing.loopback import Loopback, machines, owners, staged
from potluck.wire.codec import decode


def shared(run: Run, experiment: Any) -> torch.Tensor:
    method = build(experiment).method
    saved = checkpoint.load(run.folder / "checkpoint", method.classes)
    assert saved is not None
    weights = method.shared(saved["state"])
    assert weights is not None
    return torch.cat([weights[name].reshape(-1) for name in sorted(weights)])


@pytest.mark.parametrize("method", ["fedavg", "ditto", "fedbuff", "scaffold"])
def test_a_simulated_secure_sum_gives_the_plain_model_in_fixed_point(method: str, tmp_path: Path) -> None:
    data = tiny(tmp_path / "tiny.npz")
    open_ = experiment_of(method, data, run={"out": str(tmp_path / "a")}, wire={"clip": 0.0})
    hidden = experiment_of(method, data, run={"out": str(tmp_path / "b")}, secure={"sum": True})
    first, second = drive.start(open_), drive.start(hidden)
    assert torch.allclose(shared(first, open_), shared(second, hidden), atol=1e-5)
    told = second.summary["secure_sum"]
    assert told["sums"] >= 2
    assert told["bytes_up"] > 0
    assert second.summary["virtual_seconds"] > first.summary["virtual_seconds"]


@pytest.mark.parametrize(
    ("method", "why"),
    [("clusterfl", "compares"), ("echopfl", "clusters each"), ("centaur", "report"), ("local", "share nothing")],
)
def test_methods_that_need_more_than_sums_refuse(method: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"secure.sum: must be false with {method}.*{why}"):
        build(experiment_of(method, tiny(tmp_path / "tiny.npz"), secure={"sum": True}))


def over_flower(experiment: Any, folder: Path, meddle: Any = None) -> tuple[Run, Loopback]:
    wire = Loopback(machines(experiment, folder / "machines", **owners(experiment)), meddle)
    (folder / "run").mkdir()
    return drive.carry_out(folder / "run", staged(experiment, wire), Silent()), wire


def test_over_flower_the_server_sees_sums_alone_and_ends_with_the_same_model(tmp_path: Path) -> None:
    data = tiny(tmp_path / "tiny.npz")
    experiment = experiment_of("fedavg", data, secure={"sum": True})
    seen: list[tuple[str, bytes]] = []
    changed: list[bool] = []
    classes = build(experiment).method.classes

    def meddle(node: int, ask: Envelope, answer: Envelope) -> list[Envelope]:
        seen.append((ask.kind + str(ask.head.get("step", "")), answer.body))
        if ask.kind == "task":
            sent, back = decode(ask.body, classes)["task"].weights, decode(answer.body, classes).weights
            changed.append(any(not torch.equal(sent[name], back[name]) for name in sent))
        return [answer]

    run, _ = over_flower(experiment, tmp_path, meddle)
    plain = experiment_of("fedavg", data, run={"out": str(tmp_path / "a")}, wire={"clip": 0.0})
    assert torch.allclose(shared(run, experiment), shared(drive.start(plain), plain), atol=1e-5)
    assert run.summary["secure_sum"] == {"sums": 2, "lost": 0, "left_out": 0}
    assert not any(changed)
    masked = [np.frombuffer(body, "<u4") for kind, body in seen if kind == "securemasked"]
    assert len(masked) == 12
    assert all(abs(np.unpackbits(one.view(np.uint8)).mean() - 0.5) < 0.1 for one in masked)


def test_a_client_that_goes_away_before_it_unmasks_costs_nothing_but_itself(tmp_path: Path) -> None:
    experiment = experiment_of("fedavg", tiny(tmp_path / "tiny.npz"), secure={"sum": True})
    lost: list[int] = []

    def meddle(node: int, ask: Envelope, answer: Envelope) -> list[Envelope | str]:
        if ask.head.get("step") == "masked" and not lost:
            lost.append(node)
            return ["went away"]
        return [answer]

    run, _ = over_flower(experiment, tmp_path, meddle)
    assert lost
    assert run.summary["secure_sum"] == {"sums": 2, "lost": 0, "left_out": 1}


def test_a_lie_in_a_step_is_refused_for_that_client_alone(tmp_path: Path) -> None:
    experiment = experiment_of("fedavg", tiny(tmp_path / "tiny.npz"), secure={"sum": True})

    def meddle(node: int, ask: Envelope, answer: Envelope) -> list[Envelope]:
        if node == 1 and ask.kind == "secure":
            return [Envelope({**answer.head, "sum": "another"}, answer.body[:7])]
        return [answer]

    run, _ = over_flower(experiment, tmp_path, meddle)
    assert run.summary["rounds"] == 2
    assert run.summary["secure_sum"]["left_out"] == 2
