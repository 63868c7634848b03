"""Refinement of the clusters by the feedback of their members (EchoPFL section 4.3).

Clients that are gone are forgotten, clusters are merged while there are too many, and members whom a cluster does not
fit split off. In this order, so that a new cluster has until the next refinement to become different. Otherwise, as it
begins with the model of its parent, it would be closest to its parent and merged back at once.
"""

from __future__ import annotations

from dataclasses import replace

from potluck.methods.parts.echopfl import broadcast, merging
from potluck.methods.parts.echopfl.clusters import Grouping, Rules, broadcasted, left, noted
from potluck.methods.parts.echopfl.merging import Cluster, Distance
from potluck.methods.parts.shared_map import SharedMap

FLOORS = {"errors": 0.1, "frequencies": 1e-3}  # feedback below which a model fits; 0.1: a third of each class is wrong
JUDGES = 8  # members of a cluster whose distance is measured


def refined(grouping: Grouping, rules: Rules, distance: Distance) -> Grouping:
    """The clusters after one refinement."""
    grouping = replace(grouping, refinements=grouping.refinements + 1, to_broadcast=())
    grouping = _lifted(_closed(_forgotten(grouping, rules)))
    most = rules.clusters.most * rules.clusters.count
    while len(living := {k: cluster for k, cluster in grouping.clusters.items() if cluster.members}) > 1:
        pair = merging.closest(living, distance)
        if len(living) <= most and not _alike(grouping, *pair, rules, distance):
            break
        grouping = _merged(grouping, *pair, rules)
    for number in grouping.to_broadcast:  # a merged model is far from what its members have
        grouping = broadcasted(grouping, number)
    for number in list(grouping.clusters):
        grouping = _split(grouping, number, rules)
    return grouping


def _forgotten(grouping: Grouping, rules: Rules) -> Grouping:
    """Without the clients that have not pushed for `forget_after` refinements."""
    for client in sorted(grouping.members) if rules.clusters.forget_after else ():
        member = grouping.members[client]
        if grouping.refinements - member.seen > rules.clusters.forget_after:
            grouping = left(grouping, client, member, rules)
            grouping = noted(replace(grouping, members=grouping.members.drop(client)), "forget", client)
    return grouping


def _closed(grouping: Grouping) -> Grouping:
    """Without the clusters that were empty for a whole period: until then a client may come back."""
    for number, cluster in list(grouping.clusters.items()):
        if not cluster.members and cluster.emptied < grouping.refinements - 1:
            rest = {other: kept for other, kept in grouping.clusters.items() if other != number}
            grouping = noted(replace(grouping, clusters=rest), "close", "", cluster=number)
    return grouping


def _lifted(grouping: Grouping) -> Grouping:
    """A cluster that split off trains all its layers from the next refinement on, whether or not clusters merge then.

    The paper says "only after the next merge": with few clusters none may ever come.
    """
    rest = {number: replace(cluster, last_layer=False) for number, cluster in grouping.clusters.items()}
    return replace(grouping, clusters=rest)


def _alike(grouping: Grouping, a: int, b: int, rules: Rules, distance: Distance) -> bool:
    """Whether two clusters are nearer to each other than their members are to them: then one model serves both.

    If it does not, the feedback shows it, and those it does not fit split off again. A member counts once it pushed
    since its cluster split or merged.
    """
    within = []
    for number in (a, b) if rules.clusters.alike else ():
        centre = grouping.clusters[number].weights
        kept = (grouping.members[client].weights for client in list(grouping.clusters[number].members)[:JUDGES])
        own = [far for weights in kept if weights is not None and (far := distance(weights, centre)) > 0.0]
        if not own:
            return False
        within.append(sum(own) / len(own))
    if not within:
        return False
    between = distance(grouping.clusters[a].weights, grouping.clusters[b].weights)
    return between < rules.clusters.alike * sum(within) / 2


def _split(grouping: Grouping, number: int, rules: Rules) -> Grouping:
    """Section 4.3.3: the members that the model fits worst form a new cluster, which trains its last layer first."""
    parent = grouping.clusters[number]
    given = {client: grouping.members[client].feedback for client in parent.members}
    feedback = {client: g for client, g in given.items() if g is not None}
    floor = FLOORS[rules.clusters.feedback]
    leaving = merging.misfits(feedback, rules.clusters.expand, least=5, floor=floor)
    if not leaving or len(leaving) == len(parent.members):
        return grouping
    child, members, total = grouping.opened, grouping.members, 0.0
    own: SharedMap[int] = SharedMap()
    for client in leaving:
        member = members[client]
        grouping = left(grouping, client, member, rules)
        record = None if member.weights is None else parent.weights
        members = members.put(client, replace(member, cluster=child, weights=record, feedback=None))
        own, total = own.put(client, grouping.arrivals), total + member.examples
    # Section 5.2.2: the record starts anew, the predictor is inherited, and there is no broadcast.
    model, serial, history = parent.weights, grouping.serial + 1, broadcast.inherited(parent.history)
    cluster = Cluster(model, serial, parent.depth, own, total, model, model, history, last_layer=True)
    grouping = replace(
        grouping,
        clusters={**grouping.clusters, child: cluster},
        members=members,
        serial=serial,
        opened=child + 1,
    )
    return noted(grouping, "split", "", cluster=child, version=cluster.depth, parent=number, members=len(leaving))


def _merged(grouping: Grouping, a: int, b: int, rules: Rules) -> Grouping:
    """Section 4.3.2, Algorithm 1: the model of the smaller cluster is merged into that of the larger one."""
    clusters, serial = grouping.clusters, grouping.serial + 1
    main, other = sorted((a, b), key=lambda number: (-len(clusters[number].members), number))
    one, two = clusters[main], clusters[other]
    weights = merging.merged(one.weights, two.weights, two.newest)
    members, own = grouping.members, one.members
    for client, arrival in two.members.items():
        own = own.put(client, arrival)
    for client in own:
        member = members[client]
        record = None if member.weights is None else weights
        members = members.put(client, replace(member, cluster=main, weights=record, feedback=None))
    depth, examples = max(one.depth, two.depth) + 1, one.examples + two.examples
    history = broadcast.united(one.history, two.history, rules.seed, serial, unite=rules.broadcast.unite)
    cluster = Cluster(weights, serial, depth, own, examples, two.newest, weights, history)
    rest = {number: kept for number, kept in clusters.items() if number not in (main, other)}
    grouping = replace(
        grouping,
        clusters={**rest, main: cluster},
        members=members,
        serial=serial,
        to_broadcast=(*(number for number in grouping.to_broadcast if number not in (main, other)), main),
    )
    return noted(grouping, "merge", "", cluster=main, version=cluster.depth, merged=other)
