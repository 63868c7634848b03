"""The shape: which width a client has, how a group's model becomes its sub-model, and back.

`Shape` is a value with three functions. `down` makes sub-models, `up` puts uploads into the group's coordinates: as
they are where they hold the leading channels (`parts/held.py`), with the indices of a window, or dilated to full width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from torch import Tensor

from potluck import keys
from potluck.fleet import ClientId, Fleet, Params
from potluck.learn import Recipe
from potluck.methods import fedconv
from potluck.methods.parts.compose.settings import Tuning
from potluck.methods.parts.submodels import kernels
from potluck.methods.parts.submodels.fitting import FittedSizes
from potluck.methods.parts.submodels.kernels import Kernels
from potluck.methods.parts.submodels.mixing import Mix
from potluck.methods.parts.submodels.tuning import ServerRows, divided
from potluck.methods.parts.submodels.widths import Indices, Plan, cut, leading, plan_of, rolled

WHOLE = 1.0


@dataclass(frozen=True)
class Learned:
    """What tuning on the server rows left for the next time."""

    compression: dict[str, Params] = field(default_factory=dict)  # kernels by group and width
    dilation: dict[ClientId, Params] = field(default_factory=dict)  # kernels by client
    tuned: dict[str, int] = field(default_factory=dict)  # kernels -> the round in which they were tuned
    statistics: dict[str, Params] = field(default_factory=dict)  # kernels -> statistics of norms since
    figures: dict[str, Any] = field(default_factory=dict)  # of the last tuning, on the server's validation rows
    seconds: dict[str, float] = field(default_factory=dict)  # of the server's work so far, by phase

    def after(self, own: fedconv.Server) -> Learned:
        """With the figures of one step of the server, and its seconds."""
        now = own.tuner.figures
        seconds = {what: self.seconds.get(what, 0.0) + one for what, one in now["seconds"].items()}
        figures = {name: one for name, one in now.items() if name != "seconds"}
        return replace(self, figures={**self.figures, **figures}, seconds=seconds)

    def due(self, name: str, round: int, every: int) -> bool:
        """Whether these kernels are to be tuned: never before, or so many rounds ago."""
        return name not in self.tuned or round >= self.tuned[name] + every

    def noted(self, name: str, round: int, statistics: Params) -> Learned:
        known = {**self.statistics, name: statistics} if statistics else self.statistics
        return replace(self, tuned={**self.tuned, name: round}, statistics=known)


class Upload(NamedTuple):
    """What a client sent, in the coordinates of its group's model."""

    client: ClientId
    weights: Params  # some of the layers, of each the leading channels; or a window, with its indices
    examples: float
    number: int  # of the group that it began from
    age: int  # versions of that group since
    update: Any
    indices: Indices | None = None
    width: float = 1.0  # of the model that was dilated


class Shape(NamedTuple):
    """What a client's model is of its group's model."""

    widths: Mapping[ClientId, float]
    # Of a group's number and model, a width, the version and the round.
    down: Callable[[Learned, int, Params, float, int, int], tuple[Learned, Params]]
    up: Callable[[Learned, Sequence[tuple[Upload, float, Params]], Params, int, int], tuple[Learned, list[Upload]]]
    tuner: fedconv.Server | None = None
    width_of: Callable[[Upload, float], float] = lambda one, width: width  # of an upload; by now its client has another
    now: dict[str, Any] | None = None  # holds the newest state, where widths depend on it


def same(fleet: Fleet) -> Shape:
    """One model for all."""

    def down(
        learned: Learned, number: int, model: Params, width: float, version: int, round: int
    ) -> tuple[Learned, Params]:
        return learned, model

    return Shape(_Everybody(), down, _as_they_are)


def slices(fleet: Fleet, first: Params, sizes: FittedSizes, recipe: Recipe, seed: int) -> Shape:
    """HeteroFL, eq. (1): W_l^p = W_g[:d_p, :k_p]."""
    plan = plan_of(fleet.home.model)
    parts = {width: leading(plan, width) for width in sizes.widths}

    def down(
        learned: Learned, number: int, model: Params, width: float, version: int, round: int
    ) -> tuple[Learned, Params]:
        return learned, cut(model, plan, parts[width])

    def up(
        learned: Learned, came: Sequence[tuple[Upload, float, Params]], model: Params, step: int, round: int
    ) -> tuple[Learned, list[Upload]]:
        return learned, [one._replace(indices=parts[width]) for one, width, _ in came]

    return Shape(sizes.fitted(fleet, first, recipe, seed), down, up)


def rolling(fleet: Fleet, first: Params, sizes: FittedSizes, recipe: Recipe, seed: int) -> Shape:
    """FedRolex, eq. (3): the window begins at the version of the group's model."""
    plan = plan_of(fleet.home.model)

    def down(
        learned: Learned, number: int, model: Params, width: float, version: int, round: int
    ) -> tuple[Learned, Params]:
        return learned, cut(model, plan, rolled(plan, width, version))

    def up(
        learned: Learned, came: Sequence[tuple[Upload, float, Params]], model: Params, step: int, round: int
    ) -> tuple[Learned, list[Upload]]:
        return learned, [
            one._replace(indices=rolled(plan, width, int(one.update.version[1]))) for one, width, _ in came
        ]

    return Shape(sizes.fitted(fleet, first, recipe, seed), down, up)


def convolved(
    fleet: Fleet, first: Params, often: Tuning, sizes: FittedSizes, made: Kernels, mix: Mix, rows: ServerRows,
    recipe: Recipe, speed: float, seed: int,
) -> Shape:  # fmt: skip
    """FedConv, eqs. (1) and (3): kernels of each group and width compress, kernels of each client dilate.

    Where models change with every upload, kernels are not tuned for every model: those known serve for a round.
    """
    own = server_side(fleet, sizes, made, mix, rows, recipe, speed, seed)
    as_set = own.cfg.kernels

    def down(
        learned: Learned, number: int, model: Params, width: float, version: int, round: int
    ) -> tuple[Learned, Params]:
        if width == WHOLE:
            return learned, model
        at, name = f"{number}/{width}", f"{number}/{width:g} down"
        own.tuner.begin(version)
        if not learned.due(name, round, often.every):
            sub = kernels.compress(model, learned.compression[at], own.plan, width, as_set.shape, as_set.lattice)
            work(own, "compression", width, model, learned.compression[at], sub)
            return learned.after(own), sub | learned.statistics.get(name, {})
        own.tuner.figures["compressed"] = {}
        tuned = fedconv.compressed(own, model, width, learned.compression.get(at))
        compression = {**learned.compression, at: tuned.by} if tuned.by else learned.compression
        learned = replace(learned.after(own), compression=compression)
        return learned.noted(name, round, _statistics(own, tuned.weights)), tuned.weights

    def up(
        learned: Learned, came: Sequence[tuple[Upload, float, Params]], model: Params, step: int, round: int
    ) -> tuple[Learned, list[Upload]]:
        """Each width in one stack; layers that a client keeps are, in its dilated model, as the server sent them."""
        big: dict[ClientId, Params] = {}
        own.tuner.begin(step)
        for width in sorted({width for _, width, _ in came}, reverse=True):
            group = {one.client: {**sent, **one.weights} for one, own_width, sent in came if own_width == width}
            if width == WHOLE:
                big |= group
                continue
            due = {client: one for client, one in group.items() if learned.due(f"{client} up", round, often.every)}
            for client in group.keys() - due.keys():
                free = learned.dilation[client]
                work(own, "dilation", width, model, free, group[client])
                wide = kernels.dilate(group[client], free, model, as_set.fill, as_set.lattice)
                big[client] = wide | learned.statistics.get(f"{client} up", {})
            if due:
                made_of = fedconv.dilated(own, fedconv.State(model, dilation=learned.dilation), due, width)
                big |= {client: one.weights for client, one in made_of.items()}
                learned = replace(learned, dilation=learned.dilation | {c: one.by for c, one in made_of.items()})
                for client, one in made_of.items():
                    learned = learned.noted(f"{client} up", round, _statistics(own, one.weights))
        lifted = [one._replace(weights=_shared(big[one.client], one.weights), width=width) for one, width, _ in came]
        return learned.after(own), lifted

    return Shape(sizes.fitted(fleet, first, recipe, seed), down, up, tuner=own)


def work(own: fedconv.Server, what: str, width: float, model: Params, free: Params, sub: Params) -> None:
    """Charge one convolution with kernels that are known."""
    macs = kernels.work(own.plan.shapes(model, width), free)
    own.tuner.figures["seconds"][what] += own.tuner.spend(f"{what} with known kernels", 0.0, sub, macs)


def _statistics(own: fedconv.Server, weights: Params) -> Params:
    """The norms' statistics, as tuning left them."""
    return {name: value for name, value in weights.items() if name not in own.tuner.model.trainable}


def server_side(
    fleet: Fleet, sizes: FittedSizes, made: Kernels, mix: Mix, rows: ServerRows, recipe: Recipe, speed: float, seed: int
) -> fedconv.Server:
    """FedConv's side of the server: the rows in two parts, and what tunes on them."""
    cfg = fedconv.Config(recipe, sizes, made, mix, rows, server_macs_per_second=speed, seed=seed)
    parts = divided(fleet.home.data, keys.key(seed, "server rows"), rows.validate_share)
    return fedconv.opened(fleet, parts, cfg)


def mixed(own: fedconv.Server, model: Params, uploads: Sequence[Upload]) -> fedconv.Made:
    """FedConv, eq. (4): a mean whose weights are tuned on the server rows."""
    models = {one.client: one.weights for one in uploads}
    examples: list[Tensor] = [one.update.examples for one in uploads]
    return fedconv.mixed(own, model, models, examples, {one.client: one.width for one in uploads})


def per_group(
    shape: Shape, plan: Plan, like: Params, sizes: FittedSizes, width: Callable[[ClientId], float], now: dict[str, Any]
) -> Shape:
    """The same shape, with the width of a client's group instead of its own; `now` has the state to read it from.

    The group may have become narrower, and the client got its next task, before its answer is merged.
    """
    shapes = {one: plan.shapes(like, one) for one in sizes.widths}

    def width_of(upload: Upload, width: float) -> float:
        fits = [
            one for one, shape in shapes.items() if all(shape[name] == v.shape for name, v in upload.weights.items())
        ]
        return width if width in fits or not fits else fits[0]

    return shape._replace(widths=_Asked(width), now=now, width_of=width_of)


def _as_they_are(
    learned: Learned, came: Sequence[tuple[Upload, float, Params]], model: Params, step: int, round: int
) -> tuple[Learned, list[Upload]]:
    return learned, [one for one, _, _ in came]


def _shared(model: Params, like: Params) -> Params:
    return {name: value for name, value in model.items() if name in like}


class _Everybody(dict[ClientId, float]):
    def __missing__(self, client: ClientId) -> float:
        return WHOLE


class _Asked(dict[ClientId, float]):
    def __init__(self, width: Callable[[ClientId], float]) -> None:
        super().__init__()
        self._width = width

    def __missing__(self, client: ClientId) -> float:
        return self._width(client)
