"""Each export is read back with the library it is for."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path

import pytest

import potluck
from potluck.errors import BadInput
from potluck.export import export
from potluck.runs.results import Run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two real runs, one with a client that went away."""
    out = tmp_path_factory.mktemp("runs")
    return [
        potluck.run({
            "data": {"source": "made"},
            "method": {"name": method},
            "stop": {"rounds": 3},
            "faults": {"dropout": 0.2},
            "run": {"out": str(out)},
        })
        for method in ("fedavg", "local")
    ]  # fmt: skip


def means(run: Run) -> list[float]:
    return [row["mean"] for row in run.table("evaluations")]


def test_csv(runs: list[Run], tmp_path: Path) -> None:
    made = export(runs, "csv", str(tmp_path / "out"))
    with (tmp_path / "out" / "runs.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["method"] for line in lines] == ["fedavg", "local"]
    for run, line in zip(runs, lines, strict=True):
        assert float(line["accuracy"]) == run.summary["accuracy"]["mean"]
        assert float(line["joules"]) == run.summary["energy_joules"]
        assert int(line["lost"]) == run.summary["lost_clients"]  # without the unfit, told apart
        with (tmp_path / "out" / run.name / "evaluations.csv").open() as file:
            assert [float(row["mean"]) for row in csv.DictReader(file)] == means(run)
    assert str(tmp_path / "out" / runs[0].name / "by_class.csv") in made
    assert not list((tmp_path / "out").rglob("*.part"))


def test_parquet(runs: list[Run], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs `pip install potluck[frames]`")
    export(runs, "parquet", str(tmp_path))
    for run in runs:
        for table in ("evaluations", "tasks", "accuracies", "clients"):
            found = parquet.read_table(tmp_path / run.name / f"{table}.parquet")
            assert found.to_pylist() == run.table(table)
    typed = parquet.read_table(tmp_path / runs[0].name / "tasks.parquet").schema
    assert str(typed.field("sent").type) == "double"
    assert str(typed.field("bytes_up").type) == "int64"
    assert parquet.read_table(tmp_path / "runs.parquet").num_rows == 2


def test_tensorboard(runs: list[Run], tmp_path: Path) -> None:
    processing = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="TensorBoard needs `pip install potluck[tensorboard]`",
    )
    for _ in range(2):  # the second time takes the place of the first
        made = export(runs, "tensorboard", str(tmp_path))
    for run, folder in zip(runs, made, strict=True):
        found = processing.EventAccumulator(folder, size_guidance={"tensors": 0})
        found.Reload()
        scalars = found.Scalars("accuracy/mean")
        assert [one.value for one in scalars] == pytest.approx(means(run))
        assert [one.step for one in scalars] == [0, 1, 2, 3]
        assert [one.wall_time for one in scalars] == [row["virtual"] for row in run.table("steps")]
        assert found.Scalars("cost/joules")[-1].value == pytest.approx(run.summary["energy_joules"])
        histogram = found.Histograms("accuracy/clients")[-1].histogram_value
        assert histogram.num == len(run.clients)
        assert sum(histogram.bucket) == len(run.clients)
        assert histogram.sum / histogram.num == pytest.approx(means(run)[-1])
        (text,) = found.Tensors("experiment/text_summary")
        assert b'source = "made"' in text.tensor_proto.string_val[0]


# MLflow and SQLAlchemy warn of each other's age.
@pytest.mark.filterwarnings("ignore")
def test_mlflow(runs: list[Run], tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow needs `pip install potluck[mlflow]`")
    export(runs, "mlflow", str(tmp_path))
    export(runs[:1], "mlflow", str(tmp_path))  # takes the place of the first
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    place = client.get_experiment_by_name("made").experiment_id
    found = {one.info.run_name: one for one in client.search_runs([place])}
    assert sorted(found) == sorted(run.name for run in runs)
    for run in runs:
        one = found[run.name]
        assert one.info.status == "FINISHED"
        assert one.data.params["method.name"] == run.summary["method"]
        assert one.data.params["stop.rounds"] == "3"
        history = client.get_metric_history(one.info.run_id, "accuracy/mean")
        assert [(m.step, m.value) for m in history] == list(enumerate(means(run)))
        assert [m.timestamp for m in history] == [round(1000 * row["virtual"]) for row in run.table("steps")]
        files = {file.path for file in client.list_artifacts(one.info.run_id)}
        assert files == {"experiment.toml", "summary.json"}


def test_a_run_that_goes_on_is_exported_as_far_as_it_got(runs: list[Run], tmp_path: Path) -> None:
    going = tmp_path / "going"
    going.mkdir()
    (going / "experiment.toml").write_bytes((runs[0].folder / "experiment.toml").read_bytes())
    with sqlite3.connect(runs[0].folder / "run.db") as whole, sqlite3.connect(going / "run.db") as copy:
        whole.backup(copy)
    whole.close()
    copy.close()
    export([Run(going)], "csv", str(tmp_path / "out"))
    with (tmp_path / "out" / "runs.csv").open() as file:
        assert next(csv.DictReader(file))["state"] == "unfinished"


def test_what_cannot_be_is_refused(runs: list[Run], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--to: format: 'cvs' .*csv"):
        export(runs, "cvs", str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"--out: .* cannot be written"):
        export(runs, "csv", str(tmp_path / "file"))


def test_runs_of_one_name_do_not_overwrite_each_other(runs: list[Run], tmp_path: Path) -> None:
    again = potluck.run({
        "data": {"source": "made"}, "method": {"name": "fedavg"}, "stop": {"rounds": 1},
        "run": {"out": str(tmp_path / "other")},
    })  # fmt: skip
    assert again.name == runs[0].name
    export([runs[0], again], "csv", str(tmp_path / "out"))
    with (tmp_path / "out" / "runs.csv").open() as file:
        names = [line["run"] for line in csv.DictReader(file)]
    assert len(set(names)) == 2
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"runs.csv", *names}
    assert json.loads((again.folder / "summary.json").read_text())["rounds"] == 1
