"""The process of `potluck deploy client`: it stays connected, and after a restart comes back under its name."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import httpx

from potluck.deploy.client.diagnosis import cause
from potluck.deploy.client.machine import ClientMachine
from potluck.deploy.client.owner import Owner
from potluck.deploy.client.rows import check_file
from potluck.deploy.layout import ClientFolder, held
from potluck.engines.flower.client.connection import Connection, MessageLoop, NotLetIn, ServerAddress
from potluck.errors import BadInput
from potluck.files import make_folder, write_json

AGAIN = 5.0  # seconds between two tries to connect
FINAL = ("wrong authority", "version")  # trying again changes nothing


def serve(folder: ClientFolder, owner: Owner, stop: threading.Event, say: Callable[[str], None]) -> None:
    """Serve until `stop` is set. Trouble that trying again cannot end raises BadInput."""
    check_file(owner.data, owner.reading, say)  # before anything else: a missing file is for the owner to fix
    machine = ClientMachine(owner)
    make_folder(owner.home, private=True)
    server = ServerAddress(folder.server, folder.authority, folder.key)
    with held(owner.home / ".lock"):  # two processes must not write the same private state
        while not stop.is_set():
            connection = Connection(server, stop)
            try:
                node = connection.activate(_last_node(owner.home))
                write_json(owner.home / "node.json", {"node": node})
                say(f"{owner.name}: connected to {folder.server}")
                MessageLoop(connection, machine.handle, say).run(stop)
            except ConnectionError:
                return  # `stop` is set
            except (httpx.TransportError, NotLetIn) as error:
                found = cause(error, folder)
                if found.kind in FINAL:
                    raise BadInput(found.code, f"deploy: {found.sentence}") from None
                say(f"{found.sentence} Trying again.")
                stop.wait(AGAIN)
            finally:
                connection.close()
        (owner.home / "node.json").unlink(missing_ok=True)


def _last_node(home: Path) -> int | None:
    """The id under which a killed process of this machine may still be listed."""
    path = home / "node.json"
    return int(json.loads(path.read_text(encoding="utf-8"))["node"]) if path.exists() else None
