"""The shape: which width a client has, how a group's model becomes its sub-model, and back.

`Shape` is a value with three functions. `down` makes sub-models, `up` puts uploads into the group's coordinates: as
they are where they hold the leading channels (`parts/held.py`), with the indices of a window, or dilated to full width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from potluck.fleet import ClientId, Fleet, Params
from potluck.learn import Recipe
from potluck.methods import fedconv
from potluck.methods.parts.submodels.fitting import FittedSizes
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

    def with_kernels(self, compression: Mapping[str, Params] = {}, dilation: Mapping[ClientId, Params] = {}) -> Learned:
        return replace(self, compression={**self.compression, **compression}, dilation={**self.dilation, **dilation})

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
    own: Params | None = None  # that model, which says what the client learned; in the dilated one others say it, too


class Shape(NamedTuple):
    """What a client's model is of its group's model."""

    widths: Mapping[ClientId, float]
    # Of a group's number and model, a width, the version and the round.
    down: Callable[[Learned, int, Params, float, int, int], tuple[Learned, Params]]
    up: Callable[[Learned, Sequence[tuple[Upload, float, Params]], Params, int, int], tuple[Learned, list[Upload]]]
    tuner: fedconv.Server | None = None
    width_of: Callable[[Upload, float], float] = lambda one, width: width  # of an upload; by now its client has another
    by_changes: bool = False  # narrow clients send what they changed
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


class _Everybody(dict[ClientId, float]):
    def __missing__(self, client: ClientId) -> float:
        return WHOLE


class _Asked(dict[ClientId, float]):
    def __init__(self, width: Callable[[ClientId], float]) -> None:
        super().__init__()
        self._width = width

    def __missing__(self, client: ClientId) -> float:
        return self._width(client)
