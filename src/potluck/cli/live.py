"""`potluck watch`: the live page of runs."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from potluck.cli import say
from potluck.cli.reports import folders
from potluck.errors import BadInput, Code, Missing, install_extra

HERE = "127.0.0.1"
PORT = 8642


def watch(
    chosen: Annotated[list[Path], typer.Argument(metavar="RUN", help="folders of runs, or of a comparison")],
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="who may look: this machine alone")] = HERE,
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 takes a free one")] = PORT,
    show: Annotated[bool, typer.Option("--open", help="open it in the browser")] = False,
) -> None:
    """Follow runs in the browser while they go on, or look at any moment of them again.

    A tile for every device, the report's views, and a bar to go back and forth in virtual time; several runs stand
    beside each other. A folder stands for all runs in it, also for those that begin later. Only this machine can look,
    unless --host says otherwise. Ctrl-C ends it, and the runs go on.
    """
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
        return list(dict.fromkeys(run for path in chosen for run in folders(path)))

    serving = server(find, host, port)
    if find():
        serving.watch.sections(None)  # what cannot be shown is refused here, and the page opens the faster
    if not loopback(host):
        say.line(f"note: anybody who reaches {host} can look at these runs; there is no password.")
    say.line(f"page    {serving.address} (Ctrl-C ends it)")
    if show:
        webbrowser.open(serving.address)
    serving.run()
