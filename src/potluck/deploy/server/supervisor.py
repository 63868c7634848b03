"""The server's processes: SuperLink, launcher of server programs, gateway; started again when they die.

The SuperLink keeps its state in a database and the launcher is a process of its own: so a run survives a SuperLink that
is killed. A server program that died is started again and goes on from its checkpoint.
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

from potluck.deploy.layout import LOOPBACK, SERVER_LOCK, Deployment, free, held, holder, reached
from potluck.deploy.server.app import LOCK, REFUSED
from potluck.deploy.server.control import Control
from potluck.errors import BadInput, Code
from potluck.files import write_json

LOOK = 2.0  # seconds between looks at the processes
MOST = 20  # starts of one run
STARTING = 120.0  # seconds that a server program has to come up


@dataclass
class Part:
    """A process that is to be there."""

    name: str
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


def program(name: str) -> str:
    """A command that was installed beside this Python."""
    return str(Path(sys.executable).parent / name)


def parts_of(deployment: Deployment) -> list[Part]:
    server, control = deployment.server.resolve(), deployment.control
    tls = ["--insecure"] if deployment.insecure else [
        "--ssl-ca-certfile", str(server / "ca.crt"), "--ssl-certfile", str(server / "server.pem"),
        "--ssl-keyfile", str(server / "server.key"), "--enable-supernode-auth",
    ]  # fmt: skip
    trust = ["--insecure"] if deployment.insecure else ["--root-certificates", str(server / "ca.crt")]
    secret = ["--superexec-auth-secret-file", str(server / "superexec.secret")]
    host, _, port = control.rpartition(":")
    gateway = [
        sys.executable,
        "-m",
        "potluck.deploy.server.gateway",
        "--bind",
        deployment.bind,
        "--port",
        str(deployment.port),
    ]
    gateway += ["--target", _near(control)]
    if not deployment.insecure:
        gateway += ["--certificates", str(server)]
    return [
        Part(
            "superlink",
            [
                program("flower-superlink"), *tls, *secret, "--database", str(server / "state.db"),
                "--isolation", "process", "--host", host, "--port", port, "--disable-runtime-dependency-installation",
            ],
        ),
        Part("launcher", [program("flower-superexec"), *trust, *secret, "--runtime-api-address", _near(control)]),
        Part("gateway", gateway),
    ]  # fmt: skip


def _near(control: str) -> str:
    """The SuperLink as its own machine reaches it."""
    host, _, port = control.rpartition(":")
    return f"{LOOPBACK if host == '0.0.0.0' else host}:{port}"


@dataclass
class Supervisor:
    deployment: Deployment
    say: Callable[[str], None]
    parts: list[Part] = field(default_factory=list)
    _registered: set[str] = field(default_factory=set)

    def run(self, stop: threading.Event) -> None:
        """Until told to stop; then everything is stopped in the opposite order."""
        for host, port in ((self.deployment.bind, self.deployment.port), (self.deployment.control_host, self._port)):
            if not free(host, port):
                raise BadInput(
                    Code.PORT,
                    f"deploy: port {port} on {host} is taken; stop what listens there, or choose with --port.",
                )
        self.parts = parts_of(self.deployment)
        with held(self.deployment.server / SERVER_LOCK):
            try:
                while not stop.wait(0.0 if not any(part.starts for part in self.parts) else LOOK):
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
        fresh = [] if self.deployment.insecure else sorted(set(self.deployment.names) - self._registered)
        runs = runs_of(self.deployment)
        # A server program that holds its lock is well: the SuperLink, which is busy enough, is not asked.
        unsure = any(not one["over"] and holder(Path(place) / LOCK) is None for place, one in runs.items())
        if not (fresh or unsure) or reached(_near(self.deployment.control)):
            return
        try:
            control = Control(self.deployment)
            try:
                self._register(control, fresh)
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
                part.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.deployment.environment,
                start_new_session=True,
            )  # fmt: skip
        part.starts += 1

    def _register(self, control: Control, fresh: list[str]) -> None:
        """Clients whose folders were made since the last look."""
        known = control.nodes() if fresh else {}
        for name in fresh:
            if name not in known:
                control.register(name, self.deployment.client(name) / "key.pub")
                self.say(f"{name} may come in with its key")
            self._registered.add(name)

    def _keep(self, control: Control, runs: dict[str, Any]) -> None:
        """Start a server program again that died before its run was at its end."""
        before = json.dumps(runs)
        pending = {folder: one for folder, one in runs.items() if not one["over"]}
        if not pending:
            return
        status = {run.number: run.status for run in control.runs()}
        for place, one in pending.items():
            folder, now = Path(place), status.get(one["number"], "gone")
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
    """The runs that this deployment was given: folder -> Flower's number, how often started, whether it is over."""
    path = deployment.server / "runs.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def finished(folder: Path) -> bool:
    """Whether a run is at its end, and was not interrupted."""
    path = folder / "summary.json"
    return path.exists() and json.loads(path.read_text(encoding="utf-8"))["ended"] != "interrupted"


def _orphaned(folder: Path, started: float) -> bool:
    """Whether nobody holds a run's lock that has had time to be taken: its process was killed."""
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
