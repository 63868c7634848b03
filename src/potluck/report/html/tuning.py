"""The section on tuning: what was chosen, what it cost, and how much the settings of each method matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from potluck.metrics import distance, metric, score, words
from potluck.report.drawing.markers import key
from potluck.report.html.parts import section
from potluck.report.html.tables import Styles, cell, table
from potluck.report.markup import Html, named, tag
from potluck.report.reading.groups import Group
from potluck.report.reading.tuning import tuning_of
from potluck.units import NOTHING

HEAD = ("Method", "Chosen", "Default", "Chosen", "Passes", "Candidates", "First rung", "Matters most")


def tuning(groups: Sequence[Group], styles: Styles) -> Html | None:
    found = tuning_of(one.folder for each in groups for one in each.runs)
    if found is None:
        return None
    seeds = ", ".join(map(str, found["seeds"]))
    about = (
        f"The settings were chosen on validation rows with seeds {seeds}; no test row was read. Every method had about "
        f"the same passes over the samples. “Default” and “Chosen” are the {words()} on these rows with the whole "
        "budget. “First rung” is the worst and the best candidate with a small part of it: a wide range means that the "
        "method is sensitive. “Matters most” is the setting whose values differ most there, with that "
        f"difference{' in points' if metric().share else ''}."
    )
    rows = [_row(method, one, styles) for method, one in found["methods"].items()]
    return section(
        "tuning",
        "Tuning",
        table("What tuning chose", HEAD, rows, words=(0, 1, 7)),
        tag("p", about, class_="about"),
        tag("details", tag("summary", f"Best {words()} at the first rung by value"), _by_value(found["methods"])),
    )


def _row(method: str, one: Mapping[str, Any], styles: Styles) -> list[Html]:
    matters = one["sensitivity"]
    most = max(matters["by_setting"].items(), key=lambda item: float(item[1]["spread"]), default=None)
    sign = key(styles[method]) if method in styles else None
    usual = one["chosen_candidate"] == 0
    return [
        tag("th", sign, " ", named(method), scope="row", class_="stick method"),
        tag("td", _settings(one["chosen"]), tag("small", " the defaults") if usual else None),
        cell(score(metric().merit(one["default_accuracy"]))),
        cell(score(metric().merit(one["chosen_accuracy"]))),
        cell(f"{one['passes']:,.0f}"),
        cell(str(len(one["candidates"]))),
        cell(f"{score(metric().merit(matters['worst']))} to {score(metric().merit(matters['best']))}"),
        tag("td", NOTHING if most is None else f"{most[0]}, {distance(most[1]['spread'], signed=False)}"),
    ]


def _by_value(methods: Mapping[str, Any]) -> Html:
    rows = [
        [tag("th", named(method), scope="row"), tag("td", setting), tag("td", value), cell(score(metric().merit(best)))]
        for method, one in methods.items()
        for setting, part in one["sensitivity"]["by_setting"].items()
        for value, best in part["best"].items()
    ]
    return table(f"Best {words()} at the first rung by value", ("Method", "Setting", "Value", "Best"), rows, (0, 1, 2))


def _settings(chosen: Mapping[str, Any]) -> str:
    shown = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in chosen.items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items())
