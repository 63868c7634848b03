"""The chosen parts as one value: what the server program of a composed method works with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from potluck.errors import BadInput, Code
from potluck.fleet import Arrival, ClientId, Fleet, Message, Params
from potluck.methods import clusterfl, echopfl
from potluck.methods.parts.centaur.pairs import AP
from potluck.methods.parts.compose import clusters, convolved, groups, pairs, plain, relations, shapes
from potluck.methods.parts.compose.books import Grouping, Offer
from potluck.methods.parts.compose.groups import Group, Groups
from potluck.methods.parts.compose.messages import Bind, How, Legs, Train, Trained, Turned
from potluck.methods.parts.compose.shapes import WHOLE, Shape, Upload
from potluck.methods.parts.fedcfc import cud
from potluck.methods.parts.fedcfc.cud import Aim
from potluck.methods.parts.merge import MEAN
from potluck.methods.parts.starts import other_start
from potluck.methods.parts.submodels.widths import plan_of

SPEED = 5e10  # MACs per second of the server
TOGETHER = ("rounds", "deadline")
CUT = ("slices", "rolling", "fedconv", "per-group")


@dataclass(frozen=True)
class Sub:
    """A group's model at a width, as it was last made, and of which version."""

    serial: int
    weights: Params


class Kit(NamedTuple):
    """The parts of one run."""

    cfg: Any
    grouping: Grouping
    shape: Shape
    how: How
    legs: Legs
    private: tuple[str, ...]  # tensors that stay on the clients
    rules: pairs.Rules | None  # of the handover
    bound: frozenset[str]  # devices that share a gradient only
    layer: str  # whose gradient that is


def private_of(cfg: Any, model: Any) -> tuple[str, ...]:
    """The tensors that stay on the clients."""
    if cfg.share == "all-but-head":
        return tuple(model.last_layers(cfg.layers))
    if cfg.share == "module":
        first = [name.rpartition(".")[0] for name in model.trainable][:1]
        chosen = cfg.module.names or tuple(model.layers()[:1] or first)
        return tuple(
            name for name in model.init(0) if not any(name == one or name.startswith(f"{one}.") for one in chosen)
        )
    return ()


def kit_of(fleet: Fleet, state: Any, cfg: Any) -> Kit:
    """Build the parts that the settings name."""
    model, first = fleet.home.model, state.first
    if cfg.local == "handover" and not any(profile.partner for profile in fleet.clients.values()):
        raise BadInput(Code.METHOD_NEEDS, "method.local: 'handover' needs access points. Set fleet.access_point.")
    private = private_of(cfg, model)
    shape = _shape(fleet, first, cfg)
    if cfg.shape == "per-group":
        shape = _by_group(shape, model, state, cfg)
    plan = plan_of(model) if cfg.shape in CUT else None
    how = How(
        cfg.local, cfg.select if cfg.local == "select" else None, cfg.proximal.mu, cfg.head.epochs, cfg.distil.weight,
        cfg.distil.tau,
    )  # fmt: skip
    rules = pairs.Rules(fleet, cfg.recipe, cfg.select, cfg.handover, cfg.seed) if cfg.local == "handover" else None
    step = _step(cfg, plan, shape)
    legs = Legs()
    if cfg.grouping == "clusters":
        echo = echo_of(cfg, bool(private))
        of = 0 if cfg.pace in TOGETHER else echo.legs  # in rounds nobody is at work when a model changes
        legs = Legs(of, cfg.recipe.epochs * echo.legs, echo.broadcast.on_arrival, echo.clusters.feedback)
        names = [name for name in model.trainable if name not in private]
        by = clusters.measures(fleet, names, whole=not private)
        grouping = clusters.grouping(echo, by, lambda *a: cut(shape, *a), private)
    elif cfg.grouping == "relation":
        grouping = relations.grouping(model, relation_of(cfg), lambda *a: _centre(shape, *a), private)
    else:
        known = groups.given_to(fleet, cfg.given) if cfg.grouping == "given" else (lambda client: 0)
        choices = cfg.choice.count if cfg.grouping == "choice" else 0
        grouping = plain.grouping(known, step, cfg.merge == "latest", choices)
    bound = frozenset(
        client
        for client, profile in fleet.clients.items()
        if (cfg.share == "gradient" and not cfg.gradient.devices) or profile.device in cfg.gradient.devices
    )
    layer = [name for name in model.trainable if first[name].dim() > 1][-1] if bound else ""
    return Kit(cfg, grouping, shape, how, legs, private, rules, bound, layer)


def book_of(fleet: Fleet, first: Params, cfg: Any) -> Any:
    """The record of the grouping before anything happened."""
    private = private_of(cfg, fleet.home.model)
    shared = {name: value for name, value in first.items() if name not in private}
    if cfg.grouping == "clusters":
        return echopfl.Grouping(shared if cfg.shape != "fedconv" else first)
    if cfg.grouping == "relation":
        return relations.opened(fleet.home.model, shared, relation_of(cfg))
    if cfg.grouping == "given":
        number = groups.given_to(fleet, cfg.given)
        return Groups({k: Group(first) for k in sorted({number(client) for client in fleet.clients} | {0})})
    count = cfg.choice.count if cfg.grouping == "choice" else 1
    others = [other_start(fleet.home.model, cfg.seed, i) for i in range(1, count)]
    return Groups({k: Group(model) for k, model in enumerate([first, *others])})


def echo_of(cfg: Any, private: bool) -> echopfl.Config:
    """EchoPFL's settings; where layers stay on the clients no model answers on the server, so weights decide."""
    rules = cfg.clusters
    if private:
        first = rules.first if rules.first == "direction" else "l1"
        rules = replace(rules, first=first, assign="l1", alike=1.0, split="share")
    legs = cfg.legs if cfg.pace not in TOGETHER else 1
    recipe = cfg.recipe if cfg.recipe.optimiser == "sgd" else replace(cfg.recipe, optimiser="sgd")
    return echopfl.Config(recipe, rules, cfg.broadcast, cfg.arrivals, legs, cfg.seed)


def relation_of(cfg: Any) -> clusterfl.Config:
    couple = cfg.couple
    return clusterfl.Config(
        coupling=couple.coupling, f_every=couple.f_every, relation=cfg.relation, probe=cfg.probe, recipe=cfg.recipe,
        lr_decay=couple.lr_decay,
    )  # fmt: skip


def _shape(fleet: Fleet, first: Params, cfg: Any) -> Shape:
    tuned = (cfg.sizes, cfg.kernels, cfg.mix, cfg.server, cfg.recipe, SPEED, cfg.seed)
    if cfg.shape == "fedconv":
        return convolved.convolved(fleet, first, cfg.tuning.used(cfg.merge), *tuned, alone=cfg.merge == "stale")
    if cfg.shape == "rolling":
        return shapes.rolling(fleet, first, cfg.sizes, cfg.recipe, cfg.seed)
    if cfg.shape in ("slices", "per-group"):
        return shapes.slices(fleet, first, cfg.sizes, cfg.recipe, cfg.seed)
    shape = shapes.same(fleet)
    return shape._replace(tuner=convolved.server_side(fleet, *tuned)) if cfg.merge == "learned" else shape


def _by_group(shape: Shape, model: Any, state: Any, cfg: Any) -> Shape:
    """The narrowest width of a group's members; a client of no group keeps its own."""
    now: dict[str, Any] = {"state": state}

    def width(client: ClientId) -> float:
        members = clusters_of(now["state"].book)
        number = members.get(client)
        own = [shape.widths[other] for other, place in members.items() if place == number]
        return min(own, default=shape.widths[client]) if number is not None else shape.widths[client]

    return shapes.per_group(shape, plan_of(model), state.first, cfg.sizes, width, now)


def _step(cfg: Any, plan: Any, shape: Shape) -> groups.Step:
    if cfg.merge == "learned":
        return groups.by_learned(shape)
    if cfg.merge == "stale":
        return groups.by_change(cfg.stale, plan)
    return groups.by_mean(plan, cfg.mean, cfg.robust if cfg.merge == "robust" else MEAN)


def clusters_of(book: Any) -> dict[ClientId, int]:
    """The group of each client that has one."""
    if isinstance(book, Groups):
        return dict(book.members)
    if isinstance(book, relations.Related):
        known = book.structure.learned >= 0
        return dict(zip(book.table.names, book.structure.cluster, strict=True)) if known else {}
    return {client: book.members[client].cluster for client in sorted(book.members)}


def cut(shape: Shape, state: Any, number: int, model: Params, width: float, serial: int) -> tuple[Any, Params]:
    """A group's model at a width; one that was made of the same version before is taken again."""
    at = f"{number}/{width}"
    known: Sub | None = state.given.get(at)
    if known is not None and known.serial == serial:
        return state, known.weights
    learned, sub = shape.down(state.learned, number, model, width, serial, state.round)
    return replace(state, learned=learned, given={**state.given, at: Sub(serial, sub)}), sub


def _centre(shape: Shape, state: Any, number: int, model: Params, client: ClientId) -> tuple[Any, Params]:
    """What a client is pulled to, at its width. Those of one group share the kernels that the first one tunes."""
    whole, width = {**state.first, **model}, shape.widths[client]
    learned, sub = shape.down(state.learned, number, whole, width, state.step, state.round)
    return replace(state, learned=learned), sub


def task_for(fleet: Fleet, kit: Kit, state: Any, aside: Any, made: dict[Any, Message], client: ClientId) -> Any:
    """(state, task, legs) of one client. Equal tasks are one object, so that stacks share them."""
    cfg, width = kit.cfg, kit.shape.widths[client]
    if state.widths.get(client, 1.0) != width:
        state = replace(state, widths={**state.widths, client: width})
    state, offer = kit.grouping.ask(state, aside, client)
    if client in kit.bound:
        return _bind(kit, state, offer, client, width)
    state, sub = _at_width(kit, state, offer, width)
    at = (offer.number, offer.serial, width)
    if kit.rules is not None and kit.rules.hands_over(fleet, client):
        device = state.partners.get(client)
        if device is not None:
            task = kit.rules.access_point(state, device, at, sub)
            return state if cfg.pace in TOGETHER else pairs.at_work(state, device), task, 1
        pair = state.round // 2 if cfg.pace in TOGETHER else state.pairs.times.get(client, 0)
        return state, kit.rules.device(fleet, state, client, at, sub, pair), 1
    # Where a client's width changes, it gets its own layers again, for what those that it has do not fill.
    known = client in state.known and cfg.shape != "per-group"
    key = (*at, known, offer.last_layer, client if offer.towards.on else "")
    if key not in made:
        hidden = kit.private if known else ()
        weights = {name: value for name, value in sub.items() if name not in hidden}
        if offer.models:
            state, subs = _cut_all(kit, state, offer, width)
            weights = {name: torch.stack([one[name] for one in subs]) for name in weights}
        legs = kit.legs
        recipe = replace(cfg.recipe, epochs=1) if legs.of else cfg.recipe
        made[key] = Train(
            weights, offer.stamp, recipe, kit.private, kit.how, legs, offer.last_layer, len(offer.models),
            cfg.merge == "stale" or _narrow_change(kit, width), state.use == "own", offer.towards,
        )  # fmt: skip
    return state, made[key], offer.legs


def _narrow_change(kit: Kit, width: float) -> bool:
    """Whether a client sends its change; under a relation a model is no change of what a task begins with."""
    return kit.shape.by_changes and width != WHOLE and kit.cfg.grouping != "relation"


def _at_width(kit: Kit, state: Any, offer: Offer, width: float) -> tuple[Any, Params]:
    """The model offered, at the client's width, with the layers that only clients have."""
    if not offer.weights:
        return state, {}
    whole = {**{name: state.first[name] for name in kit.private}, **offer.weights}
    return cut(kit.shape, state, offer.number, {name: whole[name] for name in state.first}, width, offer.serial)


def _cut_all(kit: Kit, state: Any, offer: Offer, width: float) -> tuple[Any, list[Params]]:
    subs = []
    for k, one in enumerate(offer.models):
        state, sub = cut(kit.shape, state, k, one, width, offer.serial)
        subs.append(sub)
    return state, subs


def _bind(kit: Kit, state: Any, offer: Offer, client: ClientId, width: float) -> Any:
    """FedCFC: the common direction of the newest gradients of its group and width; first also the model."""
    cfg = kit.cfg
    weights: Params = {}
    if client not in state.known:
        state, weights = _at_width(kit, state, offer, width)
    running = None
    for name, gradient in state.gradients.items():
        if state.known.get(name) == width:  # as they came: widths are dealt anew where other clients are there
            running = cud.absorb(running or cud.nothing(gradient.numel()), gradient)
    size = state.first[kit.layer] if width == 1.0 else cut(kit.shape, state, 0, state.first, width, -1)[1][kit.layer]
    aim = Aim(torch.zeros(size.numel()), torch.tensor(-1.0))
    if running is not None:
        aim = Aim(cud.direction(running), cud.magnitude(running))
    bound = cfg.gradient
    task = Bind(weights, aim.cud, aim.cum, kit.layer, bound.lambda_d, bound.lambda_m, cfg.recipe, kit.how)
    return state, task, 1


def lifted(kit: Kit, state: Any, came: Sequence[Arrival]) -> tuple[Any, list[tuple[Arrival, Upload]]]:
    """The arrivals with what they brought, in the coordinates of their groups' models; gradients are kept aside."""
    turned = {one.client: one.update.gradient.clone() for one in came if isinstance(one.update, Turned)}
    if turned:
        widths = {client: state.widths.get(client, 1.0) for client in turned}
        state = replace(state, gradients={**state.gradients, **turned}, known={**state.known, **widths})
    ones = [_upload(kit, state, arrival) for arrival in came if arrival.client not in turned]
    wide = [kit.shape.width_of(one, state.widths.get(one.client, 1.0)) for one in ones]
    found: dict[int, Upload] = {}
    for number in dict.fromkeys(one.number for one in ones):
        mine = [(place, one) for place, one in enumerate(ones) if one.number == number]
        model = _model_of(state, number)
        given = [(one, wide[place], _sent(state, one, wide[place])) for place, one in mine]
        learned, up = kit.shape.up(state.learned, given, model, state.step, state.round)
        state = replace(state, learned=learned)
        found |= {place: one for (place, _), one in zip(mine, up, strict=True)}
    arrivals = [arrival for arrival in came if arrival.client not in turned]
    known = {one.client: width for one, width in zip(ones, wide, strict=True)}
    state = replace(state, known={**state.known, **known} if known.items() - state.known.items() else state.known)
    return state, [(arrival, found[place]) for place, arrival in enumerate(arrivals)]


def _upload(kit: Kit, state: Any, arrival: Arrival) -> Upload:
    update, book, number, age = arrival.update, state.book, 0, 0
    weights = update.weights if isinstance(update, Trained) else pairs.brought(update)
    if isinstance(book, Groups) and isinstance(update, Trained):
        number = int(update.group) if update.group.numel() else int(update.version[0])
        group = book.groups.get(number)
        age = 0 if group is None else group.version - int(update.version[1])
    elif isinstance(book, echopfl.Grouping):
        number = book.sent[arrival.client].cluster
    return Upload(arrival.client, weights, float(update.examples), number, age, update)


def _model_of(state: Any, number: int) -> Params:
    book = state.book
    if isinstance(book, Groups):
        found: Params = book.groups[number].weights if number in book.groups else state.first
        return found
    if isinstance(book, echopfl.Grouping) and number in book.clusters:
        return {**state.first, **book.clusters[number].weights}
    return dict(state.first)


def _sent(state: Any, one: Upload, width: float) -> Params:
    known: Sub | None = state.given.get(f"{one.number}/{width}")
    return {} if known is None else known.weights


def partners_of(fleet: Fleet) -> dict[ClientId, ClientId]:
    """Access point -> its device."""
    return {c: p.partner for c, p in fleet.clients.items() if p.kind == AP and p.partner is not None}
