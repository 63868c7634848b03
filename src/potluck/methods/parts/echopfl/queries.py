"""Pull by the client (EchoPFL section 6): clients at work ask now and then whether their cluster's model changed much.

A broadcast goes to all members of a cluster when it has moved far from the last broadcast. A query looks at one client:
how far is the model of its cluster from the one this client has? The measure is that of eq. 4, A >= c_gain Delta, with
the smoothed estimate of the next change. So clients that got their model just now are sent nothing. All clients ask at
the same moments. A query is a version number, a few bytes, and is not counted; its answer is a model and is.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from potluck.fleet import ClientId
from potluck.methods.parts.echopfl.clusters import Grouping, Rules, newest_of, noted
from potluck.methods.parts.echopfl.merging import Distance, Sent


def next_at(now: float, every: float) -> float | None:
    """The next moment at which clients ask; None if they do not."""
    return (math.floor(now / every) + 1.0) * every if every else None


def answered(
    grouping: Grouping, busy: Collection[ClientId], rules: Rules, distance: Distance
) -> tuple[Grouping, dict[int, list[ClientId]]]:
    """The clusters after a moment of queries, and who is sent the model of which cluster."""
    to: dict[int, list[ClientId]] = {}
    far: dict[tuple[int, int], float] = {}  # by cluster and version: clients share models
    for client in busy:
        member = grouping.members.get(client)
        has = newest_of(grouping, client)
        if member is None or has.cluster != member.cluster:  # a newcomer, or on trial with another cluster's model
            continue
        number, cluster = member.cluster, grouping.clusters[member.cluster]
        if (number, has.serial) not in far:
            far[number, has.serial] = distance(cluster.weights, has.weights)
        if far[number, has.serial] >= rules.broadcast.c_gain * cluster.history.expected > 0.0:
            to.setdefault(number, []).append(client)
            sent = Sent(cluster.weights, cluster.serial, cluster.depth, number, grouping.sent[client].epochs)
            grouping = replace(grouping, sent=grouping.sent.put(client, sent))
    for number, clients in to.items():
        grouping = noted(grouping, "query", "", cluster=number, members=len(clients))
    return grouping, to
