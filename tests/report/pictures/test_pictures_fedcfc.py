"""FedCFC's pictures: directions where there are some, bytes where variants are side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import potluck
from potluck.report import pictures
from potluck.runs.results import Run


def _run(out: Path, **method: Any) -> Run:
    return potluck.run(
        {
            "data": {"source": "made"},
            "partition": {"kind": "iid", "clients": 3, "samples": 40, "valid_share": 0.2},
            "fleet": {"devices": "raspberry-pi-4"},
            "model": {"name": "cfc", "hidden": 3, "backbone": 30, "head": 3},
            "method": {"name": "fedcfc", "recipe.batch": 64, "terms.second": "difference", **method},
            "stop": {"rounds": 2},
            "run": {"out": str(out), "name": str(method.get("variant", "fbind"))},
        }
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    out = tmp_path_factory.mktemp("runs")
    return {variant: _run(out, variant=variant) for variant in ("fbind", "favg")}


def test_directions_belong_to_the_variants_that_bind(runs: dict[str, Run]) -> None:
    bound = [one.title for one in pictures.of(runs["fbind"])]
    assert bound == [
        "Agreement of the clients' gradients",
        "Common update magnitude",
        "Best validation accuracy so far",
    ]
    assert [one.title for one in pictures.of(runs["favg"])] == bound[2:]
    for one in pictures.of(runs["fbind"]):
        assert one.svg.startswith("<svg")
        assert "http" not in one.svg.replace("http://www.w3.org", "")


def test_side_by_side_the_bytes_are_shown(runs: dict[str, Run]) -> None:
    (one,) = pictures.together([[run] for run in runs.values()])
    assert one.title == "Bytes per client and round"
    for run in runs.values():
        tasks = run.table("tasks")
        mean = sum(task["bytes_up"] + task["bytes_down"] for task in tasks) / len(tasks) / 1000
        assert f"{mean:.1f} kB" in one.svg
    assert not pictures.together([[runs["fbind"]], [runs["fbind"]]])  # nothing to compare with
