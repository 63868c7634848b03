"""The methods on six real client processes with TLS and keys, and a run through kills of everything. Minutes each."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from helpers.deployment import Site, until
from helpers.short_runs import DEVICE, experiment_of, local_models, tiny
from safetensors.torch import load_file

pytest.importorskip("flwr", reason="needs the extra flower")

from potluck.deploy import commands
from potluck.deploy.layout import holder
from potluck.deploy.server.supervisor import finished
from potluck.errors import BadInput
from potluck.runs import needs
from potluck.runs.experiment import Experiment
from potluck.runs.record import read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
METHODS = ("fedavg", "ftl", "clusterfl", "echopfl", "fedcfc", "fedconv", "fedbits")
LONG = 900.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Six clients, each a process of its own."""
    folder = tmp_path_factory.mktemp("six")
    with Site(folder, experiment_of("fedavg", tiny(folder / "tiny.npz"))) as site:
        for name in site.names:
            site.client(name, "--device", DEVICE)
        yield site


def same_models(site: Site, folder: Path, experiment: Experiment) -> None:
    """Compare with the local engine; a deployment fills in what its method needs."""
    run = json.loads((folder / "deploy.json").read_text())["run"]
    for client, weights in local_models(needs.filled(experiment, needs.DEPLOYED)).items():
        found = load_file(site.deployment.client(client) / "home" / "models" / run / f"{client}.safetensors")
        for name, value in weights.items():
            torch.testing.assert_close(found[name], value, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_each_method_completes_and_the_synchronous_ones_agree_with_the_local_engine(method: str, site: Site) -> None:
    experiment = experiment_of(
        method, str(site.folder / "tiny.npz"), run={"out": str(site.folder / "runs"), "evaluate_every": 2}
    )
    folder = site.run(experiment)
    run = site.ended(folder, LONG)
    assert run.summary["rounds"] == 2
    assert run.summary["refused_updates"] == 0
    assert len(run.summary["per_client"]) == 6
    if method != "echopfl":
        assert run.summary["lost_clients"] == 0
        same_models(site, folder, experiment)


def test_a_secure_sum_gives_the_models_of_the_plain_one(site: Site) -> None:
    """Masks are agreed between the six processes; the server has the sum, so the models are the local engine's."""
    plain = experiment_of("fedavg", str(site.folder / "tiny.npz"), run={"out": str(site.folder / "runs")})
    experiment = experiment_of(
        "fedavg", str(site.folder / "tiny.npz"), secure={"sum": True}, run={"out": str(site.folder / "runs")}
    )
    folder = site.run(experiment)
    run = site.ended(folder, LONG)
    assert run.summary["rounds"] == 2
    assert run.summary["lost_clients"] == run.summary["refused_updates"] == 0
    same_models(site, folder, plain)


def test_a_private_run_ends_before_its_budget_is_spent(site: Site) -> None:
    """The ledger is the server's: it charges devices on other machines as it charges simulated ones."""
    experiment = experiment_of(
        "fedavg", str(site.folder / "tiny.npz"), rounds=50, run={"out": str(site.folder / "runs")},
        privacy={"unit": "client", "clip": 0.5, "noise": 2.0, "epsilon": 4.0, "delta": 1e-3},
    )  # fmt: skip
    run = site.ended(site.run(experiment), LONG)
    assert 0 < run.summary["rounds"] < 50
    assert 0 < run.summary["privacy"]["epsilon"] <= 4.0


def test_centaur_completes_with_two_clients_on_a_machine(tmp_path: Path) -> None:
    """Three processes, each a device and its access point: what is handed over never leaves the process."""
    experiment = experiment_of(
        "centaur", tiny(tmp_path / "tiny.npz", clients=3), run={"out": str(tmp_path / "runs"), "evaluate_every": 2}
    )
    with Site(tmp_path, experiment) as site:
        for name in site.names:
            site.client(name, "--device", DEVICE, "--access-point", DEVICE)
        folder = site.run(experiment)
        run = site.ended(folder, LONG)
        assert run.summary["clients"] == 6
        assert run.summary["lost_clients"] == 0, run.table("events")  # the models are equal where nobody was lost
        same_models(site, folder, experiment)
        assert sum(one["bytes_handoff"] for one in run.table("tasks")) > 0


def test_a_run_survives_kills_of_everything(tmp_path: Path) -> None:
    """EchoPFL, while two clients, the server program and the SuperLink are killed and come back."""
    experiment = experiment_of(
        "echopfl", tiny(tmp_path / "tiny.npz"), rounds=6,
        run={"out": str(tmp_path / "runs"), "evaluate_every": 3},
    )  # fmt: skip
    with Site(tmp_path, experiment) as site:
        for name in site.names:
            site.client(name, "--device", DEVICE)
        folder = site.run(experiment)

        def steps() -> int:
            path = folder / "run.db"
            try:
                return int(read(path, "SELECT max(step) AS n FROM steps")[0]["n"] or 0) if path.exists() else 0
            except Exception:  # the table is being made
                return 0

        until(lambda: steps() >= 4, LONG)
        site.kill("s00")
        site.kill("s03")
        until(lambda: steps() >= 8, LONG)
        site.client("s00", "--device", DEVICE)
        site.client("s03", "--device", DEVICE)
        program = until(lambda: holder(folder / ".server"))
        os.kill(program, signal.SIGKILL)
        until(lambda: holder(folder / ".server") not in (None, program), LONG)
        until(lambda: steps() >= 14, LONG)
        site.kill_part("superlink")
        until(lambda: any("superlink ended" in line for line in site.said), LONG)
        run = site.ended(folder, LONG)
    assert run.summary["rounds"] == 6
    taken = [one["number"] for one in run.table("tasks") if one["outcome"] == "accepted"]
    assert len(taken) == len(set(taken))
    arrivals = [int(one["value"]) for one in run.table("records") if one["name"] == "arrivals"]
    assert max(arrivals) == len(taken)  # what was taken is what the method absorbed: none lost, none twice
    after = {one["client"] for one in run.table("tasks") if one["outcome"] == "accepted" and one["step"] > 14}
    assert {"s00", "s03"} <= after  # both came back under their names
    assert any("started again" in line for line in site.said)


def test_a_run_is_stopped_and_goes_on(site: Site) -> None:
    """`deploy stop RUN` after a step, `deploy start --resume RUN` to the end: the models of a run never stopped."""
    experiment = experiment_of(
        "ftl", str(site.folder / "tiny.npz"), rounds=4, run={"out": str(site.folder / "runs"), "name": "stopped"}
    )
    folder = site.run(experiment)
    until(lambda: (folder / "checkpoint").exists(), LONG)
    commands.stop_run(site.deployment, folder)
    until(lambda: holder(folder / ".server") is None, LONG)
    assert not finished(folder)
    commands.resume(site.deployment, folder)
    run = site.ended(folder, LONG)
    assert run.summary["rounds"] == 4
    same_models(site, folder, experiment)
    with pytest.raises(BadInput, match="stays on its own machine"):
        run.personal("s00")


def test_without_tls_and_keys_for_those_who_typed_it(tmp_path: Path) -> None:
    """`--insecure` gives the same models, and `--control-host` moves the port that takes commands."""
    experiment = experiment_of(
        "fedavg", tiny(tmp_path / "tiny.npz", clients=2), run={"out": str(tmp_path / "runs"), "evaluate_every": 2}
    )
    with Site(tmp_path, experiment, insecure=True, control_host="127.0.0.2") as site:
        assert site.deployment.control.startswith("127.0.0.2:")
        assert not list(site.deployment.folder.rglob("*.crt"))
        for name in site.names:
            site.client(name, "--device", DEVICE)
        folder = site.run(experiment, clients=2)
        site.ended(folder, LONG)
        same_models(site, folder, experiment)
        assert "insecure: no TLS and no keys on this connection" in site.log("s00")
