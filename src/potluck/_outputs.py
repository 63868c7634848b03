"""The outputs of many models on their own samples, and what they come to, by compiled kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck import _convolved
from potluck._whole import whole
from potluck.compiled import kernels, spread
from potluck.compiled.stack import ACTIVATIONS, fits
from potluck.fleet import Data, Params
from potluck.models import Layer, Model
from potluck.rows import Form, place_of
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
    chain = Chain(model, x.shape[2:].numel())
    if not chain.layers or not fits(x):
        return None
    found = chain.places(weights)
    if found is None:
        return None
    sizes, given = found
    places, rows = _places(len(weights), weight, which)
    out = torch.zeros(len(weights), weight.shape[1], int(sizes[-1]))
    kernel = kernels("forward").outputs
    arrays = (x.flatten(2).contiguous().numpy(), places, rows, sizes, chain.acts, given, out.numpy())
    spread(len(weights), lambda begin, end: kernel(begin, end, *arrays))
    return _answered(model, out, x, places)


class Chain:
    """The linear layers of a model, and where the tensors of its weights are."""

    def __init__(self, model: Model, features: int) -> None:
        self.layers = model.chain() or []
        self.acts = np.array([ACTIVATIONS[layer.activation] for layer in self.layers], dtype=np.int64)
        self._features = features
        self._forms: dict[Form, tuple[np.ndarray, np.ndarray] | None] = {}

    def places(self, weights: Sequence[Params]) -> tuple[np.ndarray, np.ndarray] | None:
        """The widths of the layers, and the addresses of the weights and biases of all models; 0 where there is none.

        None where a kernel does not know such models, or they are not all alike.
        """
        sizes: np.ndarray | None = None
        given = np.empty((len(weights), len(self.layers), 2), np.int64)
        known: dict[int, np.ndarray] = {}
        for k, one in enumerate(weights):
            if id(one) not in known:
                found = self._place(one)
                if found is None or (sizes is not None and not np.array_equal(sizes, found[0])):
                    return None
                sizes, known[id(one)] = found
            given[k] = known[id(one)]
        return None if sizes is None else (sizes, given)

    def _place(self, one: Params) -> tuple[np.ndarray, np.ndarray] | None:
        place = place_of(one)
        if place is None:
            return None
        form, addresses = place
        if form not in self._forms:
            self._forms[form] = self._fitting(form)
        found = self._forms[form]
        return None if found is None else (found[0], np.append(addresses, 0)[found[1]])

    def _fitting(self, form: Form) -> tuple[np.ndarray, np.ndarray] | None:
        """The widths of layers, and which tensors of such a model are theirs; None where it is of another shape."""
        shapes, index = dict(zip(form.names, form.shapes, strict=True)), {name: i for i, name in enumerate(form.names)}
        names = _names(self.layers)
        widths = [self._features, *(shapes[name][0] for name, _ in names)]
        for (name, bias), narrow, wide in zip(names, widths, widths[1:], strict=False):
            if shapes[name] != (wide, narrow) or (bias is not None and shapes[bias] != (wide,)):
                return None  # a kernel goes by addresses, so it must know what is there
        return np.array(widths), np.array([[-1 if one is None else index[one] for one in pair] for pair in names])


def logits(model: Model, weights: Params, data: Data) -> Tensor:
    """`Model.logits`; of clients in a stack by a kernel, without a gradient. Nobody's depend on who else is there."""
    layers = model.chain()
    plain = data.t is None and data.length is None and type(model.task).answer is Task.answer
    if layers and plain and weights.keys() == model.trainable and fits(data.x, *weights.values()):
        found = whole(
            partial(_own, layers), data.x, *(weights[name] for pair in _names(layers) for name in pair if name)
        )
        if found is not None:
            return found[0]
    return model.logits(weights, data.x, t=data.t, length=data.length)


def _own(layers: Sequence[Layer], x: Tensor, *values: Tensor) -> list[Tensor]:
    """The outputs of K clients' models on their own samples (K, N, ...)."""
    rows = x.flatten(2).contiguous()
    kept = [one if one[0].is_contiguous() else one.contiguous() for one in values]  # a kernel knows addresses only
    given, sizes = np.zeros((len(x), len(layers), 2), np.int64), [rows.shape[2]]
    clients, at = np.arange(len(x)), 0
    for i, pair in enumerate(_names(layers)):
        for j, name in enumerate(pair):
            if name is not None:
                value, at = kept[at], at + 1
                given[:, i, j] = value.data_ptr() + 4 * value.stride(0) * clients
                sizes += [value.shape[1]] if j == 0 else []
    out = torch.empty(len(x), x.shape[1], sizes[-1])
    acts = np.array([ACTIVATIONS[layer.activation] for layer in layers], dtype=np.int64)
    kernel, arrays = kernels("opinions").own, (rows.numpy(), np.array(sizes), acts, given, out.numpy())
    spread(len(x), lambda begin, end: kernel(begin, end, *arrays))
    return [out]


def _names(layers: Sequence[Layer]) -> list[tuple[str, str | None]]:
    return [(layer.weight, layer.bias) for layer in layers]


class Asked:
    """What dense networks answer to the same samples (N, ...), again and again: all but the models is prepared."""

    def __init__(self, model: Model, x: Tensor) -> None:
        self._model = model
        self._x = x
        self._chain = Chain(model, x.shape[1:].numel())
        self._able = bool(self._chain.layers) and len(x) > 0
        self._panels: np.ndarray | None = None

    def __call__(self, weights: Sequence[Params]) -> Tensor | None:
        """The opinions of each model as one row of length 1 (`compiled.opinions`); None without a kernel."""
        found = self._chain.places(weights) if self._able and fits(self._x) else None
        if found is None:
            return None
        kernel = kernels("opinions")
        if self._panels is None:
            samples = self._x.flatten(1).numpy()
            samples = np.pad(samples, ((0, -len(samples) % kernel.PAIR), (0, 0)))
            self._panels = samples.reshape(-1, kernel.PAIR, samples.shape[1]).swapaxes(1, 2).copy()
        sizes, given = found
        out = torch.empty(len(weights), len(self._x), int(sizes[-1]))
        kernel.answers(self._panels, given, sizes, self._chain.acts, out.numpy())
        answered = _answered(self._model, out, self._x[None], np.zeros(len(weights), np.int64))
        said = self._model.task.opinion(answered).contiguous()
        rows = torch.empty(len(said), said[0].numel())
        kernel.opinions(said.numpy(), rows.numpy())
        return rows


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
