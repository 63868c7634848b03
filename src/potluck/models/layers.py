"""Layers that are pure functions of their weights: norms and dropout that fit `torch.func` and stacks of
clients.

PyTorch's own batch norm writes its running statistics into the module and its dropout draws from a global
generator. Here both read the running *pass*: the 0/1 weights of the samples (padding stays out of the
statistics), the key for random draws, and a place for the statistics that changed, which
`Model.train_logits` returns to its caller. Channel counts come from the tensors, so a slice of the weights
works without change.

Group norm: Wu and He, ECCV 2018; batch norm: Ioffe and Szegedy, ICML 2015.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from potluck import keys
from potluck.errors import BadInput, Code

Norm = Literal["none", "group", "layer", "batch", "frozen"]


@dataclass
class Pass:
    """One pass in training mode: what the layers need besides x, and the statistics they change."""

    weight: Tensor | None
    key: Tensor | None
    changed: dict[str, Tensor] = field(default_factory=dict)


class _Running(threading.local):
    training: Pass | None = None


_running = _Running()


@contextmanager
def running(training: Pass | None) -> Iterator[None]:
    """Run the layers inside in training mode with this pass, or in evaluation mode with None."""
    before = _running.training
    _running.training = training
    try:
        yield
    finally:
        _running.training = before


class BatchNorm(nn.Module):
    """Batch norm over all axes but the second; `frozen` uses the stored statistics in training, too."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, *, momentum: float = 0.1, eps: float = 1e-5, frozen: bool = False) -> None:
        super().__init__()
        self.path = ""  # the layer's name in its model, set by Model
        self.momentum, self.eps, self.frozen = momentum, eps, frozen
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        now = _running.training
        if now is None or self.frozen:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        axes = [axis for axis in range(x.dim()) if axis != 1]
        alone = torch._C._functorch.peek_interpreter_stack() is None
        if alone and (now.weight is None or bool((now.weight > 0).all())):
            return self._unpadded(x, axes, now)  # one client: PyTorch's own kernel takes half the time
        wide = (1, -1, *(1,) * (x.dim() - 2))
        per_sample = math.prod(x.shape[2:])
        if now.weight is None:
            real, count = None, torch.tensor(float(x.shape[0] * per_sample), dtype=x.dtype)
        else:
            real = now.weight.to(x.dtype).reshape(-1, *(1,) * (x.dim() - 1))
            count = real.sum() * per_sample
        divisor = count.clamp_min(1.0)
        mean = (x if real is None else x * real).sum(axes) / divisor
        centred = x - mean.reshape(wide)
        square = centred * centred
        var = (square if real is None else square * real).sum(axes) / divisor
        # The unbiased variance, as PyTorch keeps it; a batch of padding only changes nothing.
        step = self.momentum * (count > 0)
        unbiased = var.detach() * (divisor / (divisor - 1.0).clamp_min(1.0))
        now.changed[f"{self.path}.running_mean"] = self.running_mean + step * (mean.detach() - self.running_mean)
        now.changed[f"{self.path}.running_var"] = self.running_var + step * (unbiased - self.running_var)
        scale = self.weight * torch.rsqrt(var + self.eps)
        return centred * scale.reshape(wide) + self.bias.reshape(wide)

    def _unpadded(self, x: Tensor, axes: list[int], now: Pass) -> Tensor:
        with torch.no_grad():
            var, mean = torch.var_mean(x.detach(), axes, correction=1 if x.numel() > self.weight.numel() else 0)
            now.changed[f"{self.path}.running_mean"] = torch.lerp(self.running_mean, mean, self.momentum)
            now.changed[f"{self.path}.running_var"] = torch.lerp(self.running_var, var, self.momentum)
        if x.numel() == self.weight.numel():  # one value per channel: the kernel refuses it, its norm is the bias
            wide = (1, -1, *(1,) * (x.dim() - 2))
            return x * 0.0 * self.weight.reshape(wide) + self.bias.reshape(
                wide
            )  # all three have a gradient of zero or one
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)


class GroupNorm(nn.Module):
    """Group norm with the most groups, up to `groups`, that split the channels evenly, two or more in each.

    With one channel per group, an image of one position would be normalised to zero.
    """

    def __init__(self, channels: int, groups: int = 8, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.groups, self.eps = groups, eps
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        channels = x.shape[1]
        most = max(1, min(self.groups, channels // 2))
        groups = next(n for n in range(most, 0, -1) if channels % n == 0)
        return torch.group_norm(x, groups, self.weight, self.bias, self.eps)


class LayerNorm(GroupNorm):
    """Layer norm over channels and positions of a sample: group norm with one group."""

    def __init__(self, channels: int, *, eps: float = 1e-5) -> None:
        super().__init__(channels, 1, eps=eps)


def norm(kind: Norm, channels: int, groups: int) -> nn.Module:
    if kind == "group":
        return GroupNorm(channels, groups)
    if kind == "layer":
        return LayerNorm(channels)
    if kind == "none":
        return nn.Identity()
    return BatchNorm(channels, frozen=kind == "frozen")


class Dropout(nn.Module):
    """Dropout whose draw depends on the pass's key and the layer's name only."""

    def __init__(self, share: float = 0.5) -> None:
        super().__init__()
        self.path = ""  # the layer's name in its model, set by Model
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        now = _running.training
        if now is None or self.share == 0.0:
            return x
        if now.key is None:
            raise BadInput(
                Code.MODEL_STATEFUL,
                f"key: none was given to train_logits, and the dropout layer {self.path!r} draws from one.",
            )
        kept = keys.uniform(keys.fold(now.key, self.path), x.shape) >= self.share
        return x * kept / (1.0 - self.share)
