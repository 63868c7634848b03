"""`potluck deploy unit`: a service for systemd."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from potluck.cli.deploy import HERE, Folder, app, installed
from potluck.errors import Code, unknown

KINDS = ("server", "client")


@app.command(
    epilog="Example: potluck deploy unit client --folder kitchen | sudo tee /etc/systemd/system/potluck.service"
)
def unit(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="server or client")],
    folder: Folder = HERE,
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="account that the service runs as (default: yours)")
    ] = None,
    runs: Annotated[
        Path | None, typer.Option("--runs", metavar="DIR", help="server: the folder that holds the runs")
    ] = None,
) -> None:
    """Print a service unit for systemd: the server or a client then starts with this machine.

    --folder is the deployment's folder on the server, and the client's own folder on a client.
    """
    installed()
    from potluck.deploy.layout import ClientFolder, Deployment
    from potluck.deploy.units import unit as text_of

    if what not in KINDS:
        raise unknown(Code.FLAG_VALUE, "WHAT", what, KINDS)
    if what == "server":
        Deployment.read(folder)
    name = "" if what == "server" else ClientFolder.read(folder).name
    typer.echo(text_of(what, folder, name, user, runs), nl=False)
