"""EchoPFL: each model is merged into its cluster when it arrives, and members get the new model when it matters.

Li et al., "EchoPFL: Asynchronous Personalized Federated Learning on Mobile Devices with On-Demand Staleness Control",
IMWUT 8(1), 2024. Here is the protocol of section 6: pull, push, refine. The rest is in `parts/echopfl`:
eq. 1 and Algorithm 1 in `merging.py`, sections 4.2 and 4.3 in `clusters.py` and `refinement.py`, eqs. 2 and 3 in
`feedback.py`, eq. 4 and the predictor in `broadcast.py`.

Deviations (docs/methods/echopfl.md says why): the merge rule `latest` keeps every client's newest model; a client
changes cluster only for a gain of 5 % (`clusters.hysteresis`); 1/n in eq. 3; broadcast when A_t >= c_gain Delta_(t+1),
as in eq. 4; a client at work reads a broadcast between legs. `round` counts as many pushes as there are clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import Arrival, ClientId, Done, Fleet, Local, Lost, Params
from potluck.learn import Recipe, fit, take
from potluck.methods.parts.clusterfl.probe import noise
from potluck.methods.parts.echopfl import declared, merging, queries, tempo, trials
from potluck.methods.parts.echopfl.answers import Unlike, answers
from potluck.methods.parts.echopfl.broadcast import BroadcastRules, History
from potluck.methods.parts.echopfl.clusters import (
    ClusterRules,
    Grouping,
    largest,
    newest_of,
    push,
    reply,
    within_reach,
)
from potluck.methods.parts.echopfl.declared import KEY_SETTINGS, NEEDS, SPACE, uses
from potluck.methods.parts.echopfl.feedback import ClassCounts, counted, judged, nothing
from potluck.methods.parts.echopfl.figures import record
from potluck.methods.parts.echopfl.legs import portion, rebased
from potluck.methods.parts.echopfl.listeners import Listeners
from potluck.methods.parts.echopfl.merging import Cluster, Distance, Member, Sent
from potluck.methods.parts.echopfl.refinement import refined
from potluck.methods.parts.echopfl.tempo import Pace, Tempo
from potluck.methods.parts.renewed import renewed
from potluck.release import Release
from potluck.unforeseen import Unforeseen

__all__ = [
    "KEY_SETTINGS", "NEEDS", "PROGRAMS", "SPACE", "Carry", "ClassCounts", "Cluster", "Config", "Grouping", "History",
    "Member", "Note", "Pushed", "Recipe", "Sent", "State", "Tempo", "Train", "clusters", "events", "personal",
    "received", "record", "server", "start", "uses",
]  # fmt: skip

PROBE = 128  # standard normal inputs on which models are compared where the server has no rows


@dataclass(frozen=True)
class Config:
    recipe: Recipe = Recipe(epochs=2)  # momentum starts at zero with every leg
    clusters: ClusterRules = ClusterRules()
    broadcast: BroadcastRules = BroadcastRules()
    pace: Pace = Pace()
    legs: int = 2  # of an epoch: a client reads notes between two legs
    seed: int = 0
    UNUSED: ClassVar[tuple[str, ...]] = ("recipe.optimiser",)
    MOVED: ClassVar[dict[str, str]] = declared.OLD_NAMES

    def __post_init__(self) -> None:
        declared.checked(self)


@dataclass(frozen=True)
class State:
    grouping: Grouping
    round: int = 0
    tempo: Tempo = field(default_factory=Tempo)


@dataclass(frozen=True)
class Train:
    """Server to client, the reply to its push: the cluster's model, and how to train it."""

    weights: Params
    version: Tensor  # serial, depth
    last_layer: bool  # train the last layer only
    on_arrival: str
    feedback: str  # errors | frequencies
    counted: int  # legs in which all samples are counted once, for the feedback
    legs: int  # of an epoch
    recipe: Recipe  # of one leg


@dataclass(frozen=True)
class Pushed:
    """Client to server."""

    weights: Params  # u_i
    examples: Tensor  # n_i
    version: Tensor  # serial and depth of the model it began from, or was rebased on since
    feedback: Tensor  # g of the model it was sent


@dataclass(frozen=True)
class Note:
    """Server to the other members: the newest model of the cluster."""

    weights: Params
    version: Tensor
    last_layer: bool = False  # false: train all layers from now on


@dataclass(frozen=True)
class Carry:
    """What a client keeps from leg to leg."""

    weights: Params
    base: Params
    version: Tensor
    leg: Tensor
    key: Tensor  # of the task: the order of the samples holds for a whole epoch
    counts: ClassCounts
    last_layer: bool = False


def start(weights: Params, cfg: Config) -> State:
    return State(Grouping(weights))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    model, probe = fleet.home.model, fleet.home.data
    l1 = merging.l1(model.trainable)
    probe = probe if len(probe.y) else noise(fleet.home, PROBE)
    outputs, say = merging.kl(model, probe), answers(model, probe)
    distance = outputs if cfg.clusters.assign == "kl" else l1
    first = Unlike(say) if cfg.clusters.first == "answers" else outputs
    grouping, pace, every = state.grouping, state.tempo, cfg.clusters.refine_every or len(fleet.clients)
    leg = replace(cfg.recipe, epochs=1)
    while True:
        grouping, pace, until = pull(fleet, grouping, pace, cfg, leg)
        asked = queries.next_at(fleet.now, cfg.broadcast.query_every)
        arrival = fleet.receive(min(filter(None, (asked, until)), default=None))
        grouping = renewed(grouping, to_broadcast=(), events=())
        if isinstance(arrival, Lost):
            grouping = renewed(grouping, newcomers=grouping.newcomers.drop(arrival.client))
        if asked and fleet.now >= asked:
            grouping, pace = answer(fleet, grouping, pace, cfg, l1)
        if isinstance(arrival, Arrival):
            client, before = arrival.client, grouping.arrivals
            pace = tempo.noted(pace, client, arrival.at - arrival.sent, grouping.sent[client].epochs)
            grouping = push(grouping, client, arrival.update, cfg, model.trainable, distance, first)
            pace = tempo.gained(pace, client, grouping, arrival.at)
            pace = tempo.spent(pace, broadcast(fleet, grouping, client, cfg), grouping.first)
            counts = grouping.arrivals > before  # an update that was overtaken by a later one does not count
            due = grouping.arrivals % every == 0 or trials.urgent(grouping, cfg.clusters)
            if cfg.clusters.refine and counts and due:
                grouping = refined(grouping, cfg, outputs, say)
                pace = tempo.spent(pace, broadcast(fleet, grouping, client, cfg), grouping.first)
        yield State(grouping, grouping.arrivals // len(fleet.clients), pace)


def pull(
    fleet: Fleet, grouping: Grouping, pace: Tempo, cfg: Config, leg: Recipe
) -> tuple[Grouping, Tempo, float | None]:
    """Send every idle client the model of its cluster, and note what it was sent.

    With a limit of the traffic, only as many as it allows now; the last value is when it allows the next.
    """
    turn, until = tempo.turn(pace, cfg, fleet, grouping)
    for client in turn:
        pace = tempo.spent(pace, 2, grouping.first) if cfg.pace.bytes_per_second else pace
        what, last_layer = reply(grouping, client, cfg)
        version, feedback_legs = torch.tensor([what.serial, what.depth]), cfg.recipe.epochs * cfg.legs
        how = (cfg.broadcast.on_arrival, cfg.clusters.feedback)
        task = Train(what.weights, version, last_layer, *how, feedback_legs, cfg.legs, leg)
        epochs = tempo.epochs(pace, client, cfg.recipe.epochs, cfg.pace)
        fleet.send(task, to=client, legs=epochs * cfg.legs)
        new = client not in grouping.members
        grouping = renewed(
            grouping,
            sent=grouping.sent.put(client, renewed(what, epochs=epochs)),
            newcomers=grouping.newcomers.put(client, grouping.arrivals) if new else grouping.newcomers,
        )
    return grouping, pace, until


def broadcast(fleet: Fleet, grouping: Grouping, sender: ClientId, cfg: Config) -> int:
    """Section 5: post a cluster's new model to its members; that of the largest cluster also to newcomers.

    Returns how many models that is, where there is a limit: a client that waits reads no notes.
    """
    models, idle = 0, set(fleet.idle) if cfg.pace.bytes_per_second and grouping.to_broadcast else set()
    for number in grouping.to_broadcast:
        cluster = grouping.clusters[number]
        version = torch.tensor([cluster.broadcast_serial, cluster.broadcast_depth])
        note = Note(cluster.broadcast, version, cluster.last_layer)
        newcomers = grouping.newcomers if number == largest(grouping) else {}
        to = Listeners(cluster.members, newcomers, sender)
        fleet.post(note, to=to)
        models += sum(client not in idle for client in to) if cfg.pace.bytes_per_second else 0
    return models


def answer(fleet: Fleet, grouping: Grouping, pace: Tempo, cfg: Config, l1: Distance) -> tuple[Grouping, Tempo]:
    """Section 6, pull: the clients at work asked for a newer model; send it to those whose own is far from it."""
    idle = set(fleet.idle)
    busy = [client for client in grouping.members if client not in idle]
    grouping, to = queries.answered(grouping, busy, cfg, l1)
    for number, clients in to.items():
        cluster = grouping.clusters[number]
        note = Note(cluster.weights, torch.tensor([cluster.serial, cluster.depth]), cluster.last_layer)
        fleet.post(note, to=clients)
        pace = tempo.spent(pace, len(clients), grouping.first)
    return grouping, pace


def train(task: Train, local: Local) -> Done:
    """One leg (section 7): read the newest note, then train on a share of an epoch from where the last leg ended."""
    carry: Carry | None = local.carry
    if carry is None:
        none = nothing(local.model.classes)
        begin = torch.tensor(0)
        carry = Carry(task.weights, task.weights, task.version, begin, local.key, none, task.last_layer)
    elif local.mail is not None and task.on_arrival != "next":
        carry = rebased(carry, local.mail, restart=task.on_arrival == "restart")
    # An epoch is one random order of the samples, in `legs` shares. For eq. 3, all legs count each sample once.
    epoch = torch.div(carry.leg, task.legs, rounding_mode="floor")
    rows = portion(local.data.weight, carry.leg - epoch * task.legs, task.legs, keys.fold(carry.key, epoch))
    only = local.model.last_layers() if carry.last_layer else None
    weights = fit(local.model, carry.weights, local.data, task.recipe, key=local.key, only=only, among=rows)
    asked = portion(local.data.weight, carry.leg, task.counted)
    counts = counted(carry.counts, local.model, task.weights, take(local.data, asked.places, asked.weight))
    update = Pushed(weights, local.data.weight.sum(), carry.version, judged(counts, task.feedback))
    return Done(update, carry=replace(carry, weights=weights, leg=carry.leg + 1, counts=counts), own=weights)


def classes_for(cfg: Config) -> str:
    printed = cfg.clusters.feedback == "frequencies"
    return "method.clusters.feedback = frequencies compares frequencies of classes" if printed else ""


RELEASES = {
    Pushed: Release(
        ("weights",),
        ("feedback",),
        counts=("examples",),
        open=("version",),
        single="it clusters each model as it arrives",
    )
}
UNFORESEEN = Unforeseen("when and to whom it broadcasts")
PROGRAMS = {Train: train}
HEADLINE = "received"


def personal(state: State, client: ClientId, mine: None) -> Params:
    """The newest model that the client has, by a reply or a broadcast."""
    return newest_of(state.grouping, client).weights


def received(state: State, client: ClientId) -> Params:
    """The model of the client's cluster; for a client in no cluster, that of the largest one."""
    return within_reach(state.grouping, client)


def clusters(state: State) -> dict[ClientId, int]:
    members = state.grouping.members
    return {client: members[client].cluster for client in sorted(members)}


def events(state: State) -> tuple[tuple[str, str, str], ...]:
    return state.grouping.events
