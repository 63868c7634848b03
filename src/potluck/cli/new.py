"""`potluck new`: a first file of your own: an experiment, a method, a client's data, a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from potluck.cli import text
from potluck.errors import BadInput, Code, unknown

KINDS = {  # kind -> file to begin with, its template, and what comes next
    "experiment": ("experiment.toml", "experiment.toml", "potluck run {path}"),
    "method": ("my_method.py", "a_method_of_your_own.py", "potluck check-method {path}"),
    "client": ("my_rows.py", "rows_of_a_client.py", "python {path}"),
    "notebook": ("my_notebook.ipynb", "notebooks/1_own_data.ipynb", "jupyter lab {path}"),
}


def new(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="experiment, method, client or notebook")],
    path: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="where to write it (default: a name in this folder)")
    ] = None,
) -> None:
    """Write a first file that works as it is: change it step by step.

    experiment: the settings that matter, each with a comment. method: a whole method in one file. client: a script that
    turns recordings into the file that `potluck deploy client` takes. notebook: your own data from file to result.
    """
    from potluck.files import write_bytes

    if what not in KINDS:
        raise unknown(Code.FLAG_VALUE, "new", what, KINDS)
    name, source, after = KINDS[what]
    target = path or Path(name)
    wanted = Path(name).suffix
    if target.suffix != wanted:
        raise BadInput(Code.FLAG_VALUE, f"FILE: must end in {wanted}, got {str(target)!r}.")
    if target.exists():
        raise BadInput(Code.OUTPUT_PLACE, f"FILE: {str(target)!r} exists; choose another name.")
    try:
        write_bytes(target, template(source).read_bytes())
    except OSError as error:
        raise BadInput(
            Code.OUTPUT_PLACE, f"FILE: {str(target)!r} cannot be written ({error.strerror or error})."
        ) from None
    text.line(f"{target}; next: {after.format(path=target)}")


def template(name: str) -> Path:
    """A file of examples/: of the checkout, or as the package brings it."""
    package = Path(__file__).parents[1]
    for folder in (package / "_examples", package.parents[1] / "examples"):
        if (folder / name).is_file():
            return folder / name
    raise BadInput(Code.OUTPUT_PLACE, f"new: {name} is missing from this installation; reinstall potluck.")
