"""The folder of a new run."""

from __future__ import annotations

from pathlib import Path

from potluck.errors import BadInput, Code, must_be
from potluck.files import make_folder, sync
from potluck.methods import short_name
from potluck.runs.experiment import Experiment

LONGEST_NAME = 200  # bytes; file systems allow 255, and a number may be added


def new_folder(experiment: Experiment) -> Path:
    """Make a new folder, named after the experiment."""
    run = experiment.run
    source = Path(experiment.data.source.partition(":")[0]).stem or "data"
    name = run.name or f"{short_name(str(experiment.method['name']))}-{source}-s{run.seed}"
    if "/" in name or name.startswith(".") or len(name.encode()) > LONGEST_NAME:
        raise must_be(Code.SETTING_VALUE, "run.name", "a plain folder name", name)
    parent = Path(run.out)
    try:
        make_folder(parent)
        for number in range(1, 10_000):
            folder = parent / (name if number == 1 else f"{name}-{number}")
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            sync(parent)
            return folder
    except OSError as error:
        raise BadInput(
            Code.OUTPUT_PLACE,
            f"run.out: {run.out!r} must be a writable folder ({error.strerror or error}).",
        ) from None
    raise BadInput(Code.OUTPUT_PLACE, f"run.out: {run.out!r} has too many runs called {name!r}. Set another run.name.")
