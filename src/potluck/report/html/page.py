"""The report as one HTML file with its style and script inside; it loads nothing from any address.

A content security policy in the file enforces this, and admits the one script by its hash.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from potluck.errors import BadInput, Code
from potluck.files import write_text
from potluck.metrics import scored_by
from potluck.report.drawing.styles import COLOURS, GREY, styles_of
from potluck.report.figures.comparison import Comparison, compare_groups, fleet_of
from potluck.report.figures.recommend import recommend
from potluck.report.html import sections
from potluck.report.html.cards import device_cards
from potluck.report.html.classes import by_class
from potluck.report.html.clusters import over_time
from potluck.report.html.composition import parts_did
from potluck.report.html.infers import infers_with
from potluck.report.html.newcomers import newcomers
from potluck.report.html.privacy import privacy
from potluck.report.html.recommendation import picture, recommendation
from potluck.report.html.statistics import statistics
from potluck.report.html.timeline import fleet
from potluck.report.html.trade_offs import trade_offs
from potluck.report.html.tuning import tuning
from potluck.report.markup import Html, named, tag
from potluck.report.reading.groups import Group, group
from potluck.runs.results import Run
from potluck.units import count

_PLACES = (  # the links at the top of the page, as far as their sections exist
    ("comparison", "Comparison"),
    ("curves", "Curves"),
    ("infers", "Inference"),
    ("newcomers", "Newcomers"),
    ("privacy", "Privacy"),
    ("differences", "Differences"),
    ("tuning", "Tuning"),
    ("trade-offs", "Trade-offs"),
    ("cards", "All devices"),
    ("classes", "Clients by class"),
    ("clusters", "Clusters"),
    ("parts", "Parts"),
    ("timeline", "The fleet over time"),
    ("pictures", "Diagnostics"),
    ("clients", "Clients"),
    ("devices", "Costs by device"),
    ("troubles", "Refused and lost"),
    ("again", "Runs and experiments"),
)


def write(runs: Sequence[Run], path: Path, title: str | None = None) -> Path:
    """Write a report on the runs, grouped by method; unfinished runs are marked."""
    grouped = group(runs)
    found = compare_groups(grouped)
    with scored_by(grouped.metric):
        page = _page(grouped.groups, found, title or _title(grouped.groups, found))
    if all(one.clock == "wall" for each in grouped.groups for one in each.runs):
        page = page.replace("virtual time", "wall time").replace("Virtual time", "Wall time")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, page)
    except OSError as error:
        raise BadInput(
            Code.OUTPUT_PLACE, f"report: {str(path)!r} cannot be written ({error.strerror or error})."
        ) from None
    return path


def _title(groups: Sequence[Group], found: Comparison) -> str:
    what = groups[0].label if len(groups) == 1 else f"{len(groups)} methods"
    return f"{what} on {found.data}"


def _page(groups: Sequence[Group], found: Comparison, title: str) -> str:
    style = palette() + asset("page.css")
    script = asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )
    styles = styles_of((one.label, one.method) for one in groups)
    order = [row.method for row in found.rows]
    advice, clocks = recommend(groups, found), _clocks(groups)
    parts = [
        sections.comparison(found, styles),
        sections.how_it_went(groups, order, styles),
        infers_with(found, styles),
        newcomers(found, styles),
        privacy(groups, order, styles),
        statistics(found, styles),
        tuning(groups, styles),
        trade_offs(found, styles, groups),
        device_cards(groups, order, found.best, styles),
        by_class(groups, order, styles),
        over_time(groups, order, styles),
        parts_did(groups, order, styles),
        fleet(groups, order, styles),
        sections.pictures(groups, order, styles),
        sections.clients(groups, order, found.best, styles),
        sections.devices(groups, order, styles),
        sections.troubles(groups, order, styles),
        sections.again(groups),
    ]
    present = [part for part in parts if part is not None]
    whole = "".join(present)
    links = [tag("a", name, href=f"#{place}") for place, name in _PLACES if f'id="{place}"' in whole]
    body = tag(
        "body",
        tag(
            "header",
            tag("h1", title),
            tag("p", found.sentence, class_="lead") if advice is None else None,
            tag("div", recommendation(advice, styles), picture(groups, found, styles), class_="glance"),
            tag("p", found.sentence, class_="basis") if advice is not None else None,
            tag("p", found.basis, class_="basis") if found.basis else None,
            tag("p", found.metric.rule, class_="basis") if found.metric.rule else None,
            tag("p", clocks, class_="basis") if clocks else None,
            facts(groups, found),
        ),
        tag("nav", links, aria_label="On this page"),
        tag("main", present),
        tag("script", Html(script)),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} – Potluck"),
        tag("style", Html(style)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _clocks(groups: Sequence[Group]) -> str:
    """Which runs had no virtual clock."""
    wall = [one.name for each in groups for one in each.runs if one.clock == "wall"]
    if not wall:
        return ""
    which = "All times" if len(wall) == sum(len(each.runs) for each in groups) else f"Times of {', '.join(wall)}"
    return f"{which} are wall times: there was no virtual clock."


def facts(groups: Sequence[Group], found: Comparison) -> Html:
    runs = [one for each in groups for one in each.runs]
    fleet = fleet_of(runs)
    models = sorted({one.model for one in runs if one.model})
    rounds = sorted({one.rounds for one in runs})
    seeds = sorted({one.seed for one in runs})
    facts = {
        "Data": found.data,
        "Clients": f"{found.clients:,} evaluated of {fleet:,}" if fleet > found.clients else f"{found.clients:,}",
        "Model": ", ".join(models) or "not recorded yet",
        "Rounds": count(rounds[0]) if len(rounds) == 1 else f"{rounds[0]:,} to {rounds[-1]:,}",
        "Seeds": ", ".join(map(str, seeds[:12])) + (" …" if len(seeds) > 12 else ""),
        "Runs": f"{len(runs):,}",
    }
    return tag("dl", [tag("div", tag("dt", name), tag("dd", named(value))) for name, value in facts.items()])


def palette() -> str:
    """The styles as CSS: one class per hue, the same colour on a light and on a dark page."""
    return "".join(f".h{i}{{color:{colour}}}" for i, colour in [*enumerate(COLOURS), ("g", GREY)]) + "\n"


def asset(name: str) -> str:
    return resources.files("potluck.report.html").joinpath(name).read_text(encoding="utf-8")
