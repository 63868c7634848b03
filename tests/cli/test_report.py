from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.made_runs import flat, made_run

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


def test_ranks_over_datasets(potluck: Potluck, here: Path) -> None:
    for i, ends in enumerate(({"local": 0.5, "fedavg": 0.6}, {"local": 0.4, "fedavg": 0.7}, {"local": 0.9})):
        for method, end in ends.items():
            made_run(here / "runs" / f"compare-{i}", method, 0, flat(end), settings={"data.source": f"d{i}"})
    result = potluck("ranks", "runs", "--out", "ranks.pdf")
    assert result.exit_code == 0, result.output
    assert (here / "ranks.pdf").read_bytes().startswith(b"%PDF-")
    said = " ".join(result.stdout.split())
    assert "method average rank d0 d1 d2 fedavg 1.00 0.600 0.700 – local 2.00 0.500 0.400 0.900" in said
    assert "Left out, because a method is missing there: d2." in said
    assert "2 datasets are too few for a critical difference" in said
    told = json.loads(potluck("ranks", "runs", "--json").stdout)
    assert (told["average"], told["picture"]) == ({"fedavg": 1.0, "local": 2.0}, "average_ranks.png")


def test_ranks_need_two_datasets_and_a_place(potluck: Potluck, here: Path) -> None:
    made_run(here / "runs", "local")
    assert "ranks: must be comparisons on two datasets or more, got made only" in potluck("ranks", "runs").stderr
    assert "--out: must be a .png or .pdf file" in potluck("ranks", "runs", "--out", "x.gif").stderr
    made_run(here / "runs", "fedavg", settings={"data.source": "other"})
    assert "no dataset has finished runs of all methods" in potluck("ranks", "runs").stderr
