"""The section on privacy: what each method promised its clients, and what it spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from potluck.report.html.parts import section
from potluck.report.html.tables import Styles, cell, method_cell, table
from potluck.report.markup import Html, tag
from potluck.report.reading.groups import Group

UNITS = {"client": "a client", "sample": "a sample"}


def privacy(groups: Sequence[Group], order: Sequence[str], styles: Styles) -> Html | None:
    """None where no run has `[privacy]`."""
    by_label = {one.label: one for one in groups}
    found = [(label, run.privacy) for label in order for run in by_label[label].counted[:1] if run.privacy]
    if not found:
        return None
    head = ["Method", "Hidden", "Epsilon", "Median device", "Delta", "Noise", "Clip", "Budget"]
    body = [[method_cell(label, styles), *map(cell, _row(told))] for label, told in found]
    clusters = [
        f"{label}: " + ", ".join(f"cluster {name} {spent:.3g}" for name, spent in told["per_cluster"].items())
        for label, told in found
        if told.get("per_cluster")
    ]
    about = (
        "Differential privacy of what clients release, in the first run of each method. Epsilon is that of the device "
        "that was charged most. Neighbours differ in one client (or sample) whose contribution is zero. Scores and "
        "personal models are not part of it: they stay with the operator of a simulation, and with clients otherwise."
    )
    parts = [table("Privacy: what was spent", head, body), tag("p", about, class_="about")]
    parts += [tag("p", f"Largest epsilon by cluster. {line}.", class_="about") for line in clusters]
    return section("privacy", "Privacy", *parts)


def _row(told: Mapping[str, Any]) -> list[str]:
    spent = sorted(told.get("per_client", {}).values())
    middle = f"{spent[len(spent) // 2]:.3g}" if spent else "0"
    budget = "none" if told.get("epsilon") is None else f"{told['epsilon']:g}"
    return [
        UNITS.get(str(told["unit"]), str(told["unit"])),
        f"{told['spent']:.3g}",
        middle,
        f"{told['delta']:g}",
        f"{told['noise']:.3g}",
        f"{told['clip']:g}",
        budget,
    ]
