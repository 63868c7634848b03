"""Your own model: an `nn.Module` by import path, checked before it is trained."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from potluck import keys
from potluck.errors import BadInput, Code, must_be, unknown
from potluck.models.model import Model, seeded
from potluck.tasks import Task

_NORMS = "potluck.models.BatchNorm or potluck.models.GroupNorm"
_DROPOUT = "potluck.models.Dropout"


def load(path: str) -> Callable[..., Any]:
    """Load the class (or function that makes a module) that a path such as `package.module:Class` names."""
    where, _, what = path.partition(":")
    if not where or not what.isidentifier():
        raise must_be(Code.MODEL_OWN, "model", "a name of the catalogue or package.module:Class", path)
    here = str(Path.cwd())
    added = here not in sys.path
    if added:  # the installed command also finds a module in the working folder
        sys.path.insert(0, here)
    try:
        with seeded("import", path):
            module = importlib.import_module(where)
    except Exception as error:
        raise BadInput(Code.MODEL_OWN, f"model: importing {where!r} of {path!r} failed with {_said(error)}.") from error
    finally:
        if added:
            sys.path.remove(here)
    made = getattr(module, what, None)
    if made is None:
        public = [
            name for name, value in vars(module).items() if isinstance(value, type) and issubclass(value, nn.Module)
        ]
        if not public:
            raise BadInput(Code.MODEL_OWN, f"model: {where!r} has nothing called {what!r}, and no nn.Module at all.")
        raise unknown(Code.MODEL_OWN, f"model in {where}", what, public)
    if not callable(made) or isinstance(made, nn.Module):
        wanted = "a class or function that makes a module"
        raise must_be(Code.MODEL_OWN, f"model: {path!r}", wanted, shown=f"a {type(made).__name__}")
    maker: Callable[..., Any] = made
    return maker


def build_own(
    path: str,
    shape: tuple[int, ...],
    classes: int,
    settings: Mapping[str, Any],
    name: str | None = None,
    task: Task | None = None,
) -> Model:
    """Build the model that a path such as `package.module:Class` names; `name` is what it is called, else the path."""
    made = load(path)
    arguments = _arguments(path, made, shape, classes, settings)

    def make() -> nn.Module:
        try:
            module = made(**arguments)
        except BadInput:
            raise
        except Exception as error:
            raise BadInput(Code.MODEL_OWN, f"model: making {path!r} failed with {_said(error)}.") from error
        if not isinstance(module, nn.Module):
            raise BadInput(Code.MODEL_OWN, f"model: {path!r} must make an nn.Module, got a {type(module).__name__}.")
        return module

    model = Model(name or path, shape, classes, settings, make, task)
    _check(path, model)
    return model


def _arguments(
    path: str, made: Callable[..., Any], shape: tuple[int, ...], classes: int, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of the constructor: the settings, and shape and classes if it takes them."""
    plain = inspect.getattr_static(made, "__init__") is nn.Module.__init__
    taken = {} if plain else dict(inspect.signature(made).parameters)
    anything = any(p.kind is p.VAR_KEYWORD for p in taken.values())
    named = [name for name, p in taken.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    task: dict[str, Any] = {"shape": shape, "classes": classes}
    task = {name: value for name, value in task.items() if anything or name in named}
    for name in settings:
        if name in ("shape", "classes") or not (anything or name in named):
            allowed = [n for n in named if n not in ("shape", "classes")]
            if allowed:
                raise unknown(Code.UNKNOWN_SETTING, f"settings of {path}", name, allowed)
            raise BadInput(
                Code.UNKNOWN_SETTING, f"settings of {path}: its constructor takes no settings, got {name!r}."
            )
    missing = [name for name in named if taken[name].default is taken[name].empty and name not in {**task, **settings}]
    if missing:
        raise BadInput(Code.NOT_SAID, f"model.{missing[0]}: must be set, the constructor of {path} needs it.")
    return {**task, **settings}


def _check(path: str, model: Model) -> None:
    for name, layer in model.module.named_modules():
        instead = _instead(layer)
        if instead:
            kind = f"torch.nn.{type(layer).__name__}"
            raise BadInput(
                Code.MODEL_STATEFUL,
                f"model: layer {name!r} of {path!r} is {kind}, which has a hidden state; use {instead}.",
            )
    weights = model.init(0)
    if not model.trainable:
        raise BadInput(Code.MODEL_OWN, f"model: {path!r} has no parameters; there is nothing to train.")
    x = keys.normal(keys.key("own model", path), (2, *model.shape))
    steps = model.shape[0]
    series = {"length": torch.full((2,), steps), "t": torch.arange(steps).float().expand(2, -1)}
    before = {name: value.clone() for name, value in weights.items()}

    def forward() -> Tensor:
        out, _ = model.train_logits(weights, x, weight=torch.ones(2), key=keys.key(path), **series)
        return out

    try:
        with seeded("own model"), torch.no_grad():
            out: Any = model.logits(weights, x, **series)
            first, second = forward(), forward()
    except Exception as error:
        given = f"a batch of shape {tuple(x.shape)}"
        raise BadInput(Code.MODEL_OWN, f"model: {path!r} failed on {given} with {_said(error)}.") from error
    wanted = (2, model.classes)
    if not isinstance(out, Tensor) or tuple(out.shape) != wanted:
        came = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else f"a {type(out).__name__}"
        where = f"model: the output of {path!r} for a batch {tuple(x.shape)}"
        raise must_be(Code.MODEL_OWN, where, f"of shape {wanted}", shown=came)
    for name, value in weights.items():
        if not torch.equal(value, before[name]):
            raise BadInput(
                Code.MODEL_STATEFUL, f"model: {path!r} changes {name!r} in place; use {_NORMS} for running statistics."
            )
    if not torch.equal(first.nan_to_num(), second.nan_to_num()):  # a unit of time may be none of this model's
        raise BadInput(
            Code.MODEL_STATEFUL,
            f"model: {path!r} gives other results for the same input and key in training; use {_DROPOUT}.",
        )


def _instead(layer: nn.Module) -> str | None:
    """Name the replacement for a layer that keeps statistics or draws random numbers inside the module."""
    if isinstance(layer, nn.modules.dropout._DropoutNd):
        return _DROPOUT
    tracks = isinstance(layer, nn.modules.batchnorm._NormBase) and layer.track_running_stats
    return _NORMS if tracks or isinstance(layer, nn.modules.batchnorm._BatchNorm) else None


def _said(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
