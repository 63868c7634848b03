"""What a client infers with: the small table of received and own models, and the clients that never trained."""

from __future__ import annotations

from potluck.metrics import score, words
from potluck.report.figures.comparison import Comparison
from potluck.report.html.parts import section
from potluck.report.html.tables import Styles, cell, method_cell, table
from potluck.report.markup import Html, named, tag

MOST_NAMED = 12  # clients in one cell
_HEADLINES = {"received": "received", "own": "own", "mixed": "a mix of both"}
_SCORED = {
    "received": "the model that the server would send them",
    "start": "the untrained start: no model is sent",
    "personal": "what the method makes of the first private state",
}


def infers_with(found: Comparison, styles: Styles) -> Html | None:
    """None for runs of an older version, which did not record it."""
    if not found.infers_with:
        return None
    body = [
        [
            method_cell(line.method, styles),
            tag("td", _HEADLINES.get(line.headline, line.headline)),
            cell(score(line.received)),
            cell(score(line.own)),
            cell(score(line.accuracy)),
            cell(score(line.trained)),
        ]
        for line in found.infers_with
    ]
    head = [
        "Method",
        "Personal model",
        "Received",
        "Own",
        f"{words(capital=True)}, all clients",
        "Clients that trained",
    ]
    about = (
        "Received is the model that the server would send the client now. Own is the model as the client's last "
        f"training left it. Both come from the same run. The {words()} of a method is that of its personal model. A "
        f"client without an own model is scored as in the {words()} of all clients."
    )
    apart = _untrained(found, styles)
    return section(
        "infers",
        "What a client infers with",
        table(f"What a client infers with: mean {words()}", head, body, words=(0, 1)),
        tag("p", about, class_="about"),
        tag("h3", "Clients that never trained") if apart else None,
        apart,
    )


def _untrained(found: Comparison, styles: Styles) -> Html | None:
    """The clients that never trained, apart from the others; none if all trained."""
    body = []
    for line in found.infers_with:
        for scored, said in _SCORED.items():
            clients = [client for client, one in line.untrained.items() if one == scored]
            if clients:
                rest = len(clients) - MOST_NAMED
                some = ", ".join(clients[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
                mean = cell(score(line.untrained_accuracy))
                body.append([method_cell(line.method, styles), tag("td", named(some)), tag("td", said), mean])
    if not body:
        return None
    head = ["Method", "Clients, with any seed", "Scored with", f"Mean {words()}"]
    return table("Clients that never trained", head, body, words=(0, 1, 2))
