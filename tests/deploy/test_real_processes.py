"""Real processes on loopback, with TLS and keys: a run, who is let in, and what the gateway hides."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import torch
from loopback import DEVICE, experiment_of, local_models, tiny
from realm import Site, until
from safetensors.torch import load_file

pytest.importorskip("flwr", reason="needs the extra flower")

from potluck.deploy import actions, keys
from potluck.deploy.places import Place

HIDDEN = (
    "/v1/control/start-run",
    "/v1/control/list-nodes",
    "/v1/runtime/acquire-task",
    "/v1/fleet/../control/list-runs",
    "/v1/fleet/%2e%2e/control/list-runs",
    "/v1/fleet/register-node",
    "/docs",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    experiment = experiment_of("fedavg", tiny(folder / "tiny.npz", clients=2))
    with Site(folder, experiment) as site:
        for name in site.names:
            site.client(name, "--device", DEVICE)
        yield site


def test_a_run_ends_with_the_models_of_the_local_engine(site: Site) -> None:
    experiment = experiment_of("ftl", str(site.folder / "tiny.npz"), run={"out": str(site.folder / "runs")})
    run = site.ended(site.run(experiment))
    assert (run.summary["lost_clients"], run.summary["refused_updates"]) == (0, 0)
    assert set(run.summary["per_client"]) == {"s00", "s01"}
    plan = next((site.deployment.client("s00") / "home" / "models").iterdir()).name
    for client, weights in local_models(experiment).items():
        found = load_file(site.deployment.client(client) / "home" / "models" / plan / f"{client}.safetensors")
        for name, value in weights.items():
            torch.testing.assert_close(found[name], value, atol=1e-5, rtol=1e-5)
    told = actions.status(site.deployment)
    assert told.clients == {"s00": "online", "s01": "online"}


def test_an_unknown_key_is_not_let_in_and_shown(site: Site, tmp_path: Path) -> None:
    """Somebody with the right certificate and a key of his own making."""
    folder = tmp_path / "mallory"
    folder.mkdir()
    shutil.copy(site.deployment.client("s00") / "ca.crt", folder)
    shutil.copy(site.deployment.client("s00") / "data.npz", folder)
    keys.client(folder)
    Place(folder, "s00", f"127.0.0.1:{site.deployment.port}", insecure=False).write()
    site.client("mallory", folder=folder)
    log = folder / "client.log"
    until(lambda: "does not know the key" in log.read_text(errors="replace"))
    site.kill("mallory")
    assert any("activate-node" in line for line in actions.status(site.deployment).refused)


def test_the_gateway_hides_commands_and_server_programs(site: Site) -> None:
    trust = ssl.create_default_context(cafile=str(site.deployment.authority))
    with httpx.Client(verify=trust, trust_env=False) as line:
        door = f"https://127.0.0.1:{site.deployment.port}"
        for path in HIDDEN:
            assert line.post(f"{door}{path}", content=b"").status_code == 404, path
        assert line.post(f"{door}/v1/fleet/pull-messages", content=b"").status_code in (400, 401, 422)
        assert line.post(f"{door}/v1/fleet/push-object", content=b"\x7f" * 100_000_000).status_code == 413
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.post(f"https://127.0.0.1:{site.deployment.port}/v1/fleet/pull-messages", trust_env=False)
    assert any("not for clients" in line for line in actions.status(site.deployment).refused)
