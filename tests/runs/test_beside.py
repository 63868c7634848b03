"""A method's own figures stand beside its accuracy: in the summary, on the terminal, in comparisons and reports."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from helpers.made_runs import flat, made_run

import potluck
from potluck import report
from potluck.cli import text
from potluck.cli.ranking import ranking
from potluck.runs.beside import beside, in_words
from potluck.runs.compare import Reached

SHOWN = "share handed over 25.0\N{NO-BREAK SPACE}%, steps of access points 1,234"


def test_a_run_of_centaur_says_what_was_handed_over(tmp_path: Path) -> None:
    run = potluck.run(
        {
            "data": {"source": "made"},
            "partition": {"clients": 3},
            "model": {"name": "softmax"},
            "method": {"name": "centaur"},
            "stop": {"rounds": 4},
            "run": {"out": str(tmp_path)},
        }
    )
    found = run.summary["beside"]
    records = {row["name"]: float(row["value"]) for row in run.table("records")}
    assert found == {"share handed over": records["share_handed"], "steps of access points": records["ap_steps"]}
    assert 0.1 < found["share handed over"] < 0.4
    assert in_words(found) in text.result(run).splitlines()[0]


def test_a_comparison_has_them_beside_the_accuracy(tmp_path: Path) -> None:
    told = {"beside": {"share handed over": 0.25, "steps of access points": 1234.0}}
    runs = [made_run(tmp_path, "centaur", seed, flat(0.8), summary=told) for seed in (0, 1)]
    runs += [made_run(tmp_path, "fedavg", seed, flat(0.7)) for seed in (0, 1)]
    found = report.compare(runs)
    by_method = {row.method: row.beside for row in found.rows}
    assert by_method["fedavg"] == {}
    assert by_method["centaur"]["share handed over"].mean == 0.25
    (table, *_) = ranking(found, Reached(None, {}), 200)
    assert [str(column.header) for column in table.columns][3:5] == ["share handed over", "steps of access points"]
    page = report.write(runs, tmp_path / "report.html").read_text()
    assert "Share handed over" in page
    assert "1,234" in page


def test_only_what_a_file_names_is_shown() -> None:
    module = ModuleType("mine")
    assert beside(module, {"share_handed": 0.25}) == {}
    module.BESIDE = {"share_handed": "share handed over", "ap_steps": "steps of access points", "lost": "lost"}  # type: ignore[attr-defined]
    found = beside(module, {"share_handed": 0.25, "ap_steps": 1234.0, "kept": 3.0})
    assert in_words(found) == SHOWN
    assert in_words({}) == ""


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_share_is_a_percentage(value: float) -> None:
    assert in_words({"share handed over": value}).endswith("%")
