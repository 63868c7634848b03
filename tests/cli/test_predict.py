"""`potluck predict`: new samples through a trained model, from files as people have them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import potluck as api
from potluck.runs.results import Run

NAMES = ("ax", "ay", "az")


@pytest.fixture
def run(here: Path) -> Run:
    """Three people, two activities, one file of features."""
    generator = np.random.Generator(np.random.Philox(3))
    with (here / "train.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["person", *NAMES, "activity"])
        for k in range(120):
            still = k % 2
            values = generator.normal(3.0 * still, 1.0, 3) + k % 3
            writer.writerow([f"p{k % 3}", *(f"{v:.4f}" for v in values), ("walk", "sit")[still]])
    return api.run({
        "data": {"source": "train.csv"},
        "method": {"name": "ftl"},
        "model": {"name": "softmax"},
        "fleet": {"devices": "pc"},
        "stop": {"rounds": 3},
        "run": {"out": "runs"},
    })  # fmt: skip


def rows(output: str) -> list[dict[str, Any]]:
    return list(csv.DictReader(io.StringIO(output)))


def test_a_table_without_labels(run: Run, here: Path, potluck: Any) -> None:
    """Columns are found by name, in any order; others do not matter."""
    (here / "new.csv").write_text("note,az,ax,ay\na,0.1,0.2,0.0\nb,4.0,5.0,4.5\n")
    done = potluck("predict", run.folder, "new.csv", "--client", "p0", "--scores")
    assert done.exit_code == 0, done.output
    found = rows(done.stdout)
    x = np.array([[0.2, 0.0, 0.1], [5.0, 4.5, 4.0]])
    wanted = run.personal("p0")
    names = [row["name"] for row in run.table("classes")]
    assert [row["class"] for row in found] == [names[k] for k in wanted.predict(x)]
    assert float(found[1]["score of sit"]) == pytest.approx(wanted.scores(x)[1][names.index("sit")], abs=1e-5)


def test_labels_in_the_file_give_the_accuracy(run: Run, here: Path, potluck: Any) -> None:
    (here / "new.csv").write_text("ax,ay,az,label\n0.1,0.2,0.0,walk\n4.0,5.0,4.5,walk\n")
    done = potluck("predict", run.folder, "new.csv", "--client", "p0", "--out", "found.csv")
    assert done.exit_code == 0, done.output
    assert "accuracy 0.500 on the 2 samples" in done.stderr
    assert len(rows((here / "found.csv").read_text())) == 2
    done = potluck("predict", run.folder, "train.csv", "--client", "p0", "--out", "found.csv")
    assert "on the 120 samples, by the labels in the file" in done.stderr  # its column is named activity


def test_numbers_in_the_file_give_the_error(here: Path, potluck: Any) -> None:
    x = np.random.Generator(np.random.Philox(3)).normal(size=(60, 3))
    np.savez(here / "numbers.npz", x=x, y=x @ [1.0, 2.0, 3.0], subject=np.arange(60) % 2)
    run = api.run({
        "data": {"source": "numbers.npz"},
        "method": {"name": "local"},
        "model": {"name": "softmax"},
        "fleet": {"devices": "pc"},
        "stop": {"rounds": 1},
        "run": {"out": "runs"},
    })  # fmt: skip
    done = potluck("predict", run.folder, "numbers.npz", "--client", run.clients[0], "--out", "found.csv")
    assert done.exit_code == 0, done.output
    told = np.array([float(row["prediction"]) for row in rows((here / "found.csv").read_text())])
    gaps = told - x @ [1.0, 2.0, 3.0]
    error = f"RMSE {np.sqrt(np.mean(gaps**2)):.4g} and MAE {np.mean(np.abs(gaps)):.4g} on the 60 samples"
    assert error in done.stderr


def test_an_exported_file_predicts_alone(run: Run, here: Path, potluck: Any) -> None:
    assert potluck("export", run.folder, "--to", "safetensors", "--client", "p1", "--out", "out").exit_code == 0
    np.savez(here / "new.npz", x=np.array([[0.2, 0.0, 0.1], [5.0, 4.5, 4.0]]))
    done = potluck("predict", here / "out" / run.name / "p1.safetensors", "new.npz", "--json")
    assert done.exit_code == 0, done.output
    with_run = potluck("predict", run.folder, "new.npz", "--client", "p1", "--json")
    assert json.loads(done.stdout) == json.loads(with_run.stdout)


def test_the_shared_model_takes_the_statistics_of_the_file(run: Run, here: Path, potluck: Any) -> None:
    """A person far away from the others in every channel: standardised alone, the classes come apart."""
    x = np.concatenate([np.full((5, 3), 100.0), np.full((5, 3), 103.0)])
    np.savez(here / "new.npz", x=x + np.linspace(0, 0.1, 30).reshape(10, 3))
    done = potluck("predict", run.folder, "new.npz", "--shared", "--json")
    assert done.exit_code == 0, done.output
    assert [row["class"] for row in json.loads(done.stdout)] == ["walk"] * 5 + ["sit"] * 5


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["new.csv"], r"say whose model: --client NAME (p0, p1, p2) or --shared"),
        (["new.csv", "--client", "p9"], "client: 'p9' is not known"),
        (["new.csv", "--client", "p0"], "missing: 'ay', 'az'"),
        (["none.csv", "--client", "p0"], "there is no file"),
        (["wide.npz", "--client", "p0"], "samples of shape (3,), got shape (4,)"),
    ],
)
def test_mistakes_are_one_sentence(run: Run, here: Path, potluck: Any, args: list[str], sentence: str) -> None:
    (here / "new.csv").write_text("ax\n1\n")
    np.savez(here / "wide.npz", x=np.ones((2, 4)))
    done = potluck("predict", run.folder, *args)
    assert done.exit_code != 0
    assert sentence in done.output


def test_a_gap_is_refused_with_what_can_be_done(run: Run, here: Path, potluck: Any) -> None:
    (here / "gap.csv").write_text("ax,ay,az\n1,2,3\n1,,3\n")
    np.savez(here / "gap.npz", x=np.array([[1.0, 2.0, 3.0], [1.0, np.nan, 3.0]]))
    for name in ("gap.csv", "gap.npz"):
        done = potluck("predict", run.folder, name, "--client", "p0")
        assert done.exit_code != 0
        assert "fill these in or leave the rows out" in " ".join(done.output.split())
        assert "data.missing" not in done.output  # the run has been: nothing can be set


def test_readings_are_cut_into_windows_as_the_run_did(here: Path, potluck: Any) -> None:
    generator = np.random.Generator(np.random.Philox(3))
    with (here / "signal.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["person", "recording", "ax", "activity"])
        for k in range(640):
            moving = k // 40 % 2
            writer.writerow([f"p{k // 320}", k // 40, f"{generator.normal(0, 1 + 4 * moving):.4f}", moving])
    done = api.run({
        "data": {"source": "signal.csv", "window": {"samples": 10, "overlap": 0.5}},
        "method": {"name": "local"},
        "fleet": {"devices": "pc"},
        "stop": {"rounds": 2},
        "run": {"out": "runs"},
    })  # fmt: skip
    (here / "new.csv").write_text("ax\n" + "\n".join(map(str, range(25))) + "\n")
    found = potluck("predict", done.folder, "new.csv", "--client", "p0")
    assert found.exit_code == 0, found.output
    assert len(rows(found.stdout)) == 4
