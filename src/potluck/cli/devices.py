"""`potluck devices`: devices, links and fleets, and the source of each figure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from potluck.cli import text


def devices(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="show this device or link, with the source of each figure")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE.toml", help="also list your own devices and links"),
    ] = None,
) -> None:
    """List devices, links and fleets. With a name, show one of them and the source of each figure."""
    from potluck import devices as catalogue

    own_devices, own_links = ({}, {}) if file is None else catalogue.read_devices(file)
    shown = catalogue.table(own_devices, own_links) if name is None else catalogue.details(name, own_devices, own_links)
    text.show(shown)
