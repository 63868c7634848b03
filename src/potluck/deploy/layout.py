"""The folders of a deployment, and how its processes find each other.

deploy/
  deploy.toml           addresses and ports
  server/               certificates, the SuperLink's database, logs; it stays on the server
  clients/<name>/       what a client machine needs: the authority's certificate, its key, the server's address
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from potluck.errors import BadInput, Code, must_be, unknown
from potluck.files import lock, write_text
from potluck.runs.experiment import to_toml

PORT = 9092
LOOPBACK = "127.0.0.1"
SERVER_LOCK = ".lock"
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
# No telemetry, no update checks, no automatic installation. Each poll for tasks costs the SuperLink 30 ms.
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
    """The server's folder, as `deploy init` made it."""

    folder: Path
    host: str = LOOPBACK  # the name or address that clients connect to
    port: int = PORT  # of the gateway, the only port that clients need
    control_host: str = LOOPBACK  # the address for commands
    insecure: bool = False

    @property
    def control(self) -> str:
        """The address of the SuperLink, for commands, server programs and the gateway."""
        return f"{self.control_host}:{self.port + 1}"

    @property
    def bind(self) -> str:
        """What the gateway listens on: loopback for a loopback host, otherwise all addresses of the machine."""
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
        values = _table(
            folder / "deploy.toml", "deploy", {"host": str, "port": int, "control_host": str, "insecure": bool}
        )
        return cls(folder, **values)


@dataclass(frozen=True)
class Start:
    """What a client starts with where its command says nothing; "" is the command's own default."""

    data: str = ""  # its samples, a path on its machine
    device: str = ""
    access_point: str = ""


@dataclass(frozen=True)
class ClientFolder:
    """The folder of one client, to be copied to its machine."""

    folder: Path
    name: str
    server: str  # host:port
    insecure: bool
    start: Start = Start()

    @property
    def authority(self) -> Path | None:
        return None if self.insecure else self.folder / "ca.crt"

    @property
    def key(self) -> Path | None:
        return None if self.insecure else self.folder / "key"

    def write(self) -> None:
        values = {"name": self.name, "server": self.server, "insecure": self.insecure}
        start = {key: value for key, value in asdict(self.start).items() if value}
        write_text(self.folder / "client.toml", to_toml({"client": values, **({"start": start} if start else {})}))

    @classmethod
    def read(cls, folder: Path) -> ClientFolder:
        path = folder / "client.toml"
        values = _table(path, "client", {"name": str, "server": str, "insecure": bool})
        start = tomllib.loads(path.read_text(encoding="utf-8")).get("start", {})
        known = {one.name for one in fields(Start)}
        for key, value in start.items() if isinstance(start, dict) else ():
            if key not in known:
                raise unknown(Code.DEPLOY_FOLDER, f"{path}: start", key, known)
            if not isinstance(value, str):
                raise BadInput(Code.DEPLOY_FOLDER, f"{path}: start.{key}: must be a str, got {value!r}.")
        return cls(folder, **values, start=Start(**start))


def _table(path: Path, section: str, kinds: Mapping[str, type]) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8")).get(section, {})
    except FileNotFoundError:
        remedy = (
            "`potluck deploy init` makes one" if section == "deploy" else "copy it from the server's clients/ folder"
        )
        raise BadInput(Code.DEPLOY_FOLDER, f"deploy: there is no {path}; {remedy}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(Code.DEPLOY_FOLDER, f"deploy: {path} is not valid TOML ({error}).") from None
    for name, kind in kinds.items():
        if not isinstance(values.get(name), kind):
            raise BadInput(
                Code.DEPLOY_FOLDER, f"{path}: {section}.{name}: must be a {kind.__name__}, got {values.get(name)!r}."
            )
    return {name: values[name] for name in kinds}


def flower_environment(home: Path) -> dict[str, str]:
    """The environment of Flower's processes: quiet, with their own home, and with Flower's commands on the path."""
    commands = str(Path(sys.executable).parent)
    path = f"{commands}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, **QUIET, "PATH": path, "FLWR_HOME": str(home.resolve())}


def check_host(flag: str, host: str) -> None:
    """Raise BadInput for what is neither an IPv4 address nor a host name in ASCII."""
    numeric = host.rpartition(".")[2].isdecimal()
    named = len(host) <= 253 and all(_LABEL.fullmatch(label) for label in host.split("."))
    if not named or (numeric and not _is_address(host)):
        raise must_be(Code.FLAG_VALUE, flag, "a host name in ASCII or an IPv4 address", host[:80])


def _is_address(host: str) -> bool:
    try:
        return bool(ipaddress.IPv4Address(host))
    except ValueError:
        return False


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock file with this process's id in it. The lock ends with the process, however that ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        if not lock(file):
            raise BadInput(Code.BUSY, f"deploy: process {holder(path)} already serves {str(path.parent)!r}.")
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def holder(path: Path) -> int | None:
    """The process that holds a lock, if one does."""
    try:
        with path.open("r+") as file:
            if not lock(file, shared=True):
                text = file.read().strip()
                return int(text) if text.isdecimal() else 0
    except FileNotFoundError:
        pass
    return None


def free(host: str, port: int) -> bool:
    """Whether no process listens there yet."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((host, port))
        except OSError:
            return False
    return True


def reached(address: str, seconds: float = 2.0) -> str | None:
    """None if the address answers, else what went wrong."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=seconds):
            return None
    except (OSError, ValueError) as error:
        return str(error)
