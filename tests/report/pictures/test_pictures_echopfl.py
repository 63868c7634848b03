"""The pictures of asynchronous runs: what they say is what the run's database says, and they ask for nothing online."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import potluck
from potluck.report import pictures


def _run(out: Path, name: str, **method: Any) -> Any:
    return potluck.run(
        {
            "data": {"source": "made"},
            "partition": {"kind": "iid", "clients": 6},
            "fleet": {"devices": {"raspberry-pi-4": 1, "jetson-orin-nano": 1}},
            "model": {"name": "softmax"},
            "method": {"name": name, "recipe.epochs": 1, **method},
            "stop": {"rounds": 4},
            "run": {"out": str(out)},
        }
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return _run(tmp_path_factory.mktemp("runs"), "echopfl", **{"broadcast.predictor": "always"})


def test_an_asynchronous_run_has_four_pictures_without_addresses(run: Any) -> None:
    found = pictures.of(run)
    assert [one.title for one in found] == [
        "Activity of the clients",
        "Clusters over time",
        "Staleness",
        "Traffic",
    ]
    for one in found:
        assert one.svg.startswith("<svg")
        assert "<image" not in one.svg  # a bitmap would be an address, which the report's policy forbids
        assert "http" not in one.svg.replace("http://www.w3.org", "")


def test_a_run_by_the_clock_says_wall_time(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all("virtual time" in one.svg for one in pictures.of(run))
    monkeypatch.setattr(type(run), "clock", "wall")
    for one in pictures.of(run):
        assert "virtual" not in one.svg + one.caption
        assert "wall time (s)" in one.svg


def test_the_captions_are_the_run_s_own_figures(run: Any) -> None:
    said = {one.title: one.caption for one in pictures.of(run)}
    pushes = [json.loads(row["detail"])["staleness"] for row in run.table("events") if row["kind"] == "push"]
    assert f"{max(pushes)} at most, over {len(pushes)} merges" in said["Staleness"]
    assert f"{sum(pushes) / len(pushes):.1f} on average" in said["Staleness"]
    last = max(row["step"] for row in run.table("clusters"))
    in_the_end = {row["cluster"] for row in run.table("clusters") if row["step"] == last}
    assert said["Clusters over time"].endswith(f"{len(in_the_end)} at the end.")
    share = re.search(r"busy (\d+) %", said["Activity of the clients"])
    assert share
    assert int(share[1]) > 90  # nobody waits


def test_a_synchronous_run_shows_its_waiting_and_no_clusters(tmp_path: Path) -> None:
    found = {one.title: one.caption for one in pictures.of(_run(tmp_path, "oort", cohort=3))}
    assert list(found) == ["Activity of the clients", "Traffic"]
    share = re.search(r"busy (\d+) %", found["Activity of the clients"])
    assert share
    assert int(share[1]) < 80
