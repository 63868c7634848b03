"""`potluck deploy keys`, `revoke` and `rotate`: which clients may connect, and until when."""

from __future__ import annotations

from typing import Annotated

import typer

from potluck.cli import flags, text
from potluck.cli.deploy import HERE, Folder, app, installed

Client = Annotated[str, typer.Argument(metavar="NAME", help="name of a client")]


@app.command(epilog="Example: potluck deploy keys")
def keys(folder: Folder = HERE, as_json: flags.Json = False) -> None:
    """List the clients' keys: valid, revoked or expired, and until when."""
    installed()
    from potluck.deploy import rights
    from potluck.deploy.layout import Deployment

    deployment = Deployment.read(folder)
    limits = rights.read(deployment)
    found = {
        name: {"state": rights.state(limits.get(name, {})), "until": limits.get(name, {}).get("until")}
        for name in deployment.names
    }
    if as_json:
        text.as_json(found)
        return
    table = text.sheet("client", "key", "until")
    for name, one in found.items():
        table.add_row(name, one["state"], one["until"] or "")
    text.show(table)


@app.command(epilog="Example: potluck deploy revoke s01")
def revoke(name: Client, folder: Folder = HERE) -> None:
    """Let a client's key connect no more: a running server turns it away within seconds. Runs go on without it."""
    installed()
    from potluck.deploy import rights
    from potluck.deploy.layout import Deployment

    rights.revoke(Deployment.read(folder), name)
    text.line(f"{name}: its key is revoked; `potluck deploy rotate {name}` makes a new one")


@app.command(epilog="Example: potluck deploy rotate s01 --days 90")
def rotate(name: Client, folder: Folder = HERE, days: flags.Days = None) -> None:
    """Make a new key for a client, also for one whose key was revoked or has expired. The old key ends."""
    installed()
    from potluck.deploy import rights
    from potluck.deploy.layout import Deployment

    place = rights.rotate(Deployment.read(folder), name, days)
    text.line(f"{name}: has a new key; copy {place / 'key'} and key.pub to its machine and start the client again")
