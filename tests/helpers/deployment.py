"""A deployment of real processes on this machine, for tests: TLS, keys, a server, clients that can be killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from potluck.deploy import commands
from potluck.deploy.layout import Deployment
from potluck.deploy.server.control import Control
from potluck.deploy.server.supervisor import Supervisor, finished
from potluck.errors import BadInput
from potluck.runs.experiment import Experiment
from potluck.runs.results import Run

LONG = 240.0  # seconds; a machine with other work is slow


def two_ports() -> int:
    """A free port whose next one is free, too."""
    for _ in range(50):
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                other.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            if port < 65000:
                return port
    raise RuntimeError("no two free ports")


def until(what: Callable[[], Any], seconds: float = LONG, every: float = 0.2) -> Any:
    """Wait for something to be so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(every)
    raise AssertionError(f"did not happen within {seconds:g} seconds")


class Site:
    def __init__(self, folder: Path, experiment: Experiment, **settings: Any) -> None:
        self.folder = folder
        self.deployment = Deployment(folder / "deploy", port=two_ports(), **settings)
        self.names = commands.make(self.deployment, [], experiment)
        self.clients: dict[str, subprocess.Popen[bytes]] = {}
        self.said: list[str] = []
        self._stop = threading.Event()
        self.supervisor = Supervisor(self.deployment, self.said.append)
        self._thread = threading.Thread(target=self.supervisor.run, args=(self._stop,), daemon=True)

    def __enter__(self) -> Site:
        self._thread.start()
        until(self.up)
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.clients.values():
            process.terminate()
        for process in self.clients.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._stop.set()
        self._thread.join(60)

    def up(self) -> bool:
        """Whether the server answers and knows its clients' keys, if it wants any."""
        control = Control(self.deployment)
        try:
            return set(self.names) <= set(control.nodes()) or self.deployment.insecure
        except BadInput:
            return False
        finally:
            control.close()

    def nodes(self) -> dict[str, str]:
        """Registered clients and whether they are online."""
        control = Control(self.deployment)
        try:
            return control.nodes()
        finally:
            control.close()

    def client(self, name: str, *flags: str, folder: Path | None = None) -> None:
        """Start a client's process."""
        place = folder or self.deployment.client(name)
        command = [sys.executable, "-m", "potluck.cli", "deploy", "client", "--folder", str(place), *flags]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (place / "client.log").open("ab") as log:
            self.clients[name] = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def kill(self, name: str) -> None:
        self.clients[name].kill()
        self.clients[name].wait()

    def log(self, name: str) -> str:
        return (self.deployment.client(name) / "client.log").read_text(errors="replace")

    def kill_part(self, name: str) -> None:
        """Kill one of the server's own processes."""
        part = next(part for part in self.supervisor.parts if part.name == name)
        assert part.process is not None
        os.kill(part.process.pid, signal.SIGKILL)

    def run(self, experiment: Experiment, clients: int | None = None) -> Path:
        return commands.start(self.deployment, experiment, clients, patience=LONG)

    def ended(self, folder: Path, seconds: float = LONG) -> Run:
        def over() -> bool:
            refused = folder / "refused.txt"
            assert not refused.exists(), refused.read_text()
            return finished(folder)

        until(over, seconds)
        until(lambda: (folder / "report.html").exists())
        return Run(folder)
