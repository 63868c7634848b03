"""A comparison says who has which resources, and cautions where a lead may come from one."""

from __future__ import annotations

from pathlib import Path

from helpers.made_runs import flat, made_run

from potluck import report
from potluck.report.figures.resources import resources_line

SHARE = {"server.share": 0.1}
CAUTION = "fedconv leads fedavg by 10.0 points; it uses server rows and pre-training, which fedavg does not."


def test_a_lead_that_may_come_from_a_resource_is_marked(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path, method, 0, flat(value), settings=SHARE)
        for method, value in (("fedconv", 0.8), ("fedavg", 0.7), ("local", 0.6))
    ]
    found = report.compare(runs)
    assert found.resources == {"fedconv": ["server rows", "pre-training"], "fedavg": [], "local": []}
    assert CAUTION in found.notes
    assert resources_line(found.resources) == [
        "Resources beyond the clients' own rows: fedconv server rows and pre-training; the others have none."
    ]
    page = report.write(runs, tmp_path / "report.html").read_text()
    assert "What each method uses beyond the clients" in page
    assert "Pre-training" in page


def test_a_lead_without_such_a_resource_is_not(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path, method, 0, flat(value), settings=SHARE)
        for method, value in (("fedconv", 0.7), ("fedavg", 0.8))
    ]
    assert not any("it uses" in note for note in report.compare(runs).notes)


def test_nobody_with_resources_takes_no_line(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, method, 0, flat(0.5)) for method in ("fedavg", "local")]
    found = report.compare(runs)
    assert resources_line(found.resources) == []
    assert "What each method uses" not in report.write(runs, tmp_path / "report.html").read_text()


def test_the_summary_counts_where_it_says_more_than_the_experiment(tmp_path: Path) -> None:
    """A deployed fleet brings its own access points."""
    own = made_run(tmp_path, "centaur", 0, flat(0.8), summary={"resources": ["access points"]})
    other = made_run(tmp_path, "fedavg", 0, flat(0.7))
    assert report.compare([own, other]).resources["centaur"] == ["access points"]
