"""Pictures that only one method has: each method's module draws its own from a run's database."""

from __future__ import annotations

import importlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from potluck.runs.results import Run

METHODS = {
    "fedcfc": "potluck.report.pictures.fedcfc",
    "clusterfl": "potluck.report.pictures.clusterfl",
    "fedconv": "potluck.report.pictures.fedconv",
    "echopfl": "potluck.report.pictures.echopfl",
    "fedasync": "potluck.report.pictures.echopfl",
    "fedbuff": "potluck.report.pictures.echopfl",
    "fedsea": "potluck.report.pictures.echopfl",
    "oort": "potluck.report.pictures.echopfl",
    "centaur": "potluck.report.pictures.centaur",
    "ap": "potluck.report.pictures.centaur",
    "ucd": "potluck.report.pictures.centaur",
}


@dataclass(frozen=True)
class Picture:
    title: str
    caption: str
    svg: str  # an inline <svg>, which asks nothing of any other address


def of(run: Run) -> list[Picture]:
    """The pictures of the run's method; none where it has no module for them."""
    path = METHODS.get(str(run.experiment.method["name"]))
    if path is None:
        return []
    found: list[Picture] = importlib.import_module(path).pictures(run)
    return found


def together(runs: Sequence[Run]) -> list[Picture]:
    """Several runs in one picture: of the methods that share a module with a function `together`."""
    kin: dict[str, list[Run]] = {}
    for run in runs:
        path = METHODS.get(str(run.experiment.method["name"]))
        if path is not None:
            kin.setdefault(path, []).append(run)
    found: list[Picture] = []
    for path, members in kin.items():
        draw = getattr(importlib.import_module(path), "together", None)
        found += draw(members) if draw is not None and len(members) > 1 else []
    return found


def svg_of(figure: Any, label: str) -> str:
    """A matplotlib figure as an inline <svg> that a screen reader can name."""
    from html import escape

    import matplotlib as mpl

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "potluck"}):
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(label, quote=True)}" ', 1)
