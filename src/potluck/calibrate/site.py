"""Real processes on this machine: a server with TLS and keys, and clients behind proxies with a share of a core."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from potluck.calibrate.plan import Client
from potluck.calibrate.proxy import Proxies, Proxy
from potluck.calibrate.throttle import Throttle, throttle
from potluck.deploy import commands
from potluck.deploy.layout import LOOPBACK, ClientFolder, Deployment
from potluck.deploy.server.control import Control
from potluck.deploy.server.supervisor import Supervisor, finished, program
from potluck.errors import BadInput, Code
from potluck.runs.experiment import Experiment
from potluck.runs.results import Run

STARTING = 600.0  # seconds that server and clients have to start; a machine with other work is slow
MOST = 1800.0  # seconds of one run
ALONE = {"OMP_NUM_THREADS": "1", "POTLUCK_COMPILED": "0"}  # a device without the extra `fast`


class Site:
    """A deployment that exists while the block runs."""

    def __init__(
        self, folder: Path, experiment: Experiment, clients: Sequence[Client], say: Callable[[str], None]
    ) -> None:
        self.folder, self.clients, self._say = folder, clients, say
        self.deployment = Deployment(folder / "deploy", port=two_ports())
        self.names = commands.make(self.deployment, [], experiment)
        if len(self.names) != len(clients):
            raise BadInput(
                Code.COHORT,
                f"calibrate: the experiment has {len(self.names)} clients, there are limits for {len(clients)}.",
            )
        server = (LOOPBACK, self.deployment.port)
        self.proxies = Proxies(
            {
                name: Proxy(server, client.up, client.down, place)
                for place, (name, client) in enumerate(zip(self.names, clients, strict=True))
            }
        )
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.throttles: dict[str, Throttle] = {}
        self._stop = threading.Event()
        self._supervisor = Supervisor(self.deployment, say)
        self._thread = threading.Thread(target=self._supervisor.run, args=(self._stop,), daemon=True)

    def __enter__(self) -> Site:
        try:
            self.proxies.__enter__()
            self._thread.start()
            self._until(self._up, STARTING, "the server did not start")
            self._say("server is up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._end_clients()
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(60)
        self.proxies.__exit__()

    @property
    def limited_by(self) -> str:
        return next(iter(self.throttles.values())).name

    def run(self, experiment: Experiment) -> Run:
        """Carry out an experiment in new client processes, and wait for its end.

        A process keeps what an earlier run took: its memory would be that of all runs before.
        """
        self._end_clients()
        self._until(lambda: not self._online(), STARTING, "clients of an earlier run stayed online")
        for name in self.names:
            self._start(name)
        self._until(lambda: self._online() >= set(self.names), STARTING, "not all clients came online")
        for name, client in zip(self.names, self.clients, strict=True):
            self.throttles[name] = throttle(self.processes[name].pid, client.share)
            forget_peak(self.processes[name].pid)
        folder = commands.start(self.deployment, experiment, len(self.names), patience=STARTING)

        def over() -> bool:
            refused = folder / "refused.txt"
            if refused.exists():
                raise BadInput(Code.DEPLOY_SERVER, f"calibrate: {refused.read_text(encoding='utf-8').strip()}")
            dead = [name for name, process in self.processes.items() if process.poll() is not None]
            if dead:
                raise BadInput(Code.DEPLOY_SERVER, f"calibrate: the process of client {dead[0]} ended.")
            return finished(folder)

        self._until(over, MOST, f"{folder.name} did not end")
        return Run(folder)

    def peaks(self) -> dict[str, int]:
        """The most memory of each client's process since the run began."""
        return {name: peak(process.pid) for name, process in self.processes.items()}

    def moved(self) -> dict[str, tuple[int, int]]:
        """The bytes that went through each client's proxy, up and down."""
        return {name: (proxy.bytes_up, proxy.bytes_down) for name, proxy in self.proxies.proxies.items()}

    def _end_clients(self) -> None:
        for one in self.throttles.values():
            one.close()
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.throttles.clear()
        self.processes.clear()

    def _start(self, name: str) -> None:
        place = self.deployment.client(name)
        found = ClientFolder.read(place)
        replace(found, server=f"{LOOPBACK}:{self.proxies.proxies[name].port}").write()
        command = [program("potluck"), "deploy", "client", "--folder", str(place)]
        with (place / "client.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **ALONE}
            )

    def _control(self, ask: Callable[[Control], Any]) -> Any:
        control = Control(self.deployment)
        try:
            return ask(control)
        except BadInput:
            return None
        finally:
            control.close()

    def _up(self) -> bool:
        return set(self.names) <= set(self._control(lambda control: control.nodes()) or ())

    def _online(self) -> set[str]:
        found = self._control(lambda control: control.nodes()) or {}
        return {name for name, state in found.items() if state == "online"}

    def _until(self, so: Callable[[], bool], seconds: float, otherwise: str) -> None:
        end = time.monotonic() + seconds
        while not so():
            if time.monotonic() > end:
                raise BadInput(Code.DEPLOY_SERVER, f"calibrate: {otherwise} within {seconds:g} seconds.")
            time.sleep(0.5)


def forget_peak(process: int) -> None:
    """Let the kernel forget the most memory that a process had; where it will not, the peak is since the start."""
    with suppress(OSError):
        Path(f"/proc/{process}/clear_refs").write_text("5")


def peak(process: int) -> int:
    """The most bytes of memory that a process had."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def two_ports() -> int:
    """A free port whose next one is free, too."""
    for _ in range(50):
        with socket.socket() as one, socket.socket() as other:
            one.bind((LOOPBACK, 0))
            port = int(one.getsockname()[1])
            try:
                other.bind((LOOPBACK, port + 1))
            except OSError:
                continue
            if port < 65_000:
                return port
    raise BadInput(Code.PORT, "calibrate: no two free ports next to each other.")
