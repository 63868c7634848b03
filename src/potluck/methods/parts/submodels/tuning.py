"""Tuning on the server rows: step a few free numbers through the model that they make, and keep the best epoch.

The server rows are divided once into *tune* and *validate* (80/20). Every choice of an epoch is made by the loss on
*validate*, or by accuracy and then loss, as published: with few rows one row is more than most differences. Members
(clients of one width) are tuned together with one Adam, whose steps do not mix members (`stepping`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from potluck import keys, learn
from potluck.errors import BadInput, Code
from potluck.fleet import Data, Fleet, Local, Params
from potluck.learn import Recipe
from potluck.methods.parts import checks
from potluck.methods.parts.submodels import stepping
from potluck.methods.parts.submodels.making import Make, Step
from potluck.methods.parts.submodels.mixing import stacked
from potluck.methods.parts.submodels.quick import Planes
from potluck.methods.parts.submodels.stepping import row
from potluck.models import Model
from potluck.tasks import Task


@dataclass(frozen=True)
class ServerRows:
    """How a method uses the server rows."""

    pretrain_epochs: int = 5  # e_p, of the whole model, before the first round
    validate_share: float = 0.2  # of the rows, kept to choose by
    choose: Literal["loss", "accuracy"] = "loss"  # what an epoch is chosen by; accuracy: ties by loss

    def __post_init__(self) -> None:
        checks.at_least(self, "pretrain_epochs", 0)
        if not 0.0 < self.validate_share < 1.0:
            raise BadInput(
                Code.SETTING_VALUE, f"validate_share: must be above 0 and below 1, got {self.validate_share}."
            )


@dataclass(frozen=True)
class Rows:
    """The server rows in two parts."""

    tune: Data
    valid: Data

    def __len__(self) -> int:
        return int(self.tune.weight.shape[0])


def divided(data: Data, key: Tensor, share: float = 0.2) -> Rows:
    """Tune and validate: at least one row each where there are two."""
    count = int(data.weight.shape[0])
    order = keys.permutation(key, count)
    held = min(count - 1, max(1, round(share * count))) if count > 1 else 0
    parts = [learn.take(data, rows, data.weight[rows]) for rows in (order[held:], order[:held])]
    return Rows(parts[0], parts[1] if held else parts[0])


@dataclass(frozen=True)
class Tuned:
    """What tuning left of one member."""

    free: Params
    buffers: Params  # the norms' statistics, as the tuning batches left them
    start: float  # accuracy on validate before
    best: float  # and of the epoch kept


def tune(
    model: Model, make: Make, members: Sequence[Params], fixed: Sequence[Params], rows: Rows,
    *, rates: Sequence[float], batch: int, key: Tensor, take: Literal["loss", "accuracy", "last"] = "loss",
    look: int = 1,
) -> list[Tuned]:  # fmt: skip
    """Step the free numbers of all members by Adam at one rate per epoch; `fixed` has what `make` needs, per member.

    One member may serve several fixed ones: they take turns, and the mean of their scores counts. Every `look`-th epoch
    and the last one are looked at. The start counts as one of them, so the outcome is never worse on validate;
    `take = "last"` takes the last one.
    """
    among = max(len(fixed), len(members))
    turns, together, given = among > len(members), model.kind != "conv", stacked(fixed)
    stepper = stepping.stepper(model, make, members, fixed, rows.tune, batch)

    def wide(own: Params) -> Params:
        return stepping.wide(own, among) if turns else own

    def score_one(f: Params, x: Params, b: Params) -> Params:
        return {"score": score(model, make(f, x) | b, rows.valid)}

    def scores(f: Params, b: Params) -> Tensor:
        said = stepper.said(rows.valid.x) if isinstance(stepper, Planes) else None
        if said is not None:
            found = torch.stack([scored(model, model.task.answer(one, rows.valid.x), rows.valid) for one in said])
            return found.mean(0, keepdim=True) if turns else found
        found = stepping.each(among, together, score_one, wide(f), given, b)["score"]
        return found.mean(0, keepdim=True) if turns else found

    kept, kept_buffers, turn = stepper.current(), stepper.buffers, 0
    begun = best = scores(kept, kept_buffers)
    coming: list[Step] = []  # until the next look
    for epoch, rate in enumerate(rates):
        orders, counts = learn.batches(rows.tune, batch, 1, keys.fold(key, epoch))
        for step in range(orders.shape[0]):
            at = slice(turn % among, turn % among + 1) if turns else slice(None)
            coming.append(Step(orders[step], counts[step], at, rate, partial(keys.fold, key, epoch, step)))
            turn += 1
        if not _looks(epoch, len(rates), look):
            continue
        stepper.steps(rows.tune, coming)
        coming = []
        current, buffers = stepper.current(), stepper.buffers
        found = scores(current, buffers)
        better = _better(found, best, take)
        kept = {name: _pick(better, value, kept[name]) for name, value in current.items()}
        each = better.expand(among)
        kept_buffers = {name: _pick(each, value, kept_buffers[name]) for name, value in buffers.items()}
        best = torch.where(better[:, None], found, best)
    kept = wide(kept)
    begun, best = begun.expand(among, 2), best.expand(among, 2)
    return [Tuned(row(kept, k), row(kept_buffers, k), float(begun[k, 0]), float(best[k, 0])) for k in range(among)]


def _looks(epoch: int, epochs: int, every: int) -> bool:
    return (epoch + 1) % every == 0 or epoch + 1 == epochs


def _better(found: Tensor, best: Tensor, take: str) -> Tensor:
    """Which members an epoch serves better; scores are accuracy and minus the loss."""
    if take == "last":
        return torch.ones(len(found), dtype=torch.bool)
    by_loss = found[:, 1] > best[:, 1]
    return by_loss if take == "loss" else (found[:, 0] > best[:, 0]) | ((found[:, 0] == best[:, 0]) & by_loss)


class Tuner:
    """The server's work on its own rows: done, charged to the virtual clock, and added up in the round's figures."""

    def __init__(
        self, fleet: Fleet, rows: Rows, *, batch: int, seed: int, macs_per_second: float,
        choose: Literal["loss", "accuracy"] = "loss",
    ) -> None:  # fmt: skip
        self.model, self.rows = fleet.home.model, rows
        self.figures: dict[str, Any] = {}  # of this round, for the run's database
        self._fleet, self.batch, self._seed, self._speed = fleet, batch, seed, macs_per_second
        self._choose: Literal["loss", "accuracy"] = choose
        self._round = 0
        self._macs: dict[tuple[int, ...], float] = {}  # of one sample, by the sizes of a model's tensors

    def begin(self, round: int) -> None:
        """Start a round with nothing spent."""
        none: dict[str, float] = dict.fromkeys(("compression", "dilation", "mixture"), 0.0)
        self._round, self.figures = round, {"seconds": dict(none), "steps": none}

    def spend(self, what: str, passes: float, weights: Params, extra: float = 0.0) -> float:
        """Charge so many passes of the tune rows through a model, and `extra` MACs; return the seconds."""
        macs = extra
        if passes:
            sizes = tuple(value.numel() for value in weights.values())
            if sizes not in self._macs:
                self._macs[sizes] = learn.training_macs(self.model, weights, self.rows.tune)
            macs += passes * float(self.rows.tune.weight.sum()) * self._macs[sizes]
        seconds = macs / self._speed
        self._fleet.spend(seconds, f"round {self._round + 1}: {what}")
        return seconds

    def trained(self, weights: Params, what: str, epochs: int, recipe: Recipe) -> Params:
        """The model after some epochs of the recipe on the tune rows; as it was where there are none."""
        if not len(self.rows) or not epochs:
            return weights
        self.spend(what, epochs, weights)
        key, recipe = keys.key(self._seed, self._round, what), replace(recipe, epochs=epochs)
        return learn.fit(self.model, weights, self.rows.tune, recipe, key=key)

    @contextmanager
    def answers_of(self, weights: Params) -> Iterator[None]:
        """Tune on the classes that this model says, not on the rows' own: its clients may name things differently.

        They are drawn with the model's probabilities. The likeliest class would teach kernels to be surer than it is.
        """
        told = self.rows
        if self.model.task.has_classes and len(told):
            self.spend("what a model says of the rows", 1.0 / 3.0, weights)  # forward passes only
            key = keys.key(self._seed, self._round, "what a model says")
            parts = enumerate((told.tune, told.valid))
            self.rows = Rows(*(_said(self.model, weights, part, keys.fold(key, k)) for k, part in parts))
        try:
            yield
        finally:
            self.rows = told

    def tuned(
        self, phase: str, width: float | None, make: Make, members: Sequence[Params], fixed: Sequence[Params] = (),
        *, rates: Sequence[float], macs: float, batch: int = 0, look: int = 1, draw: int = 0,
    ) -> list[Tuned]:  # fmt: skip
        """Tune the free numbers of all members; `macs` is what it takes to make one member's model once.

        The phase, the width and the number of the draw also name the random numbers. Without rows the members stay as
        they are. `batch` differs from that of the recipe for kernels.
        """
        among, batch = max(len(members), len(fixed)), batch or self.batch
        if not len(self.rows):
            return [Tuned(members[k % len(members)], {}, 0.0, 0.0) for k in range(among)]
        steps = len(rates) * -(-len(self.rows) // batch)
        what = "" if width is None else f" of {among} models of width {width:g}"
        like = make(members[0], fixed[0] if fixed else {})
        looked = 1 + sum(_looks(epoch, len(rates), look) for epoch in range(len(rates)))
        looks = looked * among * len(self.rows.valid.y) / (3.0 * len(self.rows))  # forward passes only
        extra = 3.0 * steps * macs * len(members)
        seconds = self.spend(f"tuning the {phase}{what}", len(rates) * len(members) + looks, like, extra)
        self.figures["seconds"][phase] += seconds
        self.figures["steps"][phase] += steps * len(members)
        name = phase if width is None else f"{phase} {width}"
        key = keys.key(self._seed, self._round, name)
        key = keys.fold(key, draw) if draw else key
        how: dict[str, Any] = {"rates": rates, "batch": batch, "look": look, "take": self._choose}
        return tune(self.model, make, members, fixed, self.rows, key=key, **how)


FLOORS = {"compression": 0.4, "dilation": 0.8, "mixture": 0.5}  # of accuracy, below which the released code draws again
REDRAWS = 5


@dataclass(frozen=True)
class Released:
    """What FedConv's released code does beyond the paper."""

    restarts: bool = False  # draw kernels and v again, five times at most, below 40, 80 and 50 % on validate
    server_refresh: bool = False  # train the global model and each returned one
    refresh_epochs: int = 10
    refresh_lr: float = 1e-4

    def __post_init__(self) -> None:
        checks.at_least(self, "refresh_epochs", 0)
        checks.above(self, "refresh_lr", 0.0)

    def floor(self, phase: str, model: Model) -> float:
        """The accuracy below which first kernels, or first v, are drawn again."""
        if self.restarts:
            return FLOORS[phase]
        return 1.5 / model.classes if phase == "compression" and model.task.has_classes else 0.0

    def refreshed(self, tuner: Tuner, weights: Params, what: str) -> Params:
        epochs = self.refresh_epochs if self.server_refresh else 0
        recipe = Recipe(batch=tuner.batch, lr=self.refresh_lr, optimiser="adam")
        return tuner.trained(weights, f"refreshing {what}", epochs, recipe)


def need_rows(home: Local, why: str) -> None:
    """Raise BadInput, before anything runs, where the server has no rows."""
    if not home.data.weight.shape[0]:
        raise BadInput(Code.METHOD_NEEDS, f"server.share: must be above 0, got 0: {why}.")


def lacking(rows: Rows, task: Task) -> tuple[str, ...]:
    """What the server rows cannot serve, for the run's event log."""
    if not len(rows):
        return ("no server rows: no kernel is tuned, sub-models are leading slices, the mean is plain",)
    if not task.has_classes:
        return ()
    missing = sorted(set(range(task.outputs)) - set(rows.tune.y.tolist()))
    names = ", ".join(map(str, missing))
    return (f"no server row of class {names} to tune on: kernels and weights cannot serve it",) if missing else ()


def accuracy(model: Model, weights: Params, data: Data) -> float:
    return float(score(model, weights, data)[0]) if data.weight.shape[0] else 0.0


def score(model: Model, weights: Params, data: Data) -> Tensor:
    """The share of right answers and minus the loss, in evaluation mode."""
    with torch.no_grad():
        return scored(model, model.logits(weights, data.x, t=data.t, length=data.length), data)


def scored(model: Model, logits: Tensor, data: Data) -> Tensor:
    """`score` of a model that says so."""
    with torch.no_grad():
        right = model.task.closeness(logits, data.y)
        total = data.weight.sum().clamp_min(1.0)
        loss = (model.losses(logits, data.y) * data.weight).sum() / total
        return torch.stack([(right * data.weight).sum() / total, -loss])


def _said(model: Model, weights: Params, data: Data, key: Tensor) -> Data:
    """The rows with classes drawn with a model's probabilities."""
    with torch.no_grad():
        sure = model.logits(weights, data.x, t=data.t, length=data.length).softmax(-1).cumsum(-1)
    drawn = (sure[..., :-1] < keys.uniform(key, (*sure.shape[:-1], 1))).sum(-1)
    return replace(data, y=drawn.to(data.y.dtype))


def _pick(chosen: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(chosen.reshape(-1, *(1,) * (new.dim() - 1)), new, old)
