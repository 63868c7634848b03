"""Keeps the server's processes running: SuperLink, launcher of server programs, gateway.

The SuperLink keeps its state in a database and the launcher is a separate process, so a run survives when the SuperLink
is killed. A server program that dies is started again and continues from its checkpoint.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from potluck.deploy import rights
from potluck.deploy.layout import LOOPBACK, SERVER_LOCK, Deployment, free, held, holder, reached
from potluck.deploy.server.app import LOCK, REFUSED
from potluck.deploy.server.control import Control, flower_key
from potluck.deploy.server.limits import KNOWN
from potluck.errors import BadInput, Code
from potluck.files import write_json

CHECK_EVERY = 2.0  # seconds between two checks of the processes
MOST = 20  # how often the server program of one run is started at most
STARTING = 120.0  # seconds that a server program has to start


@dataclass
class Part:
    """A process that must run."""

    name: str
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


def program(name: str) -> str:
    """The path of a command that was installed with this Python."""
    return str(Path(sys.executable).parent / name)


def parts_of(deployment: Deployment) -> list[Part]:
    """The three processes of a server, in the order in which they start."""
    return [
        Part("superlink", _superlink(deployment)),
        Part("launcher", _launcher(deployment)),
        Part("gateway", _gateway(deployment)),
    ]


def _superlink(deployment: Deployment) -> list[str]:
    server = deployment.server.resolve()
    host, _, port = deployment.control.rpartition(":")
    command = [program("flower-superlink"), *_secret(deployment), "--database", str(server / "state.db")]
    command += ["--isolation", "process", "--host", host, "--port", port, "--disable-runtime-dependency-installation"]
    if deployment.insecure:
        return [*command, "--insecure"]
    command += ["--ssl-ca-certfile", str(server / "ca.crt"), "--ssl-certfile", str(server / "server.pem")]
    return [*command, "--ssl-keyfile", str(server / "server.key"), "--enable-supernode-auth"]


def _launcher(deployment: Deployment) -> list[str]:
    """The process that starts server programs."""
    authority = str(deployment.server.resolve() / "ca.crt")
    trust = ["--insecure"] if deployment.insecure else ["--root-certificates", authority]
    address = ["--runtime-api-address", _near(deployment.control)]
    return [program("flower-superexec"), *trust, *_secret(deployment), *address]


def _gateway(deployment: Deployment) -> list[str]:
    command = [sys.executable, "-m", "potluck.deploy.server.gateway"]
    command += ["--bind", deployment.bind, "--port", str(deployment.port), "--target", _near(deployment.control)]
    return command if deployment.insecure else [*command, "--certificates", str(deployment.server.resolve())]


def _secret(deployment: Deployment) -> list[str]:
    return ["--superexec-auth-secret-file", str(deployment.server.resolve() / "superexec.secret")]


def _near(control: str) -> str:
    """The SuperLink's address on its own machine."""
    host, _, port = control.rpartition(":")
    return f"{LOOPBACK if host == '0.0.0.0' else host}:{port}"


@dataclass
class Supervisor:
    """Starts the processes, starts them again when they end, and stops them."""

    deployment: Deployment
    say: Callable[[str], None]
    parts: list[Part] = field(default_factory=list)
    _registered: dict[str, bytes] | None = None  # the clients that may connect, as the SuperLink knows them

    def run(self, stop: threading.Event) -> None:
        """Keep everything running until `stop` is set; then stop it in the opposite order."""
        for host, port in ((self.deployment.bind, self.deployment.port), (self.deployment.control_host, self._port)):
            if not free(host, port):
                raise BadInput(
                    Code.PORT,
                    f"deploy: port {port} on {host} is in use. Stop what listens there, or choose another with --port.",
                )
        self.parts = parts_of(self.deployment)
        with held(self.deployment.server / SERVER_LOCK):
            try:
                while not stop.wait(0.0 if not any(part.starts for part in self.parts) else CHECK_EVERY):
                    self._tend()
            finally:
                for part in reversed(self.parts):
                    _end(part)
                (self.deployment.server / "processes.json").unlink(missing_ok=True)

    @property
    def _port(self) -> int:
        return self.deployment.port + 1

    def _tend(self) -> None:
        changed = False
        for part in self.parts:
            if not part.alive():
                self._start(part)
                changed = True
        if changed:
            alive = {part.name: part.process.pid for part in self.parts if part.process is not None}
            write_json(self.deployment.server / "processes.json", alive)
        wanted = {} if self.deployment.insecure else rights.allowed(self.deployment)
        runs = runs_of(self.deployment)
        # A server program that holds its lock is well. The SuperLink is busy enough, so it is asked only otherwise.
        unsure = any(not one["over"] and holder(Path(path) / LOCK) is None for path, one in runs.items())
        other = not self.deployment.insecure and wanted != self._registered
        if not (other or unsure) or reached(_near(self.deployment.control)):
            return
        try:
            control = Control(self.deployment)
            try:
                if other:
                    self._register(control, wanted)
                self._keep(control, runs)
            finally:
                control.close()
        except BadInput as error:
            self.say(error.told)

    def _start(self, part: Part) -> None:
        if part.starts:
            code = part.process.returncode if part.process is not None else "?"
            self.say(f"{part.name} ended (status {code}) and is started again")
            time.sleep(min(5.0, 0.5 * part.starts))
        logs = self.deployment.server / "logs"
        logs.mkdir(exist_ok=True)
        with (logs / f"{part.name}.log").open("ab") as log:
            part.process = subprocess.Popen(
                part.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.deployment.environment,
                start_new_session=True,
            )
        part.starts += 1

    def _register(self, control: Control, wanted: dict[str, bytes]) -> None:
        """Register new keys, and take the registration of those away that were revoked, replaced or have expired."""
        keys = {flower_key(public): name for name, public in wanted.items()}
        known, ours = control.keys(), {*self.deployment.names, *rights.read(self.deployment)}
        for key, (node, name) in known.items():
            if key not in keys and name in ours:  # a folder that was moved to its machine says nothing
                control.unregister(node)
                self.say(f"{name} may no longer connect with its old key")
        for key, name in keys.items():
            if key not in known:
                control.register(name, key)
                self.say(f"{name} is registered and may connect with its key")
        there = control.keys()
        write_json(self.deployment.server / KNOWN, sorted(key.hex() for key in there))
        self._registered = wanted

    def _keep(self, control: Control, runs: dict[str, Any]) -> None:
        """Start server programs again that died before their runs were finished."""
        before = json.dumps(runs)
        pending = {folder: one for folder, one in runs.items() if not one["over"]}
        if not pending:
            return
        status = {run.number: run.status for run in control.runs()}
        for path, one in pending.items():
            folder, now = Path(path), status.get(one["number"], "gone")
            if finished(folder) or (folder / REFUSED).exists() or now == "finished:stopped":
                one["over"] = True
            elif now.startswith("finished") or now == "gone" or (now == "running" and _orphaned(folder, one["at"])):
                if one["starts"] >= MOST:
                    one["over"] = True
                    self.say(f"{folder.name}: its server program died {MOST} times and is not started again")
                else:
                    if now == "running":
                        control.stop(one["number"])
                    one["number"], one["starts"], one["at"] = control.start(folder), one["starts"] + 1, time.time()
                    self.say(f"{folder.name}: its server program died and is started again")
        if json.dumps(runs) != before:
            write_json(self.deployment.server / "runs.json", runs)


def runs_of(deployment: Deployment) -> dict[str, Any]:
    """The runs of this deployment: folder -> Flower's number, how often it was started, whether it is over."""
    path = deployment.server / "runs.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def finished(folder: Path) -> bool:
    """Whether a run is finished, and was not interrupted."""
    path = folder / "summary.json"
    return path.exists() and json.loads(path.read_text(encoding="utf-8"))["ended"] != "interrupted"


def _orphaned(folder: Path, started: float) -> bool:
    """Whether the server program of a run was killed: it had time to take the run's lock, and no process holds it."""
    return time.time() - started > STARTING and holder(folder / LOCK) is None


def _end(part: Part) -> None:
    if part.process is None or not part.alive():
        return
    part.process.terminate()
    try:
        part.process.wait(10.0)
    except subprocess.TimeoutExpired:
        part.process.kill()
        part.process.wait()
