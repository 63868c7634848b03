"""Pictures of FedCFC: agreement of the clients' gradients, their lengths, and bytes per round."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from potluck.report.pictures import Picture, svg_of

if TYPE_CHECKING:
    from potluck.runs.results import Run


def pictures(run: Run) -> list[Picture]:
    """Variants that average weights have no common direction, so they get no picture of it."""
    found = _records(run, "agreement", "cum", "validation")
    out = []
    # Before the first gradients there is nothing to show: no magnitude is negative.
    told = {at for at, values in found["cum"] if min(values) >= 0}
    if len(told) > 1 and str(run.experiment.method.get("variant", "fbind")) in ("fbind", "fgh"):
        agreement = [(at, value) for at, value in found["agreement"] if at in told]
        magnitude = [(at, values) for at, values in found["cum"] if at in told]
        out += [
            Picture(
                "Agreement of the clients' gradients",
                "Mean cosine between the gradients that two clients report for f's last layer: 1 is the same "
                "direction, 0 none in common.",
                _lines([at for at, _ in agreement], [[value for _, value in agreement]], "mean cosine"),
            ),
            Picture(
                "Common update magnitude",
                "Mean length of the reported gradients (CUM), one line per precision cluster.",
                _lines([at for at, _ in magnitude], list(zip(*(v for _, v in magnitude), strict=True)), "CUM"),
            ),
        ]
    best = [(at, value) for at, value in found["validation"] if value is not None]
    if len(best) > 1:
        settled = _records(run, "settled")["settled"][-1][1]
        when = (
            f"Round {settled} is the first without a gain of any client."
            if settled
            else "It had not converged at the end."
        )
        out.append(
            Picture(
                "Best validation accuracy so far",
                f"The mean over clients of the best accuracy on their own validation rows. {when}",
                _lines([at for at, _ in best], [[value for _, value in best]], "accuracy"),
            )
        )
    return out


def together(runs: Sequence[Run]) -> list[Picture]:
    """Table 3 of a comparison: bytes between a client and the server in a round, by variant."""
    volumes: dict[str, list[float]] = {}
    for run in runs:
        method = run.experiment.method
        both = [
            task["bytes_up"] + task["bytes_down"]
            for task in run.table("tasks")
            if task["program"] != "Begin" and task["outcome"] == "accepted"
        ]
        if both:
            volumes.setdefault(str(method.get("variant", "fbind")), []).append(statistics.mean(both) / 1000)
    if len(volumes) < 2:
        return []
    means = {name: statistics.mean(values) for name, values in volumes.items()}
    return [
        Picture(
            "Bytes per client and round",
            "Up and down together, as encoded, without the first download.",
            _bars(means),
        )
    ]


def _records(run: Run, *names: str) -> dict[str, list[tuple[int, Any]]]:
    """The figures that the method recorded, by name: (round, value)."""
    rounds = {row["step"]: row["round"] for row in run.table("steps")}
    found: dict[str, list[tuple[int, Any]]] = {name: [] for name in names}
    for row in run.table("records"):
        if row["name"] in found:
            found[row["name"]].append((rounds[row["step"]], json.loads(row["value"])))
    return found


def _bars(means: dict[str, float]) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 0.8 + 0.35 * len(means)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(list(means), list(means.values()), color="#0072b2")
    axes.bar_label(bars, [f"{value:.1f} kB" for value in means.values()], padding=3)
    axes.set_xlim(right=1.2 * max(means.values()))
    axes.invert_yaxis()
    axes.set_xlabel("kB")
    axes.spines[["top", "right"]].set_visible(False)
    return svg_of(figure, "kilobytes of one client's round by variant")


def _lines(rounds: list[int], values: list[Any], label: str) -> str:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(5.2, 2.8), layout="constrained")
    axes = figure.subplots()
    for line in values:
        axes.plot(rounds, line, marker="o", markersize=3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("round")
    axes.set_ylabel(label)
    axes.spines[["top", "right"]].set_visible(False)
    return svg_of(figure, f"{label} by round")
