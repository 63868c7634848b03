"""Shape `fedconv`: sub-models by learned convolution over a group's model, and uploads at full width again.

FedConv's kernels and tuning (`methods/fedconv.py`), for groups whose models change at any pace. There a model goes
through a compression and a dilation with every upload. The two are not each other's inverse, so a model that is dilated
whole drifts, and in the end falls apart. So the *change* is dilated: W + TC(change), with eq. (3) without its constant.
It is linear in the change: no change, no other model, and what kernels do not see of W stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import ClientId, Fleet, Params
from potluck.learn import Recipe
from potluck.methods import fedconv
from potluck.methods.parts.compose.messages import Change
from potluck.methods.parts.compose.settings import Tuning
from potluck.methods.parts.compose.shapes import WHOLE, Learned, Shape, Upload
from potluck.methods.parts.submodels import kernels
from potluck.methods.parts.submodels.fitting import FittedSizes
from potluck.methods.parts.submodels.kernels import Kernels
from potluck.methods.parts.submodels.mixing import Mix
from potluck.methods.parts.submodels.tuning import ServerRows, divided
from potluck.tensors import each


def convolved(
    fleet: Fleet, first: Params, how: Tuning, sizes: FittedSizes, made: Kernels, mix: Mix, rows: ServerRows,
    recipe: Recipe, speed: float, seed: int, alone: bool = False,
) -> Shape:  # fmt: skip
    """FedConv, eqs. (1) and (3): kernels of each group and width compress, kernels of each client dilate.

    With `alone` a change is lifted by itself, for a merge of changes.
    """
    own = server_side(fleet, sizes, made, mix, rows, recipe, speed, seed)
    as_set, by_changes = own.cfg.kernels, how.of == "changes"

    def down(
        learned: Learned, number: int, model: Params, width: float, version: int, round: int
    ) -> tuple[Learned, Params]:
        if width == WHOLE:
            return learned, model
        at, name = f"{number}/{width}", f"{number}/{width:g} down"
        own.tuner.begin(version)
        if not learned.due(name, round, how.every):
            sub = kernels.compress(model, learned.compression[at], own.plan, width, as_set.shape, as_set.lattice)
            _charge(own, "compression", width, model, learned.compression[at], sub)
            return learned.after(own), sub | learned.statistics.get(name, {})
        own.tuner.figures["compressed"] = {}
        with own.tuner.answers_of(model) if how.labels == "model" else nullcontext():
            tuned = fedconv.compressed(own, model, width, learned.compression.get(at))
        if tuned.by:
            learned = learned.with_kernels(compression={at: tuned.by})
        return learned.after(own).noted(name, round, _statistics(own, tuned.weights)), tuned.weights

    def up(
        learned: Learned, came: Sequence[tuple[Upload, float, Params]], model: Params, step: int, round: int
    ) -> tuple[Learned, list[Upload]]:
        """Each width in one stack; layers that a client keeps are, in its dilated model, as the server sent them."""
        big: dict[ClientId, Params] = {}
        own.tuner.begin(step)
        for width in sorted({width for _, width, _ in came}, reverse=True):
            ones = [(one, sent) for one, own_width, sent in came if own_width == width]
            if width == WHOLE:
                big |= {one.client: {**sent, **one.weights} for one, sent in ones}
                continue
            learned, wide = _lifted(own, how, learned, ones, model, width, round)
            big |= {client: each(torch.sub, one, model) for client, one in wide.items()} if alone else wide
        lifted = [
            one._replace(
                weights=_shared(big[one.client], one.weights), width=width,
                own=_as_sent(one, sent) if sent and width != WHOLE else None,
            )
            for one, width, sent in came
        ]  # fmt: skip
        return learned.after(own), lifted

    return Shape(sizes.fitted(fleet, first, recipe, seed), down, up, tuner=own, by_changes=by_changes)


Ones = Sequence[tuple[Upload, Params]]  # uploads of one width, each with the sub-model that its client was sent


def _lifted(
    own: fedconv.Server, how: Tuning, learned: Learned, ones: Ones, model: Params, width: float, round: int
) -> tuple[Learned, dict[ClientId, Params]]:
    """Models or changes of one width at full width, by kernels that are known or tuned now."""
    as_set, changes = own.cfg.kernels, how.of == "changes"
    given = {one.client: _change(one, sent) if changes else {**sent, **one.weights} for one, sent in ones}
    due = [client for client in given if learned.due(f"{client} up", round, how.every)]
    big: dict[ClientId, Params] = {}
    for client in given.keys() - due:
        free = learned.dilation[client]
        _charge(own, "dilation", width, model, free, given[client])
        wide = kernels.dilate(given[client], free, model, "all" if changes else as_set.fill, as_set.lattice)
        big[client] = wide | learned.statistics.get(f"{client} up", {})
    for stack, said in _stacks(how, ones, due):
        with own.tuner.answers_of(said) if said else nullcontext():
            some, before = {client: given[client] for client in stack}, fedconv.State(model, dilation=learned.dilation)
            made_of = fedconv.dilated(own, before, some, width, changes)
        learned = learned.with_kernels(dilation={client: one.by for client, one in made_of.items()})
        for client, one in made_of.items():
            big[client] = one.weights
            learned = learned.noted(f"{client} up", round, _statistics(own, one.weights))
    return learned, big


def _stacks(how: Tuning, ones: Ones, due: Sequence[ClientId]) -> list[tuple[list[ClientId], Params]]:
    """The clients whose kernels are tuned together, and whose classes count: all by the rows' own, or each by its
    own model's, for each says other things of the rows."""
    if how.labels == "rows":
        return [(list(due), {})] if due else []
    return [([one.client], _as_sent(one, sent)) for one, sent in ones if one.client in due]


def _change(one: Upload, sent: Params) -> Params:
    """What a client changed: as it says itself, or against the sub-model that was made last."""
    if isinstance(one.update, Change):
        return one.weights
    return {name: value - sent[name] for name, value in one.weights.items()}


def _as_sent(one: Upload, sent: Params) -> Params:
    """The client's own sub-model: what it sent, or its change on the sub-model that was made last."""
    if not isinstance(one.update, Change):
        return {**sent, **one.weights}
    return {name: value + one.weights[name] if name in one.weights else value for name, value in sent.items()}


def _charge(own: fedconv.Server, what: str, width: float, model: Params, free: Params, sub: Params) -> None:
    """The time of one convolution with kernels that are known."""
    macs = kernels.work({name: shape for name, shape in own.plan.shapes(model, width).items() if name in sub}, free)
    own.tuner.figures["seconds"][what] += own.tuner.spend(f"{what} with known kernels", 0.0, sub, macs)


def _statistics(own: fedconv.Server, weights: Params) -> Params:
    """The norms' statistics, as tuning left them."""
    return {name: value for name, value in weights.items() if name not in own.tuner.model.trainable}


def _shared(model: Params, like: Params) -> Params:
    return {name: value for name, value in model.items() if name in like}


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
