"""Which clients may connect: those whose key was not revoked and has not expired.

server/keys.json has a line for each client with a limit. The supervisor reads it every few seconds, and takes away the
registration of a key that may no longer connect.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from potluck import files
from potluck.deploy import keys
from potluck.deploy.layout import Deployment
from potluck.errors import BadInput, Code, must_be, unknown

FILE = "keys.json"
LONGEST = 3650  # days


def read(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """For each client with a limit: `until` (a moment, or nothing) and `revoked`."""
    path = deployment.server / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def allowed(deployment: Deployment, now: datetime.datetime | None = None) -> dict[str, bytes]:
    """The clients that may connect, each with its public key."""
    limits, now = read(deployment), now or _now()
    found = {}
    for name in deployment.names:
        public = deployment.client(name) / "key.pub"
        if state(limits.get(name, {}), now) == "valid" and public.is_file():
            found[name] = public.read_bytes()
    return found


def state(limit: dict[str, Any], now: datetime.datetime | None = None) -> str:
    """valid, revoked or expired."""
    if limit.get("revoked"):
        return "revoked"
    until = limit.get("until")
    return "expired" if until and datetime.datetime.fromisoformat(until) <= (now or _now()) else "valid"


def revoke(deployment: Deployment, name: str) -> None:
    """Let a client's key connect no more. Flower never takes that key again: to let the client back, rotate it."""
    _check(deployment, name)
    limits = read(deployment)
    limits[name] = {**limits.get(name, {}), "revoked": _now().isoformat(timespec="seconds")}
    files.write_json(deployment.server / FILE, limits)


def rotate(deployment: Deployment, name: str, days: int | None = None) -> Path:
    """Make a new key for a client; the old one connects no more. Return the client's folder."""
    _check(deployment, name)
    folder = deployment.client(name)
    (folder / "key").unlink(missing_ok=True)
    keys.client(folder)
    expire(deployment, [name], days)
    return folder


def expire(deployment: Deployment, names: list[str], days: int | None) -> None:
    """Let the keys of these clients end after so many days, or never; they are as new."""
    check_days(days, deployment.insecure)
    limits = read(deployment)
    if days is None and not limits.keys() & names:
        return
    for name in names:
        limits.pop(name, None)
        if days is not None:
            limits[name] = {"until": (_now() + datetime.timedelta(days=days)).isoformat(timespec="seconds")}
    files.write_json(deployment.server / FILE, limits)


def check_days(days: int | None, insecure: bool) -> None:
    if days is not None and not 1 <= days <= LONGEST:
        raise must_be(Code.FLAG_VALUE, "--days", f"1 to {LONGEST}", days)
    if days is not None and insecure:
        raise BadInput(Code.FLAG_VALUE, "--days: must not be given with --insecure, which makes no keys.")


def _check(deployment: Deployment, name: str) -> None:
    if deployment.insecure:
        raise BadInput(Code.DEPLOY_NAME, "deploy: this deployment is insecure and has no keys.")
    if name not in deployment.names:
        raise unknown(Code.DEPLOY_NAME, "client", name, deployment.names)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
