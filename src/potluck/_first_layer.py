"""The first layer of a stack of dense networks while it trains: with its weights at hand, or without them.

K clients, N samples, F inputs, H outputs: x is (K, N, F), weights and shift are (K, H, F).
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

DUAL = True  # tests compare both ways
PASSES = 40.0  # a pull touches each weight in every step: as slow as so many products


class Samples:
    """The samples of a stack, and their products that a second training in the same task needs again."""

    def __init__(self, x: Tensor) -> None:
        self.x, self._state = x, _state(x)
        self._gram: Tensor | None = None
        self._known: tuple[Tensor, tuple[object, ...], Tensor] | None = None

    @classmethod
    def of(cls, x: Tensor) -> Samples:
        """Those of this thread's last stack, if they are the same."""
        last: Samples | None = getattr(_THREAD, "last", None)
        if last is None or last._state != _state(x) or last._state != _state(last.x):
            last = _THREAD.last = cls(x)
        return last

    @property
    def gram(self) -> Tensor:
        """X X^T as (K N, N)."""
        if self._gram is None:
            self._gram = torch.bmm(self.x, self.x.transpose(1, 2)).flatten(0, 1)
        return self._gram

    def by(self, weight: Tensor) -> Tensor:
        """X W^T as (K N, H). Do not change it in place."""
        if weight.stride(0):
            return torch.bmm(self.x, weight.transpose(1, 2)).flatten(0, 1)
        state = _state(weight)  # the same model for every client of the stack: one large product
        if self._known is None or self._known[1] != state or _state(self._known[0]) != state:
            self._known = weight, state, self.x.flatten(0, 1) @ weight[0].T
        return self._known[2]


_THREAD = threading.local()


def _state(value: Tensor) -> tuple[object, ...]:
    """Where a tensor lies, and how often it was changed in place."""
    return value.data_ptr(), value.shape, value.stride(), value._version


class Direct:
    """The first layer with its weights at hand."""

    def __init__(self, samples: Samples, weight: Tensor, shift: Tensor | None = None) -> None:
        self.weight = weight.clone(memory_format=torch.contiguous_format)
        self._shift = shift
        self._rows = samples.x.flatten(0, 1)
        self._batch = self._rows

    def forward(self, picked: Tensor) -> Tensor:
        self._batch = self._rows.index_select(0, picked.reshape(-1)).view(*picked.shape, -1)
        return torch.bmm(self._batch, self.weight.transpose(1, 2))

    def pull(self, scale: Tensor, times: Tensor, move: Tensor) -> None:
        pull(self.weight, scale, times, self._shift, move)

    def absorb(self, delta: Tensor, picked: Tensor, into: Tensor | None = None) -> None:
        """Add delta^T x of the last forward pass to the weights, or to another tensor."""
        (self.weight if into is None else into).baddbmm_(delta.transpose(1, 2), self._batch)

    def result(self) -> Tensor:
        return self.weight


class Dual:
    """The first layer without its weights: W = a W0 + b S + D^T X, where S is the shift of a pull.

    Every gradient is a combination of the samples X. Without a pull a is 1 and b is 0. Then
    X W^T = a X W0^T + b X S^T + (X X^T) D: training needs the N x N Gram matrix only, and the weights are written once,
    at the end. Exact; it pays when epochs are many and samples are few beside inputs (`first_layer` counts products).
    """

    def __init__(self, samples: Samples, weight: Tensor, shift: Tensor | None = None) -> None:
        self.weight = weight  # never read again but at the end
        self._samples, self._shift = samples, shift
        clients, count = samples.x.shape[:2]
        self._start = samples.by(weight)
        self._far = None if shift is None else samples.by(shift)
        self._mix = torch.zeros(clients, count, weight.shape[1])
        self._kept, self._drift = torch.ones(clients), torch.zeros(clients)
        self._pulled = False

    def forward(self, picked: Tensor) -> Tensor:
        rows = picked.reshape(-1)
        near = self._samples.gram.index_select(0, rows).view(*picked.shape, -1)
        begin = self._start.index_select(0, rows).view(*picked.shape, -1)
        if self._pulled:
            begin.mul_(wide(self._kept, begin))
            if self._far is not None:
                begin.add_(self._far.index_select(0, rows).view(*picked.shape, -1) * wide(self._drift, begin))
        return begin.baddbmm_(near, self._mix)

    def pull(self, scale: Tensor, times: Tensor, move: Tensor) -> None:
        self._pulled = True
        fade = 1.0 - move * scale
        self._kept = self._kept * fade
        self._drift = self._drift * fade - move * times
        self._mix.mul_(wide(fade, self._mix))

    def absorb(self, delta: Tensor, picked: Tensor, into: Tensor | None = None) -> None:
        # A row stands at most once in a batch that counts; padding repeats a row and adds nothing to it.
        self._mix.view(-1, delta.shape[-1]).index_add_(0, picked.reshape(-1), delta.reshape(-1, delta.shape[-1]))

    def result(self) -> Tensor:
        begin = self.weight
        if self._pulled:
            begin = begin * wide(self._kept, begin)
            if self._shift is not None:
                begin.add_(self._shift * wide(self._drift, begin))
        return torch.baddbmm(begin, self._mix.transpose(1, 2), self._samples.x)


def first_layer(
    samples: Samples, weight: Tensor, rows: Tensor, shift: Tensor | None, pulled: bool, momentum: bool
) -> Direct | Dual:
    """The form that takes fewer products per sample."""
    count, inputs, hidden = samples.x.shape[1], weight.shape[2], weight.shape[1]
    epochs = rows.shape[1] * rows.shape[2] / count
    touched = PASSES / rows.shape[2] if pulled else 0.0
    direct = (2 + touched) * epochs * hidden * inputs
    dual = (2 + (shift is not None)) * hidden * inputs + count * inputs + epochs * count * hidden
    form = Dual if DUAL and dual < 0.8 * direct and not momentum else Direct
    return form(samples, weight, shift)


def pull(value: Tensor, scale: Tensor, times: Tensor, shift: Tensor | None, move: Tensor) -> None:
    """w <- w - lr (scale w + times shift)."""
    value.mul_(wide(1.0 - move * scale, value))
    if shift is not None:
        value.sub_(shift * wide(move * times, value))


def wide(per_client: Tensor, like: Tensor) -> Tensor:
    """One number per client, with the dimensions of another tensor."""
    return per_client.reshape(-1, *(1,) * (like.dim() - 1))
