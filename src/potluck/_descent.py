"""Steps of gradient descent, for one client alone or inside a stack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad_and_value

from potluck._batches import step_keys, steps, take, transformed
from potluck.fleet import Data, Params

Loss = Callable[[Params, Data, Tensor], tuple[Tensor, Params]]


@dataclass(frozen=True)
class Pull:
    """A term that is added to the gradient and is affine in the weights: scale · w + times · shift - minus.

    A step is then w - lr (gradient + scale · w + shift), so a positive `scale` pulls the weights towards zero.
    FedProx is Pull(mu, w0, -mu), a control variate of SCAFFOLD is Pull(0, c, minus=c_i), weight decay is Pull(2 alpha).
    The tensors are named, not computed: on a small device a copy of the model more decides whether it can train.
    """

    scale: float | Tensor = 0.0
    shift: Params | None = None
    times: float | Tensor = 1.0
    minus: Params | None = None

    def constant(self, name: str) -> Tensor | float:
        """The part that does not depend on the weights, as one tensor."""
        if self.shift is None:
            return 0.0
        whole = isinstance(self.times, float) and self.times == 1.0
        shift = self.shift[name] if whole else self.times * self.shift[name]
        return shift if self.minus is None else shift - self.minus[name]

    def add_to(self, into: list[Tensor], at: list[Tensor], names: list[str], by: float = 1.0) -> None:
        """Add `by` times the term, taken at these weights, in place and without a copy of any of them."""
        for value, weights, name in zip(into, at, names, strict=True):
            if value is weights:
                value.mul_(1.0 + by * float(self.scale))
            else:
                value.add_(weights, alpha=by * float(self.scale))
            if self.shift is not None:
                value.add_(self.shift[name], alpha=by * float(self.times))
            if self.minus is not None:
                value.sub_(self.minus[name], alpha=by)


def descend(
    objective: Loss,
    weights: Params,
    moving: list[str],
    data: Data,
    rows: Tensor,
    counts: Tensor,
    key: Tensor,
    lr: float | Tensor,
    momentum: float,
    pull: Pull | None,
    clip: float,
) -> Params:
    fixed = {name: value for name, value in weights.items() if name not in moving}
    alone = not transformed()
    # Alone, the copy is changed in place: half the memory, and the layout of the weights (channels last) is kept.
    values = [weights[name].clone() if alone else weights[name] for name in moving]
    velocity = [torch.zeros_like(value) for value in values] if momentum else []
    own_keys = step_keys(key, counts)
    for step, row, count in steps(rows, counts):
        batch = take(data, row, count)
        slope, buffers = slope_of(objective, moving, values, fixed, batch, own_keys[step])
        rate = lr * (count.sum() > 0)  # an all-padding batch must not move anything
        with torch.no_grad():
            if clip:
                slope = clipped(slope, clip)
            if alone:
                _step_(values, velocity, slope, moving, float(rate), momentum, pull)
            else:
                values, velocity = stepped(values, velocity, slope, moving, rate, momentum, pull)
            keep = rate > 0
            fixed |= {name: torch.where(keep, new, fixed[name]) for name, new in buffers.items()}
    trained = dict(zip(moving, values, strict=True))
    return {name: trained.get(name, fixed.get(name, value)) for name, value in weights.items()}


def _step_(
    values: list[Tensor],
    velocity: list[Tensor],
    slope: list[Tensor],
    names: list[str],
    rate: float,
    momentum: float,
    pull: Pull | None,
) -> None:
    """One step in place: beside the weights and their gradient it takes no memory but that of the momentum."""
    if momentum:
        torch._foreach_mul_(velocity, momentum)
        torch._foreach_add_(velocity, slope)
        if pull is not None:
            pull.add_to(velocity, values, names)
        slope = velocity
    elif pull is not None:
        pull.add_to(values, values, names, by=-rate)
    torch._foreach_add_(values, slope, alpha=-rate)


def stepped(
    values: list[Tensor],
    velocity: list[Tensor],
    slope: list[Tensor],
    names: list[str],
    rate: Tensor,
    momentum: float,
    pull: Pull | None,
) -> tuple[list[Tensor], list[Tensor]]:
    """One step of a stack, whose clients may have batches of padding only."""
    if pull is not None:
        slope = [g + pull.scale * w + pull.constant(n) for g, w, n in zip(slope, values, names, strict=True)]
    if momentum:
        velocity = [torch.where(rate > 0, momentum * v + g, v) for v, g in zip(velocity, slope, strict=True)]
        slope = velocity
    return [w - rate * g for w, g in zip(values, slope, strict=True)], velocity


def adam_step(
    values: list[Tensor],
    first: list[Tensor],
    second: list[Tensor],
    gradient: list[Tensor],
    lr: float | Tensor,
    taken: Tensor,
    live: Tensor | bool = True,
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """The values and both moments after the `taken`-th step; unchanged where `live` is false."""
    keep = torch.as_tensor(live)
    first = [torch.where(keep, 0.9 * m + 0.1 * g, m) for m, g in zip(first, gradient, strict=True)]
    second = [torch.where(keep, 0.999 * v + 0.001 * g * g, v) for v, g in zip(second, gradient, strict=True)]
    since = taken.clamp_min(1.0)
    one, two = 1.0 - 0.9**since, 1.0 - 0.999**since
    rate = lr * keep
    values = [w - rate * (m / one) / ((v / two).sqrt() + 1e-8) for w, m, v in zip(values, first, second, strict=True)]
    return values, first, second


def clipped(slope: list[Tensor], most: float) -> list[Tensor]:
    """Shorten a gradient to the norm `most` if it is longer."""
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in slope]))
    return [g * (most / norm.clamp_min(most)) for g in slope]


def slope_of(
    objective: Loss, moving: list[str], values: list[Tensor], fixed: Params, batch: Data, key: Tensor
) -> tuple[list[Tensor], Params]:
    """The gradient of the objective by the moving parameters, and the buffers that the objective returns."""
    if transformed():

        def value_of(free: list[Tensor]) -> tuple[Tensor, Params]:
            return objective(dict(zip(moving, free, strict=True)) | fixed, batch, key)

        slope, (_, buffers) = grad_and_value(value_of, has_aux=True)(values)
        return slope, buffers
    # Alone, ordinary autograd gives the same gradient with less bookkeeping.
    with torch.enable_grad():
        free = [value.detach().requires_grad_() for value in values]
        value, buffers = objective(dict(zip(moving, free, strict=True)) | fixed, batch, key)
        slope = list(torch.autograd.grad(value, free))
    return slope, {name: buffer.detach() for name, buffer in buffers.items()}
