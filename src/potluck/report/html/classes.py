"""The section on clients by class: what each client holds, and what its model gets right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from potluck.report.drawing.styles import Style
from potluck.report.html.parts import page_per_method, section, tabs
from potluck.report.html.tables import table
from potluck.report.markup import Html, named, tag
from potluck.report.reading.client_facts import Classes, classes
from potluck.report.reading.groups import Group
from potluck.report.reading.run_figures import RunFigures
from potluck.units import NOTHING, percent

MOST_ROWS = 60  # clients with a row each; more than that are shown by tenths
MOST_CLASSES = 40  # columns


def by_class(groups: Sequence[Group], order: Sequence[str], styles: Mapping[str, Style]) -> Html | None:
    """The section, a tab per method, from its first run that counts."""

    def draw(run: RunFigures) -> Html | None:
        found = classes(run)
        return None if found is None else picture(found)

    pages = page_per_method(groups, order, draw)
    if not pages:
        return None
    about = tag(
        "p",
        "Each cell has the share of a class's test samples that the client's personal model gets right, and in small "
        "the number of training samples of that class. The stronger the colour, the fewer are right. A dash means that "
        "there is nothing to test.",
        class_="about",
    )
    return section("classes", "Clients by class", tabs(pages, styles), about)


def picture(found: Classes) -> Html:
    """A row per client, the worst first; for a large fleet a row per tenth of the clients."""
    clients = list(found.test)
    shares = {c: sum(found.right[c]) / max(1, sum(found.test[c])) for c in clients}
    clients.sort(key=lambda c: (shares[c], c))
    if len(clients) <= MOST_ROWS:
        rows = [(named(client), [client]) for client in clients]
    else:
        parts = [part.tolist() for part in np.array_split(np.array(clients), 10)]
        names = ["worst tenth", *(f"tenth {i}" for i in range(2, 10)), "best tenth"]
        rows = [(tag("span", name), part) for name, part in zip(names, parts, strict=True)]
    shown = list(range(len(found.names)))[:MOST_CLASSES]
    body = [_row(found, name, members, shown) for name, members in [*rows, (tag("i", "all clients"), clients)]]
    head = ["Client" if len(clients) <= MOST_ROWS else "Clients", *(named(found.names[k]) for k in shown), "All"]
    caption = f"Right answers by client and class. {in_words(found)}"
    left_out = len(found.names) - len(shown)
    note = (
        tag("p", f"{left_out:,} more {'class is' if left_out == 1 else 'classes are'} not shown.", class_="about")
        if left_out > 0
        else None
    )
    return tag(
        "div",
        tag("p", in_words(found)),
        tag("div", table(caption, head, body, stacked=False), class_="tall heat"),
        note,
    )


def in_words(found: Classes) -> str:
    """The text alternative: the hardest and the easiest class, and how uneven the data of the clients is."""
    test, right, train = (np.array(list(part.values())) for part in (found.test, found.right, found.train))
    tested = [k for k in range(len(found.names)) if test[:, k].sum()]
    if not tested:
        return "There is nothing to test."
    share = {k: right[:, k].sum() / test[:, k].sum() for k in tested}
    hardest, easiest = min(tested, key=lambda k: share[k]), max(tested, key=lambda k: share[k])
    has = float((train > 0).sum(1).mean())
    text = f"A client holds samples of {has:.1f} of {len(found.names)} classes on average."
    if share[hardest] == share[easiest]:
        return f"{text} All classes are equally hard ({percent(share[hardest], 0)} right)."
    return (
        f"{text} The hardest class is “{found.names[hardest]}” ({percent(share[hardest], 0)} right), "
        f"the easiest “{found.names[easiest]}” ({percent(share[easiest], 0)})."
    )


def _row(found: Classes, name: Html, members: Sequence[str], shown: Sequence[int]) -> list[Html]:
    test, right, train = (
        np.array([part[client] for client in members]).sum(0) for part in (found.test, found.right, found.train)
    )
    cells = [tag("th", name, scope="row", class_="stick")]
    cells += [_cell(int(right[k]), int(test[k]), float(train[k]) / len(members)) for k in shown]
    return [*cells, _cell(int(right.sum()), int(test.sum()), float(train.sum()) / len(members))]


def _cell(right: int, test: int, train: float) -> Html:
    held = tag("small", f"{train:,.0f}" if train == round(train) else f"{train:,.1f}")
    if not test:
        return tag("td", NOTHING, held, class_="n none")
    share = right / test
    # Five steps instead of a ramp: both eyes and printers can tell them apart.
    return tag(
        "td", f"{100 * share:.0f}", held, class_=f"n q{min(4, int(share * 5))}", title=f"{right} of {test} right"
    )
