"""`potluck data`: the data card, which says what each client holds."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from potluck.cli import flags, text
from potluck.cli.columns import reads_own_data
from potluck.errors import BadInput, Code


@reads_own_data()
def data(
    source: Annotated[str, typer.Argument(metavar="DATA", help="a public dataset, a path, or package.module:function")],
    settings: flags.Set = None,
    clients: flags.Clients = None,
    seed: flags.Seed = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="FILE.png", help="draw clients by class, and a few samples, as a PNG file"),
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """Show the data card: what each client holds of each class, how the data is split, and whether anything leaks.

    Of a file of your own, the card says what each array or column was taken for, and why. `--label`, `--client` and
    the like say otherwise, here and in `run`, `compare` and the other commands. `--window 2` cuts recordings into
    windows of two seconds, and `--missing mean` fills what is missing.
    `--set partition.kind=...` gives the data to clients in another way; see docs/reference/experiment.md.
    """
    from potluck.data import card
    from potluck.runs.deal import federation_of
    from potluck.runs.experiment import Experiment, override

    if picture is not None and not picture.parent.is_dir():
        raise BadInput(Code.OUTPUT_PLACE, f"--picture: must be a file in a folder that exists, got {str(picture)!r}.")
    values, _ = flags.gathered(None, data=source, clients=clients, seed=seed)
    federation = federation_of(Experiment.of(override(values, settings or [])))
    if picture is not None:
        card.picture(federation, picture)
    if as_json:
        text.as_json(card.figures(federation))
        return
    text.show(card.render(federation))
    named = [one for one in settings or [] if one.startswith("data.")]
    if named:
        said = " ".join(f"--set {shlex.quote(one)}" for one in named)
        text.show(f"the same for run and compare: --data {shlex.quote(source)} {said}")
    if picture is not None:
        text.show(f"picture {picture}")
