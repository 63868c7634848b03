from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import SMALL, Potluck


def test_runs_lists_states_and_accuracy(potluck: Potluck, here: Path) -> None:
    potluck("run", *SMALL, "--rounds", 2, "--name", "whole")
    potluck("run", *SMALL, "--rounds", 2, "--name", "cut")
    (here / "runs" / "cut" / "summary.json").unlink()
    broken = here / "runs" / "broken"
    broken.mkdir()
    (broken / "experiment.toml").write_text("[data\n")
    rows = {row["run"]: row for row in json.loads(potluck("runs", "--json").stdout)}
    assert {name: row["state"] for name, row in rows.items()} == {
        "whole": "finished",
        "cut": "killed",
        "broken": "unreadable",
    }
    assert rows["cut"]["accuracy"] == rows["whole"]["accuracy"]
    table = potluck("runs").stdout
    assert "killed" in table
    assert f"{rows['whole']['accuracy']:.3f} ±" in table


def test_an_empty_folder_has_no_runs(potluck: Potluck, here: Path) -> None:
    assert potluck("runs", here).stdout == f"No runs in {here}.\n"


def test_report_of_several_runs_or_of_a_folder(potluck: Potluck, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    potluck("run", *SMALL, "--rounds", 1, "--name", "a")
    potluck("run", *SMALL, "--method", "local", "--rounds", 1, "--name", "b")
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    result = potluck("report", "runs/a", "runs/b", "--out", "both.html", "--figures", "pictures", "--open")
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    assert "with too few seeds to tell whether that is more than noise" in said
    assert "• Client by client" in said
    assert opened == [(here / "both.html").as_uri()]
    assert "local" in (here / "both.html").read_text(encoding="utf-8")
    assert list((here / "pictures").glob("*.png"))
    assert potluck("report", "runs").exit_code == 0
    assert (here / "runs" / "report.html").exists()
    (here / "runs" / "a" / "report.html").unlink()
    assert potluck("report", "runs/a").stdout == "report  runs/a/report.html\n"
    assert (here / "runs" / "a" / "report.html").exists()
