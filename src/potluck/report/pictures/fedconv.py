"""Pictures of FedConv: accuracy by width, sub-models after compression, their parameters, learned weights."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from potluck.report.pictures import Picture, svg_of
from potluck.report.reading.groups import flat, labels

if TYPE_CHECKING:
    from potluck.runs.results import Run

MOST_CLIENTS = 60  # rows of the table of weights
COLOURS = ("#0b6e99", "#d9730d", "#448361", "#9065b0", "#ad1a72", "#787774") * 4
MARKERS = "osD^vP" * 4  # lines often overlap


def pictures(run: Run) -> list[Picture]:
    records: dict[str, list[tuple[int, Any]]] = defaultdict(list)
    for row in run.table("records"):
        records[row["name"]].append((row["step"], json.loads(row["value"])))
    rounds = {row["step"]: row["round"] for row in run.table("steps")}
    drawn = [
        _by_width(run, records["widths"], rounds),
        _compressed(records["compressed"], rounds),
        _parameters(records["parameters"], rounds),
        _weights(records["v"]),
        _phases(records["seconds"], rounds),
    ]
    return [picture for picture in drawn if picture is not None]


def by_setting(groups: Sequence[Sequence[Run]]) -> list[Picture]:
    """Compare methods: accuracy by width, and by alpha if runs differ in it."""
    lines = _lines(groups)
    drawn = [_widths_beside(lines), _alphas_beside(lines)]
    return [picture for picture in drawn if picture is not None]


def _lines(groups: Sequence[Sequence[Run]]) -> dict[str, dict[float, list[Run]]]:
    """Finished runs by method and alpha; a method with two settings gives two lines, labelled with the difference."""
    alike: dict[str, tuple[dict[str, Any], dict[float, list[Run]]]] = {}
    for run in (run for runs in groups for run in runs if run.finished):
        settings = flat(run.experiment)
        alpha = float(settings.pop("partition.alpha", 0.0))
        key = json.dumps(settings, sort_keys=True, default=str)
        alike.setdefault(key, (settings, defaultdict(list)))[1][alpha].append(run)
    named, _ = labels([settings for settings, _ in alike.values()])
    return {label: by_alpha for label, (_, by_alpha) in zip(named, alike.values(), strict=True)}


def _beside(lines: dict[str, dict[float, list[float]]], **said: Any) -> Any:
    """A line for each method: mean and standard deviation over seeds."""
    figure, axes = _axes(6.2, 3.2)
    for (label, points), colour, marker in zip(lines.items(), COLOURS, MARKERS, strict=False):
        places = sorted(points)
        spread = [stdev(points[place]) if len(points[place]) > 1 else 0.0 for place in places]
        means = [mean(points[place]) for place in places]
        axes.errorbar(places, means, spread, marker=marker, markersize=4, capsize=2, color=colour, label=label)
    axes.set(**said)
    figure.legend(frameon=False, fontsize=8, loc="outside right upper")
    return figure, axes


def _widths_beside(lines: dict[str, dict[float, list[Run]]]) -> Picture | None:
    least = min((alpha for runs in lines.values() for alpha in runs), default=0.0)
    found: dict[str, dict[float, list[float]]] = {}
    for label, runs in lines.items():
        points: dict[float, list[float]] = defaultdict(list)
        for run in runs.get(least, []):
            for width, accuracy in accuracy_by_width(run).items():
                points[width].append(100 * accuracy)
        if len(points) > 1:
            found[label] = points
    if len(found) < 2:
        return None
    figure, axes = _beside(found, xlabel="width of the client's model", ylabel="accuracy, %")
    axes.set_xticks(sorted({width for points in found.values() for width in points}))
    where = f" at Dirichlet alpha {least:g}" if least else ""
    say = f"Final accuracy of the clients' personal models by width{where}: mean and standard deviation over seeds."
    return Picture("Accuracy by width, all methods", say, svg_of(figure, say))


def accuracy_by_width(run: Run) -> dict[float, float]:
    """Mean accuracy of the clients at the last evaluation by width, if the method has widths."""
    told = [json.loads(row["value"]) for row in run.table("records") if row["name"] == "widths"]
    rows = run.table("accuracies")
    last = max((row["step"] for row in rows), default=0)
    found: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        if told and row["step"] == last and row["client"] in told[-1]:
            found[told[-1][row["client"]]].append(row["accuracy"])
    return {width: mean(values) for width, values in found.items()}


def _alphas_beside(lines: dict[str, dict[float, list[Run]]]) -> Picture | None:
    dealt = {label: {alpha: runs for alpha, runs in by_alpha.items() if alpha > 0} for label, by_alpha in lines.items()}
    if len({alpha for by_alpha in dealt.values() for alpha in by_alpha}) < 2:
        return None
    found = {
        label: {alpha: [100 * _score(run) for run in runs] for alpha, runs in by_alpha.items()}
        for label, by_alpha in dealt.items()
    }
    unlike = "Dirichlet alpha (smaller means less similar clients)"
    figure, _ = _beside(found, xscale="log", xlabel=unlike, ylabel="accuracy, %")
    say = (
        "Accuracy at the end by Dirichlet alpha, of the global model where the method has one, else the clients' mean; "
        "mean and standard deviation over seeds."
    )
    return Picture("Accuracy by similarity of the clients", say, svg_of(figure, say))


def _score(run: Run) -> float:
    accuracy = run.summary["accuracy"]
    return float(accuracy["mean"] if accuracy["global"] is None else accuracy["global"])


def _axes(width: float = 5.0, height: float = 3.2) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _by_round(lines: dict[str, list[tuple[int, float]]]) -> Any:
    """Accuracy by round, a line for every width; the legend stands next to the chart."""
    figure, axes = _axes()
    for (label, points), colour, marker in zip(lines.items(), COLOURS, MARKERS, strict=False):
        axes.plot(*zip(*points, strict=True), marker=marker, markersize=4, color=colour, label=label, alpha=0.8)
    axes.set(xlabel="round", ylabel="accuracy, %")
    axes.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(title="width", frameon=False, loc="outside right upper")
    return figure


def _by_width(run: Run, found: list[tuple[int, Any]], rounds: dict[int, int]) -> Picture | None:
    if not found or not found[-1][1]:
        return None
    width_of: dict[str, float] = found[-1][1]
    sums: dict[tuple[float, int], list[float]] = defaultdict(list)
    for row in run.table("accuracies"):
        if row["client"] in width_of:
            sums[width_of[row["client"]], row["step"]].append(row["accuracy"])
    lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for width, step in sorted(sums, key=lambda place: (-place[0], place[1])):
        lines[f"{width:g}"].append((rounds[step], 100 * mean(sums[width, step])))
    say = "Mean accuracy of the clients' sub-models on their own test rows, by width."
    return Picture("Accuracy by width", say, svg_of(_by_round(lines), say))


def _compressed(found: list[tuple[int, Any]], rounds: dict[int, int]) -> Picture | None:
    found = [(step, value) for step, value in found if value]
    if not found:
        return None
    widths = sorted({width for _, value in found for width in value}, key=float, reverse=True)
    lines = {
        _named(width): [(rounds[step], 100 * value[width]) for step, value in found if width in value]
        for width in widths
    }
    say = "Sub-models after compression and before training on clients, on the server's validation rows."
    return Picture("Accuracy immediately after compression", say, svg_of(_by_round(lines), say))


def _named(width: str) -> str:
    return "global model" if width == "1" else width


def _parameters(found: list[tuple[int, Any]], rounds: dict[int, int]) -> Picture | None:
    if not found:
        return None
    step, value = found[-1]
    reach = value.pop("reach")[0]
    figure, axes = _axes()
    for (width, shares), colour, dash in zip(value.items(), COLOURS, ("-", "--", "-.", ":") * 6, strict=False):
        places = [reach * (2 * (i + 0.5) / len(shares) - 1) for i in range(len(shares))]
        axes.plot(places, [100 * share for share in shares], dash, color=colour, label=_named(width))
    axes.set(xlabel="value of a parameter", ylabel="parameters, %")
    figure.legend(title="width", frameon=False, loc="outside right upper")
    say = f"Parameters of the global model and of the sub-models made of it, in round {rounds[step]} (as Figure 6 (a))."
    return Picture("Parameters before and after compression", say, svg_of(figure, say))


def _weights(found: list[tuple[int, Any]]) -> Picture | None:
    if not found or not found[-1][1]:
        return None
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    table: dict[str, dict[str, float]] = found[-1][1]
    clients, layers = list(table)[:MOST_CLIENTS], list(next(iter(table.values())))
    figure, axes = _axes(5.0, 1.4 + 0.16 * len(clients))
    values = [[table[client].get(layer, 1.0) for layer in layers] for client in clients]
    reach = max(0.01, *(abs(value - 1) for row in values for value in row))
    # Cells as vectors: a bitmap inside an SVG is a data URL, which the page's policy forbids.
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            colour = colormaps["RdBu_r"](0.5 + 0.35 * (value - 1) / reach)
            axes.add_patch(Rectangle((j, i), 1, 1, facecolor=colour, edgecolor="white"))
            ink = "#ffffff" if abs(value - 1) > 0.6 * reach else "#222222"
            axes.text(j + 0.5, i + 0.5, f"{value:.2f}", ha="center", va="center", fontsize=7, color=ink)
    axes.set(xlim=(0, len(layers)), ylim=(len(clients), 0))
    axes.set_xticks([j + 0.5 for j in range(len(layers))], layers)
    axes.set_yticks([i + 0.5 for i in range(len(clients))], clients, fontsize=7)
    say = "Learned weight v of each client's layers in the last aggregation; 1 is the plain mean."
    if all(value == 1.0 for row in values for value in row):
        say += " All are 1: no epoch of tuning was better on the server's validation rows."
    return Picture("Learned weights", say, svg_of(figure, say))


def _phases(found: list[tuple[int, Any]], rounds: dict[int, int]) -> Picture | None:
    """Virtual time of the server's work by phase, stacked."""
    if not found:
        return None
    figure, axes = _axes()
    places = [rounds[step] for step, _ in found]
    below = [0.0] * len(found)
    for phase, colour in zip(found[-1][1], COLOURS, strict=False):
        seconds = [value.get(phase, 0.0) for _, value in found]
        axes.bar(places, seconds, 0.7, bottom=below, color=colour, label=phase)
        below = [low + more for low, more in zip(below, seconds, strict=True)]
    axes.set(xlabel="round", ylabel="seconds")
    axes.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(frameon=False, loc="outside right upper")
    say = "Virtual time that the server spends on tuning in each round: compression, dilation, aggregation weights."
    return Picture("The server's work", say, svg_of(figure, say))
