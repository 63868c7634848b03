"""What a client infers with, in a comparison: rows of own models, both means, clients that never trained."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

import pytest
from helpers.made_runs import made_run

from potluck import report
from potluck.runs.record import EvaluationRecord, Infers, Recorder, StepRecord
from potluck.runs.results import Run


def with_models(run: Run, kind: str, own: Mapping[str, float] | None, untrained: Mapping[str, str]) -> Run:
    """Write what the clients of the last step could infer with, as the driver does."""
    headline = {row["client"]: row["accuracy"] for row in run.table("accuracies") if row["step"] == 1}
    models = {"headline": headline, kind: headline} | ({} if own is None else {"own": dict(own)})

    def spread(values: list[float]) -> dict[str, float]:
        mean = sum(values) / len(values)
        return {"mean": mean, "std": 0.0, "worst": min(values), "best": max(values), "worst_tenth": min(values)}

    figures = {
        name: {
            **spread(list(each.values())),
            "loss": 1.0,
            "trained": spread([a for client, a in each.items() if client not in untrained]),
        }
        for name, each in models.items()
    }
    rows = [("own", client, accuracy, 1.0) for client, accuracy in (own or {}).items()]
    infers = Infers(kind, figures, dict.fromkeys(models, 2), rows, untrained, len(headline) - len(untrained))
    db = sqlite3.connect(run.folder / "run.db")
    (virtual, bytes_up) = db.execute("SELECT virtual, bytes_up FROM steps WHERE step = 1").fetchone()
    for table in ("steps", "evaluations", "accuracies"):
        db.execute(f"DELETE FROM {table} WHERE step = 1")
    db.commit()
    db.close()
    assert bytes_up == 100
    recorder = Recorder(run.folder / "run.db")
    record = EvaluationRecord(
        {**figures["headline"], "global": None}, [(c, a, 1.0, 10) for c, a in headline.items()], infers=infers
    )
    recorder.step(StepRecord(1, 1, virtual, 0.1, 0, [], []), record)
    recorder.close()
    return run


def test_a_method_whose_clients_have_own_models_has_a_second_row(tmp_path: Path) -> None:
    runs = []
    for seed in range(3):
        run = made_run(tmp_path, "fedavg", seed, [{"a": 0.5, "b": 0.7, "c": 0.6}])
        runs.append(with_models(run, "received", {"a": 0.9, "b": 0.8, "c": 0.6}, {"c": "received"}))
        alone = made_run(tmp_path, "local", seed, [{"a": 0.6, "b": 0.5, "c": 0.1}])
        runs.append(with_models(alone, "own", None, {"c": "start"}))
    found = report.compare(runs)
    assert [row.method for row in found.rows] == ["fedavg", "local"]
    assert [row.method for row in found.lines] == ["fedavg", "fedavg, own", "local"]
    own = found.own[0]
    assert own.accuracy is not None
    assert own.accuracy.mean == pytest.approx(2.3 / 3)
    assert own.able_accuracy is not None
    assert own.able_accuracy.mean == pytest.approx(0.85)
    assert own.difference is not None
    assert own.difference.mean == pytest.approx(2.3 / 3 - 0.6)
    first, last = found.infers_with
    assert (first.headline, first.received, first.own) == ("received", pytest.approx(0.6), pytest.approx(2.3 / 3))
    assert (first.trained, last.trained) == (pytest.approx(0.6), pytest.approx(0.55))
    assert (last.headline, last.received, last.own) == ("own", None, pytest.approx(0.4))
    said = " ".join(found.notes)
    assert "local has no model to give: there they are scored with the untrained start" in said
    assert "(at most, in a run: fedavg 1, local 1)" in said
    assert "fedavg by 16.7 points" in said
    page = report.write(runs, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "What a client infers with" in page
    assert "fedavg, own" in page
    assert "the untrained start: no model is sent" in page


def test_models_are_judged_at_the_budget_as_the_accuracy_is(tmp_path: Path) -> None:
    rounds = [{"a": 0.5, "b": 0.7}, {"a": 0.9, "b": 0.9}]
    late = made_run(tmp_path, "fedavg", 0, rounds, settings={"budget.virtual_seconds": 15.0})
    with_models(late, "received", {"a": 0.6, "b": 0.8}, {"b": "received"})
    db = sqlite3.connect(late.folder / "run.db")
    for table, changed in (("infers_with", "mean = 0.9, trained_mean = 0.9"), ("inferred", "accuracy = 0.9")):
        db.execute(f"CREATE TEMP TABLE later AS SELECT * FROM {table} WHERE step = 1")
        db.execute(f"UPDATE later SET step = 2, {changed}")
        db.execute(f"INSERT INTO {table} SELECT * FROM later")
        db.execute("DROP TABLE later")
    db.commit()
    db.close()
    found = report.compare([late])
    (line,) = found.infers_with
    assert (line.accuracy, line.trained, line.own) == pytest.approx((0.6, 0.5, 0.7))
    assert found.rows[0].able_accuracy is not None
    assert found.rows[0].able_accuracy.mean == line.trained
    assert found.own[0].able_accuracy is not None
    assert found.own[0].able_accuracy.mean == pytest.approx(0.6)


def test_runs_of_an_older_version_still_open(tmp_path: Path) -> None:
    run = made_run(tmp_path, "fedavg", 0, [{"a": 0.5, "b": 0.7}], unfit={"b": "too small"})
    db = sqlite3.connect(run.folder / "run.db")
    for table in ("infers_with", "inferred", "untrained"):
        db.execute(f"DROP TABLE {table}")
    db.commit()
    db.close()
    found = report.compare([run])
    assert (found.own, found.infers_with) == ((), ())
    assert found.rows[0].able_accuracy is not None
    assert found.rows[0].able_accuracy.mean == 0.5
    assert run.table("infers_with") == []
    page = report.write([run], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "What a client infers with" not in page
