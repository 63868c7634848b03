"""A model: a network as a pure function of its named weights, for one client or a stack of them."""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call

from potluck import keys
from potluck.errors import BadInput, Code, unknown
from potluck.fleet import Params
from potluck.models.layers import BatchNorm, Dropout, Pass, running
from potluck.models.split import Split
from potluck.tasks import Classification, Loss, Task

__all__ = ["Kind", "Layer", "Loss", "Model", "Params"]

Kind = Literal["dense", "conv", "recurrent", "other"]
_drawing = threading.RLock()  # PyTorch's initialisers share one generator


class Layer(NamedTuple):
    """One linear layer of a chain: x -> activation(x weight^T + bias)."""

    weight: str
    bias: str | None
    activation: Literal["relu", "tanh", "none"]


class Convolution(NamedTuple):
    """A convolution with max-pooling and an activation behind it; pairs are (y, x)."""

    weight: str
    bias: str
    stride: tuple[int, int]
    padding: tuple[int, int]
    pool: tuple[int, int]


class Convolutions(NamedTuple):
    """A network of convolutions and then linear layers."""

    image: tuple[int, int, int]  # channels, height, width
    last: bool  # whether samples have their channels last
    activation: Literal["relu", "tanh"]
    blocks: list[Convolution]
    heads: list[Layer]


@contextmanager
def seeded(*parts: int | str) -> Iterator[None]:
    """Seed PyTorch's global generator from these parts, and restore it afterwards."""
    with _drawing, torch.random.fork_rng(devices=[]):
        torch.manual_seed(keys.number(*parts))
        yield


class Model:
    """A network by name: sample shape, task, settings, functions of the weights. Safe in any thread.

    `classes` is the number of its outputs: the classes, where the task has some.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        classes: int,
        settings: Mapping[str, Any],
        make: Callable[[], nn.Module],
        task: Task | None = None,
    ) -> None:
        self.name = name
        self.shape = shape
        self.classes = classes
        self.task: Task = Classification(classes=classes) if task is None else task
        self.settings = dict(settings)
        self._make = make
        self._threads = threading.local()
        self._splits: dict[tuple[str, frozenset[str]], Split] = {}
        with seeded("init", 0):
            self._prototype = make()
        for path, layer in self._prototype.named_modules():
            if isinstance(layer, BatchNorm | Dropout):
                layer.path = path
        self.kind: Kind = _kind(self._prototype)
        self.loss: Loss = _stated(self._prototype, "loss", get_args(Loss)) or self.task.loss
        if self.loss == "hinge" and not self.task.has_classes:
            raise BadInput(
                Code.TASK, f"model.name: {name} has a hinge loss, which needs classes, got {self.task.kind}."
            )
        self.trainable = frozenset(name for name, _ in self._prototype.named_parameters())
        self.resting: frozenset[str] = frozenset()  # of those, what `learn` leaves as it is (`potluck study modules`)
        names = inspect.signature(self._prototype.forward).parameters
        self._takes_t, self._takes_length = "t" in names, "length" in names
        self._tied = len(self.trainable) < sum(1 for _ in self._prototype.named_parameters(remove_duplicate=False))

    def __repr__(self) -> str:
        return f"Model({self.name!r}, shape={self.shape}, classes={self.classes}, settings={self.settings})"

    def __reduce__(self) -> tuple[Any, ...]:
        from potluck.models.catalogue import build  # the catalogue imports this module

        return build, (self.name, self.shape, self.classes, self.settings, self.task)

    @property
    def module(self) -> nn.Module:
        """The module of this thread. `functional_call` swaps tensors inside it, so threads must not share it."""
        mine: nn.Module | None = getattr(self._threads, "module", None)
        if mine is None:
            # The tensors are shared, only the modules that hold them are copied: nothing is computed, so a
            # first call inside vmap or grad leaves nothing behind.
            tensors = (*self._prototype.parameters(), *self._prototype.buffers())
            mine = copy.deepcopy(self._prototype, {id(tensor): tensor for tensor in tensors})
            self._threads.module = mine
        return mine

    def init(self, seed: int) -> Params:
        """Return new weights, parameters and buffers by name; they depend on the seed only."""
        with seeded("init", seed):
            module = self._make()
        named = (*module.named_parameters(), *module.named_buffers())
        return {name: tensor.detach().clone() for name, tensor in named}

    def logits(self, weights: Params, x: Tensor, *, t: Tensor | None = None, length: Tensor | None = None) -> Tensor:
        """Return logits (batch, classes) in evaluation mode."""
        chain = self.chain()
        if chain is not None and weights.keys() == self.trainable:  # the same operations, without a module around them
            out = x.flatten(1)
            for layer in chain:
                out = nn.functional.linear(
                    out, weights[layer.weight], None if layer.bias is None else weights[layer.bias]
                )
                out = out if layer.activation == "none" else getattr(torch, layer.activation)(out)
            return self.task.answer(out, x)
        return self._call(weights, x, t, length, None)

    def train_logits(
        self,
        weights: Params,
        x: Tensor,
        *,
        weight: Tensor | None = None,
        key: Tensor | None = None,
        t: Tensor | None = None,
        length: Tensor | None = None,
    ) -> tuple[Tensor, Params]:
        """Return logits (batch, classes) in training mode, and the buffers that changed.

        `weight` is 1 for a sample and 0 for padding, which then stays out of batch statistics; dropout draws
        from `key`.
        """
        training = Pass(weight, key)
        return self._call(weights, x, t, length, training), training.changed

    def losses(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each sample: that of the task, or the SVM's hinge of Crammer and Singer (JMLR 2001)."""
        if self.loss == "hinge":
            right = (y.unsqueeze(-1) == torch.arange(logits.shape[-1])).to(logits.dtype)
            # max(0, 1 + best wrong score - right score): the right class itself gives the 0
            return (logits + (1.0 - right)).max(-1).values - (logits * right).sum(-1)
        return self.task.losses(logits, y)

    def layers(self) -> list[str]:
        """Return the names of the layers with parameters, from input to output."""
        return list(dict.fromkeys(name.rpartition(".")[0] or name for name, _ in self._prototype.named_parameters()))

    def last_layers(self, count: int = 1) -> frozenset[str]:
        """Return the parameter names of the last `count` layers, without buffers; a norm is a layer of its own."""
        last = set(self.layers()[-count:]) if count > 0 else set()
        return frozenset(name for name in self.trainable if (name.rpartition(".")[0] or name) in last)

    def batch_norms(self) -> frozenset[str]:
        """Return the names of all weights and statistics of batch norm; empty without any."""
        norms = [path for path, layer in self._prototype.named_modules() if isinstance(layer, BatchNorm)]
        named = (*self._prototype.named_parameters(), *self._prototype.named_buffers())
        return frozenset(name for name, _ in named if name.rpartition(".")[0] in norms)

    def split(self, layer: str = "", given: Iterable[str] = ()) -> Split:
        """Split the model into encoder and classifier before a layer; by default before its last linear layers.

        `given` names what its forward pass takes in addition to x: t, length, or both.
        """
        taken = {"t": self._takes_t, "length": self._takes_length}
        wanted = frozenset(name for name in given if taken[name])
        if (layer, wanted) not in self._splits:
            self._splits[layer, wanted] = Split(self, self._prototype, layer, wanted)
        return self._splits[layer, wanted]

    def chain(self) -> list[Layer] | None:
        """The layers of a network of linear layers on flattened input, or None for any other network."""
        chain: Callable[[], list[Layer] | None] | None = getattr(self._prototype, "chain", None)
        return chain() if self.kind == "dense" and chain is not None else None

    def convolved(self) -> Convolutions | None:
        """The layers of a convolutional network that compiled kernels know (`potluck._convolved`), or None."""
        layers: Callable[[], Convolutions | None] | None = getattr(self._prototype, "convolved", None)
        return layers() if self.kind == "conv" and layers is not None else None

    def scanned(self) -> str | None:
        """The cell of a recurrent network that compiled kernels know (`potluck._recurrent`), or None."""
        cell: Callable[[], str | None] | None = getattr(self._prototype, "scanned", None)
        return cell() if self.kind == "recurrent" and cell is not None else None

    def _call(
        self, weights: Params, x: Tensor, t: Tensor | None, length: Tensor | None, training: Pass | None
    ) -> Tensor:
        module = self.module
        if module.training != (training is not None):
            module.train(training is not None)
        extra = {"t": t} if self._takes_t else {}
        if self._takes_length:
            extra["length"] = length
        with running(training):
            out: Tensor = functional_call(module, weights, (x,), extra, tie_weights=self._tied, strict=True)
        return self.task.answer(out, x)


def _kind(module: nn.Module) -> Kind:
    convolves = any(isinstance(part, nn.modules.conv._ConvNd) for part in module.modules())
    return _stated(module, "kind", get_args(Kind)) or ("conv" if convolves else "other")


def _stated(module: nn.Module, name: str, allowed: tuple[str, ...]) -> Any:
    """Return an attribute of a module's class, if it has one."""
    value = getattr(type(module), name, None)
    if isinstance(value, str) and value not in allowed:
        raise unknown(Code.MODEL_OWN, f"{type(module).__name__}.{name}", value, allowed)
    return value if isinstance(value, str) else None
