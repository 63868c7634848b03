"""`potluck.write_report`: the report from Python, of runs and of folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.made_runs import made_run

import potluck
from potluck.errors import BadInput


def test_the_report_of_one_run_is_in_its_folder(tmp_path: Path) -> None:
    run = made_run(tmp_path)
    written = potluck.write_report(run)
    assert written == run.folder / "report.html"
    assert "fedavg on made" in written.read_text(encoding="utf-8")


def test_a_folder_stands_for_its_runs_and_several_are_compared(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, method) for method in ("local", "fedavg")]
    assert potluck.write_report(str(tmp_path)) == tmp_path / "report.html"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "2 methods on made" in page
    assert potluck.write_report(*runs) == runs[0].folder.parent / "report.html"
    assert potluck.write_report(*runs, out=tmp_path / "both.html", title="Both") == tmp_path / "both.html"
    assert "<h1>Both</h1>" in (tmp_path / "both.html").read_text(encoding="utf-8")


def test_a_folder_without_runs_raises(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="report: no run in"):
        potluck.write_report(tmp_path)
