"""Write runs for other tools: CSV and Parquet tables, TensorBoard event files, MLflow tracking.

Each is an extra of its own and is imported only when it is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from potluck.errors import BadInput, Code, Missing, install_extra, unknown
from potluck.runs.results import Run

FORMATS = {  # format -> the module that writes it, and the extra that it needs
    "csv": ("potluck.export.tables", None),
    "parquet": ("potluck.export.tables", "frames"),
    "tensorboard": ("potluck.export.tensorboard", "tensorboard"),
    "mlflow": ("potluck.export.mlflow", "mlflow"),
}


def export(runs: Sequence[Run], to: str, out: str) -> list[str]:
    """Write the runs and return what was written; `out` is a folder, or for MLflow also the address of a server."""
    if to not in FORMATS:
        raise unknown(Code.FLAG_VALUE, "--to: format", to, list(FORMATS))
    module, extra = FORMATS[to]
    try:
        writer = importlib.import_module(module)
        if to == "parquet":
            importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise Missing(
            Code.EXTRA, f"--to {to}: {error.name} is not installed; `{install_extra(str(extra))}` adds it."
        ) from None
    written: list[str] = writer.write(runs, to, out)
    return written


def folder_of(out: str) -> Path:
    """The folder to write to; creates it if it is missing."""
    path = Path(out)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(Code.OUTPUT_PLACE, f"--out: {out!r} cannot be written ({error.strerror or error}).") from None
    return path


def names_of(runs: Sequence[Run]) -> list[str]:
    """The names of the runs, with the name of their folder in front if two are the same."""
    plain = [run.name for run in runs]
    return [
        name if plain.count(name) == 1 else f"{run.folder.resolve().parent.name}-{name}"
        for name, run in zip(plain, runs, strict=True)
    ]
