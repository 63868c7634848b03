"""Write runs for other tools: CSV and Parquet tables, TensorBoard event files, MLflow tracking, models.

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
    "safetensors": ("potluck.export.models", None),
    "onnx": ("potluck.export.models", "onnx"),
    "c": ("potluck.export.models", None),
}
MODELS = ("safetensors", "onnx", "c")


def export(runs: Sequence[Run], to: str, out: str, clients: Sequence[str] = (), shared: bool = False) -> list[str]:
    """Write the runs and return what was written; `out` is a folder, or for MLflow also the address of a server.

    Formats of models take the names of `clients` and whether the `shared` model is wanted; with neither, all models.
    """
    if to not in FORMATS:
        raise unknown(Code.FLAG_VALUE, "--to: format", to, list(FORMATS))
    if (clients or shared) and to not in MODELS:
        flag = "--client" if clients else "--shared"
        raise BadInput(Code.SETTINGS_CLASH, f"{flag}: works with --to {', '.join(MODELS)}, got {to!r}.")
    module, extra = FORMATS[to]
    try:
        writer = importlib.import_module(module)
        if to == "parquet":
            importlib.import_module("pyarrow.parquet")
        if to == "onnx":
            importlib.import_module("onnx")
    except ImportError as error:
        raise Missing(
            Code.EXTRA, f"--to {to}: {error.name} is not installed; `{install_extra(str(extra))}` adds it."
        ) from None
    written: list[str] = writer.write(runs, to, out, *((clients, shared) if to in MODELS else ()))
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
