"""The tables of the report: one number per cell, with its unit."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from potluck.metrics import distance, score, unit, words
from potluck.report.drawing.markers import key
from potluck.report.drawing.styles import Style
from potluck.report.figures.comparison import Comparison, Difference, Row, Spread
from potluck.report.figures.costs import DeviceCost, Reason, device_costs, reasons
from potluck.report.figures.curves import AXES, curves, reached, targets
from potluck.report.figures.sentence import CLEAR
from potluck.report.markup import Html, named, tag, text
from potluck.report.reading.groups import Group
from potluck.runs.beside import shown
from potluck.units import NOTHING, count, number, plural, quantity

MOST_REASONS = 12  # of one method
MOST_ROUNDS = 25  # rows of the table behind a curve

Styles = Mapping[str, Style]


def table(
    caption: str,
    head: Sequence[Html | str],
    body: Sequence[Sequence[Html]],
    words: Collection[int] = (0,),
    id: str | None = None,
    stacked: bool = True,
) -> Html:
    """A table; `words` are the columns of text. It scrolls sideways by itself, so that the page does not.

    On a phone a `stacked` table shows each row as a block with a line for each column, so that no column is cut.
    """
    if stacked:
        plain = [_words(name) for name in head]
        body = [[_headed(cell, name) for cell, name in zip(row, plain, strict=True)] for row in body]
    columns = [tag("th", name, scope="col", class_=None if i in words else "n") for i, name in enumerate(head)]
    rows = [tag("tr", list(row)) for row in body]
    inside = tag(
        "table",
        tag("caption", caption, class_="hidden"),
        tag("thead", tag("tr", columns)),
        tag("tbody", rows),
        id=id,
    )
    css = "scroll stacked" if stacked else "scroll"
    return tag("div", inside, class_=css, tabindex=0, role="region", aria_label=caption)


def _words(name: Html | str) -> str:
    """The name of a column as safe text; a scale is none."""
    if not isinstance(name, Html):
        return text(name)
    return "" if 'class="scale"' in name else re.sub(r"<[^>]*>", "", name).strip()


def _headed(cell: Html, name: str) -> Html:
    """A cell that carries the name of its column, for phones; `name` is safe already."""
    return Html(f'{cell[:3]} data-h="{name}"{cell[3:]}') if name and cell.startswith(("<td", "<th")) else cell


def cell(value: Html | str, small: Html | str | None = None, best: bool = False) -> Html:
    shown = tag("b", value, tag("span", " (best)", class_="hidden"), class_="best") if best else value
    return tag("td", shown, tag("small", small) if small else None, class_="n")


def method_cell(label: str, styles: Styles, *more: Html) -> Html:
    return tag("th", key(styles[label]), " ", named(label), *more, scope="row", class_="stick method")


def resources_table(found: Comparison, styles: Styles) -> Html | None:
    """A tick for each resource that a method uses; none if no method uses any."""
    used = list(dict.fromkeys(name for names in found.resources.values() for name in names))
    if not used or len(found.rows) < 2:
        return None
    rows = [
        [method_cell(label, styles), *(tag("td", "yes" if name in names else NOTHING) for name in used)]
        for label, names in found.resources.items()
    ]
    head = ["Method", *(name[:1].upper() + name[1:] for name in used)]
    return table("What each method uses beyond the clients' own rows", head, rows, words=range(len(head)))


_EQUAL = {"at_time": "At equal time", "at_passes": "At equal passes", "area": "On the way"}
_ACCURACIES = {"worst_tenth": "Worst tenth", "worst_client": "Worst client"}
_COSTS = {  # field of a row: heading, kind of unit
    "bytes_up": ("Sent up", "B"),
    "bytes_down": ("Sent down", "B"),
    "virtual_seconds": ("Virtual time", "s"),
    "all_joules": ("Energy", "J"),
    "joules": ("For work", "J"),
    "macs": ("Training", "MAC"),
}
_COUNTS = {"refused": "Refused", "lost": "Lost", "unfit": "Too small"}


def comparison_table(comparison: Comparison, styles: Styles) -> Html:
    """The accuracies of the methods. Their costs are a table of their own, so that both fit on a screen."""
    rows, styles = comparison.lines, _with_variants(comparison, styles)
    several = len(comparison.rows) > 1
    equal = {name: head for name, head in _EQUAL.items() if several and any(getattr(row, name) for row in rows)}
    winners = {name: _winners(rows, name, max) for name in (*_ACCURACIES, *equal)}
    beside = list(dict.fromkeys(name for row in rows for name in row.beside))
    body = []
    for row in rows:
        tags = [tag("span", "best", class_="tag")] if row.best else []
        tags += [] if row.finished else [tag("span", "unfinished", class_="tag warn")]
        tags.append(tag("small", plural(len(row.seeds), "seed") if row.seeds else "nothing yet"))
        cells = [method_cell(row.method, styles, *tags), _accuracy(row.accuracy, row.best)]
        cells += [behind(row.difference)] if several else []
        cells += [_accuracy(getattr(row, name), row.method in winners[name]) for name in (*equal, *_ACCURACIES)]
        cells += [_beside(name, row.beside.get(name)) for name in beside]
        body.append(cells)
    head = ["Method", f"Mean {words()} over clients", *(["Behind the best"] if several else [])]
    head += [*equal.values(), *_ACCURACIES.values(), *(name[:1].upper() + name[1:] for name in beside)]
    return table(f"The methods: {words()}, means over seeds", head, body)


def cost_table(comparison: Comparison, styles: Styles) -> Html:
    """The costs of the methods, and what did not count."""
    rows = comparison.rows
    winners = {name: _winners(rows, name, min) for name in _COSTS}
    body = []
    for row in rows:
        cells = [method_cell(row.method, styles)]
        for name, (_, kind) in _COSTS.items():
            small = _idle(row) if name == "all_joules" else None
            cells.append(_cost(getattr(row, name), kind, row.method in winners[name], small))
        for name in _COUNTS:
            found: Spread | None = getattr(row, name)
            cells.append(cell(count(found.mean if found else None)))
        body.append(cells)
    head = ["Method", *(name for name, _ in _COSTS.values()), *_COUNTS.values()]
    return table("The methods: costs of whole runs, all clients together, means over seeds", head, body)


def _with_variants(comparison: Comparison, styles: Styles) -> Styles:
    """A method read with own models has the style of the method."""
    return {**styles, **{row.method: styles[row.method.removesuffix(", own")] for row in comparison.own}}


def _winners(rows: Sequence[Row], field: str, choose: Callable[[list[float]], float]) -> set[str]:
    """The methods with the best figure of a column; none if all are equal."""
    found: dict[str, float] = {
        row.method: getattr(row, field).mean for row in rows if row.finished and getattr(row, field)
    }
    values = list(found.values())
    return {name for name, value in found.items() if value == choose(values)} if len(set(values)) > 1 else set()


def _accuracy(found: Spread | None, best: bool) -> Html:
    if found is None:
        return cell(NOTHING)
    return cell(score(found.mean), f"± {distance(found.std, signed=False)}" if found.std else None, best)


def _beside(name: str, found: Spread | None) -> Html:
    if found is None:
        return cell(NOTHING)
    return cell(shown(name, found.mean), f"± {shown(name, found.std)}" if found.std else None)


def _cost(found: Spread | None, kind: str, best: bool, small: str | None = None) -> Html:
    if found is None:
        return cell(NOTHING)
    parts = [f"± {quantity(found.std, kind)}" if found.std else None, small]
    return cell(quantity(found.mean, kind), ", ".join(part for part in parts if part) or None, best)


def _idle(row: Row) -> str | None:
    return None if row.idle_share is None else f"{100 * row.idle_share.mean:.0f} % idle"


def behind(gap: Difference | None) -> Html:
    if gap is None:
        return cell(NOTHING)
    if gap.mean is None:
        return cell(NOTHING, gap.verdict)
    interval = None
    if gap.low is not None and gap.high is not None:
        interval = tag("small", f"{distance(gap.low)} to {distance(gap.high)}")
    verdict = tag("small", gap.verdict, class_="clear" if gap.verdict == CLEAR else None)
    return tag("td", f"{distance(gap.mean)}{unit()}", interval, verdict, class_="n")


def reach_table(groups: Sequence[Group], order: Sequence[str], styles: Styles) -> Html | None:
    """The cost of reaching each accuracy; targets that no method reached are left out."""
    by_label = {one.label: one for one in groups}
    asked = [target for target in targets(groups) if any(reached(one, target) for one in groups)]
    if not asked:
        return None
    body = []
    for label in order:
        cells = []
        for target in asked:
            found = reached(by_label[label], target)
            if found is None:
                cells.append(cell("not reached"))
                continue
            partly = f"{found.seeds} of {found.of} seeds" if found.seeds < found.of else None
            inside = [
                tag("small", _between(each, kind)) for each, kind in ((found.bytes, "B"), (found.joules, "J")) if each
            ]
            inside += [tag("small", partly)] if partly else []
            cells.append(tag("td", _between(found.virtual, "s"), inside, class_="n broad"))
        body.append([method_cell(label, styles), *cells])
    head = [f"Mean {words()} of", *(score(target, 0) for target in asked)]
    return table(
        f"Virtual time, bytes and energy until a mean {words()} was first reached, with 95 % intervals over seeds",
        head,
        body,
    )


def _between(found: Spread, kind: str) -> Html | str:
    """A mean over seeds with its 95 % interval, where there is one."""
    if found.low is None or found.high is None:
        return quantity(found.mean, kind)
    low, high = quantity(max(0.0, found.low), kind), quantity(found.high, kind)
    return tag("span", quantity(found.mean, kind), " ", tag("span", f"({low} to {high})"))


def rounds_table(groups: Sequence[Group]) -> Html | None:
    """The curves by round as numbers."""
    drawn = curves(groups, AXES[0])
    if not drawn:
        return None
    at = sorted({x for one in drawn for x in one.x})
    every = max(1, -(-len(at) // MOST_ROUNDS))
    shown = [x for i, x in enumerate(at) if i % every == 0 or i == len(at) - 1]
    values = [dict(zip(one.x, one.mean, strict=True)) for one in drawn]
    body = [
        [tag("th", number(x), scope="row", class_="stick"), *(cell(score(one.get(x))) for one in values)] for x in shown
    ]
    return table(f"Mean {words()} by round", ["Round", *(named(one.label) for one in drawn)], body)


def device_table(groups: Sequence[Group], order: Sequence[str], styles: Styles) -> Html | None:
    by_label = {one.label: one for one in groups}
    costs = {label: {cost.device: cost for cost in device_costs(by_label[label])} for label in order}
    devices = sorted({device for found in costs.values() for device in found}, key=lambda d: (d is None, d or ""))
    if not devices:
        return None
    head = ["Device", "Method", "Clients", words(capital=True), "Tasks", "Time per task"]
    head += ["Sent up", "Sent down", "Training", "Energy", "Memory"]
    body = []
    for device in devices:
        having = [label for label in order if device in costs[label]]
        name = tag("i", "clients beyond the evaluated sample") if device is None else named(device or "unknown")
        for i, label in enumerate(having):
            first = tag("th", name, scope="row", class_="stick" if i == 0 else "stick again")
            name_cell = tag("th", key(styles[label]), " ", named(label), scope="row", class_="plain")
            body.append([first, name_cell, *_cost_cells(costs[label][device])])
    return table("Costs by kind of device: means per client over a whole run", head, body, words=(0, 1))


def _cost_cells(one: DeviceCost) -> list[Html]:
    shown = [count(one.clients), score(one.accuracy), NOTHING if one.tasks is None else number(one.tasks)]
    amounts = [(one.seconds, "s"), (one.bytes_up, "B"), (one.bytes_down, "B"), (one.macs, "MAC")]
    amounts += [(one.joules, "J"), (one.memory, "B")]
    return [cell(value) for value in [*shown, *(quantity(value, kind) for value, kind in amounts)]]


_OUTCOMES = {
    "refused": "refused by the server",
    "repeat": "refused by the server (a repeat)",
    "lost": "lost",
    "late": "too late",
    "unfit": "skipped: too little memory",
}


def trouble_table(groups: Sequence[Group], order: Sequence[str], styles: Styles) -> Html | None:
    by_label = {one.label: one for one in groups}
    body = []
    for label in order:
        found = reasons(by_label[label])
        shown, rest = found[:MOST_REASONS], found[MOST_REASONS:]
        lines = [_trouble_cells(one) for one in shown]
        if rest:
            times = cell(count(sum(one.times for one in rest)))
            lines.append([tag("td", "other"), tag("td", f"{len(rest)} more reasons"), tag("td", NOTHING), times])
        for i, line in enumerate(lines):
            first = tag(
                "th", key(styles[label]), " ", named(label), scope="row", class_="stick" if i == 0 else "stick again"
            )
            body.append([first, *line])
    if not body:
        return None
    head = ["Method", "What happened", "Why", "Example", "Times, all seeds"]
    return table("Refused, lost and skipped updates, with reasons", head, body, words=range(4))


def _trouble_cells(one: Reason) -> list[Html]:
    return [
        tag("td", _OUTCOMES.get(one.outcome, one.outcome)),
        tag("td", named(_reason(one)), class_="why"),
        tag("td", named(one.example)),
        cell(count(one.times)),
    ]


def _reason(one: Reason) -> str:
    return one.reason.removeprefix("does not fit: ") or "no reason given"
