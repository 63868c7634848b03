"""Tasks in real runs: what a run needs, what it reports, which methods refuse and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import potluck
from potluck import methods, report
from potluck.cli import app
from potluck.errors import BadInput, Code
from potluck.metrics import headline
from potluck.runs.results import Run

CLIENTS, ROWS = 4, 40
NEED_CLASSES = ("centralised_clusters", "fedproto", "fedem", "knnper", "balancefl")
SMALL: dict[str, Any] = {
    "model": {"name": "mlp", "hidden": [6]},
    "fleet": {"devices": "pc"},
    "partition": {"kind": "subject"},
    "stop": {"rounds": 2},
}


def made(path: Path, kind: str) -> str:
    """Rows of a few clients whose labels follow from their features."""
    generator = np.random.default_rng(5)
    x = generator.normal(size=(CLIENTS * ROWS, 5)).astype(np.float32)
    subject = np.repeat(np.arange(CLIENTS), ROWS)
    level = x[:, 0] - 0.5 * x[:, 1]
    y: Any = {
        "numbers": lambda: (100 + 20 * level + 2 * subject).astype(np.float32),
        "levels": lambda: np.digitize(level, [-0.7, 0.7]).astype(np.int64),
        "several": lambda: np.stack([x[:, 0] > 0, x[:, 1] > 0.3], 1).astype(np.int64),
        "pair": lambda: np.stack([level, 50 - level], 1).astype(np.float32),
    }[kind]()
    file = path / f"{kind}.npz"
    np.savez(file, x=x, y=y, subject=subject)
    return str(file)


def run(tmp_path: Path, kind: str, by: str = "fedavg", /, **sections: Any) -> Run:
    values = {**SMALL, "data": {"source": made(tmp_path, kind)}, "method": {"name": by}}
    for name, changes in sections.items():
        values[name] = {**({} if name == "model" else values.get(name, {})), **changes}
    values.setdefault("run", {}).setdefault("out", str(tmp_path / "runs"))
    return potluck.run(values)


def test_a_float_label_is_regression(tmp_path: Path) -> None:
    found = run(tmp_path, "numbers", "centralised", stop={"rounds": 60}, method={"recipe.lr": 0.1})
    s = found.summary
    assert s["task"]["kind"] == "regression"
    assert "accuracy" not in s
    assert {"mean", "std", "worst", "best", "worst_tenth", "global"} == set(s["rmse"]) == set(s["mae"])
    assert s["rmse"]["mean"] < 0.35 * 22  # the spread of the labels is about 22
    assert s["rmse"]["worst_tenth"] >= s["rmse"]["mean"] >= s["rmse"]["best"]
    assert s["mae"]["global"] <= s["rmse"]["global"]
    assert any("regression" in note for note in s["notes"])
    data = np.load(made(tmp_path, "numbers"))
    told = found.personal("s00").predict(data["x"][:ROWS])
    assert np.sqrt(np.mean((told - data["y"][:ROWS]) ** 2)) < 10  # in the units of the data


def test_told_otherwise_floats_are_classes(tmp_path: Path) -> None:
    path = tmp_path / "floats.npz"
    x = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
    np.savez(path, x=x, y=(x[:, 0] > 0).astype(np.float64), subject=np.repeat(np.arange(4), 20))
    values = {**SMALL, "data": {"source": str(path)}, "method": {"name": "fedavg"}, "run": {"out": str(tmp_path / "r")}}
    assert "rmse" in potluck.run(values).summary
    assert "accuracy" in potluck.run({**values, "task": {"name": "classification"}}).summary


@pytest.mark.parametrize("method", methods.names())
def test_every_method_learns_numbers_or_says_why_not(method: str, tmp_path: Path) -> None:
    loaded = methods.load(method)
    sections: dict[str, Any] = {"server": {"share": 0.1}, "partition": {"valid_share": 0.2}}
    if loaded.pairs:
        sections["fleet"] = {"access_point": "raspberry-pi-4"}
    if method == "fedcfc":
        sections["model"] = {"name": "cfc", "hidden": 4}
    if method == "fedbn":
        pytest.skip("it needs a network with batch norm; what it does with labels is FedAvg's")
    if method in NEED_CLASSES:
        with pytest.raises(BadInput, match=f"{method} needs classes, got regression: ") as refused:
            run(tmp_path, "pair", method, **sections)
        assert refused.value.code is Code.METHOD_TASK
        return
    assert run(tmp_path, "pair", method, **sections).summary["rmse"]["mean"] < 1e3


@pytest.mark.parametrize("method", ["fedavg", "clusterfl", "echopfl", "fedconv", "centaur"])
@pytest.mark.parametrize(("kind", "task"), [("several", ""), ("levels", "ordinal"), ("levels", "anomaly")])
def test_the_other_tasks(kind: str, task: str, method: str, tmp_path: Path) -> None:
    given = {"task": {"name": task}} if task else {}
    fleet = {"access_point": "raspberry-pi-4"} if methods.load(method).pairs else {}
    s = run(tmp_path, kind, method, server={"share": 0.1}, fleet=fleet, **given).summary
    metric = headline(s)
    assert metric.name == {"": "macro_f1", "ordinal": "mae", "anomaly": "auroc"}[task]
    assert 0 <= s[metric.name]["mean"] <= (2 if task == "ordinal" else 1)


def test_ordinal_classes_are_learned(tmp_path: Path) -> None:
    s = run(
        tmp_path, "levels", "centralised", task={"name": "ordinal"}, stop={"rounds": 60}, method={"recipe.lr": 0.3}
    ).summary
    assert s["mae"]["mean"] < 0.25  # always the middle one: 0.5
    assert s["kappa"]["mean"] > 0.6
    assert any(note.startswith("The order of the classes: 0 < 1 < 2") for note in s["notes"])


def test_several_labels_are_learned(tmp_path: Path) -> None:
    s = run(tmp_path, "several", "centralised", stop={"rounds": 60}, method={"recipe.lr": 0.3}).summary
    assert s["macro_f1"]["mean"] > 0.85
    assert s["exact_match"]["mean"] > 0.7


def test_only_normal_rows_are_trained_on(tmp_path: Path) -> None:
    """Normal rows lie on a line, the others do not: a network that learned the line tells them apart."""
    generator = np.random.default_rng(2)
    along = generator.normal(size=(200, 1))
    x = along @ np.array([[1.0, -1.0, 2.0, 0.5]]) + 0.05 * generator.normal(size=(200, 4))
    odd = np.arange(200) % 5 == 0
    x[odd] = 1.5 * generator.normal(size=(40, 4))
    path = tmp_path / "odd.npz"
    y = np.where(odd, "broken", "fine")
    np.savez(path, x=x.astype(np.float32), y=y, subject=np.repeat(np.arange(2), 100))
    values = {
        **SMALL, "data": {"source": str(path), "standardise": "global"},
        "method": {"name": "centralised", "recipe.lr": 0.05},
        "model": {"name": "mlp", "hidden": [2]}, "task": {"name": "anomaly", "normal": "fine"}, "stop": {"rounds": 40},
        "run": {"out": str(tmp_path / "runs")},
    }  # fmt: skip
    found = potluck.run(values)
    s = found.summary
    assert s["auroc"]["global"] > 0.9
    held = [json.loads(row["train"]) for row in found.table("held")]
    assert all(row[1] == 0 for row in held) or not held
    assert sum(row["train"] for row in found.table("clients")) < 160
    assert sum(row["test"] for row in found.table("clients")) > 70  # all anomalous rows, and a quarter of the others
    with pytest.raises(BadInput, match=r"task.normal: 'intact' is not known"):
        potluck.run({**values, "task": {"name": "anomaly", "normal": "intact"}})


def test_a_detector_learns_at_the_usual_learning_rate(tmp_path: Path) -> None:
    """Normal samples lie on a line, odd ones beside it and no further out: what is not learned cannot tell them."""
    draw = np.random.default_rng(0)
    odd = np.arange(400) % 4 == 0
    along, across = np.full(24, 1.0), np.where(np.arange(24) % 2 == 0, 1.0, -1.0)
    size = draw.normal(size=(400, 1))
    x = np.where(odd[:, None], size * across, size * along) + 0.05 * draw.normal(size=(400, 24))
    np.savez(tmp_path / "line.npz", x=x, y=odd.astype(int), subject=np.arange(400) // 4 % 4)
    values = {
        "data": {"source": str(tmp_path / "line.npz")},
        "task": {"name": "anomaly"},
        "model": {"name": "mlp", "hidden": [3]},
        "method": {"name": "fedavg", "recipe": {"lr": 0.05, "batch": 16}},
        "fleet": {"devices": "pc"},
        "stop": {"rounds": 15},
        "run": {"out": str(tmp_path)},
    }
    found = potluck.run(values)
    before, *_, after = (row["mean"] for row in found.table("evaluations"))
    assert before < 0.8
    assert after > 0.95


def test_the_next_steps_of_a_series(tmp_path: Path) -> None:
    """A sine goes on: its last steps follow from the steps before them."""
    generator = np.random.default_rng(3)
    begin, t = generator.uniform(0, 6, size=(160, 1)), np.arange(12)
    wave = np.sin(begin + 0.5 * t)
    x = np.stack([wave, generator.normal(size=wave.shape)], -1).astype(np.float32)
    path = tmp_path / "waves.npz"
    np.savez(path, x=x, y=np.zeros(160, dtype=np.int64), subject=np.repeat(np.arange(4), 40))
    values: dict[str, Any] = {
        **SMALL, "data": {"source": str(path)}, "method": {"name": "centralised", "recipe.lr": 0.1},
        "task": {"name": "forecasting", "horizon": 2, "channel": 0}, "stop": {"rounds": 60},
        "model": {"name": "mlp", "hidden": [16]}, "run": {"out": str(tmp_path / "runs")},
    }  # fmt: skip
    found = potluck.run(values)
    assert found.summary["rmse"]["mean"] < 0.25  # the wave itself has a spread of 0.7
    assert found.personal("s00").predict(x[:3, :10]).shape == (3, 2)
    with pytest.raises(BadInput, match=r"task.horizon: must be below 12, the steps of a window, got 12"):
        potluck.run({**values, "task": {"name": "forecasting", "horizon": 12}})


def test_classes_ranked_by_another_metric(tmp_path: Path) -> None:
    s = run(tmp_path, "levels", task={"metric": "balanced_accuracy", "balance": True}).summary
    assert headline(s).name == "balanced_accuracy"
    assert {"balanced_accuracy", "accuracy", "macro_f1"} <= set(s)
    assert len(s["task"]["weights"]) == 3


def test_a_run_ends_at_its_score(tmp_path: Path) -> None:
    found = run(tmp_path, "numbers", "centralised", stop={"rounds": 60, "score": 12.0}, method={"recipe.lr": 0.1})
    s = found.summary
    assert s["ended"] == "mean RMSE 12 reached"
    assert s["rmse"]["mean"] <= 12
    assert list(s["time_to_rmse"]) == ["12"]


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"model": {"name": "svm"}}, "model.name: svm has a hinge loss, which needs classes"),
        ({"stop": {"accuracy": 0.5}}, "stop.accuracy: must be left out, as models are ranked by RMSE"),
        ({"run": {"engine": "flower-sim"}}, "task: run.engine = flower-sim learns classes ranked by accuracy"),
        ({"task": {"name": "ordinal"}}, "y: must be whole numbers, got"),
        ({"task": {"horizon": 2, "name": "regression"}}, "task.horizon: works with the task forecasting"),
        ({"fleet": {"boards": {"s00": "emulated"}}}, "task: a board learns plain classes .* got the task regression"),
    ],
)
def test_what_does_not_fit_numbers_is_refused(sections: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=sentence):
        run(tmp_path, "numbers", **sections)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`potluck compare` of two methods over three seeds."""
    path = tmp_path_factory.mktemp("compared")
    command = [
        "compare",
        "local",
        "fedavg",
        "--data",
        made(path, "numbers"),
        "--seeds",
        "3",
        "--rounds",
        "6",
        "--fleet",
        "pc",
    ]
    command += ["--set", "model.name=mlp", "--set", "model.hidden=[6]", "--set", "method.recipe.lr=0.05"]
    done = CliRunner().invoke(app, [*command, "--set", f"run.out={path}", "--name", "both", "--quiet"])
    assert done.exit_code == 0, done.output
    (path / "output.txt").write_text(done.stdout)
    return path


def test_a_comparison_of_errors(compared: Path) -> None:
    found = json.loads((compared / "both" / "comparison.json").read_text())
    rows = found["rows"]
    assert found["metric"] == "rmse"
    assert 0 < rows[0]["rmse"]["mean"] < rows[1]["rmse"]["mean"]  # the best first, and positive as people read it
    assert rows[0]["worst_tenth"]["mean"] > rows[0]["rmse"]["mean"]
    assert rows[0]["rmse"]["low"] < rows[0]["rmse"]["mean"] < rows[0]["rmse"]["high"]
    assert rows[1]["difference"]["mean"] == pytest.approx(rows[0]["rmse"]["mean"] - rows[1]["rmse"]["mean"])
    assert "has the lowest mean RMSE" in found["sentence"]
    told = (compared / "output.txt").read_text()
    assert "RMSE: lower is better." in told
    assert "accuracy" not in told.lower()
    assert f"Use {rows[0]['method']}" in told


def test_the_report_of_errors(compared: Path) -> None:
    page = (compared / "both" / "report.html").read_text()
    words = page[page.index("<body") : page.index("Experiments</h3>")]
    assert "RMSE by virtual time" in words
    assert "accurac" not in words.lower()
    assert "percentage points" not in words
    names = {path.name for path in (compared / "both" / "figures").glob("*.png")}
    assert {"rmse_by_time.png", "rmse_of_clients.png", "differences.png"} <= names


def test_runs_of_unlike_metrics_are_not_compared(compared: Path, tmp_path: Path) -> None:
    there = sorted((compared / "both").glob("fedavg-s*"))[0]
    values = potluck.open_run(there).experiment.model_dump(exclude_none=True)
    other = potluck.run({**values, "task": {"metric": "mae"}, "run": {"out": str(tmp_path)}})
    with pytest.raises(BadInput, match="must be ranked by the same metric to be compared, got mae, rmse"):
        report.compare([potluck.open_run(there), other])


def test_lists_and_exports_name_the_metric(compared: Path, tmp_path: Path) -> None:
    listed = CliRunner().invoke(app, ["runs", "list", str(compared / "both"), "--sort", "accuracy", "--json"]).stdout
    scores = [row["accuracy"] for row in json.loads(listed)]
    assert scores == sorted(scores)
    done = CliRunner().invoke(app, ["export", str(compared / "both"), "--to", "csv", "--out", str(tmp_path / "t")])
    assert done.exit_code == 0, done.output
    assert any("rmse" in path.read_text().splitlines()[0] for path in (tmp_path / "t").rglob("*.csv"))


def test_tuning_takes_the_smaller_error(tmp_path: Path) -> None:
    command = [
        "tune",
        "fedavg",
        "--data",
        made(tmp_path, "numbers"),
        "--trials",
        "4",
        "--seeds",
        "1",
        "--fleet",
        "pc",
    ]
    command += ["--set", "model.name=mlp", "--set", "model.hidden=[6]", "--set", "stop.rounds=8"]
    command += ["--space", "method.recipe.lr=0.0001,0.1", "--set", f"run.out={tmp_path}", "--name", "tuned", "--quiet"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "tuned" / "tuning.json").read_text())
    one = found["methods"]["fedavg"]
    assert found["metric"] == "rmse"
    assert 0 < one["chosen_accuracy"] <= one["default_accuracy"]
    assert 0.0001 not in one["chosen"].values()
    assert one["sensitivity"]["best"] < one["sensitivity"]["worst"]


def test_predictions_are_numbers(tmp_path: Path) -> None:
    found = run(tmp_path, "numbers", stop={"rounds": 3})
    file = made(tmp_path, "numbers")
    done = CliRunner().invoke(app, ["predict", str(found.folder), file, "--client", "s00"])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "row,prediction"
    told = found.personal("s00").predict(np.load(file)["x"])
    assert float(lines[1].split(",")[1]) == pytest.approx(told[0], rel=1e-4)
    for to in ("safetensors", "c"):
        kept = CliRunner().invoke(app, ["export", str(found.folder), "--to", to, "--out", str(tmp_path / to)])
        assert kept.exit_code == 0, kept.output
        assert "s00" in kept.output
