"""Clusters in the order of arrivals: pushes, moves, broadcasts, splits and merges as pure functions of a state.

The part of EchoPFL (Li et al., IMWUT 2024, sections 4 to 6) that needs no fleet: what the server knows, and what it
becomes when a model arrives. A method sends and receives around it. Every decision follows from the order of events.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from potluck.fleet import ClientId, Params
from potluck.methods.parts.echopfl import broadcast
from potluck.methods.parts.echopfl import merging as tree
from potluck.methods.parts.echopfl.merging import Branch, Distance, Held, Member
from potluck.methods.parts.shared_map import SharedMap
from potluck.tensors import mix


@dataclass(frozen=True)
class Rules:
    """The settings of `echopfl.Config` that decide here; they are explained there."""

    clusters: int = 2
    most: float = 2.0
    expand: float = 0.2
    forget_after: int = 0
    hysteresis: float = 0.95
    merge_rule: str = "latest"
    eta: float = 0.6
    predictor: str = "rnn"
    c_gain: float = 1.0
    light: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Forest:
    """All branches, and who is where. Never changed: the next one shares with it all that stayed as it was."""

    first: Params  # the model everybody begins with
    branches: Mapping[int, Branch] = field(default_factory=dict)
    members: Mapping[ClientId, Member] = field(default_factory=SharedMap)
    holds: Mapping[ClientId, Held] = field(default_factory=SharedMap)
    strangers: Mapping[ClientId, int] = field(default_factory=SharedMap)  # at work on their first task
    heard: Held | None = None  # the newest model strangers were told
    arrivals: int = 0
    refinements: int = 0
    serial: int = 0  # versions so far, of all branches
    opened: int = 0  # branches so far
    broadcasts: int = 0
    staleness: tuple[int, int] = (0, 0)  # summed over all merges, and the largest
    news: tuple[int, ...] = ()  # branches whose members are to hear of them in this step
    happened: tuple[tuple[str, str, str], ...] = ()  # in this step: kind, client, details as JSON


@dataclass(frozen=True)
class Pushed:
    """Client to server."""

    weights: Params  # u_i
    examples: Tensor  # n_i
    version: Tensor  # serial and depth of the model it began from, or was rebased on since
    feedback: Tensor  # g of the model it was sent


def usable(forest: Forest) -> Forest:
    """Maps that are cheap to change: out of a checkpoint they come as plain dicts."""
    branches = {k: replace(b, members=SharedMap.of(b.members)) for k, b in forest.branches.items()}
    return replace(
        forest, branches=branches, members=SharedMap.of(forest.members), holds=SharedMap.of(forest.holds),
        strangers=SharedMap.of(forest.strangers),
    )  # fmt: skip


def reply(forest: Forest, client: ClientId, rules: Rules) -> tuple[Held, bool]:
    """What a client is sent next, and whether only its last layer is to learn.

    A stranger gets the largest cluster's model; while centres are still wanted, the one everybody began with.
    """
    member = forest.members.get(client)
    if member is None and forest.opened < rules.clusters:
        return Held(forest.first, 0, 0, -1), False
    number = member.branch if member else largest(forest)
    if number < 0:
        return Held(forest.first, 0, 0, -1), False
    branch = forest.branches[number]
    return Held(branch.weights, branch.serial, branch.depth, number), branch.last


def largest(forest: Forest) -> int:
    """The cluster with most members, of equal ones the oldest; -1 where there is none."""
    living = [k for k, branch in forest.branches.items() if branch.members]
    return max(living, key=lambda k: (len(forest.branches[k].members), -k), default=-1)


def sent(forest: Forest, client: ClientId, what: Held) -> Forest:
    strangers = SharedMap.of(forest.strangers)
    if client not in forest.members:
        strangers = strangers.put(client, forest.arrivals)
    return replace(forest, holds=SharedMap.of(forest.holds).put(client, what), strangers=strangers)


@dataclass(frozen=True, eq=False)
class Listeners(Collection[ClientId]):
    """Whom a broadcast goes to, without a list of them: never the sender, who gets a reply anyway."""

    members: Mapping[ClientId, int]
    strangers: Mapping[ClientId, int]
    sender: ClientId

    def __contains__(self, client: object) -> bool:
        return client != self.sender and (client in self.members or client in self.strangers)

    def __iter__(self) -> Iterator[ClientId]:
        return (client for group in (self.members, self.strangers) for client in group if client != self.sender)

    def __len__(self) -> int:
        return len(self.members) + len(self.strangers) - (self.sender in self.members or self.sender in self.strangers)


def listening(forest: Forest, number: int, sender: ClientId) -> Listeners:
    """Whom a broadcast of this cluster goes to: its members and, of the largest cluster, those who have not pushed
    yet, who are members of none."""
    nobody: SharedMap[int] = SharedMap()
    return Listeners(
        forest.branches[number].members, forest.strangers if number == largest(forest) else nobody, sender
    )  # fmt: skip


def push(
    forest: Forest, client: ClientId, update: Pushed, rules: Rules, names: Collection[str], distance: Distance
) -> Forest:
    """Section 4.2 on the arrival of one model: find its cluster, merge it, and see whether the others must hear of it.

    What it costs does not depend on how many clients there are.
    """
    base, member = int(update.version[0]), forest.members.get(client)
    if member is not None and base < member.base and rules.merge_rule != "mix":  # overtaken by a later one of its own
        return _noted(forest, "stale", client, base=base, known=member.base)
    examples = float(update.examples)
    # Kept for long: a copy, so that what it came in can go.
    own = {name: value.clone() for name, value in update.weights.items()}
    forest = replace(
        forest, arrivals=forest.arrivals + 1, strangers=SharedMap.of(forest.strangers).drop(client)
    )  # fmt: skip
    present = None if member is None else member.branch
    target, far = -1, 0.0
    if forest.branches:
        target, far = tree.nearest(forest.branches, own, present, rules.hysteresis, distance)
    if examples > 0 and member is None and (target < 0 or _wanted(forest, own, target, names, rules)):
        return _opened(forest, client, own, examples, base, rules)
    if target < 0:  # no data, and no cluster to be in
        return forest
    held_before = forest.holds.get(client)
    about = examples > 0 and held_before is not None and held_before.branch == target
    mark = float(update.feedback) if about else None  # g is about the model that was sent
    record = own if rules.merge_rule == "latest" else None
    if member is not None and member.branch != target:
        forest = _noted(_left(forest, client, member, rules), "move", client, branch=target, came_from=member.branch)
    branch = forest.branches[target]
    stays = member is not None and member.branch == target
    before = branch.weights
    if rules.merge_rule == "latest":
        out = (member.weights, member.examples) if stays and member and member.weights is not None else None
        weights, total = tree.exchanged(before, branch.examples, out, (own, examples))
    else:
        total = branch.examples + examples - (member.examples if stays and member else 0.0)
        share = rules.eta if rules.merge_rule == "fedasync" else examples / max(total, 1e-12)
        weights = mix(before, own, share if examples > 0 else 0.0)
    change = tree.l1(names)(weights, before)
    age = max(0, branch.depth - int(update.version[1]))
    serial, depth = forest.serial + 1, branch.depth + 1
    away = branch.watch.away + change if rules.light else tree.l1(names)(weights, branch.told)
    watch = broadcast.noted(branch.watch, change, away, rules.c_gain)
    branch = replace(
        branch, weights=weights, serial=serial, depth=depth, examples=total, newest=own, watch=watch, emptied=-1,
        members=SharedMap.of(branch.members).put(client, branch.members.get(client, forest.arrivals)),
    )  # fmt: skip
    newest = Member(target, record, examples, max(base, member.base if member else 0), mark, forest.refinements)
    forest = replace(
        forest, branches={**forest.branches, target: branch}, members=SharedMap.of(forest.members).put(client, newest),
        serial=serial, staleness=(forest.staleness[0] + age, max(forest.staleness[1], age)),
    )  # fmt: skip
    forest = _noted(
        forest, "push", client, branch=target, version=depth, base=int(update.version[1]), staleness=age,
        distance=far, change=change, away=away,
    )  # fmt: skip
    alone = len(branch.members) == 1
    return _told(forest, target) if not alone and broadcast.due(watch, rules.predictor, rules.c_gain) else forest


def _wanted(forest: Forest, weights: Params, nearest: int, names: Collection[str], rules: Rules) -> bool:
    """Whether a first arrival is to be a centre: fewer than C are there, and it is not one of them over again."""
    if forest.opened >= rules.clusters:
        return False
    return tree.l1(names)(weights, forest.branches[nearest].weights) > 1e-6 * tree.norm(names, weights)


def _opened(forest: Forest, client: ClientId, weights: Params, examples: float, base: int, rules: Rules) -> Forest:
    """Section 4.2.1: a first arrival is a centre."""
    number, serial = forest.opened, forest.serial + 1
    watch = broadcast.begin(rules.predictor, rules.c_gain, rules.seed)
    none: SharedMap[int] = SharedMap()
    branch = Branch(weights, serial, 1, none.put(client, forest.arrivals), examples, weights, weights, watch)
    record = weights if rules.merge_rule == "latest" else None
    member = Member(number, record, examples, base, None, forest.refinements)
    forest = replace(
        forest, branches={**forest.branches, number: branch}, members=SharedMap.of(forest.members).put(client, member),
        serial=serial, opened=number + 1,
    )  # fmt: skip
    return _noted(forest, "open", client, branch=number, version=1)


def _left(forest: Forest, client: ClientId, member: Member, rules: Rules) -> Forest:
    """The cluster without this member, and without its model in the mean; what the client holds stays known."""
    branch = forest.branches[member.branch]
    members = SharedMap.of(branch.members).drop(client)
    weights, total = branch.weights, branch.examples - member.examples
    if rules.merge_rule == "latest" and member.weights is not None:
        weights, total = tree.exchanged(weights, branch.examples, (member.weights, member.examples), None)
    serial, depth = forest.serial + 1, branch.depth + 1
    branch = replace(
        branch, weights=weights, serial=serial, depth=depth, examples=max(0.0, total), members=members,
        emptied=branch.emptied if members else forest.refinements,
    )  # fmt: skip
    return replace(
        forest, branches={**forest.branches, member.branch: branch}, serial=serial,
        holds=SharedMap.of(forest.holds).put(client, held(forest, client)),
    )  # fmt: skip


def _told(forest: Forest, number: int) -> Forest:
    branch = forest.branches[number]
    branch = replace(
        branch, told=branch.weights, told_serial=branch.serial, told_depth=branch.depth,
        watch=broadcast.told(branch.watch),
    )  # fmt: skip
    heard = Held(branch.weights, branch.serial, branch.depth, number) if number == largest(forest) else forest.heard
    forest = replace(
        forest, branches={**forest.branches, number: branch}, broadcasts=forest.broadcasts + 1, heard=heard,
        news=(*(k for k in forest.news if k != number), number),
    )  # fmt: skip
    return _noted(forest, "broadcast", "", branch=number, version=branch.depth, members=len(branch.members))


def refined(forest: Forest, rules: Rules, distance: Distance) -> Forest:
    """Section 4.3: forget who is gone, merge while there are too many, split off whom a cluster does not fit.

    In this order, so that what splits off has until the next refinement to become something else: the other way round
    a new cluster, which begins with its parent's model, would be the closest to it and merged back at once.
    """
    forest = replace(forest, refinements=forest.refinements + 1, news=())
    for client in sorted(forest.members) if rules.forget_after else ():
        member = forest.members[client]
        if forest.refinements - member.seen > rules.forget_after:
            forest = _left(forest, client, member, rules)
            forest = _noted(replace(forest, members=SharedMap.of(forest.members).drop(client)), "forget", client)
    for number in [k for k, b in forest.branches.items() if not b.members and b.emptied < forest.refinements - 1]:
        forest = replace(forest, branches={k: b for k, b in forest.branches.items() if k != number})
        forest = _noted(forest, "close", "", branch=number)
    while len(living := {k: b for k, b in forest.branches.items() if b.members}) > rules.most * rules.clusters:
        forest = _merged(forest, *tree.closest(living, distance), rules)
    for number in forest.news:  # a merged model is far from what its members have: they hear of it at once
        forest = _told(forest, number)
    for number in list(forest.branches):
        forest = _split(forest, number, rules)
    return forest


def _split(forest: Forest, number: int, rules: Rules) -> Forest:
    """Section 4.3.3: those whom the model fits worst go on from it by themselves, last layer first."""
    parent = forest.branches[number]
    given = {client: forest.members[client].feedback for client in parent.members}
    leaving = tree.unfit({c: g for c, g in given.items() if g is not None}, rules.expand, least=5)
    if not leaving or len(leaving) == len(parent.members):
        return forest
    child, members, total = forest.opened, forest.members, 0.0
    own: SharedMap[int] = SharedMap()
    for client in leaving:
        member = members[client]
        forest = _left(forest, client, member, rules)
        record = None if member.weights is None else parent.weights
        members = SharedMap.of(members).put(client, replace(member, branch=child, weights=record, feedback=None))
        own, total = own.put(client, forest.arrivals), total + member.examples
    # 5.2.2: the record starts anew, the predictor is inherited, and nobody is told what he just heard.
    branch = Branch(
        parent.weights, forest.serial + 1, parent.depth, own, total, parent.weights, parent.weights,
        broadcast.inherited(parent.watch), last=True,
    )  # fmt: skip
    forest = replace(
        forest, branches={**forest.branches, child: branch}, members=members,
        serial=forest.serial + 1, opened=child + 1,
    )  # fmt: skip
    return _noted(forest, "split", "", branch=child, version=branch.depth, parent=number, members=len(leaving))


def _merged(forest: Forest, a: int, b: int, rules: Rules) -> Forest:
    """Section 4.3.2, Algorithm 1: the smaller cluster's model is worked into the larger one's."""
    branches = forest.branches
    main, other = sorted((a, b), key=lambda k: (-len(branches[k].members), k))
    one, two = branches[main], branches[other]
    weights = tree.merged(one.weights, two.weights, two.newest)
    serial, members = forest.serial + 1, SharedMap.of(forest.members)
    mine = SharedMap.of(one.members)
    for client in two.members:
        mine = mine.put(client, two.members[client])
    for client in mine:
        member = members[client]
        record = None if member.weights is None else weights
        members = members.put(client, replace(member, branch=main, weights=record, feedback=None))
    branch = Branch(
        weights, serial, max(one.depth, two.depth) + 1, mine, one.examples + two.examples, two.newest, weights,
        broadcast.united(one.watch, two.watch, rules.seed, serial),
    )  # fmt: skip
    # "Only after the next merge" a new cluster trains all its layers: that is now, whichever cluster it is.
    rest = {k: replace(kept, last=False) for k, kept in branches.items() if k not in (main, other)}
    forest = replace(
        forest, branches={**rest, main: branch}, members=members, serial=serial,
        news=(*(k for k in forest.news if k not in (main, other)), main),
    )  # fmt: skip
    return _noted(forest, "merge", "", branch=main, version=branch.depth, merged=other)


def _noted(forest: Forest, kind: str, client: str, **details: Any) -> Forest:
    return replace(forest, happened=(*forest.happened, (kind, client, json.dumps(details))))


def held(forest: Forest, client: ClientId) -> Held:
    """The newest model the client was sent: the last reply, or a broadcast to its cluster since."""
    held = forest.holds.get(client, Held(forest.first, 0, 0, -1))
    member = forest.members.get(client)
    if member is None:
        heard = forest.heard if client in forest.strangers else None
        return heard if heard is not None and heard.serial > held.serial else held
    branch = forest.branches[member.branch]
    if branch.told_serial > held.serial:
        return Held(branch.told, branch.told_serial, branch.told_depth, member.branch)
    return held
