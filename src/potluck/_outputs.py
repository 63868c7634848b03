"""The outputs of many models on their own samples, and what they come to, by compiled kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck import _convolved
from potluck.compiled import kernels, spread
from potluck.compiled.stack import ACTIVATIONS, fits
from potluck.fleet import Data, Params
from potluck.models import Model
from potluck.tasks import Classification, Task


def runs_apart(model: Model, x: Tensor) -> bool:
    """Whether a kernel computes the outputs: those of one client then do not depend on who else is there."""
    return bool(model.chain() or model.convolved()) and fits(x)


def outputs(
    model: Model, weights: Sequence[Params], x: Tensor, weight: Tensor, which: Sequence[int] | None = None
) -> Tensor | None:
    """Logits (K, N, C) of K models on samples (clients, N, ...), or None where no kernel can compute them.

    Model k answers client which[k], by default client k. `weight` (clients, N) is 0 for the padding behind a client's
    samples, whose logits mean nothing.
    """
    form = dense_outputs if model.chain() else convolved_outputs
    return form(model, weights, x, weight, which)


def convolved_outputs(
    model: Model, weights: Sequence[Params], x: Tensor, weight: Tensor, which: Sequence[int] | None = None
) -> Tensor | None:
    """`outputs` of a convolutional network."""
    if model.convolved() is None or not fits(x):
        return None
    net = _convolved.net_of(model, weights[0], Data(x[0], x[0], weight[0]))
    shapes = {name: value.shape for name, value in weights[0].items()}
    each = {id(one): one for one in weights}
    if net is None or any({name: value.shape for name, value in one.items()} != shapes for one in each.values()):
        return None
    if not fits(*(value for one in each.values() for value in one.values())):
        return None
    kernels("convolved")  # threads must not load them at the same time
    rows = {key: torch.cat([form.row(one[form.name][None]) for form in net.forms], 1)[0] for key, one in each.items()}
    places, counts = _places(len(weights), weight, which)
    out = torch.zeros(len(weights), weight.shape[1], net.wide[-1])

    def some(begin: int, end: int) -> None:
        for k in range(begin, end):
            if counts[k]:
                answers = _convolved.answers(net, x[places[k], : counts[k]])
                out[k, : counts[k]] = torch.from_numpy(answers(rows[id(weights[k])].numpy()))

    spread(len(weights), some)
    return _answered(model, out, x, places)


def dense_outputs(
    model: Model, weights: Sequence[Params], x: Tensor, weight: Tensor, which: Sequence[int] | None = None
) -> Tensor | None:
    """`outputs` of a chain of linear layers."""
    layers = model.chain()
    if not layers or not fits(x):
        return None
    first = weights[0]
    sizes = [x.shape[2:].numel(), *(len(first[layer.weight]) for layer in layers)]
    wanted: list[tuple[str | None, tuple[int, ...]]] = []
    for layer, narrow, wide in zip(layers, sizes, sizes[1:], strict=False):
        wanted += [(layer.weight, (wide, narrow)), (layer.bias, (wide,))]
    known: dict[int, list[int]] = {}
    for one in weights:
        if id(one) not in known:
            found = _addresses(one, wanted)
            if found is None:
                return None
            known[id(one)] = found
    given = np.array([known[id(one)] for one in weights], np.int64).reshape(-1, len(layers), 2)
    places, rows = _places(len(weights), weight, which)
    out = torch.zeros(len(weights), weight.shape[1], sizes[-1])
    acts = np.array([ACTIVATIONS[layer.activation] for layer in layers])
    kernel = kernels("forward").outputs
    arrays = (x.flatten(2).contiguous().numpy(), places, rows, np.array(sizes), acts, given, out.numpy())
    spread(len(weights), lambda begin, end: kernel(begin, end, *arrays))
    return _answered(model, out, x, places)


def _addresses(model: Params, wanted: Sequence[tuple[str | None, tuple[int, ...]]]) -> list[int] | None:
    """Where these tensors of a model are. A kernel goes by addresses, so None unless all are as they must be."""
    found = []
    for name, shape in wanted:
        if name is None:
            found.append(0)
            continue
        value = model[name]
        if value.dtype is not torch.float32 or value.shape != shape or not value.is_contiguous() or not value.is_cpu:
            return None
        found.append(value.data_ptr())
    return found


def scores(
    model: Model, out: Tensor, y: Tensor, weight: Tensor, which: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """What logits (K, N, C) come to by a kernel: the task's sums (K, 3 C) and the summed loss of each model.

    Model k answered client which[k] of y and weight (clients, N). None but for classes and their plain cross-entropy.
    """
    plain = type(model.task) is Classification and model.task.fused and model.loss == "cross_entropy"
    if not plain or not fits(out) or not out.is_contiguous() or not y.is_contiguous():
        return None
    sums, losses = np.zeros((len(out), 3 * out.shape[2])), np.zeros(len(out))
    arrays = (out.numpy(), *_places(len(out), weight, which), y.numpy(), sums, losses)
    kernel = kernels("scores").score
    spread(len(out), lambda begin, end: kernel(begin, end, *arrays))
    return sums, losses


def _places(count: int, weight: Tensor, which: Sequence[int] | None) -> tuple[np.ndarray, np.ndarray]:
    """Of each model the client that it answers, and how many samples that has."""
    places = np.arange(count) if which is None else np.array(which, dtype=np.int64)
    real = (weight > 0).numpy()
    return places, np.where(real.any(1), real.shape[1] - real[:, ::-1].argmax(1), 0)[places]


def _answered(model: Model, out: Tensor, x: Tensor, places: np.ndarray) -> Tensor:
    """The task's answers."""
    if type(model.task).answer is Task.answer:
        return out
    own = x[torch.from_numpy(places)]
    answer: Tensor = model.task.answer(out.flatten(0, 1), own.flatten(0, 1))
    return answer.reshape(*out.shape[:2], -1)
