"""Steps of FedConv's kernels by compiled kernels, which know its two convolutions.

Where they know the model, too, all steps between two looks at the rows to choose by are one call, members in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck import _convolved, learn
from potluck._planes import Maps, Sizes
from potluck.fleet import Data, Params
from potluck.methods.parts.submodels.kernels import planes, unplaned
from potluck.methods.parts.submodels.making import Compression, Dilation, Step, buffers_of, put
from potluck.methods.parts.submodels.mixing import stacked
from potluck.models import Model

Array = Any  # a float32 array


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
        self._values = np.stack([self._maps.packed(one) for one in first])
        self._moments = np.zeros_like(self._values), np.zeros_like(self._values)
        self._taken = 0
        self._base = None  # what maps that widen are put on top of
        if isinstance(make, Dilation):
            empty = {name: torch.zeros_like(value) for name, value in members[0].items()}
            filler = make(empty, {name: torch.zeros_like(value) for name, value in fixed[0].items()})
            self._base = self._row(filler)
        # What the maps are put on, and the tensors that they do not make.
        self._given = np.stack([self._row(fixed[k] if widens else wholes) for k in range(among)])
        self._rest = [{name: value for name, value in one.items() if name not in positions} for one in made]
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
        made = [self._maps.forward(values[k % len(values)], given, self._base) for k, given in enumerate(self._given)]
        return torch.stack([torch.from_numpy(answers(y)) for y in made])

    def current(self) -> Params:
        found = [self._maps.unpacked(value.copy()) for value in self._values]
        return stacked([
            {name: v.transpose(1, 2) if self._turns(name) else v for name, v in one.items()} for one in found
        ])  # fmt: skip

    def steps(self, data: Data, steps: Sequence[Step]) -> None:
        if self._slopes is not None:
            rows, counts = torch.stack([one.rows for one in steps]), torch.stack([one.counts for one in steps])
            at = np.array([-1 if one.at.start is None else one.at.start for one in steps])
            rates = np.array([one.rate for one in steps], np.float32)
            given = self._values, *self._moments, self._given, self._base
            self._maps.tune(self._slopes, *given, rows, counts, at, rates, self._taken)
            self._taken += len(steps)
            return
        for one in steps:
            self._taken += 1
            self._step(data, *one)

    def _step(
        self, data: Data, order: Tensor, count: Tensor, at: slice, rate: float, key: Callable[[], Tensor]
    ) -> None:
        first, second = self._moments
        part = learn.take(data, order, count)
        for k in range(len(self._rest))[at]:
            own = k % len(self._values)
            y = self._maps.forward(self._values[own], self._given[k], self._base)
            slope = self._differentiated(y, k, part, key())
            d = self._maps.backward(self._values[own], self._given[k], y, slope)
            self._maps.step(self._values[own], first[own], second[own], d, rate, self._taken)

    def _differentiated(self, y: Array, k: int, data: Data, key: Tensor) -> Array:
        """The gradient by y through the model's own operations."""
        sizes = [self._maps.size_of(name) for name in self._order]
        parts = torch.split(torch.from_numpy(y), [prod(size) for size in sizes])
        own = {}
        for name, size, part in zip(self._order, sizes, parts, strict=True):
            own[name] = _unturned(part.reshape(size), self._like[name]).requires_grad_()
        buffers = {name: value[k] for name, value in self.buffers.items()}
        with torch.enable_grad():
            loss, changed = learn.mean_loss(self._model, self._rest[k] | own | buffers, data, key)
            found = torch.autograd.grad(loss, list(own.values()))
        self.buffers = self.buffers | {
            name: put(self.buffers[name], slice(k, k + 1), value.detach()[None]) for name, value in changed.items()
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
