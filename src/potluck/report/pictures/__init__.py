"""Charts that belong to one method: the module of the method draws them from a run's database."""

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
    "echopfl": "potluck.report.pictures.echopfl",
    "fedasync": "potluck.report.pictures.echopfl",
    "fedbuff": "potluck.report.pictures.echopfl",
    "fedsea": "potluck.report.pictures.echopfl",
    "oort": "potluck.report.pictures.echopfl",
    **dict.fromkeys(
        ("fedconv", "serveralone", "standalone", "heterofl", "fedrolex", "fedmd", "hermes", "tailorfl"),
        "potluck.report.pictures.fedconv",
    ),
    "centaur": "potluck.report.pictures.centaur",
    "ap": "potluck.report.pictures.centaur",
    "ucd": "potluck.report.pictures.centaur",
}


@dataclass(frozen=True)
class Picture:
    title: str
    caption: str
    svg: str  # an inline <svg> that loads nothing from any address


def of(run: Run) -> list[Picture]:
    """The pictures of the run's method; none if it has no module for them."""
    path = METHODS.get(str(run.experiment.method["name"]))
    if path is None:
        return []
    found: list[Picture] = importlib.import_module(path).pictures(run)
    return found


def together(groups: Sequence[Sequence[Run]]) -> list[Picture]:
    """Pictures of several methods together, for methods that share a module; a group has one run per seed.

    A module's `together` takes the first run of every group, its `by_setting` all runs of all groups.
    """
    kin: dict[str, list[Sequence[Run]]] = {}
    for runs in groups:
        path = METHODS.get(str(runs[0].experiment.method["name"])) if runs else None
        if path is not None:
            kin.setdefault(path, []).append(runs)
    found: list[Picture] = []
    for path, members in kin.items():
        module = importlib.import_module(path)
        if len(members) > 1 and hasattr(module, "together"):
            found += module.together([runs[0] for runs in members])
        if len(members) > 1 and hasattr(module, "by_setting"):
            found += module.by_setting(members)
    return found


def svg_of(figure: Any, label: str) -> str:
    """A Matplotlib figure as an inline <svg> with a text alternative."""
    from html import escape

    import matplotlib as mpl

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "potluck"}):
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(label, quote=True)}" ', 1)
