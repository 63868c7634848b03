"""Refinement of the clusters by the feedback of their members (EchoPFL section 4.3).

Clients that are gone are forgotten, clusters are merged while there are too many, and members whom a cluster does not
fit split off. In this order, so that a new cluster has until the next refinement to become different. Otherwise, as it
begins with the model of its parent, it would be closest to its parent and merged back at once.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

from potluck.fleet import ClientId
from potluck.methods.parts import held
from potluck.methods.parts.echopfl import broadcast, merging, trials
from potluck.methods.parts.echopfl.answers import Answers, two_groups, unlike
from potluck.methods.parts.echopfl.clusters import Grouping, Rules, broadcasted, left, noted
from potluck.methods.parts.echopfl.feedback import FLOORS
from potluck.methods.parts.echopfl.merging import Cluster, Distance
from potluck.methods.parts.shared_map import SharedMap

LEAST = 5  # members with feedback that a cluster must have to split
MOST = 64  # members whose answers are compared; the others find their cluster by their next push


def refined(grouping: Grouping, rules: Rules, distance: Distance, say: Answers) -> Grouping:
    """The clusters after one refinement; `say` is what models answer to the same inputs."""
    grouping = replace(grouping, refinements=grouping.refinements + 1, to_broadcast=())
    grouping = _lifted(_closed(_forgotten(grouping, rules)))
    most = rules.clusters.most * rules.clusters.count
    while len(living := {k: cluster for k, cluster in grouping.clusters.items() if cluster.members}) > 1:
        pair = merging.closest(living, distance)
        if len(living) <= most and not _alike(grouping, *pair, rules, say):
            break
        grouping = _merged(grouping, *pair, rules)
    for number in grouping.to_broadcast:  # a merged model is far from what its members have
        grouping = broadcasted(grouping, number)
    for number in list(grouping.clusters):
        grouping = _split(grouping, number, rules, say)
    return trials.after_refinement(grouping, rules, say)


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


def _alike(grouping: Grouping, a: int, b: int, rules: Rules, say: Answers) -> bool:
    """Whether the models of two clusters say the same: then one model serves both.

    The same measure and limit decide whether a cluster is two groups, so that splits and merges do not alternate.
    """
    least = rules.clusters.alike
    return least < 1.0 and 1.0 - unlike(say, grouping.clusters[a].weights, grouping.clusters[b].weights) > least


def _leaving(grouping: Grouping, number: int, rules: Rules, say: Answers) -> list[ClientId]:
    """Who leaves a cluster: by feedback as printed, or the group of the worst-fitted member if it disagrees."""
    given = {client: grouping.members[client].feedback for client in grouping.clusters[number].members}
    feedback = {client: g for client, g in given.items() if g is not None}
    floor = FLOORS[rules.clusters.feedback]
    if rules.clusters.split == "share":
        return merging.misfits(feedback, rules.clusters.expand, LEAST, floor)
    ranked = sorted(feedback, key=lambda client: (-feedback[client], client))
    judged = ranked[: MOST // 2] + ranked[MOST // 2 :][-MOST // 2 :]
    centre = grouping.clusters[number].weights
    records = {client: grouping.members[client].weights for client in judged}
    known = {client: held.named(model, centre) for client, model in records.items() if model is not None}
    if len(known) < LEAST or feedback[next(iter(known))] <= floor:
        return []
    misfits = [place for place, client in enumerate(known) if trials.misfit(feedback[client], rules.clusters)]
    clear = min(len(misfits), sum(feedback[client] <= floor for client in known)) > 1  # others it does fit
    group, agree = two_groups(say(list(known.values())), misfits if clear else ())
    leaving = [client for client, leaves in zip(known, group.tolist(), strict=True) if leaves]
    alone = min(len(leaving), len(known) - len(leaving)) < 2  # one client is no group
    if alone or agree > rules.clusters.alike or mean(feedback[client] for client in leaving) <= floor:
        return []
    return leaving


def _split(grouping: Grouping, number: int, rules: Rules, say: Answers) -> Grouping:
    """Section 4.3.3: the members that the model does not fit form a new cluster, which trains its last layer first.

    A group begins with the mean of its members' models, by which it was found; the worst share with its parent's model.
    """
    parent, leaving = grouping.clusters[number], _leaving(grouping, number, rules, say)
    if not leaving or len(leaving) == len(parent.members):
        return grouping
    child, members, total = grouping.opened, grouping.members, 0.0
    own: SharedMap[int] = SharedMap()
    model, mass = parent.weights, None
    for client in leaving:
        member = members[client]
        grouping = left(grouping, client, member, rules)
        record = member.weights
        if record is not None and rules.clusters.split == "groups":
            model, _, mass = merging.changed(model, total, mass, None, (record, member.examples))
        elif record is not None:
            record = parent.weights
        members = members.put(client, replace(member, cluster=child, weights=record, feedback=None))
        own, total = own.put(client, grouping.arrivals), total + member.examples
    # Section 5.2.2: the record starts anew, the predictor is inherited, and there is no broadcast.
    serial, history = grouping.serial + 1, broadcast.inherited(parent.history)
    cluster = Cluster(model, serial, parent.depth, own, total, model, model, history, last_layer=True, mass=mass)
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
