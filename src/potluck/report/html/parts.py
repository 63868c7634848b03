"""What sections are put together from: headings, legends, wide drawings that scroll on their own, and tabs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from potluck.report.drawing.markers import key
from potluck.report.drawing.styles import Style
from potluck.report.markup import Html, named, tag


def section(id: str, title: str, *parts: Html | None) -> Html:
    return tag("section", tag("h2", title, id=id), *parts)


def legend(labels: Sequence[str], styles: Mapping[str, Style]) -> Html:
    """The methods' signs; the page's script lets a reader switch a method off with them."""
    entries = [tag("li", key(styles[label]), " ", named(label), data_series=label) for label in labels]
    return tag("ul", entries, class_="legend")


def swatches(entries: Sequence[tuple[str, str]]) -> Html:
    """A legend of plain colours: (class of the style sheet, words)."""
    return tag(
        "ul", [tag("li", tag("i", class_=f"swatch {css}"), " ", words) for css, words in entries], class_="legend"
    )


def wide(drawing: Html, label: str) -> Html:
    """A drawing that keeps its size on a phone and scrolls sideways, so that the page never does."""
    return tag("div", drawing, class_="scroll wide", tabindex=0, role="region", aria_label=label)


def tabs(pages: Sequence[tuple[str, Html]], styles: Mapping[str, Style] | None = None) -> Html:
    """One page at a time where there is a script, else and on paper all of them, each under its name."""
    if len(pages) == 1:
        return pages[0][1]
    parts = []
    for name, page in pages:
        sign = key(styles[name]) if styles and name in styles else None
        parts.append(tag("div", tag("h3", sign, " ", named(name)), page, class_="tab"))
    return tag("div", parts, class_="tabs")
