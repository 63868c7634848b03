"""Grouping `clusters`: EchoPFL's on-arrival clusters, for clients that may hold part of the model.

The rules are those of `parts/echopfl`. Added here: distances over what an upload holds, an access point that goes with
its device, and broadcasts at each client's own width.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch

from potluck.fleet import Arrival, ClientId, Fleet, Params
from potluck.methods.parts import held
from potluck.methods.parts.clusterfl.probe import noise
from potluck.methods.parts.compose.books import Grouping, Offer, nothing
from potluck.methods.parts.compose.messages import Note, Trained
from potluck.methods.parts.compose.shapes import Upload
from potluck.methods.parts.echopfl import clusters as echo
from potluck.methods.parts.echopfl import merging, queries, tempo, trials
from potluck.methods.parts.echopfl.answers import answers, unlike
from potluck.methods.parts.echopfl.listeners import Listeners
from potluck.methods.parts.echopfl.merging import Distance
from potluck.methods.parts.echopfl.refinement import refined

PROBE = 128  # standard normal inputs on which models are compared where the server has no rows
Cut = Callable[[Any, int, Params, float, int], tuple[Any, Params]]  # (state, group, model, width, version)


class Measures(NamedTuple):
    """How far models are apart: by weights, by outputs; and what they say."""

    l1: Distance
    outputs: Distance
    say: Any
    names: Collection[str]


@dataclass(frozen=True, eq=False)
class OfWidth(Collection[ClientId]):
    """Those of the listeners that have this width, without a list of them."""

    listeners: Collection[ClientId]
    widths: Mapping[ClientId, float]  # 1 where not named
    width: float

    def __contains__(self, client: object) -> bool:
        return client in self.listeners and self.widths.get(str(client), 1.0) == self.width

    def __iter__(self) -> Iterator[ClientId]:
        return (client for client in self.listeners if self.widths.get(client, 1.0) == self.width)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def measures(fleet: Fleet, names: Collection[str], whole: bool) -> Measures:
    """What the server compares models by; without all layers (`whole` false) by weights alone."""
    model, probe = fleet.home.model, fleet.home.data
    l1 = merging.l1(names)
    if not whole:
        return Measures(l1, l1, None, names)
    probe = probe if len(probe.y) else noise(fleet.home, PROBE)
    return Measures(l1, merging.kl(model, probe), answers(model, probe), names)


def grouping(cfg: Any, by: Measures, cut: Cut, private: Collection[str]) -> Grouping:
    """`cfg` is an `echopfl.Config`; `cut` makes a group's model at a width."""

    def ask(state: Any, aside: None, client: ClientId) -> tuple[Any, Offer]:
        book, member = state.book, _speaks_for(state, client)
        what, last_layer = echo.reply(book, member, cfg)
        epochs = tempo.epochs(state.tempo, client, cfg.recipe.epochs, cfg.pace)
        pace = tempo.spent(state.tempo, 2, book.first) if cfg.pace.bytes_per_second else state.tempo
        newcomers = book.newcomers.put(client, book.arrivals) if client not in book.members else book.newcomers
        book = replace(book, sent=book.sent.put(client, replace(what, epochs=epochs)), newcomers=newcomers)
        version = (what.serial, what.depth)
        return replace(state, book=book, tempo=pace), Offer(
            what.cluster, what.weights, version, last_layer, epochs * cfg.legs, serial=what.serial
        )

    def take(fleet: Fleet, state: Any, came: Sequence[tuple[Arrival, Upload]]) -> Any:
        for arrival, one in came:
            state = _pushed(fleet, state, arrival, one)
        return replace(state, events=state.book.events)

    def _pushed(fleet: Fleet, state: Any, arrival: Arrival, one: Upload) -> Any:
        book, client, before = state.book, one.client, state.book.arrivals
        sent = book.sent[client]
        pace = tempo.noted(state.tempo, client, arrival.at - arrival.sent, sent.epochs)
        update = _as_push(_at_its_width(state, one), sent)
        distance, first = by.l1, _first(by, cfg, one.own, sent.weights)
        if cfg.clusters.assign == "kl":
            distance = _whole(by.outputs, sent.weights)
        partner = state.partners.get(client)
        known = None if partner is None else book.members.get(partner)
        if known is not None:  # an access point trains for its device, so it is where its device is
            distance = first = partial(_only, book.clusters[known.cluster].weights)
        book = echo.push(book, client, update, cfg, by.names, distance, first)
        pace = tempo.gained(pace, client, book, arrival.at)
        state = _posted(fleet, replace(state, book=book, tempo=pace), client)
        every = cfg.clusters.refine_every or len(fleet.clients)
        due = state.book.arrivals % every == 0 or trials.urgent(state.book, cfg.clusters)
        if cfg.clusters.refine and state.book.arrivals > before and due:
            book = refined(state.book, cfg, by.outputs, by.say)
            state = _posted(fleet, replace(state, book=book), client)
        return state

    def _posted(fleet: Fleet, state: Any, sender: ClientId) -> Any:
        """EchoPFL, section 5: a cluster's new model to its members, to each at its own width."""
        models, idle = 0, set(fleet.idle) if cfg.pace.bytes_per_second and state.book.to_broadcast else set()
        for number in state.book.to_broadcast:
            book = state.book
            cluster = book.clusters[number]
            newcomers = book.newcomers if number == echo.largest(book) else {}
            to: Collection[ClientId] = Listeners(cluster.members, newcomers, sender)
            version = torch.tensor([cluster.broadcast_serial, cluster.broadcast_depth])
            state = _note(fleet, state, number, cluster.broadcast, version, cluster.last_layer, to)
            models += sum(client not in idle for client in to) if cfg.pace.bytes_per_second else 0
        return replace(state, tempo=tempo.spent(state.tempo, models, state.book.first))

    def _note(
        fleet: Fleet, state: Any, number: int, model: Params, version: Any, last_layer: bool, to: Collection[ClientId]
    ) -> Any:
        widths: Mapping[ClientId, float] = state.widths  # of the tasks that they are at
        found = {widths.get(client, 1.0) for client in to} if widths else {1.0}
        model = {**{name: state.first[name] for name in private}, **model}  # sub-models are kept whole
        for width in sorted(found, reverse=True):
            state, sub = cut(state, number, model, width, int(version[0]))
            shared = {name: value for name, value in sub.items() if name not in private}
            listeners = to if len(found) == 1 else OfWidth(to, widths, width)
            fleet.post(Note(shared, version, last_layer), to=listeners)
        return state

    def lost(state: Any, client: ClientId) -> Any:
        return replace(state, book=replace(state.book, newcomers=state.book.newcomers.drop(client)))

    def until(fleet: Fleet, state: Any) -> float | None:
        asked = queries.next_at(fleet.now, cfg.broadcast.query_every)
        return min(filter(None, (asked, tempo.turn(state.tempo, cfg, fleet, state.book)[1])), default=None)

    def turn(fleet: Fleet, state: Any) -> Sequence[ClientId]:
        return tempo.turn(state.tempo, cfg, fleet, state.book)[0]

    def wake(fleet: Fleet, state: Any, before: float) -> Any:
        """A new step: nothing is due yet, and clients at work may ask for a newer model (section 6, pull)."""
        state = replace(state, book=replace(state.book, to_broadcast=(), events=()))
        asked = queries.next_at(before, cfg.broadcast.query_every)
        if asked is None or fleet.now < asked:
            return state
        idle = set(fleet.idle)
        busy = [client for client in state.book.members if client not in idle]
        book, to = queries.answered(state.book, busy, cfg, by.l1)
        state = replace(state, book=book)
        for number, clients in to.items():
            cluster = book.clusters[number]
            version = torch.tensor([cluster.serial, cluster.depth])
            state = _note(fleet, state, number, cluster.weights, version, cluster.last_layer, clients)
            state = replace(state, tempo=tempo.spent(state.tempo, len(clients), book.first))
        return state

    return Grouping(nothing, ask, take, lost, until, turn, wake)


def _speaks_for(state: Any, client: ClientId) -> ClientId:
    """The client whose cluster decides what this one is sent: an access point gets the model of its device."""
    device = state.partners.get(client)
    return client if device is None or client in state.book.members else device


def _at_its_width(state: Any, one: Upload) -> Upload:
    """A narrow upload that lacks layers, with those that its client was sent: the server's are wider."""
    width = state.widths.get(one.client, 1.0)
    known = state.given.get(f"{one.number}/{width}")
    lacks = width != 1.0 and known is not None and not isinstance(one.update, Trained)
    return one._replace(weights={**known.weights, **one.weights}) if lacks else one


def _as_push(one: Upload, sent: Any) -> Trained:
    """The upload as the rules of EchoPFL read it; who does not judge the model it was sent finds it good."""
    update = one.update
    version = update.version if isinstance(update, Trained) else torch.tensor([sent.serial, sent.depth])
    feedback = getattr(update, "feedback", torch.zeros(0))
    return Trained(one.weights, version, update.examples, feedback if feedback.numel() else torch.zeros(()))


def _first(by: Measures, cfg: Any, own: Params | None, sent: Params) -> Distance | None:
    """How far the answers of an upload are from a centre's: of the client's own sub-model, where it was dilated."""
    if by.say is None:
        return None
    far: Distance = partial(unlike, by.say) if cfg.clusters.first == "answers" else by.outputs
    return _whole(far, sent) if own is None else lambda _, centre: far(own, centre)


def _whole(distance: Distance, sent: Params) -> Distance:
    """A distance of answers: layers that an upload lacks are those that its client was sent."""
    return lambda a, b: distance(held.named(a, sent), b)


def _only(centre: Params, a: Params, b: Params) -> float:
    return 0.0 if b is centre else float("inf")
