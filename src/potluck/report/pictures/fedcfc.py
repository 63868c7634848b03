"""FedCFC's own pictures: how far clients agree on a direction, and how long their gradients are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from potluck.report.pictures import Picture, svg_of

if TYPE_CHECKING:
    from potluck.runs.results import Run


def pictures(run: Run) -> list[Picture]:
    """Nothing for the variants that average weights: they have no common direction."""
    if str(run.experiment.method.get("variant", "fbind")) not in ("fbind", "fgh"):
        return []
    rounds = {row["step"]: row["round"] for row in run.table("steps")}
    found: dict[str, list[tuple[int, Any]]] = {"agreement": [], "cum": []}
    for row in run.table("records"):
        if row["name"] in found:
            found[row["name"]].append((rounds[row["step"]], json.loads(row["value"])))
    # Before the first gradients there is nothing to show: no magnitude is negative.
    told = {at for at, values in found["cum"] if min(values) >= 0}
    if len(told) < 2:
        return []
    agreement = [(at, value) for at, value in found["agreement"] if at in told]
    magnitude = [(at, values) for at, values in found["cum"] if at in told]
    return [
        Picture(
            "Agreement of the clients' gradients",
            "Mean cosine between the gradients that two clients report for f's last layer: 1 is the same direction, "
            "0 none in common.",
            _lines([at for at, _ in agreement], [[value for _, value in agreement]], "mean cosine"),
        ),
        Picture(
            "Common update magnitude",
            "Mean length of the reported gradients (CUM), one line per precision cluster.",
            _lines([at for at, _ in magnitude], list(zip(*(v for _, v in magnitude), strict=True)), "CUM"),
        ),
    ]


def _lines(rounds: list[int], values: list[Any], label: str) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 2.8), layout="constrained")
    axes = figure.subplots()
    for line in values:
        axes.plot(rounds, line, marker="o", markersize=3)
    axes.set_xlabel("round")
    axes.set_ylabel(label)
    return svg_of(figure, f"{label} by round")
