"""The command line, one file per command, imported when it is used. Commands import what they need when they run."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import Annotated

import typer

from potluck import __version__
from potluck.cli.group import MARKUP, AllCommands

__all__ = ["app", "main"]

app = typer.Typer(
    name="potluck",
    cls=AllCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=MARKUP,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"potluck {__version__}")
        raise typer.Exit


@app.callback(epilog="Start here: potluck demo")
def _potluck(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Personalised federated learning on unlike devices: run methods, compare them, see what they cost."""


def main() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without ± shows a ? instead of failing
            with contextlib.suppress(ValueError, OSError):
                stream.reconfigure(errors="replace")
    _answer()


def _answer() -> None:
    app(prog_name="potluck")


# Python gets the stack of its calls in pieces of 16 kB, and gives each back when the first call in it ends. A loop
# whose calls begin a new piece asks the system for one each time: a tenth of a second of a start. The piece for a call
# that says it needs so much has room for all others.
_answer.__code__ = _answer.__code__.replace(co_stacksize=40_000)
