"""`potluck watch`: the live page of runs."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from potluck.cli import text
from potluck.errors import BadInput, Code, Missing, install_extra

HERE = "127.0.0.1"
PORT = 8642


def watch(
    chosen: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders of runs, or of a comparison")],
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="address to listen on (default: this machine only)")
    ] = HERE,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="port to listen on; 0 takes a free one")
    ] = PORT,
    show: Annotated[bool, typer.Option("--open", help="open the page in the browser")] = False,
) -> None:
    """Follow runs in the browser while they go on, or replay them.

    The page has a tile for every device, the charts of the report, and a slider over virtual time. Several runs stand
    side by side. A folder stands for all runs in it, also for runs that start later. Only this machine can open the
    page, unless --host says otherwise. Ctrl-C stops the page; the runs go on.
    """
    from potluck.report.reading.folders import run_folders

    try:
        from potluck.watch.app import loopback, server
    except ImportError:
        raise Missing(
            Code.EXTRA, f"watch: Starlette is not installed; `{install_extra('dashboard')}` adds it."
        ) from None
    for path in chosen:
        if not path.is_dir():
            raise BadInput(Code.RUN_ABSENT, f"watch: there is no folder {str(path)!r}; `potluck runs` lists the runs.")

    def find() -> list[Path]:
        return list(dict.fromkeys(run for path in chosen for run in run_folders(path)))

    serving = server(find, host, port)
    if find():
        # Raises BadInput now for runs that no page can show, and warms the cache for the first request.
        serving.watch.sections(None)
    if not loopback(host):
        text.line(f"note: anyone who can reach {host} can see these runs; there is no password.")
    text.line(f"page    {serving.address} (Ctrl-C stops it)")
    if show:
        webbrowser.open(serving.address)
    serving.run()
