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
from potluck.methods.parts.submodels import kernels
from potluck.methods.parts.submodels.fitting import FittedSizes
from potluck.methods.parts.submodels.kernels import Kernels
from potluck.methods.parts.submodels.mixing import Mix
from potluck.methods.parts.submodels.tuning import ServerRows, divided
from potluck.methods.parts.submodels.widths import Indices, cut, leading, plan_of, rolled, spaced

WHOLE = 1.0


@dataclass(frozen=True)
class Learned:
    """What tuning on the server rows left for the next time."""

    compression: dict[str, Params] = field(default_factory=dict)  # kernels by group and width
    dilation: dict[ClientId, Params] = field(default_factory=dict)  # kernels by client
    v: dict[ClientId, Params] = field(default_factory=dict)  # weights of each client's layers in the last mean
    figures: dict[str, Any] = field(default_factory=dict)


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
    down: Callable[[Learned, int, Params, float, int], tuple[Learned, Params]]  # group, its model, width, version
    up: Callable[[Learned, Sequence[tuple[Upload, float, Params]], Params, int], tuple[Learned, list[Upload]]]
    tuner: fedconv.Server | None = None
    now: dict[str, Any] | None = None  # holds the newest state, where widths depend on it


def same(fleet: Fleet) -> Shape:
    """One model for all."""

    def down(learned: Learned, number: int, model: Params, width: float, version: int) -> tuple[Learned, Params]:
        return learned, model

    return Shape(_Everybody(), down, _as_they_are)


def slices(fleet: Fleet, first: Params, sizes: FittedSizes, recipe: Recipe, seed: int) -> Shape:
    """HeteroFL, eq. (1): W_l^p = W_g[:d_p, :k_p]."""
    plan = plan_of(fleet.home.model)
    parts = {width: leading(plan, width) for width in sizes.widths}

    def down(learned: Learned, number: int, model: Params, width: float, version: int) -> tuple[Learned, Params]:
        return learned, cut(model, plan, parts[width])

    def up(
        learned: Learned, came: Sequence[tuple[Upload, float, Params]], model: Params, step: int
    ) -> tuple[Learned, list[Upload]]:
        return learned, [one._replace(indices=parts[width]) for one, width, _ in came]

    return Shape(sizes.fitted(fleet, first, recipe, seed), down, up)


def rolling(fleet: Fleet, first: Params, sizes: FittedSizes, recipe: Recipe, seed: int) -> Shape:
    """FedRolex, eq. (3): the window begins at the version of the group's model."""
    plan = plan_of(fleet.home.model)

    def down(learned: Learned, number: int, model: Params, width: float, version: int) -> tuple[Learned, Params]:
        return learned, cut(model, plan, rolled(plan, width, version))

    def up(
        learned: Learned, came: Sequence[tuple[Upload, float, Params]], model: Params, step: int
    ) -> tuple[Learned, list[Upload]]:
        return learned, [
            one._replace(indices=rolled(plan, width, int(one.update.version[1]))) for one, width, _ in came
        ]

    return Shape(sizes.fitted(fleet, first, recipe, seed), down, up)


def convolved(
    fleet: Fleet, first: Params, sizes: FittedSizes, made: Kernels, mix: Mix, rows: ServerRows, recipe: Recipe,
    speed: float, seed: int,
) -> Shape:  # fmt: skip
    """FedConv, eqs. (1) and (3): kernels of each group and width compress, kernels of each client dilate."""
    own = server_side(fleet, sizes, made, mix, rows, recipe, speed, seed)

    def down(learned: Learned, number: int, model: Params, width: float, version: int) -> tuple[Learned, Params]:
        if width == WHOLE:
            return learned, model
        at_step(own, version)
        own.tuner.figures["compressed"] = {}
        at = f"{number}/{width}"
        sub = fedconv.compressed(own, model, width, learned.compression.get(at))
        compression = {**learned.compression, at: sub.by} if sub.by else learned.compression
        return replace(learned, compression=compression, figures=own.tuner.figures), sub.weights

    def up(
        learned: Learned, came: Sequence[tuple[Upload, float, Params]], model: Params, step: int
    ) -> tuple[Learned, list[Upload]]:
        """Each width in one stack; layers that a client keeps are, in its dilated model, as the server sent them."""
        big: dict[ClientId, Params] = {}
        dilation = dict(learned.dilation)
        at_step(own, step)
        for width in sorted({width for _, width, _ in came}, reverse=True):
            group = {one.client: {**sent, **one.weights} for one, own_width, sent in came if own_width == width}
            if width == WHOLE:
                big |= group
                continue
            state = fedconv.State(model, dilation=learned.dilation)
            made_of = fedconv.dilated(own, state, group, width)
            big |= {client: one.weights for client, one in made_of.items()}
            dilation |= {client: one.by for client, one in made_of.items() if one.by}
        lifted = [one._replace(weights=_shared(big[one.client], one.weights), width=width) for one, width, _ in came]
        return replace(learned, dilation=dilation, figures=own.tuner.figures), lifted

    return Shape(sizes.fitted(fleet, first, recipe, seed), down, up, tuner=own)


def centre_at(shape: Shape, learned: Learned, number: int, model: Params, width: float) -> Params:
    """A model at a width by the kernels that its group has already; as `down`, without tuning anything."""
    own = shape.tuner
    if own is None or width == WHOLE:
        return model
    free = learned.compression.get(f"{number}/{width}")
    if free is None:
        return cut(model, own.plan, spaced(own.plan, width, own.cfg.kernels.stride))
    return kernels.compress(model, free, own.plan, width, own.cfg.kernels.shape, own.cfg.kernels.lattice)


def server_side(
    fleet: Fleet, sizes: FittedSizes, made: Kernels, mix: Mix, rows: ServerRows, recipe: Recipe, speed: float, seed: int
) -> fedconv.Server:
    """FedConv's side of the server: the rows in two parts, and what tunes on them."""
    cfg = fedconv.Config(recipe, sizes, made, mix, rows, server_macs_per_second=speed, seed=seed)
    parts = divided(fleet.home.data, keys.key(seed, "server rows"), rows.validate_share)
    return fedconv.opened(fleet, parts, cfg)


def at_step(own: fedconv.Server, number: int) -> None:
    """Draw the random numbers of this step, whatever was tuned before: a resumed run has tuned nothing yet."""
    before = own.tuner.figures
    own.tuner.begin(number)
    own.tuner.figures = {**own.tuner.figures, **before}


def mixed(own: fedconv.Server, model: Params, uploads: Sequence[Upload]) -> fedconv.Made:
    """FedConv, eq. (4): a mean whose weights are tuned on the server rows."""
    models = {one.client: one.weights for one in uploads}
    examples: list[Tensor] = [one.update.examples for one in uploads]
    return fedconv.mixed(own, model, models, examples, {one.client: one.width for one in uploads})


def per_group(shape: Shape, width: Callable[[ClientId], float], now: dict[str, Any]) -> Shape:
    """The same shape, with the width of a client's group instead of its own; `now` has the state to read it from."""
    return shape._replace(widths=_Asked(width), now=now)


def _as_they_are(
    learned: Learned, came: Sequence[tuple[Upload, float, Params]], model: Params, step: int
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
