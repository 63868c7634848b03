"""Trials: a client is sent the model of another cluster as the reply to a push, and its feedback says whether it fits.

Two kinds of client are tried. One that its cluster does not fit although it fits the others: it may belong elsewhere
(its names changed, or its first pushes misled). And, after each refinement, one of the smallest cluster: if all its
members fit elsewhere, the cluster was none. This is a merge test by feedback, and it costs no traffic. If the model
does not fit, the push that began from it is not merged, and the client is not tried with that cluster again.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from potluck.fleet import ClientId, Params
from potluck.methods.parts.echopfl.answers import Answers
from potluck.methods.parts.echopfl.feedback import FLOORS
from potluck.methods.parts.echopfl.merging import Distance, Member

if TYPE_CHECKING:
    from potluck.methods.parts.echopfl.clusters import ClusterRules, Grouping, Rules

BAD = 2.5  # times the floor: feedback at which a model does not fit at all


def misfit(feedback: float, rules: ClusterRules) -> bool:
    return feedback > BAD * FLOORS[rules.feedback]


def outcome(grouping: Grouping, client: ClientId, feedback: float, rules: ClusterRules) -> tuple[int, bool] | None:
    """The cluster whose model this push is about and whether it fits, None if it was no trial."""
    other, sent = grouping.tries.get(client), grouping.sent.get(client)
    if other is None or sent is None or sent.cluster != other or other not in grouping.clusters:
        return None
    own = grouping.members[client].feedback or 0.0
    return other, feedback <= max(FLOORS[rules.feedback], own / 2.0)


def refused(grouping: Grouping, client: ClientId, other: int) -> Grouping:
    """After a trial that failed: the push is not merged."""
    member = grouping.members[client]
    kept = replace(member, refused=(*member.refused, other))
    return replace(grouping, members=grouping.members.put(client, kept), tries=grouping.tries.drop(client))


def of_misfit(grouping: Grouping, client: ClientId, weights: Params, rules: ClusterRules, far: Distance) -> Grouping:
    """With a trial of the nearest other cluster for a client that its own one does not fit, if that fits the others."""
    member = grouping.members[client]
    asked = rules.alike < 1.0 and grouping.clusters[member.cluster].fits and member.feedback is not None
    if not asked or not misfit(member.feedback or 0.0, rules):
        return grouping
    others = [
        number for number, cluster in grouping.clusters.items()
        if cluster.members and number != member.cluster and number not in member.refused
    ]  # fmt: skip
    if not others:
        return grouping
    nearest = min(others, key=lambda number: (far(weights, grouping.clusters[number].weights), number))
    return replace(grouping, tries=grouping.tries.put(client, nearest))


def after_refinement(grouping: Grouping, rules: Rules, say: Answers) -> Grouping:
    """With a trial for one member of the smallest cluster, the one that pushes most often, of the nearest cluster."""
    grouping = _judged(grouping, rules.clusters)
    living = {number: cluster for number, cluster in grouping.clusters.items() if cluster.members}
    if len(living) < 2 or rules.clusters.alike >= 1.0:
        return grouping
    own = min(living, key=lambda number: (len(living[number].members), -number))
    others = [number for number in living if number != own]
    rows = say([living[number].weights for number in (own, *others)])
    other = others[int((rows[1:] @ rows[0]).argmax())]
    asked = [c for c in living[own].members if c not in grouping.tries and other not in grouping.members[c].refused]
    if not asked:
        return grouping
    client = max(asked, key=lambda one: (grouping.members[one].pushes, one))
    return replace(grouping, tries=grouping.tries.put(client, other))


def _judged(grouping: Grouping, rules: ClusterRules) -> Grouping:
    """With a note in every cluster whether its model fits half of its members or more."""
    clusters = {}
    for number, cluster in grouping.clusters.items():
        given = [g for client in cluster.members if (g := grouping.members[client].feedback) is not None]
        good = bool(given) and median(given) <= FLOORS[rules.feedback]
        clusters[number] = replace(cluster, fits=good, changed=0)
    return replace(grouping, clusters=clusters)


def changed(before: Member | None, feedback: float | None, rules: ClusterRules) -> bool:
    """Whether a client's cluster fitted it before and does not fit it at all now: its data changed."""
    if before is None or before.feedback is None or feedback is None:
        return False
    return before.feedback <= FLOORS[rules.feedback] and misfit(feedback, rules)


def urgent(grouping: Grouping, rules: ClusterRules) -> bool:
    """Whether the data of two members of one cluster changed: the clusters are refined at once."""
    return rules.alike < 1.0 and any(cluster.changed > 1 for cluster in grouping.clusters.values())
