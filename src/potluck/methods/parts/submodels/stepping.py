"""Steps of Adam on a few free numbers that make models of other tensors.

`Graph` differentiates whatever makes the models. Members run as one stack where the model can be stacked, and one after
another where grouped convolutions would be slower, as in the engine. There compiled kernels give the gradient by the
model, if they know it, and only the making of the model is differentiated. `Planes` knows the two convolutions of
FedConv, `Compression` and `Dilation`, and goes through them by compiled kernels, too. The numbers are the same to
rounding. `stepper` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from potluck import _convolved, learn
from potluck._planes import fits
from potluck.fleet import Data, Params
from potluck.methods.parts.submodels.kernels import PLAIN
from potluck.methods.parts.submodels.making import Compression, Dilation, Make, Step, buffers_of, put
from potluck.methods.parts.submodels.mixing import stacked
from potluck.methods.parts.submodels.quick import Planes
from potluck.models import Model


class Stepper(Protocol):
    buffers: Params  # statistics of the norms, one row per fixed

    def current(self) -> Params:
        """The free numbers of all members, stacked."""

    def steps(self, data: Data, steps: Sequence[Step]) -> None:
        """Steps on these rows, one after another."""


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

    def steps(self, data: Data, steps: Sequence[Step]) -> None:
        for one in steps:
            self._step(data, *one)

    def _step(
        self, data: Data, order: Tensor, count: Tensor, at: slice, rate: float, key: Callable[[], Tensor]
    ) -> None:
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
        self.buffers = self.buffers | {name: put(self.buffers[name], at, value) for name, value in changed.items()}


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
