"""Flower's own SuperNode for a client: supported, but slower, because every message starts a process."""

from __future__ import annotations

import socket
import subprocess
import threading
from pathlib import Path

from potluck.deploy.layout import ClientFolder, flower_environment, held
from potluck.deploy.server.supervisor import program
from potluck.errors import BadInput, Code


def supernode(place: ClientFolder, home: Path, stop: threading.Event) -> None:
    """Run the SuperNode until `stop` is set."""
    command = [program("flower-supernode"), "--superlink", place.server, "--host", "127.0.0.1", "--port", str(_port())]
    command += ["--node-config", f'owner="{home / "owner.json"}"']
    if place.insecure:
        command += ["--insecure"]
    else:
        command += ["--root-certificates", str(place.authority), "--auth-supernode-private-key", str(place.key)]
    environment = flower_environment(home / "flower")
    with held(home / ".lock"):
        node = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
        try:
            while not stop.wait(0.5):
                if node.poll() is not None:
                    raise BadInput(
                        Code.DEPLOY_SERVER,
                        f"deploy: Flower's SuperNode ended with status {node.returncode}. Its log says why.",
                    )
        finally:
            if node.poll() is None:
                node.terminate()
                node.wait(30.0)


def _port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
