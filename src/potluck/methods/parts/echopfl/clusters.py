"""The clusters in the order of arrivals: what the server knows, and how it changes when a model arrives.

The part of EchoPFL (Li et al., IMWUT 2024, sections 4.2 and 5) that needs no fleet, as pure functions of a `Grouping`.
`refinement.py` has section 4.3. Every decision follows from the order of events, so a run can be repeated exactly.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from json import JSONEncoder
from typing import Any, Literal, Protocol

from potluck.fleet import ClientId, Params
from potluck.methods.parts import checks, held
from potluck.methods.parts.echopfl import broadcast, merging, trials
from potluck.methods.parts.echopfl.broadcast import BroadcastRules
from potluck.methods.parts.echopfl.feedback import FLOORS
from potluck.methods.parts.echopfl.merging import Cluster, Distance, Member, Sent, Upload
from potluck.methods.parts.renewed import renewed
from potluck.methods.parts.shared_map import SharedMap, share
from potluck.rows import copied
from potluck.tensors import mix

AS_JSON = JSONEncoder().encode


@dataclass(frozen=True)
class ClusterRules:
    """The settings of clustering."""

    count: int = 2  # C: the first C distinct models to arrive become the centres; 1 with refine = false: one cluster
    most: float = 2.0  # h_m: clusters are merged above h_m C
    expand: float = 0.2  # share of a cluster that may split off
    refine: bool = True
    refine_every: int = 0  # arrivals; 0: as many as there are clients
    forget_after: int = 0  # refinements without a push after which a client's model no longer counts; 0: never
    hysteresis: float = 0.95  # a client moves for a distance below this share of the present one; 1: the literal rule
    assign: Literal["l1", "kl"] = "l1"  # kl: by outputs on the server rows, or on noise without any
    first: Literal["answers", "kl", "direction", "l1"] = "answers"  # how first pushes, and misfits, find a cluster
    first_pushes: int = 3  # so many; 0: `assign` from the start
    alike: float = 0.8  # merge clusters whose answers correlate above this, split those that do below; 1: do not ask
    split: Literal["groups", "share"] = "groups"  # who leaves a cluster: those who answer alike, or the worst share
    feedback: Literal["errors", "frequencies"] = "errors"  # how a client judges a model: errors per class, or eq. 3
    merge_rule: Literal["latest", "mix", "fedasync"] = "latest"
    eta: float = 0.6  # of the merge rule fedasync

    def __post_init__(self) -> None:
        checks.at_least(self, "count", 1)
        checks.at_least(self, "most", 1.0)
        checks.at_least(self, "refine_every", 0)
        for name in ("forget_after", "first_pushes"):
            checks.at_least(self, name, 0)
        for name in ("expand", "hysteresis", "eta", "alike"):
            checks.within(self, name, 0.0, 1.0)


class Rules(Protocol):
    """The settings that decide here: `echopfl.Config` has them."""

    @property
    def clusters(self) -> ClusterRules: ...
    @property
    def broadcast(self) -> BroadcastRules: ...
    @property
    def seed(self) -> int: ...


@dataclass(frozen=True)
class Grouping:
    """All clusters and their members. It never changes: the next one shares with it all that stayed the same."""

    first: Params  # the model that all clients begin with
    clusters: Mapping[int, Cluster] = field(default_factory=dict)
    members: SharedMap[Member] = field(default_factory=SharedMap)
    sent: SharedMap[Sent] = field(default_factory=SharedMap)  # each client's newest reply
    newcomers: SharedMap[int] = field(default_factory=SharedMap)  # clients on their first task
    newcomers_have: Sent | None = None  # the newest broadcast to newcomers
    arrivals: int = 0
    refinements: int = 0
    serial: int = 0  # versions so far, of all clusters
    opened: int = 0  # clusters so far
    broadcasts: int = 0
    tries: SharedMap[int] = field(default_factory=SharedMap)  # clients that get the model of another cluster, once
    staleness: tuple[int, int] = (0, 0)  # summed over all merges, and the largest
    to_broadcast: tuple[int, ...] = ()  # clusters that broadcast in this step
    events: tuple[tuple[str, str, str], ...] = ()  # of this step: kind, client, details as JSON

    def __post_init__(self) -> None:
        share(self, "members", "sent", "newcomers", "tries")


def reply(grouping: Grouping, client: ClientId, rules: Rules) -> tuple[Sent, bool]:
    """The model to send to a client next, and whether it is to train the last layer only.

    A newcomer gets the model of the largest cluster, or the first model while centres are still wanted.
    """
    member = grouping.members.get(client)
    number = member.cluster if member else largest(grouping)
    if number < 0 or (member is None and grouping.opened < rules.clusters.count):
        return Sent(grouping.first, 0, 0, -1), False
    tried = grouping.tries.get(client, number)
    number = tried if tried in grouping.clusters else number
    cluster = grouping.clusters[number]
    return Sent(cluster.weights, cluster.serial, cluster.depth, number), cluster.last_layer


def largest(grouping: Grouping) -> int:
    """The cluster with most members, and of equal ones the oldest; -1 where there is none."""
    living = [number for number, cluster in grouping.clusters.items() if cluster.members]
    return max(living, key=lambda number: (len(grouping.clusters[number].members), -number), default=-1)


def newest_of(grouping: Grouping, client: ClientId) -> Sent:
    """The newest model that the client has: its last reply, or a broadcast to its cluster since."""
    own = grouping.sent.get(client, Sent(grouping.first, 0, 0, -1))
    member = grouping.members.get(client)
    if member is None:
        other = grouping.newcomers_have if client in grouping.newcomers else None
        return other if other is not None and other.serial > own.serial else own
    cluster = grouping.clusters[member.cluster]
    if cluster.broadcast_serial > own.serial:
        return Sent(cluster.broadcast, cluster.broadcast_serial, cluster.broadcast_depth, member.cluster)
    return own


def within_reach(grouping: Grouping, client: ClientId) -> Params:
    """The model that the server has for a client: its cluster's as it is now.

    A client in no cluster gets what newcomers get: the newest broadcast of the largest cluster, or that cluster's model
    while there was none.
    """
    member = grouping.members.get(client)
    has = newest_of(grouping, client)
    number = largest(grouping) if member is None else member.cluster
    if number < 0 or (member is None and has.serial):
        return has.weights
    return grouping.clusters[number].weights


def push(
    grouping: Grouping,
    client: ClientId,
    update: Any,
    rules: Rules,
    names: Collection[str],
    distance: Distance,
    outputs: Distance | None = None,
) -> Grouping:
    """Section 4.2 on the arrival of one model (`echopfl.Pushed`): find its cluster, merge it, decide on a broadcast.

    The cost does not depend on the number of clients. `outputs` is how far the answers of two models are apart.
    """
    member, (base, depth) = grouping.members.get(client), update.version.tolist()
    if member is not None and base < member.base and rules.clusters.merge_rule != "mix":
        return noted(grouping, "stale", client, base=base, known=member.base)  # a later one of its own came first
    # The models are kept for long: a copy frees the message.
    update = Upload(copied(update.weights), float(update.examples), base, depth, float(update.feedback))
    grouping = renewed(grouping, arrivals=grouping.arrivals + 1, newcomers=grouping.newcomers.drop(client))
    trial = None if member is None else trials.outcome(grouping, client, update.feedback, rules.clusters)
    if trial is not None and not trial[1]:
        return noted(trials.refused(grouping, client, trial[0]), "refuse", client, cluster=trial[0])
    target, far = -1, 0.0
    if grouping.clusters:
        present = None if member is None else member.cluster
        measure = _early(grouping, client, update, rules.clusters, names, outputs or distance) or distance
        target, far = merging.nearest(
            grouping.clusters, update.weights, present, rules.clusters.hysteresis, measure
        )  # eq. 1
    target = target if trial is None else trial[0]
    first, wanted = member is None and update.examples > 0, grouping.opened < rules.clusters.count
    if first and merging.is_new(grouping.clusters, wanted, update.weights, target, names):
        return _opened(grouping, client, update, rules)
    if target < 0:  # no samples, and no cluster to be in
        return grouping
    known = _member(grouping, client, update, target, rules)
    if member is not None and member.cluster != target:
        if trial is not None:  # the cluster it comes from fits worse
            known = replace(known, refused=(*known.refused, member.cluster))
        grouping = left(grouping, client, member, rules)
        grouping = noted(grouping, "move", client, cluster=target, came_from=member.cluster)
    grouping = _absorbed(grouping, client, update, known, far, rules, names)
    return trials.of_misfit(grouping, client, update.weights, rules.clusters, outputs or distance)


def _early(
    grouping: Grouping, client: ClientId, update: Upload, rules: ClusterRules, names: Collection[str], outputs: Distance
) -> Distance | None:
    """How far a client's first pushes are from a cluster, and those of a client that its cluster does not fit; or None.

    A push lies near the model that it began with, so by L1 alone a client hardly ever leaves its first cluster: these
    pushes go by what the models answer, or by the way that the client went from the model it was sent.
    """
    member, sent = grouping.members.get(client), grouping.sent.get(client)
    early = member is None or member.pushes < rules.first_pushes
    misfit = update.feedback > FLOORS[rules.feedback] and rules.split == "groups"
    if rules.first == "l1" or not (early or misfit):
        return None
    if rules.first != "direction" or sent is None:
        return outputs
    return lambda a, b: merging.turned(sent.weights, a, b, names)


def _absorbed(
    grouping: Grouping,
    client: ClientId,
    update: Upload,
    known: Member,
    far: float,
    rules: Rules,
    names: Collection[str],
) -> Grouping:
    """The clusters after the aggregation of one model, with a broadcast if one is due (section 5)."""
    target, l1 = known.cluster, merging.l1(names)
    member, before = grouping.members.get(client), grouping.clusters[target]
    weights, total, mass = _aggregated(before, update, member if client in before.members else None, rules.clusters)
    change = l1(weights, before.weights)  # Delta_t
    light, told = rules.broadcast.light, before.broadcast is before.weights  # just now, so the two are the same
    away = before.history.away + change if light else change if told else l1(weights, before.broadcast)  # A_t
    cluster = renewed(
        before,
        weights=weights,
        serial=grouping.serial + 1,
        depth=before.depth + 1,
        examples=total,
        newest=held.whole(update.weights, weights),
        history=broadcast.noted(before.history, change, away, rules.broadcast.c_gain),
        emptied=-1,
        changed=before.changed + trials.changed(member, known.feedback, rules.clusters),
        members=before.members if client in before.members else before.members.put(client, grouping.arrivals),
        mass=mass,
    )
    age = max(0, before.depth - update.depth)
    grouping = renewed(
        grouping,
        clusters={**grouping.clusters, target: cluster},
        members=grouping.members.put(client, known),
        tries=grouping.tries.drop(client),
        serial=cluster.serial,
        staleness=(grouping.staleness[0] + age, max(grouping.staleness[1], age)),
    )
    details = {"cluster": target, "version": cluster.depth, "base": update.depth, "staleness": age}
    grouping = noted(grouping, "push", client, **details, distance=far, change=change, away=away)
    alone = len(cluster.members) == 1
    return broadcasted(grouping, target) if not alone and broadcast.due(cluster.history, rules.broadcast) else grouping


def _aggregated(
    cluster: Cluster, update: Upload, before: Member | None, rules: ClusterRules
) -> tuple[Params, float, Params | None]:
    """The cluster's model, its samples and those behind each entry; `before` is what the client had in it."""
    examples = update.examples
    if rules.merge_rule == "latest":
        out = (before.weights, before.examples) if before is not None and before.weights is not None else None
        return merging.changed(cluster.weights, cluster.examples, cluster.mass, out, (update.weights, examples))
    total = cluster.examples + examples - (before.examples if before is not None else 0.0)
    portion = rules.eta if rules.merge_rule == "fedasync" else examples / max(total, 1e-12)
    model = held.whole(update.weights, cluster.weights)
    return mix(cluster.weights, model, portion if examples > 0 else 0.0), total, None


def _member(grouping: Grouping, client: ClientId, update: Upload, cluster: int, rules: Rules) -> Member:
    """What the server keeps of a client after its push."""
    examples, known, sent = update.examples, grouping.members.get(client), grouping.sent.get(client)
    fits = examples > 0 and sent is not None and sent.cluster == cluster  # g is about the model that was sent
    feedback = update.feedback if fits else None
    anew = known is None or trials.changed(known, feedback, rules.clusters)  # its trials so far say nothing any more
    return Member(
        cluster,
        update.weights if rules.clusters.merge_rule == "latest" else None,
        examples,
        max(update.base, known.base if known else 0),
        feedback,
        grouping.refinements,
        1 if known is None else known.pushes + 1,
        () if known is None or anew else known.refused,
    )


def _opened(grouping: Grouping, client: ClientId, update: Upload, rules: Rules) -> Grouping:
    """Section 4.2.1: a first arrival becomes a centre."""
    number, serial, model = grouping.opened, grouping.serial + 1, held.whole(update.weights, grouping.first)
    history, members = broadcast.begin(rules.broadcast, rules.seed), SharedMap[int]().put(client, grouping.arrivals)
    cluster = Cluster(model, serial, 1, members, update.examples, model, model, history)
    if model is not update.weights:
        cluster = replace(cluster, mass=merging.mass_of(update.weights, model, cluster.examples))
    member = replace(_member(grouping, client, update, number, rules), feedback=None)
    grouping = replace(
        grouping,
        clusters={**grouping.clusters, number: cluster},
        members=grouping.members.put(client, member),
        serial=serial,
        opened=number + 1,
    )
    return noted(grouping, "open", client, cluster=number, version=1)


def left(grouping: Grouping, client: ClientId, member: Member, rules: Rules) -> Grouping:
    """The clusters after a member left its own, whose mean no longer has its model; the model it has stays known."""
    cluster = grouping.clusters[member.cluster]
    members = cluster.members.drop(client)
    weights, total, mass = cluster.weights, cluster.examples - member.examples, cluster.mass
    if rules.clusters.merge_rule == "latest" and member.weights is not None:
        gone = (member.weights, member.examples)
        weights, total, mass = merging.changed(weights, cluster.examples, mass, gone, None)
    cluster = replace(
        cluster,
        weights=weights,
        serial=grouping.serial + 1,
        depth=cluster.depth + 1,
        examples=max(0.0, total),
        members=members,
        emptied=cluster.emptied if members else grouping.refinements,
        mass=mass,
    )
    return replace(
        grouping,
        clusters={**grouping.clusters, member.cluster: cluster},
        serial=cluster.serial,
        sent=grouping.sent.put(client, newest_of(grouping, client)),
    )


def broadcasted(grouping: Grouping, number: int) -> Grouping:
    """The clusters after the decision that this one broadcasts its model."""
    cluster = grouping.clusters[number]
    cluster = renewed(
        cluster,
        broadcast=cluster.weights,
        broadcast_serial=cluster.serial,
        broadcast_depth=cluster.depth,
        history=broadcast.sent(cluster.history),
    )
    model = Sent(cluster.weights, cluster.serial, cluster.depth, number)
    grouping = renewed(
        grouping,
        clusters={**grouping.clusters, number: cluster},
        broadcasts=grouping.broadcasts + 1,
        newcomers_have=model if number == largest(grouping) else grouping.newcomers_have,
        to_broadcast=(*(other for other in grouping.to_broadcast if other != number), number),
    )
    return noted(grouping, "broadcast", "", cluster=number, version=cluster.depth, members=len(cluster.members))


def noted(grouping: Grouping, kind: str, client: str, **details: Any) -> Grouping:
    """With one more event of this step, for the run's log."""
    return renewed(grouping, events=(*grouping.events, (kind, client, AS_JSON(details))))
