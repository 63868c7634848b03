"""The sections of the report, from the result to how to reproduce it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import potluck
from potluck.metrics import ACCURACY, metric, score, words
from potluck.report.drawing.axes import along, score_range
from potluck.report.drawing.charts import curve_chart, sorted_chart
from potluck.report.drawing.markers import key
from potluck.report.figures.budgets import line_of
from potluck.report.figures.comparison import Comparison
from potluck.report.figures.curves import AXES, ClientLine, client_lines, curves, ranked
from potluck.report.html.parts import legend, section, tabs
from potluck.report.html.tables import (
    Styles,
    cell,
    comparison_table,
    cost_table,
    device_table,
    reach_table,
    resources_table,
    rounds_table,
    table,
    trouble_table,
)
from potluck.report.markup import Html, named, tag
from potluck.report.pictures import Picture, of, together
from potluck.report.reading.groups import Group
from potluck.report.reading.run_figures import RunFigures
from potluck.runs.results import Run
from potluck.units import plural

MOST_PRINTED = 60  # rows of clients on paper
MANY = 100  # rows of clients from which a table counts as long
BROAD = 640  # CSS pixels from which a picture of a method gets its own row
MOST_DEVICES = 3  # named for one client
COSTS_OF = (
    "Costs are those of a whole run, all clients together. Energy is all that the devices drew until the "
    "run ended, waiting included, where it is known; for work is the part of training and sending."
)


def comparison(found: Comparison, styles: Styles, folded: bool = True) -> Html:
    about = (
        f"{words(capital=True)} is that of each client's personal model on its own test samples, as a mean over "
        "clients. A client with few samples counts as much as one with many."
    )
    if any(len(row.seeds) > 1 for row in found.rows):
        about = f"Means over seeds; ± is the standard deviation over seeds{_in_points(' for accuracies')}. {about}"
    if found.best:
        about += (
            f" Bold marks the best of a column. “Behind the best” is the mean difference{_in_points()} over the seeds "
            "that both methods finished, with its 95 % interval (paired t). If the interval contains 0, the "
            "difference may be noise."
        )
    if found.time or found.passes:
        limits = [limit for limit in (found.time, found.passes) if limit]
        chosen = " and ".join(
            limit.words if limit.given else f"{limit.words} (the median of the methods)" for limit in limits
        )
        about += (
            f" “At equal” columns: {words()} at {chosen}, from the last evaluation at or before that. “On the way” is "
            f"the mean {words()} until that time, the area under the curve."
        )
    return section(
        "comparison",
        "Comparison" if len(found.rows) > 1 else "Result",
        comparison_table(found, styles),
        tag("p", about, class_="about"),
        tag("ul", [tag("li", note) for note in found.notes], class_="notes") if found.notes else None,
        tag("h3", "Costs"),
        cost_table(found, styles),
        tag("p", COSTS_OF, class_="about"),
        resources_table(found, styles),
        folded=folded,
    )


def how_it_went(groups: Sequence[Group], order: Sequence[str], styles: Styles) -> Html:
    charts = []
    for axis in (*AXES[1:], AXES[0]):  # rounds last: they are another amount of work for every method
        drawn, limit = curves(groups, axis), line_of(groups, axis.name)
        if drawn:
            chart = curve_chart(drawn, axis, styles, None if limit is None else (limit.amount, limit.label))
            charts.append(tag("figure", tag("figcaption", axis.title), chart))
    if not charts:
        return section(
            "curves", f"{words(capital=True)} against its costs", tag("p", "Nothing has been evaluated yet.")
        )
    numbers = rounds_table(groups)
    reach = reach_table(groups, order, styles)
    band = any(len(one.counted) > 1 for one in groups)
    return section(
        "curves",
        f"{words(capital=True)} against its costs",
        legend(order, styles),
        tag("div", charts, class_="charts"),
        tag(
            "p",
            f"Mean {words()} over the clients"
            + (" and seeds; the band is one standard deviation over seeds to either side." if band else ".")
            + f" After the end of a run its last {words()} is kept."
            + _line(groups),
            class_="about",
        ),
        tag("h3", "Cost of reaching an accuracy" if metric() == ACCURACY else f"Cost of reaching {words()}")
        if reach
        else None,
        reach,
        tag("details", tag("summary", f"{words(capital=True)} by round as a table"), numbers) if numbers else None,
    )


def _in_points(of: str = "") -> str:
    """The unit of differences."""
    return f", in percentage points{of}" if metric().share and of else " in percentage points" if metric().share else ""


def _lowest() -> str:
    return f"highest {words()}" if metric().lower else f"lowest {words()}"


def _plural() -> str:
    return "Accuracies" if metric() == ACCURACY else f"Values of {words()}"


def _line(groups: Sequence[Group]) -> str:
    """What the line of the budget is."""
    limit = line_of(groups, "virtual")
    if limit is None:
        return ""
    whose = "the budget of virtual time" if limit.given else "the median duration of the methods' runs"
    return f" The vertical line is {whose}."


def pictures(groups: Sequence[Group], order: Sequence[str], styles: Styles) -> Html | None:
    """The pictures of single methods, from the first run that counts: a tab for each method.

    Pictures that several methods share come first, and replace the same pictures of each method.
    """
    by_label = {one.label: one.counted for one in groups}
    joint = together([[Run(a.folder) for a in one.counted] for one in groups])
    titles = {each.title for each in joint}
    found = {"together": joint}
    for label in order:
        drawn = of(Run(by_label[label][0].folder)) if by_label[label] else []
        found[label] = [each for each in drawn if each.title not in titles]
    pages = []
    for i, (label, shown) in enumerate(found.items()):
        if shown:
            figures = [_picture(each, f"p{i}-{k}-") for k, each in enumerate(shown)]
            pages.append((label, tag("div", figures, class_="pictures")))
    return section("pictures", "Method-specific diagnostics", tabs(pages, styles)) if pages else None


def _picture(one: Picture, prefix: str) -> Html:
    """Give large pictures their own row; on a phone they keep a readable size and scroll."""
    size = re.search(r'\bwidth="([\d.]+)pt"', one.svg)
    wide = 4 / 3 * float(size[1]) if size else 0.0  # in CSS pixels
    least = f"--least:{0.92 * wide:.0f}px" if wide > BROAD else None
    region: dict[str, str | int | None] = {
        "class_": "scroll drawn",
        "tabindex": 0,
        "role": "region",
        "aria_label": one.title,
        "style": least,
    }
    drawn = tag("div", own_ids(one.svg, prefix), **region)
    caption = tag("p", one.caption, class_="about")
    return tag("figure", tag("figcaption", one.title), drawn, caption, class_="broad" if wide > BROAD else None)


def own_ids(svg: str, prefix: str) -> Html:
    """Make the ids of a drawing unique on the page: Matplotlib gives every figure the same ids."""
    return Html(re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}", svg))


def clients(groups: Sequence[Group], order: Sequence[str], best: str | None, styles: Styles) -> Html:
    lines = client_lines(groups, best)
    shown = [label for label in order if any(label in line.accuracy for line in lines)]
    if not shown:
        return section("clients", "All clients", tag("p", "No client has been evaluated yet."))
    by_label = {one.label: one for one in groups}
    accuracies = {label: values for label in shown if (values := ranked(by_label[label]))}
    first = f"with {best}" if best else ("with " + shown[0] if len(shown) == 1 else "on average over the methods")
    more = f" Only the {MOST_PRINTED} worst are printed on paper." if len(lines) > MOST_PRINTED else ""
    if any(len(line.devices) > 1 for line in lines):
        more += " A client with several devices had another device with another seed."
    seeds = max(len(one.counted) for one in groups)
    apart = " The chart sorts the clients of each seed separately and takes the mean at each rank." * (seeds > 1)
    figure = tag(
        "figure", tag("figcaption", f"{words(capital=True)} of all clients, sorted"), sorted_chart(accuracies, styles)
    )
    about = tag(
        "p",
        f"{plural(len(lines), 'client')}. The table starts with the client of the {_lowest()} {first}. "
        f"{_plural()} are means over seeds; Train and Test are numbers of samples.{apart}{more}",
        class_="about",
    )
    return section(
        "clients",
        "All clients",
        tag("div", figure, tag("div", legend(shown, styles), about), class_="charts"),
        _client_table(lines, shown, styles),
    )


def _client_table(lines: Sequence[ClientLine], labels: Sequence[str], styles: Styles) -> Html:
    body, values = [], [value for line in lines for value in line.accuracy.values()]
    place, (low, high) = along(values), (0.0, 1.0) if metric().share else score_range(values)
    for i, line in enumerate(lines):
        dots = [
            tag("i", class_=f"d {styles[label].css}", style=f"left:{100 * place(line.accuracy[label]):.1f}%")
            for label in reversed(labels)
            if label in line.accuracy
        ]
        cells = [
            tag(
                "th",
                named(line.name),
                tag("small", named(_some(line.devices)), class_="device"),
                scope="row",
                class_="stick who beyond" if i >= MOST_PRINTED else "stick who",
            ),
            tag("td", tag("div", dots, class_="strip", aria_hidden="true")),
        ]
        for label in labels:
            value = line.accuracy.get(label)
            cells.append(tag("td", score(value), class_="n", data_v=-1e300 if value is None else f"{value:.6f}"))
        cells += [
            tag("td", _range(line.train), class_="n", data_v=line.train[0]),
            tag("td", _range(line.test), class_="n", data_v=line.test[0]),
        ]
        body.append(cells)
    strip = tag("span", [tag("span", score(at, 0)) for at in (low, (low + high) / 2, high)], class_="scale")
    methods = [tag("span", key(styles[label]), " ", named(label)) for label in labels]
    head = ["Client, device and link", strip, *methods, "Train", "Test"]
    # With this class a browser lays out a long table only when it comes into view.
    css = "tall many" if len(lines) > MANY else "tall"
    return tag("div", table(f"{words(capital=True)} of all clients", head, body, (0, 1), id="client-table"), class_=css)


def _some(names: Sequence[str]) -> str:
    rest = [f"{len(names) - MOST_DEVICES} more"] if len(names) > MOST_DEVICES else []
    return ", ".join([*names[:MOST_DEVICES], *rest])


def _range(found: tuple[int, int]) -> str:
    low, high = found
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def devices(groups: Sequence[Group], order: Sequence[str], styles: Styles) -> Html:
    found = device_table(groups, order, styles)
    about = tag(
        "p",
        "Means per client of that device over a whole run. The time of a task runs from its sending to the arrival of "
        "its update. Memory is the most that a training needed.",
        class_="about",
    )
    if found is None:
        return section("devices", "Costs by device", tag("p", "No client has received a task yet."))
    return section("devices", "Costs by device", tag("div", found, class_="tall"), about)


def troubles(groups: Sequence[Group], order: Sequence[str], styles: Styles) -> Html:
    found = trouble_table(groups, order, styles)
    fine = tag("p", "No update was refused, no client was lost, and every client could train.")
    return section("troubles", "Refused, lost and skipped updates", found or fine)


def again(groups: Sequence[Group]) -> Html:
    runs = [(each.label, one) for each in groups for one in each.runs]
    head = ["Run", "Method", "Ended", "Seed", "Rounds", f"Mean {words()}"]
    about = (
        "Each command repeats one run, bit-identical on the same machine and versions. An unfinished run continues "
        "from where it stopped."
    )
    return section(
        "again",
        "Runs, and how to repeat them",
        table("The runs", head, [_run_line(label, one) for label, one in runs], words=range(3)),
        tag("p", about, class_="about"),
        tag("pre", "\n".join(_command(one) for _, one in runs)),
        tag("h3", "Experiments"),
        tag("div", [_experiment(one, len(groups) == 1) for one in groups]),
        tag("h3", "Versions"),
        tag("ul", [tag("li", line) for line in _versions([one for _, one in runs])]),
    )


def _command(one: RunFigures) -> str:
    if one.finished:
        return f"potluck run {shlex.quote(str(one.folder / 'experiment.toml'))}"
    return f"potluck resume {shlex.quote(str(one.folder))}"


def _run_line(label: str, one: RunFigures) -> list[Html]:
    mark = None if one.finished else tag("span", one.state, class_="tag warn")
    return [
        tag("th", named(one.name), scope="row", class_="stick"),
        tag("td", named(label)),
        tag("td", mark, " ", one.ended if one.state != "interrupted" else f"after round {one.rounds}"),
        cell(str(one.seed)),
        cell(f"{one.rounds:,}"),
        cell(score(one.last.mean if one.last else None)),
    ]


def _experiment(one: Group, unfolded: bool) -> Html:
    first, seeds = one.runs[0], [each.seed for each in one.runs]
    also = f"; the others differ in run.seed = {', '.join(map(str, seeds[1:]))}" if seeds[1:] else ""
    title = tag("summary", named(one.label), f" (seed {first.seed}{also})")
    return tag("details", title, tag("pre", first.toml), open=unfolded)


def _versions(runs: Sequence[RunFigures]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for one in runs:
        found = ", ".join(f"{name} {version}" for name, version in one.versions.items())
        groups.setdefault(found or "not recorded: there is no summary yet", []).append(one.name)
    lines = [f"{found} ({'all runs' if len(groups) == 1 else ', '.join(names)})" for found, names in groups.items()]
    return [*lines, f"This report: potluck {potluck.__version__}"]
