"""The outputs of many models on their own samples, by a compiled kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from potluck.compiled import kernels, spread
from potluck.compiled.stack import ACTIVATIONS, fits
from potluck.fleet import Params
from potluck.models import Model
from potluck.tasks import Task


def runs_apart(model: Model, x: Tensor) -> bool:
    """Whether a kernel computes the outputs: those of one client then do not depend on who else is there."""
    return bool(model.chain()) and fits(x)


def dense_outputs(
    model: Model, weights: Sequence[Params], x: Tensor, weight: Tensor, which: Sequence[int] | None = None
) -> Tensor | None:
    """Logits (K, N, C) of K models on samples (clients, N, ...), or None where no kernel can compute them.

    Model k answers client which[k], by default client k. `weight` (clients, N) is 0 for the padding behind a client's
    samples, whose logits mean nothing.
    """
    layers = model.chain()
    if not layers or not fits(x):
        return None
    names = [(layer.weight, layer.bias) for layer in layers]
    shapes = {name: value.shape for name, value in weights[0].items()}
    samples = x.flatten(2).contiguous()
    widths = [samples.shape[2], *(shapes[name][0] for name, _ in names)]
    if any(shapes[name] != (wide, narrow) for (name, _), narrow, wide in zip(names, widths, widths[1:], strict=False)):
        return None  # a kernel goes by addresses, so it must know what is there
    given = np.zeros((len(weights), len(layers), 2), np.int64)
    known: dict[int, list[list[int]]] = {}
    for k, one in enumerate(weights):
        if id(one) not in known:
            for name, value in one.items():
                plain = value.dtype is torch.float32 and value.is_contiguous() and value.device.type == "cpu"
                if not plain or shapes.get(name) != value.shape:
                    return None
            known[id(one)] = [[0 if name is None else one[name].data_ptr() for name in pair] for pair in names]
        given[k] = known[id(one)]
    places = np.arange(len(weights)) if which is None else np.array(which, dtype=np.int64)
    sizes = np.array(widths)
    real = (weight > 0).numpy()
    rows = np.where(real.any(1), real.shape[1] - real[:, ::-1].argmax(1), 0)[places]
    out = torch.zeros(len(weights), weight.shape[1], int(sizes[-1]))
    acts = np.array([ACTIVATIONS[layer.activation] for layer in layers])
    kernel = kernels("forward").outputs
    arrays = (samples.numpy(), places, rows, sizes, acts, given, out.numpy())
    spread(len(weights), lambda begin, end: kernel(begin, end, *arrays))
    if type(model.task).answer is Task.answer:
        return out
    own = x if which is None else x[torch.from_numpy(places)]
    answer: Tensor = model.task.answer(out.flatten(0, 1), own.flatten(0, 1))
    return answer.reshape(*out.shape[:2], -1)
