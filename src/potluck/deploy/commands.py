"""What `potluck deploy` does: make a deployment, start a run on it, show its status, stop it."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from potluck import files
from potluck.deploy import keys
from potluck.deploy.client.owner import THIS, Owner
from potluck.deploy.client.rows import rows_of, write_rows
from potluck.deploy.layout import LOOPBACK, SERVER_LOCK, ClientFolder, Deployment, Start, check_host, holder
from potluck.deploy.server.app import PLAN, REFUSED
from potluck.deploy.server.control import Control
from potluck.deploy.server.open_session import check
from potluck.deploy.server.supervisor import finished, runs_of
from potluck.errors import BadInput, Code, unknown
from potluck.runs import needs
from potluck.runs.deal import federation_of
from potluck.runs.experiment import Experiment
from potluck.runs.folders import new_folder
from potluck.runs.model_files import file_name
from potluck.runs.results import Run

REGISTERED = "registered.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,100}")


def make(
    deployment: Deployment,
    names: list[str],
    experiment: Experiment | None = None,
    table: Mapping[str, Start] | None = None,
    rows: Mapping[str, int] | None = None,
) -> list[str]:
    """Make certificates, keys and folders; those that exist stay. Return the clients that are new.

    `table` names clients with what each starts with, `rows` says how many rows a client may have at most.
    """
    check_host("--host", deployment.host)
    check_host("--control-host", deployment.control_host)
    federation = None if experiment is None else federation_of(experiment)
    starts = table or {}
    for name, start in starts.items():
        Owner(name, start.data, Path(), start.device or THIS, start.access_point or None).check()
    wanted = [*names, *starts, *(federation.names if federation is not None else ())]
    for name in wanted:
        if not NAME.fullmatch(name):
            raise BadInput(
                Code.DEPLOY_NAME,
                f"client: a name must have letters, digits, dots, dashes and underscores only, got {name!r}.",
            )
    server = deployment.server
    files.make_folder(server, private=True)  # keys, and the SuperLink's database with updates in it
    files.make_folder(server / "flower", private=True)
    keys.secret(server / "superexec.secret")
    if not deployment.insecure:
        keys.authority(server)
        keys.server(server, _hosts(deployment.host))
    deployment.write()
    fresh = []
    for name in dict.fromkeys(wanted):
        folder = deployment.client(name)
        if not (folder / "client.toml").exists():
            fresh.append(name)
        files.make_folder(folder, private=True)
        if deployment.authority is not None:
            keys.client(folder)
            files.write_bytes(folder / "ca.crt", deployment.authority.read_bytes())
        start = starts.get(name) or (ClientFolder.read(folder).start if name not in fresh else Start())
        ClientFolder(folder, name, f"{deployment.host}:{deployment.port}", deployment.insecure, start).write()
        if federation is not None and name in federation.names:
            write_rows(federation, list(federation.names).index(name), folder / "data.npz")
    dealt = {} if federation is None else rows_of(federation)
    labels = None if federation is None else list(federation.dataset.class_names)
    known = registered(deployment)
    known |= {
        name: {"rows": most, "classes": labels if name in dealt else None}
        for name, most in (dealt | dict(rows or {})).items()
    }
    files.write_json(server / REGISTERED, known)
    return fresh


def registered(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """What the operator registered for each client, beside its key: most rows, and labels."""
    path = deployment.server / REGISTERED
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _hosts(host: str) -> list[str]:
    """All names of this machine, the given one first."""
    return list(dict.fromkeys([host, socket.gethostname(), "localhost", LOOPBACK]))


def start(deployment: Deployment, experiment: Experiment, clients: int | None = None, patience: float = 600.0) -> Path:
    """Make a folder for the run and start its server program. Return at once."""
    check(experiment)
    experiment = needs.filled(experiment, needs.DEPLOYED)
    control = Control(deployment)
    try:
        known = control.nodes()
        expected = clients or len(known)
        if not expected:
            raise BadInput(
                Code.DEPLOY_NAME,
                "deploy: no client is registered. Register one with `potluck deploy init --client NAME`.",
            )
        if clients is not None and not deployment.insecure and clients > len(known):
            raise BadInput(
                Code.COHORT, f"--clients: must be at most {len(known)}, the registered clients, got {clients}."
            )
        folder = new_folder(experiment)
        files.write_text(folder / "experiment.toml", experiment.toml())
        run = f"{re.sub(r'[^A-Za-z0-9._-]', '-', folder.name)}-{secrets.token_hex(4)}"
        plan = {"run": run, "clients": expected, "patience": patience, "poll": 0.3, "ttl": 3600.0}
        plan["registered"] = registered(deployment)
        files.write_json(folder / PLAN, plan)
        _remember(deployment, folder, control.start(folder))
        return folder
    finally:
        control.close()


def resume(deployment: Deployment, folder: Path) -> None:
    """Continue a run that was stopped."""
    if not (folder / PLAN).exists():
        raise BadInput(Code.RUN_ABSENT, f"run: {str(folder)!r} was not started by `potluck deploy start`.")
    if finished(folder):
        raise BadInput(Code.RUN_STATE, f"run: {str(folder)!r} is finished.")
    (folder / REFUSED).unlink(missing_ok=True)
    control = Control(deployment)
    try:
        _remember(deployment, folder, control.start(folder))
    finally:
        control.close()


def _remember(deployment: Deployment, folder: Path, number: int) -> None:
    runs = runs_of(deployment)
    runs[str(folder.resolve())] = {"number": number, "starts": 1, "at": time.time(), "over": False}
    files.write_json(deployment.server / "runs.json", runs)


def stop_run(deployment: Deployment, folder: Path) -> None:
    """Ask a run's server program to stop after the present step; `deploy start --resume` continues from there."""
    runs = runs_of(deployment)
    one = runs.get(str(folder.resolve()))
    if one is None:
        raise unknown(Code.RUN_ABSENT, "run", str(folder), [Path(path).name for path in runs])
    one["over"] = True  # first, or the supervisor would start it again
    files.write_json(deployment.server / "runs.json", runs)
    control = Control(deployment)
    try:
        control.stop(one["number"])
    finally:
        control.close()


def stop_process(lock: Path, what: str) -> bool:
    """End the process that holds a lock. Return whether there was one."""
    process = holder(lock)
    if not process:
        return False
    os.kill(process, signal.SIGTERM)
    for _ in range(300):
        if holder(lock) is None:
            return True
        time.sleep(0.1)
    raise BadInput(Code.DEPLOY_SERVER, f"deploy: {what} (process {process}) does not stop.")


@dataclass(frozen=True)
class Status:
    """The state of a deployment."""

    server: int | None  # the supervisor's process
    processes: dict[str, int]
    clients: dict[str, str]  # name -> online, offline, registered
    runs: dict[str, str]  # folder -> state
    refused: list[str]  # the last lines of the gateway's log about refused connections


def status(deployment: Deployment) -> Status:
    server = holder(deployment.server / SERVER_LOCK)
    path = deployment.server / "processes.json"
    processes: dict[str, int] = json.loads(path.read_text(encoding="utf-8")) if path.exists() and server else {}
    clients = dict.fromkeys(deployment.names, "not registered yet")
    if server:
        control = Control(deployment)
        try:
            clients |= control.nodes()
        finally:
            control.close()
    runs = {path: _state(Path(path), one) for path, one in runs_of(deployment).items()}
    log = deployment.server / "logs" / "gateway.log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return Status(server, processes, clients, runs, [line for line in lines if "refused" in line][-5:])


def _state(folder: Path, one: dict[str, Any]) -> str:
    if (folder / REFUSED).exists():
        return f"refused: {(folder / REFUSED).read_text(encoding='utf-8').strip()}"
    if finished(folder):
        return f"done: {Run(folder).summary['ended']}"
    return f"{'stopped' if one['over'] else 'running'}, {one['starts']} start{'s' if one['starts'] > 1 else ''}"


def client_folder(folder: Path, name: str | None) -> ClientFolder:
    """A client's folder: by its name in a deployment, or the folder that was copied to its machine."""
    if (folder / "client.toml").is_file():
        found = ClientFolder.read(folder)
        if name is not None and name != found.name:
            raise BadInput(Code.DEPLOY_NAME, f"--name: must be {found.name!r} for {folder}, got {name!r}.")
        return found
    if name is None:
        raise BadInput(Code.NOT_SAID, "--name: must say which client this is.")
    if not (folder / "clients" / name / "client.toml").is_file():
        known = sorted(path.parent.name for path in (folder / "clients").glob("*/client.toml"))
        raise (
            unknown(Code.DEPLOY_NAME, "--name", name, known)
            if known
            else BadInput(Code.DEPLOY_NAME, f"deploy: there are no clients in {folder}.")
        )
    return ClientFolder.read(folder / "clients" / file_name(name))
