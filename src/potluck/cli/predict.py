"""`potluck predict`: use a trained model on new samples."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from potluck.cli import flags, text
from potluck.errors import BadInput, Code

if TYPE_CHECKING:
    from potluck.data.intake.spec import Intake
    from potluck.runs.results import Personal, Run
    from potluck.tasks.task import Task


def predict(
    model: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="folder of a run, or a model file of `potluck export --to safetensors`"),
    ],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="samples without labels: .csv, .npz or .parquet")],
    client: Annotated[
        str | None, typer.Option("--client", metavar="NAME", help="use the personal model of this client")
    ] = None,
    shared: Annotated[
        bool,
        typer.Option("--shared", help="use the one model for all clients, with the statistics of DATA as a whole"),
    ] = False,
    scores: Annotated[bool, typer.Option("--scores", help="also print the score of every class")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="write a CSV file instead of printing it")
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """Predict the class (or number, labels, anomaly score) of each sample of a file with a trained model.

    The file is read as the run read its own data: the same columns, windows and rules for missing values. Labels are
    not needed. If the file has them, the accuracy is printed too, or the error of numbers.
    """
    import numpy as np

    from potluck.runs.new_samples import read_samples

    one, names, intake = _model(model, client, shared)
    found = read_samples(data, one, intake)
    one = one.fitted_to(found.x) if one.unscaled else one
    values = one.scores(found.x, found.t, found.length)
    told = one.model.task.predicted(values)
    classes = [names[k] for k in told.tolist()] if one.model.task.labelled else []
    said = _said(classes, found.labels) if classes else _errors(one.model.task, told, found.labels)
    for note in (*found.notes, *said):
        text.console(stderr=True).print(Text(note, "dim"), soft_wrap=True)
    if not classes:
        return _finish([_numbers(row, line) for row, line in enumerate(np.atleast_1d(told).tolist())], as_json, out)
    rows = [
        {
            "row": row,
            "class": name,
            "score": round(float(line.max()), 6),
            **({f"score of {key}": round(float(v), 6) for key, v in zip(names, line, strict=True)} if scores else {}),
        }
        for row, (name, line) in enumerate(zip(classes, np.asarray(values), strict=True))
    ]
    return _finish(rows, as_json, out)


def _numbers(row: int, told: float | list[float]) -> dict[str, Any]:
    """The line of a sample whose answer is no class: a number, several numbers, labels of 0 and 1, an anomaly score."""
    if not isinstance(told, list):
        return {"row": row, "prediction": round(told, 6)}
    return {"row": row, **{f"prediction {k}": round(value, 6) for k, value in enumerate(told)}}


def _finish(rows: list[dict[str, Any]], as_json: bool, out: Path | None) -> None:
    if as_json:
        text.as_json(rows)
    else:
        _write(rows, out)


def _model(path: Path, client: str | None, shared: bool) -> tuple[Personal, list[str], Intake]:
    """The model, the names of its classes, and how its run read the data."""
    from potluck.data.intake.spec import Intake
    from potluck.report.reading.folders import runs_in
    from potluck.runs.results import open_model

    if path.is_file():
        if client is not None or shared:
            raise BadInput(Code.SETTINGS_CLASH, "--client, --shared: work with the folder of a run, not with a file.")
        one = open_model(path)
        known = one.about.get("export", {}).get("class_names")
        return one, known or [str(k) for k in range(one.model.classes)], Intake()
    runs: list[Run] = runs_in([path], "predict")
    if len(runs) > 1:
        raise BadInput(Code.ARGUMENT, f"predict: {str(path)!r} must be one run, got a folder with {len(runs)} runs.")
    (run,) = runs
    if (client is None) == (not shared):
        listed = text.some(run.clients, 5)
        raise BadInput(Code.NOT_SAID, f"predict: say whose model: --client NAME ({listed}) or --shared, one of them.")
    one = run.shared() if client is None else run.personal(client)
    names = [row["name"] for row in run.table("classes")] or [str(k) for k in range(one.model.classes)]
    return one, names, run.experiment.intake()


def _said(classes: list[str], labels: Any) -> list[str]:
    if labels is None or len(labels) != len(classes):
        return []
    right = sum(found == true for found, true in zip(classes, labels.tolist(), strict=True))
    return [f"accuracy {right / len(classes):.3f} on the {len(classes)} samples, by the labels in the file"]


def _errors(task: Task, told: Any, labels: Any) -> list[str]:
    """How far the numbers are off, where the file has the true ones."""
    import numpy as np

    from potluck.data.intake.tables import is_number
    from potluck.tasks.numbers import Forecasting, Regression

    if not isinstance(task, Regression) or isinstance(task, Forecasting) or labels is None or len(labels) != len(told):
        return []
    if not all(map(is_number, labels)):
        return []
    gaps = np.asarray(told, dtype=np.float64) - labels.astype(np.float64)
    off = f"RMSE {np.sqrt(np.mean(gaps**2)):.4g} and MAE {np.mean(np.abs(gaps)):.4g}"
    return [f"{off} on the {len(gaps)} samples, by the labels in the file"]


def _write(rows: list[dict[str, Any]], out: Path | None) -> None:
    from potluck.files import write_text

    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    if out is None:
        sys.stdout.write(stream.getvalue())
        return
    try:
        write_text(out, stream.getvalue())
    except OSError as error:
        raise BadInput(Code.OUTPUT_PLACE, f"--out: {str(out)!r} cannot be written ({error.strerror}).") from None
    text.line(f"{len(rows)} predictions in {out}")
