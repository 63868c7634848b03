"""EchoPFL: each model is merged into its cluster the moment it arrives, and the others hear of it when it matters.

Li et al., "EchoPFL: Asynchronous Personalized Federated Learning on Mobile Devices with On-Demand Staleness Control",
IMWUT 8(1), 2024. Under `parts/echopfl`: eq. 1 and Algorithm 1 in `merging.py`, eqs. 2 and 3 in `feedback.py`, eq. 4 and
the predictor in `broadcast.py`; here is who does what when, in the words of section 6: pull, push, branch.

Deviations (docs/methods/echopfl.md says why): the merge rule `latest` keeps every client's newest model; one changes
cluster only for a gain of 5 % (`hysteresis`); 1/n in eq. 3; broadcast when A_t >= c_gain Delta_(t+1), as eq. 4 has it;
a client at work reads a broadcast between legs, `parts` of which make an epoch. `round` counts as many pushes as there
are clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from potluck import keys
from potluck.errors import BadInput, Code
from potluck.fleet import Arrival, ClientId, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit, take
from potluck.methods.parts import checks
from potluck.methods.parts.echopfl import broadcast, tempo
from potluck.methods.parts.echopfl import merging as tree
from potluck.methods.parts.echopfl.broadcast import Watch
from potluck.methods.parts.echopfl.clusters import (
    Forest,
    Pushed,
    Rules,
    held,
    listening,
    push,
    refined,
    reply,
    sent,
    usable,
)
from potluck.methods.parts.echopfl.feedback import Tally, counted, feedback, nothing
from potluck.methods.parts.echopfl.legs import portion
from potluck.methods.parts.echopfl.merging import Branch, Held, Member
from potluck.methods.parts.echopfl.tempo import Tempo
from potluck.tensors import each

__all__ = [
    "PROGRAMS", "Branch", "Config", "Forest", "Held", "Member", "Note", "Pushed", "Recipe", "State", "Tally", "Tempo",
    "Train", "Watch", "Work",
    "clusters", "events", "personal", "record", "server", "start",
]  # fmt: skip


@dataclass(frozen=True)
class Config:
    clusters: int = 2  # C: the first C distinct models to arrive become the centres; no clustering: 1, refine = false
    most: float = 2.0  # h_m: clusters are merged above h_m C
    expand: float = 0.2  # share of a cluster that may split off
    refine: bool = True
    refine_every: int = 0  # arrivals; 0: as many as there are clients
    forget_after: int = 0  # refinements without a push after which a client's model no longer counts; 0: never
    hysteresis: float = 0.95  # one moves for a distance below this share of the present one; 1: the literal rule
    assign: str = "l1"  # l1 | kl (needs server rows as a probe set)
    merge_rule: str = "latest"  # latest | mix | fedasync
    eta: float = 0.6  # of the rule fedasync
    predictor: str = "rnn"  # rnn | ewma | text | always | never | every:k
    c_gain: float = 1.0  # above 1: fewer broadcasts
    light: bool = False  # A as a sum of changes, an upper bound that needs no model kept
    on_broadcast: str = "rebase"  # rebase | restart | next
    recipe: Recipe = Recipe(epochs=2)  # momentum begins anew with every leg
    fill: float = 0.0  # 1: the fast do as many epochs per task as fit into the slowest's time; 0: all do `epochs`
    most_epochs: int = 20  # and no more than so many
    parts: int = 2  # legs of an epoch: mail is read between them
    seed: int = 0

    def __post_init__(self) -> None:
        checks.uses(self.recipe, "epochs", "batch", "lr", "momentum", "clip")
        for name in ("clusters", "parts"):
            checks.at_least(self, name, 1)
        for name in ("refine_every", "forget_after"):
            checks.at_least(self, name, 0)
        checks.at_least(self, "most", 1.0)
        checks.above(self, "c_gain", 0.0)
        checks.within(self, "expand", 0.0, 1.0)
        checks.within(self, "hysteresis", 0.0, 1.0)
        checks.within(self, "eta", 0.0, 1.0)
        checks.within(self, "fill", 0.0, 1.0)
        checks.at_least(self, "most_epochs", self.recipe.epochs)
        checks.one_of(self, "assign", ("l1", "kl"))
        checks.one_of(self, "merge_rule", ("latest", "mix", "fedasync"))
        checks.one_of(self, "on_broadcast", ("rebase", "restart", "next"))
        broadcast.check(self.predictor)

    @property
    def rules(self) -> Rules:
        """What the clusters need to know of this."""
        return Rules(**{one.name: getattr(self, one.name) for one in fields(Rules)})


@dataclass(frozen=True)
class State:
    forest: Forest
    round: int = 0
    tempo: Tempo = field(default_factory=Tempo)


@dataclass(frozen=True)
class Train:
    """Server to client, the reply to its push: the cluster's model, and what to do with it."""

    weights: Params
    version: Tensor  # serial, depth
    last: bool  # train the last layer only
    on_broadcast: str
    counted: int  # legs over which all samples are counted once, for the feedback
    parts: int
    recipe: Recipe  # of one leg


@dataclass(frozen=True)
class Note:
    """Server to the other members: the cluster has moved on."""

    weights: Params
    version: Tensor


@dataclass(frozen=True)
class Work:
    """What a client takes from leg to leg."""

    weights: Params
    base: Params
    version: Tensor
    leg: Tensor
    key: Tensor  # of the task: the order of the samples holds for a whole epoch
    tally: Tally


def start(weights: Params, cfg: Config) -> State:
    return State(Forest(weights))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    model, probe, rules = fleet.home.model, fleet.home.data, cfg.rules
    if cfg.assign == "kl" and not len(probe.y):
        raise BadInput(
            Code.METHOD_NEEDS, "method.assign: 'kl' needs a probe set; give the server rows of its own (server.share)."
        )
    outputs = tree.kl(model, probe) if len(probe.y) else tree.l1(model.trainable)
    distance = outputs if cfg.assign == "kl" else tree.l1(model.trainable)
    forest, pace = usable(state.forest), state.tempo
    leg = replace(cfg.recipe, epochs=1)
    while True:
        for client in fleet.idle:  # pull
            what, last = reply(forest, client, rules)
            task = Train(
                what.weights, torch.tensor([what.serial, what.depth]), last, cfg.on_broadcast,
                cfg.recipe.epochs * cfg.parts, cfg.parts, leg,
            )  # fmt: skip
            count = tempo.epochs(pace, client, cfg.recipe.epochs, cfg.fill, cfg.most_epochs)
            fleet.send(task, to=client, legs=count * cfg.parts)
            forest = sent(forest, client, replace(what, epochs=count))
        arrival = fleet.receive()
        forest = replace(forest, news=(), happened=())
        if isinstance(arrival, Arrival):
            before = forest.arrivals
            pace = tempo.noted(pace, arrival.client, arrival.at - arrival.sent, forest.holds[arrival.client].epochs)
            forest = push(forest, arrival.client, arrival.update, rules, model.trainable, distance)  # push
            tell(fleet, forest, arrival.client)
            counts = forest.arrivals > before  # an overtaken one does not
            if cfg.refine and counts and forest.arrivals % (cfg.refine_every or len(fleet.clients)) == 0:
                forest = refined(forest, rules, outputs)  # branch
                tell(fleet, forest, arrival.client)
        state = State(forest, forest.arrivals // len(fleet.clients), pace)
        yield state


def tell(fleet: Fleet, forest: Forest, sender: ClientId) -> None:
    """Section 5: the members of a cluster hear of its new model, and so do those who are in none yet."""
    for number in forest.news:
        branch = forest.branches[number]
        note = Note(branch.told, torch.tensor([branch.told_serial, branch.told_depth]))
        fleet.post(note, to=listening(forest, number, sender))


def train(task: Train, local: Local) -> Done:
    """One leg: a share of an epoch from where the leg before ended, after the mail was read (section 7)."""
    work: Work | None = local.carry
    if work is None:
        work = Work(task.weights, task.weights, task.version, torch.tensor(0), local.key, nothing(local.model.classes))
    elif local.mail is not None and task.on_broadcast != "next":
        work = rebased(work, local.mail, restart=task.on_broadcast == "restart")
    # The samples of an epoch in one random order, `parts` shares of it; all of them once, over the legs, for eq. 3.
    epoch = torch.div(work.leg, task.parts, rounding_mode="floor")
    mine = portion(local.data.weight, work.leg - epoch * task.parts, task.parts, keys.fold(work.key, epoch))
    asked = portion(local.data.weight, work.leg, task.counted)
    last = local.model.layers()[-1]
    only = frozenset(name for name in local.model.trainable if name.startswith(last)) if task.last else None
    weights = fit(local.model, work.weights, local.data, task.recipe, key=local.key, only=only, among=mine)
    tally = counted(work.tally, local.model, task.weights, take(local.data, *asked))
    update = Pushed(weights, local.data.weight.sum(), work.version, feedback(tally))
    return Done(update, carry=Work(weights, work.base, work.version, work.leg + 1, work.key, tally))


def rebased(work: Work, note: Note, restart: bool = False) -> Work:
    """w <- v_new + (w - v_base), or v_new alone; an older note, which came late, changes nothing."""
    newer = note.version[0] > work.version[0]

    def moved(new: Tensor, now: Tensor, base: Tensor) -> Tensor:
        if not now.is_floating_point():
            return now
        return torch.where(newer, new if restart else now + (new - base), now)

    weights = each(moved, note.weights, work.weights, work.base)
    base = each(lambda new, old: torch.where(newer, new, old), note.weights, work.base)
    return replace(work, weights=weights, base=base, version=torch.where(newer, note.version, work.version))


PROGRAMS = {Train: train}


def personal(state: State, client: ClientId, mine: None) -> Params:
    """What a client infers with: the newest model it was sent, by a reply or a broadcast."""
    return held(state.forest, client).weights


def clusters(state: State) -> dict[ClientId, int]:
    members = state.forest.members
    return {client: members[client].branch for client in sorted(members)}


def events(state: State) -> tuple[tuple[str, str, str], ...]:
    return state.forest.happened


def record(state: State) -> dict[str, Any]:
    forest = state.forest
    return {
        "branches": sum(1 for branch in forest.branches.values() if branch.members),
        "arrivals": forest.arrivals,
        "broadcasts": forest.broadcasts,
        "staleness_mean": forest.staleness[0] / max(1, forest.arrivals),
        "staleness_max": forest.staleness[1],
    }
