"""Commands to the SuperLink: register clients, start and stop server programs, list what is online."""

from __future__ import annotations

import hashlib
import ssl
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.error import FlowerError
from flwr.supercore.fab import Fab
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from potluck import __version__
from potluck.deploy.layout import Deployment
from potluck.errors import BadInput, Code

# The whole app bundle: two names. The code is installed on every machine, a bundle brings none.
BUNDLE = f"""[project]
name = "potluck-run"
version = "{__version__}"
dependencies = []

[tool.flwr.app]
publisher = "potluck"

[tool.flwr.app.components]
serverapp = "potluck.deploy.server.app:app"
clientapp = "potluck.deploy.client.app:app"

[tool.flwr.app.config]
folder = ""
"""


@dataclass(frozen=True)
class FlowerRun:
    number: int
    status: str  # pending, starting, running, finished:completed, finished:failed, finished:stopped


class Control:
    """A connection to the SuperLink, from the machine it runs on."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        root = deployment.authority
        self._client = ControlHttpClient.from_server_address(
            deployment.control, deployment.insecure, None if root is None else root.read_bytes(), []
        )

    def close(self) -> None:
        self._client.close()

    def start(self, folder: Path) -> int:
        """Start a server program for the run in this folder. Return Flower's number for it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Flower uses a deprecated name of pathspec
            content, _ = build_fab_from_files({"pyproject.toml": BUNDLE.encode()})
        fab = fab_to_proto(Fab(hashlib.sha256(content).hexdigest(), content, {}))
        config = user_config_to_proto({"folder": str(folder.resolve())})
        return int(self._asked(self._client.StartRun, StartRunRequest(fab=fab, override_config=config)).run_id)

    def stop(self, number: int) -> bool:
        return bool(self._asked(self._client.StopRun, StopRunRequest(run_id=number)).success)

    def runs(self) -> list[FlowerRun]:
        found = self._asked(self._client.ListRuns, ListRunsRequest()).run_dict
        return [FlowerRun(number, _status(run.status)) for number, run in sorted(found.items())]

    def nodes(self) -> dict[str, str]:
        """Registered names, and whether each is online, offline or was never online."""
        found = self._asked(self._client.ListNodes, ListNodesRequest()).nodes_info
        return {node.name or str(node.node_id): node.status for node in found if not node.unregistered_at}

    def keys(self) -> dict[bytes, tuple[int, str]]:
        """The keys that may connect: each with its node's number and name."""
        found = self._asked(self._client.ListNodes, ListNodesRequest()).nodes_info
        return {node.public_key: (node.node_id, node.name) for node in found if not node.unregistered_at}

    def register(self, name: str, key: bytes) -> None:
        self._asked(self._client.RegisterNode, RegisterNodeRequest(public_key=key, name=name))

    def unregister(self, node: int) -> None:
        """Let a node's key connect no more."""
        self._asked(self._client.UnregisterNode, UnregisterNodeRequest(node_id=node))

    def _asked(self, call: Any, request: Any) -> Any:
        try:
            return call(request)
        except httpx.HTTPStatusError as error:
            detail = FlowerError.from_json(error.response.text)
            text = error.response.text[:200] if detail is None else detail.message
            raise BadInput(
                Code.DEPLOY_SERVER, f"deploy: the SuperLink at {self._deployment.control} refused ({text})."
            ) from None
        except (httpx.TransportError, ssl.SSLError) as error:
            raise BadInput(
                Code.DEPLOY_SERVER,
                f"deploy: no server answers at {self._deployment.control} ({error}). Start `potluck deploy server`.",
            ) from None


def flower_key(public: bytes) -> bytes:
    """A public key of OpenSSH as Flower writes it."""
    key: Any = load_ssh_public_key(public)
    return public_key_to_bytes(key)


def _status(status: Any) -> str:
    return status.status if not status.sub_status else f"{status.status}:{status.sub_status}"
