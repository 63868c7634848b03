"""The section on what each part of a composed method did, a tab per method that records it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from potluck.report.drawing.styles import Style
from potluck.report.html.parts import page_per_method, section, tabs
from potluck.report.markup import Html, tag
from potluck.report.reading.client_facts import record_of
from potluck.report.reading.groups import Group
from potluck.report.reading.run_figures import RunFigures
from potluck.units import quantity

NAMES = ("waited_seconds", "bytes_up", "clusters_by_width", "broadcasts", "samples", "server", "staleness_mean")


def parts_did(groups: Sequence[Group], order: Sequence[str], styles: Mapping[str, Style]) -> Html | None:
    """The section, from the first run of each method that counts."""
    pages = page_per_method(groups, order, _page)
    about = "Seconds that uploads waited for the end of their step are summed over all clients."
    return section("parts", "What each part did", tabs(pages, styles), tag("p", about)) if pages else None


def _page(one: RunFigures) -> Html | None:
    found = {name: json.loads(text) for name, text in record_of(one, NAMES).items()}
    if "bytes_up" not in found:
        return None
    rows = [tag("tr", tag("th", part), tag("td", said)) for part, said in lines(found)]
    return tag("div", tag("table", rows))


def lines(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What every part did, in words: (part, what)."""
    said = [("pace", f"uploads waited {quantity(found.get('waited_seconds', 0.0), 's')} for the end of their step")]
    if "staleness_mean" in found:
        said[0] = ("pace", f"{said[0][1]}; mean staleness {found['staleness_mean']:.2f} versions")
    for kind, size in sorted(found["bytes_up"].items()):
        axis = "shape" if kind.startswith("width") else "share" if kind == "gradient" else "local"
        said.append((axis, f"{quantity(size, 'B')} up: {kind}"))
    by_width: Mapping[str, int] = found.get("clusters_by_width", {})
    if by_width:
        each = (
            f"{count} of width {at.partition('/')[2]} in group {at.partition('/')[0]}" for at, count in by_width.items()
        )
        said.append(("grouping", ", ".join(sorted(each))))
    if "broadcasts" in found:
        said.append(("grouping", f"{found['broadcasts']} broadcasts"))
    if "samples" in found:
        handed = found["samples"]["handed_so_far"]
        said.append(("local", f"{handed:.0f} samples handed over to access points"))
    seconds = found.get("server", {}).get("seconds", {})
    if any(seconds.values()):
        total = quantity(sum(seconds.values()), "s")
        said.append(("server", f"{total} of work on the server's rows and kernels"))
    return said
