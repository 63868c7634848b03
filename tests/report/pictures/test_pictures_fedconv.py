"""The pictures of FedConv, from real short runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import potluck
from potluck.report import pictures
from potluck.report.pictures import fedconv
from potluck.runs.results import Run

SHORT: dict[str, Any] = {
    "recipe.epochs": 1,
    "server.pretrain_epochs": 1,
    "kernels.compress_epochs": 1,
    "kernels.dilate_epochs": 1,
    "mix.epochs": 1,
}


def _run(folder: Path, method: str, alpha: float, seed: int = 0, **more: Any) -> Run:
    settings = {**(SHORT if method == "fedconv" else {"recipe.epochs": 1}), **more}
    if method != "serveralone":
        settings |= {"sizes.assign": "dealt"}
    told = "".join(f"-{value}" for value in more.values())
    return potluck.run(
        {
            "data": {"source": "made"},
            "partition": {"kind": "dirichlet", "alpha": alpha, "clients": 4, "samples": 30},
            "server": {"share": 0.05},
            "model": {"name": "mlp", "hidden": [8]},
            "method": {"name": method, **settings},
            "stop": {"rounds": 1},
            "run": {"out": str(folder), "name": f"{method}-{alpha:g}-{seed}{told}", "seed": seed},
        }
    )


def test_a_run_tells_widths_compression_parameters_and_weights(tmp_path: Path) -> None:
    run = _run(tmp_path, "fedconv", 1.0)
    titles = [picture.title for picture in pictures.of(run)]
    assert titles == [
        "Accuracy by width",
        "Accuracy immediately after compression",
        "Parameters before and after compression",
        "Learned weights",
        "The server's work",
    ]
    # the baselines have widths, but neither kernels nor learned weights
    assert [picture.title for picture in pictures.of(_run(tmp_path, "heterofl", 1.0))] == ["Accuracy by width"]
    assert pictures.of(_run(tmp_path, "serveralone", 1.0)) == []


def test_alphas_make_a_picture_where_they_differ(tmp_path: Path) -> None:
    groups = [[_run(tmp_path, m, a, s) for s in (0, 1)] for m in ("fedconv", "heterofl") for a in (0.1, 10.0)]
    by_width, by_alpha = pictures.together(groups)
    assert by_width.title == "Accuracy by width, all methods"
    assert "alpha 0.1" in by_width.caption
    assert by_alpha.title == "Accuracy by similarity of the clients"
    assert "heterofl" in by_alpha.svg
    titles = [picture.title for picture in fedconv.by_setting(groups[::2])]  # one alpha only
    assert titles == ["Accuracy by width, all methods"]


def test_one_method_in_two_settings_is_two_lines(tmp_path: Path) -> None:
    """A mean of learned and plain weights would be a figure of neither."""
    groups = [[_run(tmp_path, "fedconv", a)] for a in (0.1, 10.0)]
    groups += [[_run(tmp_path, "fedconv", a, **{"mix.agg": "mean"})] for a in (0.1, 10.0)]
    for picture in fedconv.by_setting(groups):
        assert "agg=mean" in picture.svg
        assert "agg=default" in picture.svg


def test_widthsaccuracy_by_width_are_the_clients_means(tmp_path: Path) -> None:
    run = _run(tmp_path, "heterofl", 1.0)
    *_, known = [json.loads(row["value"]) for row in run.table("records") if row["name"] == "widths"]
    rows = {row["client"]: row["accuracy"] for row in run.table("accuracies")}
    for width, found in fedconv.accuracy_by_width(run).items():
        own = [rows[client] for client in known if known[client] == width]
        assert found == pytest.approx(sum(own) / len(own))
