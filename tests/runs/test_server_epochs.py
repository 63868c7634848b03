"""`server.epochs` trains the models of any method on the server rows after every round, at the server's cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import potluck
from potluck import keys, methods
from potluck.errors import BadInput
from potluck.fleet import Params
from potluck.learn import Recipe, fit, training_macs
from potluck.methods.parts.submodels.tuning import divided, score
from potluck.runs import server_rows
from potluck.runs.build import build
from potluck.runs.experiment import Experiment
from potluck.runs.results import Run

pytestmark = pytest.mark.quick
WITHOUT = {"local", "fedmd", "fedproto", "fedamp", "clusterfl", "echopfl", "fedem", "fedcfc", "centralised_clusters"}
HEADS = {f"{head}.1.weight": torch.ones(2, 2) for head in "fgh"}  # of a network that FedCFC takes


def experiment(name: str = "fedavg", server: dict[str, Any] | None = None, **sections: Any) -> Experiment:
    values: dict[str, Any] = {
        "data": {"source": "made"},
        "model": {"name": "mlp"},
        "stop": {"rounds": 2},
        "server": {"share": 0.2, "epochs": 2, "epochs_lr": 0.1, **(server or {})},
        **sections,
    }
    return Experiment.of({**values, "method": {"name": name, **sections.get("method", {})}})


def final(run: Run) -> Params:
    from safetensors.torch import load_file

    return load_file(run.folder / "models" / "global.safetensors")


def test_it_is_the_method_with_training_between_its_rounds(tmp_path: Path) -> None:
    """Against a loop of rounds and of `fit`, written out."""
    asked = experiment(run={"out": str(tmp_path)})
    found = final(potluck.run(asked))
    session = build(experiment(server={"epochs": 0}))
    state, rows = session.method.start(session.weights, session.config), session.fleet.home.data
    for round in (1, 2):
        state = next(session.method.server(session.fleet, state, session.config))
        key = keys.key(0, round, 0, "server epochs")
        trained = fit(session.model, state.weights, rows, Recipe(2, 32, 0.1, clip=5.0), key=key)
        state = type(state)(trained, state.round)
    for name, value in state.weights.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


def test_the_epoch_with_the_smallest_loss_on_validation_rows_is_taken() -> None:
    asked = experiment(server={"validate_share": 0.3, "epochs_lr": 3.0})
    session = build(asked)
    rows, recipe = session.fleet.home.data, server_rows.recipe_of(asked, 6, 3.0)
    parts = divided(rows, keys.key(0, "server rows"), 0.3)
    found = server_rows.trained(asked, session.model, session.weights, rows, recipe, keys.key(1))
    path = [session.weights]
    for epoch in range(6):
        path.append(
            fit(session.model, path[-1], parts.tune, Recipe(1, 32, 3.0, clip=5.0), key=keys.fold(keys.key(1), epoch))
        )
    losses = [-float(score(session.model, weights, parts.valid)[1]) for weights in path]
    best = path[losses.index(min(losses))]
    assert all(torch.equal(found[name], best[name]) for name in best)
    assert losses.index(min(losses)) < 6  # at this learning rate the last epoch is not the best


def test_the_servers_clock_is_charged_after_every_round(tmp_path: Path) -> None:
    run = potluck.run(experiment(run={"out": str(tmp_path)}))
    plain = potluck.run(experiment(server={"epochs": 0}, run={"out": str(tmp_path)}))
    told = [row["detail"] for row in run.table("events") if row["kind"] == "server"]
    assert len([line for line in told if "2 epochs on the server rows" in line]) == 2
    session = build(experiment())
    rows = session.fleet.home.data
    cost = 2 * 2 * len(rows.y) * training_macs(session.model, session.weights, rows) / server_rows.SERVER_SPEED
    assert run.summary["virtual_seconds"] - plain.summary["virtual_seconds"] == pytest.approx(cost, rel=1e-6)


def test_a_resumed_run_is_the_run(tmp_path: Path) -> None:
    whole = potluck.run(experiment(stop={"rounds": 3}, run={"out": str(tmp_path), "name": "whole"}))
    part = potluck.run(experiment(stop={"rounds": 1}, run={"out": str(tmp_path), "name": "part"}))
    after = potluck.runs.drive.resume(part.folder, rounds=3)
    one, other = final(whole), final(after)
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("name", list(methods.METHODS))
def test_every_method_takes_them_or_says_why_not(name: str) -> None:
    method = methods.load(name)
    weights = {"fc1.weight": torch.ones(2, 2), **HEADS}
    seen: list[Params] = []

    def train(weights: Params) -> Params:
        seen.append(weights)
        return {name: value + 1.0 for name, value in weights.items()}

    state = method.start(weights, method.configure({}))
    found = server_rows.improved(method, state, train, weights.keys())
    assert (found is None) == (name in WITHOUT)
    if found is not None:
        assert all(torch.equal(value, weights[tensor]) for tensor, value in seen[0].items())
        if hasattr(method.module, "shared") and name != "fedem":
            torch.testing.assert_close(method.shared(found)["fc1.weight"], torch.full((2, 2), 2.0))  # type: ignore[index]


def test_methods_without_a_model_at_the_server_are_refused() -> None:
    for name in ("local", "standalone"):
        with pytest.raises(BadInput, match=rf"server.epochs: must be 0 with {name}"):
            build(experiment(name))
    with pytest.raises(BadInput, match=r"server.epochs: must be 0 with compose"):
        build(experiment("compose", method={"grouping": "clusters", "merge": "latest"}))


def test_without_server_rows_they_are_refused() -> None:
    with pytest.raises(BadInput, match=r"server.epochs: needs server rows to train on"):
        build(experiment(server={"share": 0.0}))


@pytest.mark.parametrize("name", ["fedbuff", "ifca", "heterofl", "compose", "fedconv"])
def test_rounds_go_on_after_them(name: str, tmp_path: Path) -> None:
    """Methods with tasks under way, several models, sub-models, and kernels at the server."""
    run = potluck.run(experiment(name, run={"out": str(tmp_path)}))
    assert run.summary["rounds"] == 2
    assert run.summary["accuracy"]["mean"] > 0.3
