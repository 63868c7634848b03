"""The model that the server of a composed method has for a client."""

from __future__ import annotations

from typing import Any, cast

from potluck.fleet import ClientId, Params
from potluck.methods.parts.clusterfl import models
from potluck.methods.parts.compose.groups import Groups
from potluck.methods.parts.compose.relations import Related
from potluck.methods.parts.echopfl.clusters import Grouping, largest, within_reach


def base(state: Any, client: ClientId) -> Params:
    """The model of a client's group at the client's width."""
    book, width = state.book, state.known.get(client, 1.0)
    number = 0
    whole: Params = state.first
    if isinstance(book, Groups):
        sizes = {k: 0 for k in book.groups}
        if client not in book.members and len(sizes) > 1:
            for k in book.members.values():
                sizes[k] += 1
        number = book.members.get(client, max(sizes, key=lambda k: (sizes[k], -k)))
        whole = book.groups[number].weights
    elif isinstance(book, Grouping):
        member = book.members.get(client)
        number = largest(book) if member is None else member.cluster
        whole = {**state.first, **within_reach(book, client)}
    elif isinstance(book, Related):
        found = models.centre(cast(Any, book), client)
        whole = state.first if found is None else {**state.first, **found}
    if width == 1.0:
        return whole
    sub = state.given.get(f"{number}/{width}")
    at_width: Params = whole if sub is None else sub.weights
    return at_width
