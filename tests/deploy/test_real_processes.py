"""Real processes on loopback, with TLS and keys: a run, who is let in, and what the gateway hides."""

from __future__ import annotations

import datetime
import re
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import torch
from helpers.deployment import Site, two_ports, until
from helpers.short_runs import DEVICE, experiment_of, local_models, tiny
from safetensors.torch import load_file

pytest.importorskip("flwr", reason="needs the extra flower")

from potluck.deploy import commands, doctor, keys, rights
from potluck.deploy.client import diagnosis
from potluck.deploy.findings import Finding
from potluck.deploy.layout import ClientFolder, Deployment
from potluck.deploy.server.supervisor import Supervisor
from potluck.engines.flower.client import connection
from potluck.errors import BadInput

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
    told = commands.status(site.deployment)
    assert told.clients == {"s00": "online", "s01": "online"}


def test_an_unknown_key_is_not_let_in_and_shown(site: Site, tmp_path: Path) -> None:
    """Somebody with the right certificate and a key of his own making."""
    folder = tmp_path / "mallory"
    folder.mkdir()
    shutil.copy(site.deployment.client("s00") / "ca.crt", folder)
    shutil.copy(site.deployment.client("s00") / "data.npz", folder)
    keys.client(folder)
    ClientFolder(folder, "s00", f"127.0.0.1:{site.deployment.port}", insecure=False).write()
    assert "does not know the key" in told(folder)["not let in"].detail
    assert any("activate-node" in line for line in commands.status(site.deployment).refused)


def test_the_gateway_hides_commands_and_server_programs(site: Site) -> None:
    trust = ssl.create_default_context(cafile=str(site.deployment.authority))
    with httpx.Client(verify=trust, trust_env=False) as line:
        door = f"https://127.0.0.1:{site.deployment.port}"
        for path in HIDDEN:
            assert line.post(f"{door}{path}", content=b"").status_code == 404, path
        assert line.post(f"{door}/v1/fleet/pull-messages", content=b"").status_code == 415
        assert line.post(f"{door}/v1/fleet/push-object", content=b"\x7f" * 100_000_000).status_code == 413
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.post(f"https://127.0.0.1:{site.deployment.port}/v1/fleet/pull-messages", trust_env=False)
    assert any("not for clients" in line for line in commands.status(site.deployment).refused)


def copied(site: Site, folder: Path, name: str = "s00") -> Path:
    """A client's folder on another machine: all but the home, which is that machine's own."""
    folder.mkdir()
    for part in ("ca.crt", "client.toml", "key", "key.pub", "data.npz"):
        shutil.copy(site.deployment.client(name) / part, folder)
    return folder


def told(folder: Path) -> dict[str, Finding]:
    return {one.what: one for one in doctor.examine(folder)}


def test_the_doctor_finds_a_wrong_authority(site: Site, tmp_path: Path) -> None:
    folder = copied(site, tmp_path / "s00")
    (tmp_path / "other").mkdir()
    keys.authority(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "ca.crt", folder / "ca.crt")
    assert "did not sign the certificate" in told(folder)["wrong authority"].detail


def test_the_doctor_finds_a_name_in_use(site: Site, tmp_path: Path) -> None:
    until(lambda: site.nodes().get("s00") == "online")
    assert "the name 's00' is in use" in told(copied(site, tmp_path / "s00"))["not let in"].detail
    assert "process" in told(site.deployment.client("s00"))["client"].detail  # on its own machine it just runs


@pytest.mark.parametrize(("seconds", "way"), [(60, "ahead of"), (-900, "behind")])
def test_the_doctor_finds_a_clock_that_is_off(
    seconds: int, way: str, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = datetime.timedelta(seconds=seconds)
    right = diagnosis.now
    monkeypatch.setattr("flwr.supernode.node_auth_http_interceptor.now", lambda: right() + off)
    monkeypatch.setattr(diagnosis, "now", lambda: right() + off)
    detail = told(copied(site, tmp_path / "s00"))["clock"].detail
    found = re.fullmatch(r"clock: this machine is (\d+) s (ahead of|behind) the server; .*", detail)
    assert found is not None
    assert abs(int(found[1]) - abs(seconds)) <= 3
    assert found[2] == way


def test_the_doctor_finds_another_version(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = connection.RuntimeVersionMetadata.from_local_component("SuperNode")
    old = replace(mine, package_version="1.20.0")
    monkeypatch.setattr(connection.RuntimeVersionMetadata, "from_local_component", lambda component: old)
    found = told(copied(site, tmp_path / "s00"))
    assert "version" in found, found
    assert "another version" in found["version"].detail
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "1.20.0")
    assert doctor.version().state == "fail"


def test_the_doctor_finds_missing_rows_and_no_server(site: Site, tmp_path: Path) -> None:
    folder = copied(site, tmp_path / "s00")
    (folder / "data.npz").unlink()
    ClientFolder(folder, "s00", "127.0.0.1:1", insecure=False).write()
    found = told(folder)
    assert (found["data"].state, found["no server"].state) == ("fail", "fail")
    assert "there is no file" in found["data"].detail


def test_the_doctor_finds_a_port_that_is_taken(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, port=two_ports())
    commands.make(deployment, ["s00"])
    states = {one.what: one.state for one in doctor.examine(tmp_path)}
    assert set(states.values()) == {"ok"}
    with socket.socket() as other:
        other.bind(("127.0.0.1", deployment.port))
        other.listen()
        found = {one.what: one for one in doctor.examine(tmp_path)}
        assert found[f"port {deployment.port}"].state == "fail"
        with pytest.raises(BadInput, match=f"port {deployment.port} on 127.0.0.1 is in use"):
            Supervisor(deployment, lambda sentence: None).run(threading.Event())


def test_a_revoked_key_is_turned_away(site: Site, tmp_path: Path) -> None:
    """The last test here: the client's process goes on with a key that nobody takes any more."""
    until(lambda: site.nodes().get("s01") == "online")
    mine = copied(site, tmp_path / "s01", "s01")
    rights.revoke(site.deployment, "s01")
    until(lambda: "s01" not in site.nodes())
    assert "does not know the key" in told(mine)["not let in"].detail
    rights.rotate(site.deployment, "s01")
    until(lambda: "s01" in site.nodes())
    again = copied(site, tmp_path / "again", "s01")
    assert "not let in" not in {what for what, one in told(again).items() if one.state == "fail"}
    assert site.nodes()["s00"] == "online"
