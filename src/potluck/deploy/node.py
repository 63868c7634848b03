"""A client's process: it stays on the line, comes back under its name after a restart, and says what keeps it out."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx

from potluck.deploy.holding import read
from potluck.deploy.household import Household, Owner
from potluck.deploy.places import Place, held
from potluck.deploy.trouble import cause
from potluck.engines.flower.node import Connection, Line, NotLetIn, Worker
from potluck.errors import BadInput, Code
from potluck.files import write_json

AGAIN = 5.0  # seconds between tries to get on the line
FINAL = ("wrong authority", "version")  # trying again changes nothing


def write_owner(path: Path, owner: Owner) -> None:
    write_json(path, {**asdict(owner), "home": str(owner.home), "allow": list(owner.allow)})


def read_owner(path: Path) -> Owner:
    try:
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Owner(**{**told, "home": Path(told["home"]), "allow": tuple(told["allow"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(Code.DEPLOY_FOLDER, f"deploy: {path} does not say who owns this machine ({error}).") from None


def serve(place: Place, owner: Owner, stop: threading.Event, say: Callable[[str], None]) -> None:
    """Until told to stop; what trying again cannot mend is raised."""
    read(owner.data)  # before anything else: a missing file is the owner's to mend
    household = Household(owner)
    owner.home.mkdir(parents=True, exist_ok=True)
    line = Line(place.server, place.authority, place.key)
    with held(owner.home / ".lock"):  # two processes must not write the same private state
        while not stop.is_set():
            connection = Connection(line, stop)
            try:
                node = connection.activate(_last(owner.home))
                write_json(owner.home / "node.json", {"node": node})
                say(f"{owner.name}: on the line with {place.server}")
                Worker(connection, household.handle, say).serve(stop)
            except ConnectionError:
                return  # told to stop
            except (httpx.TransportError, NotLetIn) as error:
                found = cause(error, place)
                if found.kind in FINAL:
                    raise BadInput(found.code, f"deploy: {found.sentence}") from None
                say(f"{found.sentence} Trying again.")
                stop.wait(AGAIN)
            finally:
                connection.close()
        (owner.home / "node.json").unlink(missing_ok=True)


def _last(home: Path) -> int | None:
    """The id under which a killed process of this machine may still be listed."""
    path = home / "node.json"
    return int(json.loads(path.read_text(encoding="utf-8"))["node"]) if path.exists() else None
