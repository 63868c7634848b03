"""The pictures of the studies: Figures 3, 4 and 11 of FedCFC, Table 2 as bars, and what modules are worth."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from potluck.errors import BadInput, Code
from potluck.studies import modules as modules_study
from potluck.studies.incremental import Stage
from potluck.studies.models import Row
from potluck.studies.volatility import Volatility

FORMATS = (".svg", ".png", ".pdf")
COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
)  # Okabe and Ito: safe for colour-blind readers


def check(path: Path) -> None:
    """Raise BadInput before anything is computed if the picture cannot be written."""
    if path.suffix.lower() not in FORMATS:
        raise BadInput(
            Code.OUTPUT_PLACE, f"--picture: {path.name!r} given, a name that ends in {', '.join(FORMATS)} is allowed."
        )
    if not path.parent.is_dir():
        raise BadInput(Code.OUTPUT_PLACE, f"--picture: there is no folder {str(path.parent)!r}.")


def angles(found: Sequence[Volatility], path: Path) -> None:
    """Figure 4: the distribution of each head's principal angles, of all seeds together."""
    figure, axes = _figure()
    heads = list(found[0].angles)
    boxes = [[angle for one in found for angle in one.angles[head]] for head in heads]
    axes.boxplot(boxes, tick_labels=heads, whis=(0, 100), medianprops={"color": COLOURS[5]})
    axes.set_ylabel("principal angle (degrees)")
    axes.set_xlabel("head")
    axes.set_ylim(0, max(5.0, min(90.0, 1.1 * max(max(box) for box in boxes))))
    figure.savefig(path)


def scores(rows: Sequence[Row], path: Path) -> None:
    """Figure 3b and Table 2: each network's score in each test, the mean over seeds and its spread."""
    figure, axes = _figure()
    tests = list(rows[0].scores)
    width = 0.8 / len(rows)
    for k, row in enumerate(rows):
        means = [statistics.mean(row.scores[test]) for test in tests]
        spread = [statistics.stdev(row.scores[test]) if len(row.scores[test]) > 1 else 0.0 for test in tests]
        at = [i + (k - (len(rows) - 1) / 2) * width for i in range(len(tests))]
        axes.bar(at, means, 0.9 * width, yerr=spread, capsize=2, color=COLOURS[k % len(COLOURS)], label=row.model)
    axes.set_xticks(range(len(tests)), tests)
    axes.set_ylabel("accuracy")
    axes.set_ylim(0, 1)
    figure.legend(loc="outside upper center", ncols=len(rows), frameon=False)
    figure.savefig(path)


def classes(found: Sequence[Sequence[Stage]], path: Path) -> None:
    """Figure 11: accuracy on the newest class, spread over clients, and on the first classes."""
    figure, axes = _figure()
    at = [stage.classes for stage in found[0]]
    for side, label, colour in (("new", "the newest class", COLOURS[1]), ("old", "those of the beginning", COLOURS[0])):
        values = [known([v for one in found for v in getattr(one[k], side)]) for k in range(len(at))]
        means = [statistics.mean(each) if each else float("nan") for each in values]
        spread = [statistics.stdev(each) if len(each) > 1 else 0.0 for each in values]
        axes.errorbar(at, means, yerr=spread, marker="o", capsize=3, color=colour, label=label)
    axes.set_xticks(at)
    axes.set_xlabel("classes so far")
    axes.set_ylabel("accuracy")
    axes.set_ylim(0, 1.02)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    figure.savefig(path)


def modules(rows: Sequence[modules_study.Row], path: Path) -> None:
    """What each way to train gains on going alone: a bar for each, by module, with a point for each seed."""
    gained = modules_study.gains(rows)
    shown = [row for row in rows if row.how != "alone"]
    names = list(dict.fromkeys(row.module for row in shown))
    figure, axes = _figure((6.4, 0.26 * len(shown) + 0.9))
    for at, row in enumerate(reversed(shown)):
        values = [100 * value for value in gained[row.module, row.how]]
        colour = COLOURS[names.index(row.module) % len(COLOURS)]
        axes.barh(at, statistics.mean(values), color=colour, alpha=0.55)
        axes.plot(values, [at] * len(values), ".", color=colour, markersize=4)
    axes.axvline(0, color="#444444", linewidth=0.8)
    labels = [row.how if row.module == modules_study.WHOLE else f"{row.module} {row.how}" for row in reversed(shown)]
    axes.set_yticks(range(len(shown)), labels)
    axes.set_xlabel("points of accuracy gained on going alone; a dot is a seed")
    figure.savefig(path)


def known(values: Sequence[float]) -> list[float]:
    """Leave out the NaN of clients without rows of a class."""
    return [value for value in values if value == value]


def _figure(size: tuple[float, float] = (5.2, 3.2)) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
