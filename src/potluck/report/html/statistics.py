"""The section on the differences between methods: which are more than noise, for whom, and what is still missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from potluck.metrics import alike, distance, metric
from potluck.report.drawing.ranks import rank_plot
from potluck.report.drawing.rows import client_gains, differences
from potluck.report.drawing.sketch import Sketch, as_svg
from potluck.report.drawing.styles import Style
from potluck.report.figures.comparison import Comparison
from potluck.report.figures.gains import Gains
from potluck.report.figures.holm import RISK
from potluck.report.figures.pairs import FAIR, STEADY, Interval, Pair
from potluck.report.figures.power import SeedsNeeded
from potluck.report.figures.ranks import Ranks
from potluck.report.html.parts import section
from potluck.report.html.tables import cell, method_cell, table
from potluck.report.markup import Html, named, tag
from potluck.units import NOTHING, plural

Styles = Mapping[str, Style]

SURE, ALONE = "●", "○"  # marks of a difference: after the correction for all pairs, and only without it


def statistics(found: Comparison, styles: Styles) -> Html | None:
    """The section; None with fewer than two finished methods that share a seed."""
    mine = [one for one in found.pairs if one.method == found.best and one.mean is not None]
    if not mine:
        return None
    clients = [one for one in found.per_client if one.method == found.best]
    charts = [_chart(one, styles) for one in (differences(mine), client_gains(clients)) if one is not None]
    return section(
        "differences",
        "Which differences are real",
        tag("p", _about(found, mine), class_="about"),
        tag("div", charts, class_="charts"),
        tag("h3", f"{found.best} against each method"),
        _best_table(mine, found.seeds_needed, styles),
        tag("p", _about_best(mine), class_="about"),
        *_every_pair(found, styles),
        *_by_client(found, styles),
        *_own(found, styles),
        *_ranked(found.ranks, styles),
    )


def _chart(sketch: Sketch, styles: Styles, noted: bool = True) -> Html:
    note = tag("p", sketch.note, class_="about") if noted else None
    return tag("figure", tag("figcaption", sketch.title), as_svg(sketch, styles), note)


def _about(found: Comparison, mine: Sequence[Pair]) -> str:
    seeds = max(len(one.seeds) for one in mine)
    points = ", in percentage points," if metric().share else ""
    return (
        f"All figures in this section are differences in {found.figures}{points} over "
        f"{plural(seeds, 'seed')}. Runs of one seed share fleet, split and first weights, so methods are compared "
        "within each seed. They speak of this dataset and this fleet only."
    )


def _best_table(mine: Sequence[Pair], needed: Sequence[SeedsNeeded], styles: Styles) -> Html:
    more = {(one.method, one.other): one.text for one in needed}
    body = [
        [
            method_cell(one.other, styles),
            cell(distance(one.mean or 0.0)),
            cell(_interval(one.t)),
            cell(_interval(one.bootstrap)),
            cell(p_value(one.p)),
            cell(p_value(one.p_best)),
            tag("td", more.get((one.method, one.other), NOTHING), class_="why"),
        ]
        for one in mine
    ]
    head = ["Method", "Behind by", "95 % t interval", "95 % bootstrap", "p", "p, Holm", "Seeds to tell them apart"]
    return table("The best method against each other one", head, body, words=(0, 6))


def _about_best(mine: Sequence[Pair]) -> str:
    if all(one.t is None for one in mine):
        return "Intervals and p-values need three common seeds or more."
    seeds = max(len(one.seeds) for one in mine)
    text = (
        "Points by which a method is behind, mean over common seeds. If an interval contains 0, the difference may be "
        f"noise. p is that of the paired t-test; “p, Holm” is corrected for {plural(len(mine), 'comparison')} with the "
        f"best, and a value up to {RISK} counts. "
    )
    if seeds < FAIR:
        text += f"With {seeds} seeds the bootstrap interval is too narrow; go by the t interval. "
    odd = [one.other for one in mine if one.caution]
    if odd:
        text += f"For {', '.join(odd)}, {mine[[one.other for one in mine].index(odd[0])].caution}. "
    return (
        f"{text}The last column is the number of seeds with which a paired t-test at 5 % would find a difference of "
        "this size and spread four times in five. It is rough, because the spread is known from these seeds only. "
        "Where it says equal, the t interval shows how large the difference could still be."
    )


def _every_pair(found: Comparison, styles: Styles) -> list[Html]:
    """Every method minus every other, as a table; with two methods there is nothing to add."""
    names = [row.method for row in found.rows if any(row.method in (one.method, one.other) for one in found.pairs)]
    if len(names) < 3:
        return []
    known = {(one.method, one.other): one for one in found.pairs}
    body = []
    for row in names:
        cells = [tag("td", NOTHING if row == column else _entry(known, row, column), class_="n") for column in names]
        body.append([method_cell(row, styles), *cells])
    judged = sum(one.p_all is not None for one in found.pairs)
    about = "Row minus column in points: a positive figure means that the method of the row is ahead. "
    about += (
        f"{SURE} is more than noise, also with Holm's correction for all {judged} pairs; {ALONE} is more than noise on "
        "its own but not with the correction; no mark may be noise."
        if judged
        else "There are too few common seeds to mark what is more than noise."
    )
    head = ["Method", *(named(name) for name in names)]
    return [
        tag("h3", "Every pair of methods"),
        table("Every method minus every other", head, body, stacked=False),
        tag("p", about, class_="about"),
    ]


def _entry(known: Mapping[tuple[str, str], Pair], row: str, column: str) -> Html:
    one, sign = known.get((row, column)), 1.0
    if one is None:
        one, sign = known.get((column, row)), -1.0
    if one is None or one.mean is None:
        return tag("span", NOTHING)
    mark = mark_of(one)
    return tag("span", distance(sign * one.mean), f" {mark}" if mark else "", class_="mark" if mark == SURE else None)


def mark_of(one: Pair) -> str:
    """SURE, ALONE or nothing."""
    if one.p_all is not None and one.p_all <= RISK:
        return SURE
    return ALONE if one.p is not None and one.p <= RISK else ""


def _by_client(found: Comparison, styles: Styles) -> list[Html]:
    if not found.per_client:
        return []
    body = [
        [
            tag("th", named(one.method), scope="row", class_="stick"),
            tag("td", named(one.other)),
            *(cell(str(count)) for count in (one.gain, one.lose, one.tie)),
            *(cell(distance(value)) for value in (one.mean, one.median, one.largest_gain)),
            cell(distance(one.largest_loss), named(one.worst)),
            cell(p_value(one.p_holm)),
        ]
        for one in found.per_client
    ]
    head = ["With", "Instead of", "Gain", "Lose", "Tie", "Mean", "Median", "Largest gain", "Largest loss", "p, Holm"]
    return [
        tag("h3", "Client by client"),
        table("Clients that gain, lose and tie", head, body, words=(0, 1)),
        tag("p", _about_clients(found.per_client), class_="about"),
    ]


def _about_clients(found: Sequence[Gains]) -> str:
    clients, tested = max(one.clients for one in found), sum(one.p is not None for one in found)
    return (
        f"The same client under the same seed with both methods, mean over seeds, {plural(clients, 'client')}. Gain, "
        f"Lose and Tie are numbers of clients; a client ties if the methods are {alike()}. The other figures "
        f"are{' points that' if metric().share else ' what'} a client gains; below the largest loss is the client "
        "that has it. p is that of Wilcoxon's signed-rank test over the clients, corrected for "
        f"{plural(tested, 'comparison')}; a value up to {RISK} counts, and a dash means that fewer than six clients "
        "differ. Clients of one fleet share models, so p speaks of these clients, not of others."
    )


def _own(found: Comparison, styles: Styles) -> list[Html]:
    """What a client's own model adds to the received one, for the methods that have both."""
    if not found.own_pairs:
        return []
    clients = {one.other: one for one in found.own_clients}
    body = []
    for one in found.own_pairs:
        each = clients.get(one.other)
        counts = (NOTHING,) * 3 if each is None else (str(each.gain), str(each.lose), str(each.tie))
        cells = [distance(one.mean or 0.0), _interval(one.t), p_value(one.p_all), *counts]
        body.append([method_cell(one.other, styles), *(cell(text) for text in cells)])
    about = (
        "Points by which the own model, as the last training left it, is ahead of the model that the server would "
        "send. These are the same runs read twice, mean over seeds. p is that of the paired t-test, with Holm's "
        f"correction for {plural(len(body), 'comparison')}. Gain, Lose and Tie are numbers of clients, as above."
    )
    if any(one.caution for one in found.own_pairs):
        about += f" An interval of width 0 proves nothing: {STEADY}."
    head = ["Method", "Own minus received", "95 % t interval", "p, Holm", "Gain", "Lose", "Tie"]
    return [
        tag("h3", "Own models against received ones"),
        table("Own models minus received ones", head, body),
        tag("p", about, class_="about"),
    ]


def _ranked(found: Ranks | None, styles: Styles) -> list[Html]:
    if found is None or not found.tells:
        return []
    chart = _chart(rank_plot(found), styles, noted=found.critical_difference is not None)
    return [
        tag("h3", f"Ranks over {found.over}s"),
        tag("div", chart, tag("p", about_ranks(found), class_="about"), class_="charts"),
    ]


def about_ranks(found: Ranks) -> str:
    """Explain the rank plot in words."""
    text = (
        f"Within each {found.over} the best method has rank 1, the next rank 2; the plot shows means over "
        f"{plural(len(found.blocks), found.over)}. "
    )
    if found.p is not None:
        differ = "the ranks differ" if found.p <= RISK else "the ranks may all be equal"
        text += f"Friedman's test: p {p_value(found.p, True)}, so {differ}. "
    if found.critical_difference is not None:
        text += (
            f"Two methods differ if their average ranks are more than {found.critical_difference:.2f} apart (Nemenyi, "
            "5 % for all pairs together). "
        )
    return f"{text}Ranks ignore by how much a method wins. {found.caution}".strip()


def _interval(found: Interval | None) -> str:
    return NOTHING if found is None else f"{distance(found.low)} to {distance(found.high)}"


def p_value(value: float | None, sign: bool = False) -> str:
    """Three decimals; `sign` writes the equals sign as well."""
    if value is None:
        return NOTHING
    if value < 0.001:
        return "< 0.001"
    return f"{'= ' if sign else ''}{value:.3f}"
