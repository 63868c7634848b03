"""The catalogue of models: their names, and how to build one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.table import Table
from torch import nn

from potluck.errors import BadInput, Code, must_be, unknown
from potluck.models import settings as kinds
from potluck.models.cfc import Cfc, Ltc
from potluck.models.compact import Compact
from potluck.models.conv import Cnn, ConvNet
from potluck.models.conv1d import Cnn1d
from potluck.models.dense import Mlp, Softmax, Svm
from potluck.models.model import Model
from potluck.models.own import build_own
from potluck.models.recurrent import BiLstm, Gru, Lstm, Rnn
from potluck.models.resnet import ResNet18
from potluck.plugins import Plugin, plugin, plugins
from potluck.sizes import check_fits
from potluck.tasks import Task


@dataclass(frozen=True)
class ModelInfo:
    """One line on a model, the sample shapes it takes, and its settings with their defaults."""

    about: str
    takes: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class _Entry:
    make: type[nn.Module]
    about: str
    takes: str
    standard: Mapping[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        return {**kinds.defaults(self.make), **self.standard}


_LARGE = 4096  # a setting up to this size is built at once
_IMAGE, _SERIES, _ANY = "(channels, height, width)", "(time, channels)", "any, flattened"
_ENTRIES = {
    "softmax": _Entry(Softmax, "Softmax regression: one linear layer, cross-entropy.", _ANY, {}),
    "svm": _Entry(
        Svm,
        "Linear support vector machine: one linear layer, multi-class hinge loss (ClusterFL, UWB).",
        _ANY,
        {},
    ),
    "mlp": _Entry(Mlp, "Multi-layer perceptron (ClusterFL, IMU: hidden = [300]; EchoPFL, UCI-HAR).", _ANY, {}),
    "cnn": _Entry(
        Cnn,
        "Two 3x3 convolutions, 16 and 32 channels, and a linear layer (FedConv, MNIST; EchoPFL, CIFAR).",
        _IMAGE,
        {},
    ),
    "cnn5": _Entry(
        Cnn,
        "Two 5x5 convolutions without padding, 32 and 64 channels, and a linear layer.",
        _IMAGE,
        {"channels": [32, 64], "kernel": 5, "padding": 0},
    ),
    "convnet": _Entry(
        ConvNet,
        "Six convolutions over sensors and time, 100 features, a classifier (Centaur, activity windows).",
        _SERIES,
        {},
    ),
    "cnn1d": _Entry(
        Cnn1d,
        "1-D convolutions with max-pooling and a linear layer, small enough for a microcontroller.",
        _SERIES,
        {},
    ),
    "compact": _Entry(
        Compact,
        "Depthwise-separable convolutions for small images, a classifier in three sizes (for Centaur).",
        _IMAGE,
        {},
    ),
    "gru": _Entry(Gru, "Gated recurrent unit, read at the last valid step.", _SERIES, {}),
    "lstm": _Entry(Lstm, "Long short-term memory, read at the last valid step.", _SERIES, {}),
    "rnn": _Entry(Rnn, "Plain tanh recurrent network, read at the last valid step.", _SERIES, {}),
    "bilstm": _Entry(BiLstm, "LSTM in both directions, read where each of them ends.", _SERIES, {}),
    "cfc": _Entry(
        Cfc,
        "Closed-form continuous-time network: irregular time stamps, backbone and heads f, g, h (FedCFC).",
        "(time, channels); others value by value",
        {},
    ),
    "ltc": _Entry(
        Ltc,
        "Liquid time-constant network with the fused solver; what CFC approximates.",
        "(time, channels); others value by value",
        {},
    ),
    "resnet18": _Entry(
        ResNet18, "ResNet-18 for small images: 3x3 first layer, no max-pooling, a choice of norm.", _IMAGE, {}
    ),
}


def build(
    name: str,
    shape: Sequence[int],
    classes: int,
    settings: Mapping[str, Any] | None = None,
    task: Task | None = None,
) -> Model:
    """Build a model by its name in the catalogue, or your own by `package.module:Class`.

    `task` is what it learns; without one, to tell `classes` classes apart.
    """
    shape = tuple(int(side) for side in shape)
    if not shape or min(shape) < 1:
        raise must_be(Code.MODEL_SHAPE, "shape", "one or more sizes, each 1 or more", shape)
    classes = classes if task is None else task.outputs
    if classes < 2 and task is None:
        raise must_be(Code.MODEL_SHAPE, "classes", "2 or more", classes)
    given = dict(settings or {})
    if ":" in name:
        return build_own(name, shape, classes, given, task=task)
    added = plugin("models", name, _ENTRIES)
    if added is not None:
        added.load()  # says whose package fails, where it does
        return build_own(added.entry.value, shape, classes, given, name, task)
    entry = _ENTRIES.get(name)
    if entry is None:
        sentence = unknown(Code.MODEL_UNKNOWN, "model", name, [*_ENTRIES, *plugins("models", _ENTRIES)])
        raise BadInput(Code.MODEL_UNKNOWN, f"{sentence} Or your own module as package.module:Class.")
    resolved = kinds.resolve(entry.make, entry.settings, given)
    make = entry.make
    _check_size(name, lambda: make(shape, classes, **resolved), resolved)
    return Model(name, shape, classes, resolved, lambda: make(shape, classes, **resolved), task)


def _check_size(name: str, make: Callable[[], nn.Module], settings: Mapping[str, Any]) -> None:
    """Raise BadInput for a model beyond memory: it is built without memory first where a setting is large."""
    sizes = [one for value in settings.values() for one in (value if isinstance(value, list | tuple) else [value])]
    if max((one for one in sizes if isinstance(one, int)), default=0) <= _LARGE:
        return
    try:
        with torch.device("meta"):
            nbytes = sum(tensor.numel() * tensor.element_size() for tensor in make().state_dict().values())
    except (RuntimeError, TypeError, OverflowError) as error:
        detail = str(error).partition("\n")[0][:120]
        raise BadInput(Code.MODEL_SHAPE, f"model: {name} cannot be this large ({detail}).") from None
    check_fits(Code.MODEL_SHAPE, f"model: the weights of {name}", nbytes)


def catalogue() -> dict[str, ModelInfo]:
    """All models by name: Potluck's own, and those of installed packages with what is wrong with them, if anything."""
    own = {name: ModelInfo(entry.about, entry.takes, entry.settings) for name, entry in _ENTRIES.items()}
    return own | {name: _added(one) for name, one in plugins("models", _ENTRIES).items() if name not in own}


def _added(one: Plugin) -> ModelInfo:
    trouble = one.trouble
    about = f"broken: {trouble}" if trouble else (one.load().__doc__ or "").strip().partition("\n")[0]
    return ModelInfo(f"{about} (package {one.package})", "", {})


def default_for(shape: Sequence[int]) -> str:
    """Choose a cheap model that does well on such samples: a small CNN for images, else a perceptron."""
    return "cnn" if len(shape) == 3 and min(shape[1:]) >= 4 else "mlp"


def table() -> Table:
    """List the catalogue for `potluck models`."""
    out = Table("model", "what it is", "samples", "settings and their defaults", title="Models")
    for name, entry in catalogue().items():
        settings = ", ".join(f"{key} = {_toml(value)}" for key, value in entry.settings.items())
        out.add_row(name, entry.about, entry.takes, settings or "none")
    out.caption = "Your own: an nn.Module as package.module:Class."
    return out


def _toml(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).lower() if isinstance(value, bool) else str(value)
