"""Parts of a page: sections, legends, wide drawings that scroll by themselves, and tabs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from potluck.report.drawing.markers import key
from potluck.report.drawing.styles import Style
from potluck.report.markup import Html, named, tag
from potluck.report.reading.groups import Group
from potluck.report.reading.run_figures import RunFigures


def section(id: str, title: str, *parts: Html | None, folded: bool = True) -> Html:
    """A section that opens on a click, or at once if it is not `folded`; on paper all are open."""
    head = tag("summary", tag("h2", title, id=id))
    return tag("section", tag("details", head, *parts, class_="section", open=not folded))


def legend(labels: Sequence[str], styles: Mapping[str, Style]) -> Html:
    """The markers of the methods; with the page's script a click on one hides its method."""
    entries = [tag("li", key(styles[label]), " ", named(label), data_series=label) for label in labels]
    return tag("ul", entries, class_="legend")


def swatches(entries: Sequence[tuple[str, str]]) -> Html:
    """A legend of plain colours: (class of the style sheet, text)."""
    return tag(
        "ul", [tag("li", tag("i", class_=f"swatch {css}"), " ", words) for css, words in entries], class_="legend"
    )


def wide(drawing: Html, label: str) -> Html:
    """A drawing that keeps its size on a phone and scrolls sideways, so that the page does not."""
    return tag("div", drawing, class_="scroll wide", tabindex=0, role="region", aria_label=label)


def tabs(pages: Sequence[tuple[str, Html]], styles: Mapping[str, Style] | None = None) -> Html:
    """Show one page at a time; without the script, and on paper, all of them under their names."""
    if len(pages) == 1:
        return pages[0][1]
    parts = []
    for name, page in pages:
        sign = key(styles[name]) if styles and name in styles else None
        parts.append(tag("div", tag("h3", sign, " ", named(name)), page, class_="tab"))
    return tag("div", parts, class_="tabs")


def page_per_method(
    groups: Sequence[Group], order: Sequence[str], draw: Callable[[RunFigures], Html | None]
) -> list[tuple[str, Html]]:
    """The pages for `tabs`: what `draw` makes of the first run of each method that counts; None is left out."""
    first = {one.label: one.counted[0] for one in groups if one.counted}
    drawn = [(label, draw(first[label])) for label in order if label in first]
    return [(label, page) for label, page in drawn if page is not None]
