"""Where a deployment keeps its things, and how its parts find each other.

deploy/
  deploy.toml           addresses and ports
  server/               certificates, the SuperLink's database, logs; stays on the server's machine
  clients/<name>/       what a client's machine needs: the authority's certificate, its own key, where the server is
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from potluck.errors import BadInput, Code
from potluck.files import write_text
from potluck.runs.experiment import to_toml

PORT = 9092
LOOPBACK = "127.0.0.1"
SERVER_LOCK = ".lock"
# Telemetry and update checks off, nothing installed on its own; a look for tasks costs the SuperLink 30 ms.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "1.5",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}


@dataclass(frozen=True)
class Deployment:
    """A server's side, as `deploy init` made it."""

    folder: Path
    host: str = LOOPBACK  # where clients reach the server
    port: int = PORT  # of the gateway, the only one that clients need
    control_host: str = LOOPBACK  # where runs are started from
    insecure: bool = False

    @property
    def control(self) -> str:
        """The SuperLink itself: commands, the server program, and the gateway behind which the clients are."""
        return f"{self.control_host}:{self.port + 1}"

    @property
    def bind(self) -> str:
        """What the gateway listens on: loopback stays loopback, everything else is every address of the machine."""
        return LOOPBACK if self.host in (LOOPBACK, "localhost") else "0.0.0.0"

    @property
    def server(self) -> Path:
        return self.folder / "server"

    @property
    def authority(self) -> Path | None:
        return None if self.insecure else self.server / "ca.crt"

    @property
    def environment(self) -> dict[str, str]:
        return flower_environment(self.server / "flower")

    def client(self, name: str) -> Path:
        return self.folder / "clients" / name

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "clients").glob("*") if (path / "client.toml").is_file())

    def write(self) -> None:
        values = {"host": self.host, "port": self.port, "control_host": self.control_host, "insecure": self.insecure}
        write_text(self.folder / "deploy.toml", to_toml({"deploy": values}))

    @classmethod
    def read(cls, folder: Path) -> Deployment:
        told = _table(
            folder / "deploy.toml", "deploy", {"host": str, "port": int, "control_host": str, "insecure": bool}
        )
        return cls(folder, **told)


@dataclass(frozen=True)
class ClientFolder:
    """A client's side: the folder that was copied to its machine."""

    folder: Path
    name: str
    server: str  # host:port
    insecure: bool

    @property
    def authority(self) -> Path | None:
        return None if self.insecure else self.folder / "ca.crt"

    @property
    def key(self) -> Path | None:
        return None if self.insecure else self.folder / "key"

    def write(self) -> None:
        values = {"name": self.name, "server": self.server, "insecure": self.insecure}
        write_text(self.folder / "client.toml", to_toml({"client": values}))

    @classmethod
    def read(cls, folder: Path) -> ClientFolder:
        return cls(folder, **_table(folder / "client.toml", "client", {"name": str, "server": str, "insecure": bool}))


def _table(path: Path, section: str, kinds: Mapping[str, type]) -> dict[str, Any]:
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8")).get(section, {})
    except FileNotFoundError:
        made = "`potluck deploy init` makes one" if section == "deploy" else "copy it from the server's clients/ folder"
        raise BadInput(Code.DEPLOY_FOLDER, f"deploy: there is no {path}; {made}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(Code.DEPLOY_FOLDER, f"deploy: {path} is not valid TOML ({error}).") from None
    for name, kind in kinds.items():
        if not isinstance(told.get(name), kind):
            raise BadInput(
                Code.DEPLOY_FOLDER, f"{path}: {section}.{name} is {told.get(name)!r}, a {kind.__name__} is needed."
            )
    return {name: told[name] for name in kinds}


def flower_environment(home: Path) -> dict[str, str]:
    """For Flower's processes: quiet, with a home of their own, and with the commands that it starts on the path."""
    beside = str(Path(sys.executable).parent)
    path = f"{beside}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, **QUIET, "PATH": path, "FLWR_HOME": str(home.resolve())}


@contextmanager
def held(path: Path) -> Iterator[None]:
    """A lock with the holder's process id in it: it goes with the process, however that ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(
                Code.BUSY, f"deploy: another process already serves {str(path.parent)!r} (its id: {holder(path)})."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def holder(path: Path) -> int | None:
    """The process that holds a lock, if one does."""
    try:
        with path.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = file.read().strip()
                return int(text) if text.isdecimal() else 0
    except FileNotFoundError:
        pass
    return None


def free(host: str, port: int) -> bool:
    """Whether nobody listens there yet."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((host, port))
        except OSError:
            return False
    return True


def reached(address: str, seconds: float = 2.0) -> str | None:
    """None where somebody answers there, else what went wrong."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=seconds):
            return None
    except (OSError, ValueError) as error:
        return str(error)
