"""`--engine flower-sim`: a run in Flower's own simulation, whose clients are tasks on a Ray cluster.

It is for users with such a cluster, and it checks the engine against Flower itself. Times are wall times. For virtual
time, and for speed, use the local engine.
"""

from __future__ import annotations

import importlib
import os
import warnings
from pathlib import Path
from typing import Any

from potluck import files
from potluck.data import Federation
from potluck.deploy.layout import QUIET
from potluck.deploy.server.open_session import enough, open_session, rules_of
from potluck.errors import Code, Missing, install_extra
from potluck.runs import drive
from potluck.runs.build import federation_of
from potluck.runs.experiment import Experiment
from potluck.runs.folders import new_folder
from potluck.runs.results import Run
from potluck.runs.watcher import Watcher

PATIENCE = 600.0  # seconds that Ray's processes have to start


def start(experiment: Experiment, watcher: Watcher) -> Run:
    """Run an experiment in a new folder."""
    _installed()
    federation = federation_of(experiment)  # wrong data raises BadInput before there is a folder
    folder = new_folder(experiment)
    files.write_text(folder / "experiment.toml", experiment.toml())
    return _simulate(folder, experiment, federation, watcher)


def go_on(folder: Path, watcher: Watcher) -> Run:
    """Continue a run that was stopped or killed."""
    _installed()
    experiment = Experiment.read(folder / "experiment.toml")
    return _simulate(folder, experiment, federation_of(experiment), watcher)


def _installed() -> None:
    for module, extra in (("flwr", "flower"), ("ray", "ray")):
        try:
            importlib.import_module(module)
        except ImportError:
            raise Missing(Code.EXTRA, f"{module}: not installed; `{install_extra(extra)}` adds it.") from None


def _simulate(folder: Path, experiment: Experiment, federation: Federation, watcher: Watcher) -> Run:
    clients = len(federation.names)
    os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation

    from potluck.deploy.simulated_client import app as client_app
    from potluck.engines.flower.protocol import Envelope
    from potluck.engines.flower.server.members import Members
    from potluck.engines.flower.transport import GridTransport

    class Transport(GridTransport):
        """Adds the run's folder to every message: a simulated node has no config."""

        def push(self, node: int, envelope: Envelope, ttl: float) -> str | None:
            return super().push(node, Envelope({**envelope.head, "folder": str(folder.resolve())}, envelope.body), ttl)

    server = ServerApp()
    ended: list[Run | BaseException] = []

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            members = Members(Transport(grid), {"rules": rules_of(experiment)}, poll=0.05)
            with enough("`potluck doctor` shows how much memory is free"):
                members.wait_for(clients, PATIENCE)
                parts = open_session(experiment, members, folder.name, PATIENCE, known=folder / "fleet.json")
            parts.notes = (*parts.notes, *federation.notes)
            ended.append(drive.carry_out(folder, parts, watcher))
        except BaseException as error:
            ended.append(error)

    resources: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0.0}
    own: dict[str, Any] = {}
    if not os.environ.get("RAY_ADDRESS"):
        own = {"num_cpus": os.cpu_count() or 1, "_node_ip_address": "127.0.0.1"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Flower calls its own Python call deprecated
        run_simulation(
            server,
            client_app,
            num_supernodes=clients,
            backend_config={
                "client_resources": resources,
                "init_args": {"log_to_driver": False, "include_dashboard": False, **own},
            },
        )
    if isinstance(ended[0], BaseException):
        raise ended[0]
    return ended[0]
