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

NAMES = (
    "parts", "waited_seconds", "bytes_up", "bytes_down", "clusters_by_width", "broadcasts", "samples", "server",
    "staleness_mean",
)  # fmt: skip
AXES = ("pace", "grouping", "shape", "local", "share", "merge")


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
    parts = dict(zip(AXES, str(found.get("parts", "")).split("/"), strict=False))

    def named(axis: str) -> str:
        return f"{axis}: {parts[axis]}" if parts.get(axis) else axis

    waited = f"uploads waited {quantity(found.get('waited_seconds', 0.0), 's')} for the end of their step"
    stale = f"; mean staleness {found['staleness_mean']:.2f} versions" if "staleness_mean" in found else ""
    said = [(named("pace"), waited + stale)]
    by_width: Mapping[str, int] = found.get("clusters_by_width", {})
    for group in sorted({at.partition("/")[0] for at in by_width}, key=int):
        widths = sorted(
            ((float(at.partition("/")[2]), at) for at in by_width if at.startswith(f"{group}/")), reverse=True
        )
        each = ", ".join(f"{by_width[at]} of width {width:g}" for width, at in widths)
        said.append((named("grouping"), f"group {group} has {each}"))
    if "broadcasts" in found:
        said.append((named("grouping"), f"{found['broadcasts']} broadcasts"))
    down = found.get("bytes_down", {})
    for kind in sorted({**down, **found["bytes_up"]}):
        axis = "shape" if kind.startswith("width") else "share" if kind == "gradient" else "local"
        ways = ((down.get(kind), "down in tasks"), (found["bytes_up"].get(kind), "up"))
        amounts = " and ".join(f"{quantity(amount, 'B')} {way}" for amount, way in ways if amount is not None)
        said.append((named(axis) if axis == "shape" else axis, f"{amounts}: {kind}"))
    if "samples" in found:
        handed = found["samples"]["handed_so_far"]
        said.append(("local", f"{handed:.0f} samples handed over to access points"))
    seconds = found.get("server", {}).get("seconds", {})
    if any(seconds.values()):
        total = quantity(sum(seconds.values()), "s")
        said.append(("server", f"{total} of work on the server's rows and kernels"))
    return said
