"""Steps of Adam on a few free numbers that make models of other tensors.

`Graph` differentiates whatever makes the models. Members run as one stack where the model can be stacked, and one after
another where grouped convolutions would be slower, as in the engine. There compiled kernels give the gradient by the
model, if they know it, and only the making of the model is differentiated. `Planes` knows the two convolutions of
FedConv, `Compression` and `Dilation`, and goes through them by compiled kernels, too. The numbers are the same to
rounding. `stepper` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from potluck import _convolved, learn
from potluck._planes import Maps, Sizes, fits
from potluck.fleet import Data, Params
from potluck.methods.parts.submodels import kernels
from potluck.methods.parts.submodels.kernels import PLAIN, Activation, Lattice, Under, planes, unplaned
from potluck.methods.parts.submodels.mixing import stacked
from potluck.methods.parts.submodels.widths import Plan
from potluck.models import Model

Make = Callable[[Params, Any], Params]  # (free numbers of one member, what is fixed for it) -> a whole model
Array = Any  # a float32 array of one axis


@dataclass(frozen=True)
class Compression:
    """Equation (1): a sub-model of its kernels."""

    weights: Params
    plan: Plan
    width: float
    activation: Activation = "identity"
    lattice: Lattice = PLAIN

    def __call__(self, free: Params, _: Any = None) -> Params:
        return kernels.compress(self.weights, free, self.plan, self.width, self.activation, self.lattice)


@dataclass(frozen=True)
class Dilation:
    """Equation (3): a model at full width of a sub-model and kernels."""

    weights: Params
    fill: Under = "global"
    lattice: Lattice = PLAIN

    def __call__(self, free: Params, sub: Params) -> Params:
        return kernels.dilate(sub, free, self.weights, self.fill, self.lattice)


class Stepper(Protocol):
    buffers: Params  # statistics of the norms, one row per fixed

    def current(self) -> Params:
        """The free numbers of all members, stacked."""

    def step(self, data: Data, order: Tensor, count: Tensor, at: slice, rate: float, key: Callable[[], Tensor]) -> None:
        """One step on these rows: of every member on its own fixed, or of the only one on the fixed `at`."""


def stepper(
    model: Model, make: Make, members: Sequence[Params], fixed: Sequence[Params], data: Data, batch: int
) -> Stepper:
    simple = isinstance(make, Compression | Dilation) and make.lattice == PLAIN and not _pre(members[0])
    if simple and not learn.is_plain() and fits(data.x, *members[0].values(), *make.weights.values()):  # type: ignore[attr-defined]
        return Planes(model, make, members, fixed, data, batch)  # type: ignore[arg-type]
    return Graph(model, make, members, fixed, data, batch)


def _pre(free: Params) -> bool:
    return any(name.endswith("/a1") for name in free)


class Graph:
    """Steps by automatic differentiation."""

    def __init__(
        self, model: Model, make: Make, members: Sequence[Params], fixed: Sequence[Params], data: Data, batch: int
    ) -> None:
        self._model, self._make, self._members = model, make, len(members)
        self._together = model.kind != "conv"
        self._given = stacked(fixed)
        free, among = stacked(members), max(len(fixed), len(members))
        self._names = list(free)
        self._values = [free[name] for name in self._names]
        self._first = [torch.zeros_like(v) for v in self._values]
        self._second = [torch.zeros_like(v) for v in self._values]
        self._taken = torch.zeros(())
        self.buffers = each(
            among, self._together, lambda f, x: buffers_of(model, make(f, x)), wide(free, among), self._given
        )
        self._slopes = None if self._together or learn.is_plain() else _known(model, make, members, fixed, data, batch)

    def current(self) -> Params:
        return dict(zip(self._names, self._values, strict=True))

    def step(self, data: Data, order: Tensor, count: Tensor, at: slice, rate: float, key: Callable[[], Tensor]) -> None:
        part, own = learn.take(data, order, count), key()
        given, buffers = _at(self._given, at), _at(self.buffers, at)

        def loss(f: Params, x: Params, b: Params) -> tuple[Tensor, Params]:
            return learn.mean_loss(self._model, self._make(f, x) | b, part, own)

        if self._slopes is None:
            slopes, changed = _gradients(self._members, self._together, loss, self.current(), given, buffers)
        else:
            by_model = partial(self._slopes, order=order, count=count)
            slopes, changed = _through(self._members, self._make, by_model, self.current(), given), {}
        self._taken = self._taken + 1
        gradient = [slopes[name] for name in self._names]
        self._values, self._first, self._second = learn.adam_step(
            self._values, self._first, self._second, gradient, rate, self._taken
        )
        self.buffers = self.buffers | {name: _put(self.buffers[name], at, value) for name, value in changed.items()}


class _Made(NamedTuple):
    """What the maps are put on for one member, and the tensors that they do not make."""

    x: Array
    base: Array | None
    rest: Params


class Planes:
    """Steps of kernels, by compiled kernels."""

    def __init__(
        self, model: Model, make: Compression | Dilation, members: Sequence[Params], fixed: Sequence[Params],
        data: Data, batch: int,
    ) -> None:  # fmt: skip
        self._model = model
        widens = isinstance(make, Dilation)
        among = max(len(fixed), len(members))
        with torch.no_grad():
            made = [make(members[k % len(members)], fixed[k] if fixed else {}) for k in range(among)]
        self._order = [name for name in make.weights if f"{name}/v" in members[0]]
        wholes, parts = make.weights, fixed[0] if widens else made[0]
        positions = {name: _positions(members[0], wholes[name], name) for name in self._order}
        self._positions = positions
        sizes = {
            name: Sizes(*(_turned(model[name], positions[name]).shape for model in (wholes, parts)))  # type: ignore[arg-type]
            for name in self._order
        }
        letters = [f"{name}/{letter}" for name in self._order for letter in "vgc"]
        self._like = {name: made[0][name] for name in self._order}
        self._flat = {name: wholes[name.rpartition("/")[0]].dim() < 2 for name in letters}
        first = [self._free(one, letters) for one in members]
        self._maps = Maps(sizes, first[0], widens, isinstance(make, Compression) and make.activation == "mlr")
        self._values = [self._maps.packed(one) for one in first]
        self._moments = [(np.zeros_like(value), np.zeros_like(value)) for value in self._values]
        self._taken = 0
        base = None
        if isinstance(make, Dilation):
            empty = {name: torch.zeros_like(value) for name, value in members[0].items()}
            filler = make(empty, {name: torch.zeros_like(value) for name, value in fixed[0].items()})
            base = self._row(filler)
        self._made = [
            _Made(
                self._row(fixed[k] if widens else wholes), base,
                {name: value for name, value in one.items() if name not in positions},
            )
            for k, one in enumerate(made)
        ]  # fmt: skip
        self.buffers = stacked([buffers_of(model, one) for one in made])
        self._slopes = self._compiled(made[0], data, batch)
        self._answers: tuple[Tensor, Any] | None = None  # of the last samples that were asked for

    def _free(self, one: Params, letters: Sequence[str]) -> Params:
        """The free numbers in the order of the maps, kernels of planes turned as the planes are."""
        own = {name: one[name] for name in letters if name in one}
        return {name: v.transpose(1, 2) if self._turns(name) else v for name, v in own.items()}

    def _turns(self, name: str) -> bool:
        return name.endswith("/v") and not self._flat[name]

    def _row(self, tensors: Params) -> Array:
        parts = [_turned(tensors[name], self._positions[name]).reshape(-1) for name in self._order]
        return torch.cat(parts).numpy()

    def _compiled(self, made: Params, data: Data, batch: int) -> Any:
        """The model's own gradient by compiled kernels, where they know it and see its weights in this order."""
        net = _convolved.net_of(self._model, made, data)
        if net is None or [form.name for form in net.forms] != self._order:
            return None
        for form in net.forms:
            places = torch.arange(float(made[form.name].numel())).reshape(form.own)
            if not torch.equal(form.row(places[None])[0], _turned(places, self._positions[form.name]).flatten()):
                return None
        self._net = net
        return _convolved.slopes(self._model, net, data, batch)

    def said(self, x: Tensor) -> Tensor | None:
        """The outputs of all models that the members make now; None where kernels do not know the model."""
        if self._slopes is None:
            return None
        if self._answers is None or self._answers[0] is not x:
            self._answers = x, _convolved.answers(self._net, x)
        values, answers = self._values, self._answers[1]
        made = [self._maps.forward(values[k % len(values)], one.x, one.base) for k, one in enumerate(self._made)]
        return torch.stack([torch.from_numpy(answers(y)) for y in made])

    def current(self) -> Params:
        found = [self._maps.unpacked(value.copy()) for value in self._values]
        return stacked([
            {name: v.transpose(1, 2) if self._turns(name) else v for name, v in one.items()} for one in found
        ])  # fmt: skip

    def step(self, data: Data, order: Tensor, count: Tensor, at: slice, rate: float, key: Callable[[], Tensor]) -> None:
        self._taken += 1
        for k, made in list(enumerate(self._made))[at]:
            own = k % len(self._values)
            y = self._maps.forward(self._values[own], made.x, made.base)
            if self._slopes is not None:
                slope = self._slopes(y, order, count)
            else:
                slope = self._differentiated(y, made, k, learn.take(data, order, count), key())
            d = self._maps.backward(self._values[own], made.x, y, slope)
            self._maps.step(self._values[own], *self._moments[own], d, rate, self._taken)

    def _differentiated(self, y: Array, made: _Made, k: int, data: Data, key: Tensor) -> Array:
        """The gradient by y through the model's own operations."""
        sizes = [self._maps.size_of(name) for name in self._order]
        parts = torch.split(torch.from_numpy(y), [prod(size) for size in sizes])
        own = {}
        for name, size, part in zip(self._order, sizes, parts, strict=True):
            own[name] = _unturned(part.reshape(size), self._like[name]).requires_grad_()
        buffers = {name: value[k] for name, value in self.buffers.items()}
        with torch.enable_grad():
            loss, changed = learn.mean_loss(self._model, made.rest | own | buffers, data, key)
            found = torch.autograd.grad(loss, list(own.values()))
        self.buffers = self.buffers | {
            name: _put(self.buffers[name], slice(k, k + 1), value.detach()[None]) for name, value in changed.items()
        }
        return self._row(dict(zip(self._order, found, strict=True)))


def _positions(free: Params, weight: Tensor, name: str) -> int:
    return len(free[f"{name}/v"]) if weight.dim() == 2 else 1


def _turned(value: Tensor, positions: int) -> Tensor:
    """The planes of a tensor, inputs x outputs: the order in which compiled kernels keep layers."""
    own = planes(value, positions)
    return own if value.dim() < 2 else own.transpose(1, 2)


def _unturned(value: Tensor, like: Tensor) -> Tensor:
    return unplaned(value if like.dim() < 2 else value.transpose(1, 2), like).clone()


def buffers_of(model: Model, weights: Params) -> Params:
    return {name: value for name, value in weights.items() if name not in model.trainable}


def wide(own: Params, among: int) -> Params:
    """The only member, once for each fixed that it serves; more members stay as they are."""
    return {name: value.expand(among, *value.shape[1:]) for name, value in own.items()}


def row(stack: Params, k: int) -> Params:
    """One member of a stack."""
    return {name: value[k] for name, value in stack.items()}


def _at(stack: Params, where: slice) -> Params:
    return {name: value[where] for name, value in stack.items()}


def _known(
    model: Model, make: Make, members: Sequence[Params], fixed: Sequence[Params], data: Data, batch: int
) -> Callable[..., list[tuple[Tensor, Tensor]]] | None:
    """The tensors of a model beside the gradient of the loss by each, by compiled kernels; None where they do not know
    the model."""
    with torch.no_grad():
        made = make(members[0], fixed[0] if fixed else {})
    net = _convolved.net_of(model, made, data) if fits(data.x, *made.values()) else None
    if net is None:
        return None
    slopes = _convolved.slopes(model, net, data, batch)

    def pairs(whole: Params, order: Tensor, count: Tensor) -> list[tuple[Tensor, Tensor]]:
        row = torch.cat([form.row(whole[form.name].detach()[None]) for form in net.forms], 1)[0]
        parts = torch.split(torch.from_numpy(slopes(row.numpy(), order, count)), net.counts)
        return [(whole[form.name], form.back(part[None])[0]) for form, part in zip(net.forms, parts, strict=True)]

    return pairs


def _through(
    members: int, make: Make, pairs: Callable[[Params], list[tuple[Tensor, Tensor]]], free: Params, fixed: Params
) -> Params:
    """The gradient by the free numbers, of the gradient by the model that each member makes."""
    found = []
    for k in range(members):
        own = {name: value[k].detach().requires_grad_() for name, value in free.items()}
        with torch.enable_grad():
            whole = make(own, row(fixed, k))
        moving = [(value, slope) for value, slope in pairs(whole) if value.requires_grad]
        slopes = torch.autograd.grad([v for v, _ in moving], list(own.values()), [s for _, s in moving])
        found.append(dict(zip(own, slopes, strict=True)))
    return stacked(found)


def _put(old: Tensor, where: slice, new: Tensor) -> Tensor:
    if new.shape == old.shape:
        return new
    out = old.clone()
    out[where] = new
    return out


def each(members: int, together: bool, function: Callable[..., Params], *stacks: Params) -> Params:
    with torch.no_grad():
        if together:
            return vmap(function)(*stacks)
        return stacked([function(*(row(stack, k) for stack in stacks)) for k in range(members)])


def _gradients(
    members: int, together: bool, loss: Callable[..., tuple[Tensor, Params]], free: Params, fixed: Params,
    buffers: Params,
) -> tuple[Params, Params]:  # fmt: skip
    if together:
        found, (_, changed) = vmap(lambda f, x, b: grad_and_value(lambda g: loss(g, x, b), has_aux=True)(f))(
            free, fixed, buffers
        )
        return found, changed
    gradients, changes = [], []
    for k in range(members):
        own = {name: value[k].detach().requires_grad_() for name, value in free.items()}
        with torch.enable_grad():
            value, changed = loss(own, row(fixed, k), row(buffers, k))
            found = torch.autograd.grad(value, list(own.values()))
        gradients.append(dict(zip(own, found, strict=True)))
        changes.append({name: buffer.detach() for name, buffer in changed.items()})
    return stacked(gradients), stacked(changes)
