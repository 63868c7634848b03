"""`potluck doctor`: is everything here that runs need? Each line says ok, warn or fail, and the remedy."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from potluck.cli import flags, say

OK, WARN, FAIL = "ok", "warn", "fail"
_STYLE = {OK: "green", WARN: "yellow", FAIL: "bold red"}
_EXTRAS = {"pandas": "frames", "pyarrow": "frames", "seglearn": "demo", "flwr": "flower", "ray": "ray"}


@dataclass(frozen=True)
class Finding:
    what: str
    state: str
    detail: str
    fix: str = ""


def doctor(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="the folder that is to hold the runs")] = Path(
        "runs"
    ),
    deploy: Annotated[
        Path | None,
        typer.Option(
            "--deploy", metavar="DIR", help="a deployment's folder, or a client's: what keeps it from working"
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="PATH", help="with --deploy: the rows of a client to look at")
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """Check this machine: Python, torch, threads, memory, disk, data sets, extras, the folder for runs.

    With --deploy, check a deployment: versions, ports, certificates, keys, clocks, names in use, data paths. Exit
    status 1 where something essential is missing.
    """
    findings = list(examine(out)) if deploy is None else list(_deployment(deploy, data))
    if as_json:
        say.as_json([asdict(finding) for finding in findings])
    else:
        table = say.sheet("", "", "")
        table.show_header = False
        for finding in findings:
            detail = finding.detail if not finding.fix else f"{finding.detail}; {finding.fix}"
            table.add_row(Text(finding.state, style=_STYLE[finding.state]), finding.what, Text(detail))
        say.show(table)
    if any(finding.state == FAIL for finding in findings):
        raise typer.Exit(1)


def examine(out: Path) -> Iterator[Finding]:
    torch = _torch()
    yield from (_python(), torch, _threads(), _memory(), _disk(out))
    if torch.state == OK:  # Potluck's own parts need it
        yield from _data()
    yield from _extras()
    yield _writable(out)


def _deployment(folder: Path, data: str | None) -> Iterator[Finding]:
    from potluck.cli.deploy import installed

    installed()
    from potluck.deploy import doctor as deployed

    for found in deployed.examine(folder, data):
        yield Finding(found.what, found.state, found.detail, found.fix)


def _python() -> Finding:
    return Finding("python", OK, platform.python_version())  # an older one could not have installed this


def _torch() -> Finding:
    try:
        import torch
    except ImportError as error:
        return Finding("torch", FAIL, f"cannot be imported ({error})", "pip install torch")
    if not hasattr(torch, "func"):
        return Finding("torch", FAIL, torch.__version__, "2.6 or newer is needed: pip install -U torch")
    return Finding("torch", OK, torch.__version__)


def _threads() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Finding("cores", OK, f"{cores} usable; --workers {cores} uses {'it' if cores == 1 else 'them all'}")


def _memory() -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if total < 2e9:
        return Finding("memory", WARN, _gigabytes(total), "below 2 GB only small models and few clients fit")
    return Finding("memory", OK, _gigabytes(total))


def _gigabytes(nbytes: float) -> str:
    return f"{nbytes / 1e9:.1f} GB"


def _disk(out: Path) -> Finding:
    free = shutil.disk_usage(_existing(out)).free
    if free < 5e7:
        return Finding(
            "disk",
            FAIL,
            f"{_gigabytes(free)} free",
            "a run needs some 50 MB: make room or choose another --out",
        )
    if free < 1e9:
        return Finding("disk", WARN, f"{_gigabytes(free)} free", "long runs with many clients write more than that")
    return Finding("disk", OK, f"{_gigabytes(free)} free")


def _data() -> Iterator[Finding]:
    from potluck.data import watch
    from potluck.data.load import find
    from potluck.data.public import PUBLIC

    here = [name for name in PUBLIC if find(name) is not None]
    if "watch_exercises" in here or watch.installed() is not None:
        yield Finding("demo data", OK, "watch_exercises is here")
    else:
        yield Finding(
            "demo data",
            WARN,
            "watch_exercises is not here",
            "pip install 'potluck[demo]' brings it for `potluck demo`",
        )
    detail = f"{len(here)} of {len(PUBLIC)} public sets on this machine"
    fix = "" if here else "see `potluck datasets`; data of your own needs none of them"
    yield Finding("data sets", OK if here else WARN, detail, fix)


def _extras() -> Iterator[Finding]:
    for package, extra in _EXTRAS.items():
        if importlib.util.find_spec(package) is not None:
            yield Finding(package, OK, f"the extra {extra}")
        else:
            yield Finding(package, WARN, "not installed", f"pip install 'potluck[{extra}]' adds it")


def _writable(out: Path) -> Finding:
    """Tried, not asked: permission bits do not tell about read-only disks."""
    place = _existing(out)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        return Finding("runs folder", FAIL, f"{place} cannot be written ({reason})", "choose another folder with --out")
    return Finding("runs folder", OK, f"{out} can be written" if place == out else f"{out} can be made in {place}")


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    path = path.absolute() if not path.exists() else path
    while not path.exists():
        path = path.parent
    return path
