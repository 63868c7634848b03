"""The pictures of FedConv, from real short runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import potluck
from potluck.report import pictures
from potluck.report.pictures import fedconv
from potluck.runs.results import Run

SHORT: dict[str, Any] = {"epochs": 1, "e_p": 1, "e_c": 1, "e_t": 1, "e_a": 1}


def _run(folder: Path, method: str, alpha: float, seed: int = 0) -> Run:
    settings = SHORT if method == "fedconv" else {"epochs": 1}
    return potluck.run(
        {
            "data": {"source": "made"},
            "partition": {"kind": "dirichlet", "alpha": alpha, "clients": 4, "samples": 30},
            "server": {"share": 0.05},
            "model": {"name": "mlp", "hidden": [8]},
            "method": {"name": method, **settings},
            "stop": {"rounds": 1},
            "run": {"out": str(folder), "name": f"{method}-{alpha:g}-{seed}", "seed": seed},
        }
    )


def test_a_run_tells_widths_compression_parameters_and_weights(tmp_path: Path) -> None:
    run = _run(tmp_path, "fedconv", 1.0)
    titles = [picture.title for picture in pictures.of(run)]
    assert titles == [
        "Accuracy by width",
        "Right after compression",
        "Parameters before and after compression",
        "Learned weights",
    ]
    assert pictures.of(_run(tmp_path, "heterofl", 1.0)) == []  # it has neither kernels nor learned weights


def test_alphas_make_a_picture_where_they_differ(tmp_path: Path) -> None:
    groups = [[_run(tmp_path, m, a, s) for s in (0, 1)] for m in ("fedconv", "heterofl") for a in (0.1, 10.0)]
    (one,) = pictures.together(groups)
    assert one.title == "Accuracy by how unlike the clients are"
    assert "heterofl" in one.svg
    assert fedconv.by_setting(groups[::2]) == []  # one alpha only
