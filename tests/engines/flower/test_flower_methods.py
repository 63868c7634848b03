"""The main methods on the Flower engine, with a hidden layer; the battery has all methods, with a smaller model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.short_runs import experiment_of, local_models, tiny

from potluck.engines.price import blank, nbytes_of
from potluck.methods.parts.few_bits import length
from potluck.runs import drive
from potluck.runs.build import build
from potluck.runs.watcher import Silent
from potluck.testing.loopback import Loopback, kept_models, machines, owners, staged
from potluck.wire.codec import size

MUST = ("fedavg", "ftl", "clusterfl", "echopfl", "fedcfc", "centaur", "fedconv")
# A method that merges by the clock ends with other models on another clock.
BY_THE_CLOCK = ("echopfl",)


@pytest.mark.parametrize("method", MUST)
def test_ends_with_the_models_of_the_local_engine(method: str, tmp_path: Path) -> None:
    experiment = experiment_of(method, tiny(tmp_path / "tiny.npz"))
    homes = machines(experiment, tmp_path / "machines", **owners(experiment))
    (tmp_path / "run").mkdir()
    run = drive.carry_out(tmp_path / "run", staged(experiment, Loopback(homes)), Silent())
    summary, found, expected = run.summary, kept_models(homes), local_models(experiment)
    assert (summary["refused_updates"], summary["lost_clients"]) == (0, 0)
    assert found.keys() == expected.keys()
    assert len(summary["per_client"]) == 6
    for client, weights in expected.items():
        assert found[client].keys() == weights.keys()
        for name, value in weights.items():
            assert torch.isfinite(found[client][name]).all()
            if method not in BY_THE_CLOCK:
                torch.testing.assert_close(found[client][name], value, atol=1e-5, rtol=1e-5)


def test_a_partner_gets_the_samples_it_is_meant_to_have(tmp_path: Path) -> None:
    """Their bytes are those of the samples handed over, not of a device's whole data."""
    experiment = experiment_of("centaur", tiny(tmp_path / "tiny.npz"))
    homes = machines(experiment, tmp_path / "machines", **owners(experiment))
    (tmp_path / "run").mkdir()
    run = drive.carry_out(tmp_path / "run", staged(experiment, Loopback(homes)), Silent())
    sent = [row["bytes_handoff"] for row in run.table("tasks") if row["bytes_handoff"]]
    handed = next(float(row["value"]) for row in reversed(run.table("records")) if row["name"] == "handed_so_far")
    like = build(experiment).fleet.home.data
    sample, one = nbytes_of(blank(like, 1)), size(blank(like, 1))
    assert sum(sent) == pytest.approx(len(sent) * (one - sample) + handed * sample, abs=100)


def test_evaluation_is_that_of_the_local_engine(tmp_path: Path) -> None:
    """Clients judge themselves; the figures are those of a server that could see their test rows."""
    experiment = experiment_of("ftl", tiny(tmp_path / "tiny.npz"), run={"out": str(tmp_path / "runs")})
    here = drive.start(experiment).summary
    homes = machines(experiment, tmp_path / "machines", **owners(experiment))
    (tmp_path / "run").mkdir()
    there = drive.carry_out(tmp_path / "run", staged(experiment, Loopback(homes)), Silent()).summary
    assert there["per_client"] == here["per_client"]
    assert there["accuracy"] == pytest.approx(here["accuracy"])
    assert there["macs"] == here["macs"]
    assert there["energy_joules"] is not None  # the power of a device of the catalogue is known
    assert there["virtual_seconds"] < here["wall_seconds"] + 600


def test_private_state_and_rows_never_cross_the_wire(tmp_path: Path) -> None:
    """What the server's side ever gets from a client is updates, counts and scores."""
    experiment = experiment_of("local", tiny(tmp_path / "tiny.npz"))
    homes = machines(experiment, tmp_path / "machines", **owners(experiment))
    wire = Loopback(homes)
    sent: list[int] = []
    wire.meddle = lambda node, ask, answer: sent.append(len(answer.body)) or [answer]  # type: ignore[func-returns-value]
    (tmp_path / "run").mkdir()
    run = drive.carry_out(tmp_path / "run", staged(experiment, wire), Silent())
    weights = sum(value.numel() * 4 for value in next(iter(kept_models(homes).values())).values())
    assert max(sent) < weights  # each keeps a model of its own, and no message is large enough to hold one
    assert not (run.folder / "models" / "personal").exists()


@pytest.mark.parametrize("bits", [1, 7, 32])
def test_fedbits_sends_its_bits_and_counts_what_it_sends(bits: int, tmp_path: Path) -> None:
    experiment = experiment_of("fedbits", tiny(tmp_path / "tiny.npz"))
    changed = {"method": {**experiment.method, "bits": bits}, "model": {"name": "mlp", "hidden": [200]}}
    experiment = experiment.model_copy(update=changed)
    homes = machines(experiment, tmp_path / "machines", **owners(experiment))
    wire = Loopback(homes)
    told: list[int] = []
    wire.meddle = lambda node, ask, answer: (ask.kind == "task" and told.append(len(answer.body))) or [answer]  # type: ignore[func-returns-value]
    (tmp_path / "run").mkdir()
    run = drive.carry_out(tmp_path / "run", staged(experiment, wire), Silent())
    asked = [len(ask.body) for _, ask in wire.asked if ask.kind == "task"]
    rows = [row for row in run.table("tasks") if row["outcome"] == "accepted"]
    assert sorted(row["bytes_up"] for row in rows) == sorted(told)
    assert sorted(row["bytes_down"] for row in rows) == sorted(asked)
    model = build(experiment).model
    shared = {name: value for name, value in model.init(0).items() if name not in model.last_layers(1)}
    change = length(shared, bits) + (4 * len(shared) if bits < 32 else 0)
    assert change < min(told) <= max(told) < change + 700  # names and shapes beside it
    assert change < asked[-1] < change + 700
