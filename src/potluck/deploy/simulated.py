"""`--engine flower-sim`: a run in Flower's own simulation, whose clients are tasks on a Ray cluster.

It is for users with such a cluster, and it checks the engine against Flower itself. Times are wall times. For virtual
time, and for speed, use the local engine.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from potluck import files
from potluck.data import Federation
from potluck.deploy.client.rows import rows_of
from potluck.deploy.layout import QUIET
from potluck.deploy.server.open_session import enough, members_of, open_session
from potluck.engines.local import Roster
from potluck.engines.local.flight import goes_away
from potluck.errors import BadInput, Code, Missing, install_extra
from potluck.fleet import ClientId, FleetEmpty
from potluck.runs import drive
from potluck.runs.deal import federation_of
from potluck.runs.experiment import Experiment
from potluck.runs.folders import new_folder
from potluck.runs.results import Run
from potluck.runs.rosters import chance_seed, roster_of
from potluck.runs.watcher import Watcher

DIFFERS = (
    "engine flower-sim: memory limits, dropouts and stops are those of the local engine. Times are wall times, energy "
    "is not counted, and slow or absent links are not simulated."
)
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


def mishaps(experiment: Experiment, roster: Roster) -> Callable[[ClientId, int], str | None]:
    """Which tasks are lost: by `faults.dropout` and by the links, drawn as in the local engine."""
    faults, seed = experiment.faults.faults(), chance_seed(experiment)

    def mishap(client: ClientId, count: int) -> str | None:
        lost = goes_away(roster.link(roster.index_of(client)), client, count, seed, faults)
        return "went away while it worked" if lost else None

    return mishap


@contextmanager
def _quiet(logger: str) -> Iterator[None]:
    """Hold back what a library logs, unless POTLUCK_DEBUG is set: its errors come back as one sentence."""

    def keeps(record: logging.LogRecord) -> bool:
        return bool(os.environ.get("POTLUCK_DEBUG"))

    named = logging.getLogger(logger)
    named.addFilter(keeps)
    try:
        yield
    finally:
        named.removeFilter(keeps)


def _simulate(folder: Path, experiment: Experiment, federation: Federation, watcher: Watcher) -> Run:
    clients = len(federation.names)
    os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.supercore.telemetry import EventType

    from potluck.deploy.simulated_client import app as client_app
    from potluck.engines.flower.protocol import Envelope
    from potluck.engines.flower.server.words import Registered
    from potluck.engines.flower.transport import GridTransport

    class Transport(GridTransport):
        """Adds the run's folder to every message: a simulated node has no config."""

        def nodes(self) -> dict[int, tuple[str, str]]:
            if crashed.is_set():  # or the server program would wait for clients that cannot come
                raise FleetEmpty("flower-sim: Flower's simulation did not start")
            return super().nodes()

        def push(self, node: int, envelope: Envelope, ttl: float) -> str | None:
            return super().push(node, Envelope({**envelope.head, "folder": str(folder.resolve())}, envelope.body), ttl)

    server = ServerApp()
    mishap = mishaps(experiment, roster_of(experiment, federation))
    dealt = {name: Registered(rows) for name, rows in rows_of(federation).items()}
    ended: list[Run | BaseException] = []
    crashed = threading.Event()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            members = members_of(experiment, Transport(grid), poll=0.05, registered=dealt)
            with enough("`potluck doctor` shows how much memory is free"):
                members.wait_for(clients, PATIENCE)
                parts = open_session(experiment, members, folder.name, PATIENCE, folder / "fleet.json", mishap)
            parts.notes, parts.differs = federation.notes, DIFFERS
            ended.append(drive.carry_out(folder, parts, watcher))
        except BaseException as error:
            ended.append(error)

    # What Flower's own command calls. Its `run_simulation` for Python is deprecated and only adds a warning to it.
    simulate = importlib.import_module("flwr.simulation.run_simulation")._run_simulation
    resources: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0.0}
    own: dict[str, Any] = {}
    if not os.environ.get("RAY_ADDRESS"):
        own = {"num_cpus": os.cpu_count() or 1, "_node_ip_address": "127.0.0.1"}
    with warnings.catch_warnings(), _quiet("flwr"):
        warnings.simplefilter("ignore")  # Ray's, about its own future
        try:
            simulate(
                num_supernodes=clients,
                exit_event=EventType.PYTHON_API_RUN_SIMULATION_LEAVE,
                client_app=client_app,
                server_app=server,
                backend_config={
                    "client_resources": resources,
                    "init_args": {"log_to_driver": False, "include_dashboard": False, **own},
                },
            )
        except RuntimeError as error:
            crashed.set()
            why = " ".join(str(error.__cause__ or error).split())
            raise BadInput(
                Code.TOO_FEW,
                f"flower-sim: Flower's simulation ended ({why}). Ray needs 30 seconds to start at most; try again when "
                "the machine is less busy, or use --engine local.",
            ) from error
    if isinstance(ended[0], BaseException):
        raise ended[0]
    return ended[0]
