"""`potluck doctor`: is everything here that runs need? Each line says ok, info, warn or fail, and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from potluck.cli import flags, text
from potluck.cli.doctor_checks import examine
from potluck.deploy.findings import FAIL, INFO, OK, WARN, Finding

_STYLE = {OK: "green", INFO: "dim", WARN: "yellow", FAIL: "bold red"}


def doctor(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="the folder that is to hold the runs")] = Path(
        "runs"
    ),
    data: Annotated[
        str | None, typer.Option("--data", metavar="NAME|PATH", help="data to look at; with --deploy a client's rows")
    ] = None,
    deploy: Annotated[
        Path | None,
        typer.Option(
            "--deploy", metavar="DIR", help="a deployment's folder, or a client's: what keeps it from working"
        ),
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """Check this machine: install, memory, disk, data, extras, the firmware's tools, ports; and name the remedies.

    `info` is what is not here and only some need, with the command that adds it. With --deploy, check a deployment:
    versions, ports, certificates, keys, clocks, names in use, data paths. Exit status 1 where something essential is
    missing.
    """
    findings = list(examine(out, data)) if deploy is None else list(_deployment(deploy, data))
    if as_json:
        text.as_json([asdict(finding) for finding in findings])
    else:
        table = text.sheet("", "", "")
        table.show_header = False
        for finding in findings:
            detail = finding.detail if not finding.fix else f"{finding.detail.rstrip('.')}; {finding.fix}"
            table.add_row(Text(finding.state, style=_STYLE[finding.state]), finding.what, Text(detail))
        text.show(table)
    if any(finding.state == FAIL for finding in findings):
        raise typer.Exit(1)


def _deployment(folder: Path, data: str | None) -> Iterator[Finding]:
    from potluck.cli.deploy import installed

    installed()
    from potluck.deploy import doctor as deployed

    yield from deployed.examine(folder, data)
