"""`potluck data`: the data card, which says what each client holds."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from potluck.cli import flags, text
from potluck.errors import BadInput, Code


def data(
    source: Annotated[str, typer.Argument(metavar="DATA", help="a public dataset, a path, or package.module:function")],
    settings: flags.Set = None,
    clients: flags.Clients = None,
    seed: flags.Seed = None,
    features: Annotated[
        str | None, typer.Option("--features", metavar="A,B", help="the columns that are features, or the array")
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="NAME", help="the array or column with the labels")
    ] = None,
    client: Annotated[
        str | None,
        typer.Option("--client", metavar="NAME", help="whose each row is; A,B makes a client of both, none: nothing"),
    ] = None,
    time: Annotated[str | None, typer.Option("--time", metavar="NAME", help="the time of each row, or none")] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="NAME", help="the recording of each row, or none")
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", metavar="NAME", help="the side of each row: train, test or valid, or none")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="FILE.png", help="draw clients by class, and a few samples, as a PNG file"),
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """Show the data card: what each client holds of each class, how the data is split, and whether anything leaks.

    Of a file of your own, the card says what each array or column was taken for, and why. `--label`, `--client` and
    the like say otherwise; for `run` and `compare` they are settings of data.columns. `--set data.window.seconds=2`
    cuts recordings into windows, and `--set data.missing=mean` fills what is missing.
    `--set partition.kind=...` gives the data to clients in another way; see docs/reference/experiment.md.
    """
    from potluck.data import card
    from potluck.runs.build import federation_of
    from potluck.runs.experiment import Experiment, override

    if picture is not None and not picture.parent.is_dir():
        raise BadInput(Code.OUTPUT_PLACE, f"--picture: must be a file in a folder that exists, got {str(picture)!r}.")
    values, _ = flags.gathered(None, data=source, clients=clients, seed=seed)
    roles = {"features": features, "label": label, "client": client, "time": time, "group": group, "split": split}
    named = [f"data.columns.{role}={_toml(name)}" for role, name in roles.items() if name is not None]
    federation = federation_of(Experiment.of(override(values, [*named, *(settings or [])])))
    if picture is not None:
        card.picture(federation, picture)
    if as_json:
        text.as_json(card.figures(federation))
        return
    text.show(card.render(federation))
    if named:
        said = " ".join(f"--set {shlex.quote(one)}" for one in named)
        text.show(f"the same for run and compare: --data {shlex.quote(source)} {said}")
    if picture is not None:
        text.show(f"picture {picture}")


def _toml(name: str) -> str:
    """A name as a text of TOML, also where it looks like a number."""
    from potluck.runs.experiment import as_toml

    return as_toml(name)
