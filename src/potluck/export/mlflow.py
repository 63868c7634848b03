"""Export runs to MLflow: settings as parameters, figures at each evaluation as metrics, the experiment as an artifact.

`out` is a folder, which gets a database of MLflow's own (mlflow.db), or the address of a tracking server. The step of a
metric is the round, its time the virtual time in milliseconds. A run that is there already is written anew.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from potluck.export import folder_of, names_of
from potluck.export.figures import columns, evaluations, settings, whole
from potluck.runs.results import Run

LONGEST = 500  # characters of a parameter
BATCH = 900  # metrics per request; MLflow accepts 1000
SOURCE = "potluck.folder"


def write(runs: Sequence[Run], to: str, out: str) -> list[str]:
    logging.getLogger("alembic").setLevel(logging.WARNING)  # do not log how a new database is created
    client, artifacts = _client(out)
    return [_run(client, artifacts, run, name) for run, name in zip(runs, names_of(runs), strict=True)]


def _client(out: str) -> tuple[MlflowClient, str | None]:
    if "://" in out:
        return MlflowClient(tracking_uri=out), None
    folder = folder_of(out).resolve()
    return MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}"), (folder / "artifacts").as_uri()


def _run(client: MlflowClient, artifacts: str | None, run: Run, name: str) -> str:
    line = whole(run)
    experiment = client.get_experiment_by_name(line["data"])
    place = experiment.experiment_id if experiment else client.create_experiment(line["data"], artifacts)
    source = str(run.folder.resolve())
    quoted = source.replace("'", "")  # MLflow's search has no escapes
    for old in client.search_runs([place], f"tags.`{SOURCE}` = '{quoted}'"):
        client.delete_run(old.info.run_id)
    tags = {SOURCE: quoted, "method": line["method"], "seed": str(line["seed"]), "state": line["state"]}
    made = client.create_run(place, start_time=0, tags=tags, run_name=name).info.run_id
    params = [Param(key, value[:LONGEST]) for key, value in settings(run).items()]
    metrics = [
        Metric(key, float(row[column]), round(1000 * row["virtual"]), row["round"])
        for row in evaluations(run)
        for key, column in columns(run).items()
        if row[column] is not None and math.isfinite(row[column])
    ]
    client.log_batch(made, params=params[:100], tags=[RunTag("settings", str(len(params)))])
    for start in range(0, len(metrics), BATCH):
        client.log_batch(made, metrics=metrics[start : start + BATCH])
    for file in ("experiment.toml", "summary.json"):
        if (run.folder / file).exists():
            client.log_artifact(made, str(run.folder / file))
    ended = {"finished": "FINISHED", "interrupted": "KILLED"}.get(line["state"], "RUNNING")
    client.set_terminated(made, ended, end_time=round(1000 * line["virtual_seconds"]))
    return f"{line['data']}/{name} ({made})"
