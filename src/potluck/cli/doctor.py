"""`potluck doctor`: check what runs need. Each line says ok, info, warn or fail, and the remedy."""

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
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="folder that will hold the runs")] = Path("runs"),
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="NAME|PATH", help="also check this data; with --deploy, the samples of a client"
        ),
    ] = None,
    deploy: Annotated[
        Path | None,
        typer.Option(
            "--deploy", metavar="DIR", help="check this deployment instead: its folder, or the folder of a client"
        ),
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """Check this machine: installation, memory, disk, data, extras, firmware tools and ports. Name the remedies.

    "info" marks optional parts that are not installed, with the command that adds them. With --deploy, check a
    deployment: versions, ports, certificates, keys, clocks, names in use, data paths. The exit status is 1 if something
    essential is missing.
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
