"""A model in two parts: an encoder and a classifier, cut before a layer named by the user.

The forward pass is traced once (torch.fx), and its graph is cut where the named layer reads its input. So any model can
be split whose later part needs only that value, without a second definition. Dropout right before
the cut belongs to the classifier: features then depend on the sample alone and can be stored.
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor, fx, nn
from torch.func import functional_call

from potluck.errors import BadInput, Code, unknown
from potluck.fleet import Params
from potluck.models.layers import Dropout, Pass, running

if TYPE_CHECKING:
    from potluck.models.model import Model

_PIECES = ("encoder", "body", "last")


class _Tracer(fx.Tracer):
    """Keep norms and dropout whole: they read the running pass when they are called."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return next(m.children(), None) is None


class Split:
    """The parts of a model as functions of its named weights. Safe in any thread."""

    def __init__(
        self, model: Model, prototype: nn.Module, layer: str = "", given: frozenset[str] = frozenset()
    ) -> None:
        """`given` names what the forward pass takes in addition to x (t, length); its other arguments stay None."""
        self._model = model
        self.given = given
        self.layer = layer or classifier_layer(prototype)
        layers = model.layers()
        if self.layer not in layers:
            raise unknown(Code.MODEL_CUT, "layer to split at", self.layer, layers)
        absent = set(inspect.signature(prototype.forward).parameters) & {"t", "length"} - given
        try:
            graph = _Tracer().trace(prototype, concrete_args=dict.fromkeys(absent))
        except Exception as error:
            raise BadInput(
                Code.MODEL_CUT,
                f"model: {model.name} cannot be split into an encoder and a classifier ({type(error).__name__}: "
                f"{str(error).splitlines()[0] if str(error) else 'its forward pass cannot be traced'}).",
            ) from error
        at = layers.index(self.layer)
        self.encoder = frozenset(n for n in _named(prototype) if not _in(n, layers[at:]))
        self.classifier = frozenset(n for n in _named(prototype) if _in(n, layers[at:]))
        self._graphs = _cut(graph, prototype, self.layer, layers[-1], model.name)
        self._threads = threading.local()

    def encode(self, weights: Params, x: Tensor, **extra: Tensor) -> Tensor:
        """Return the features of samples in evaluation mode; `extra` is what `given` named."""
        return self._run("encoder", weights, x, None, extra)

    def train_encode(self, weights: Params, x: Tensor, training: Pass, **extra: Tensor) -> Tensor:
        """Return the features of samples in training mode."""
        return self._run("encoder", weights, x, training, extra)

    def classify(self, weights: Params, features: Tensor, training: Pass | None = None) -> Tensor:
        """Return logits from features; with a pass in training mode, which dropout draws from."""
        return self._run("last", weights, self._run("body", weights, features, training), training)

    def last_input(self, weights: Params, features: Tensor) -> Tensor:
        """Return the input of the last layer in evaluation mode: the `a` of the closed-form gradient norm."""
        return self._run("body", weights, features, None).flatten(1)

    def _run(
        self, piece: str, weights: Params, x: Tensor, training: Pass | None, extra: Params | None = None
    ) -> Tensor:
        modules: dict[str, fx.GraphModule] | None = getattr(self._threads, "modules", None)
        if modules is None:
            whole = self._model.module  # this thread's own
            modules = {name: fx.GraphModule(whole, copy.deepcopy(self._graphs[name])) for name in _PIECES}
            self._threads.modules = modules
            self._threads.names = {name: _named(module) for name, module in modules.items()}
        module = modules[piece]
        own = {name: weights[name] for name in self._threads.names[piece]}
        with running(training):
            out: Tensor = functional_call(module, own, (x,), extra)
        return out


def classifier_layer(module: nn.Module) -> str:
    """Return the default split: before the linear layers that end a model, or before the last if all are linear."""
    layers = [(n, part) for n, part in module.named_modules() if next(part.parameters(recurse=False), None) is not None]
    first = len(layers)
    while first > 0 and isinstance(layers[first - 1][1], nn.Linear):
        first -= 1
    return str(layers[first][0] if 0 < first < len(layers) else layers[-1][0])


def _named(module: nn.Module) -> list[str]:
    return [name for name, _ in (*module.named_parameters(), *module.named_buffers())]


def _in(name: str, layers: Sequence[str]) -> bool:
    return any(name.startswith(f"{layer}.") or name == layer for layer in layers)


def _cut(graph: fx.Graph, module: nn.Module, layer: str, last: str, model: str) -> dict[str, fx.Graph]:
    """Cut the graph in three: up to the features, up to the last layer's input, and the rest."""
    features = _reads(graph, layer, model)
    while features.op == "call_module" and isinstance(module.get_submodule(str(features.target)), Dropout):
        (features,) = features.all_input_nodes
    inner = _reads(graph, last, model)
    nodes = list(graph.nodes)
    x = next(node for node in nodes if node.op == "placeholder")
    if nodes.index(inner) < nodes.index(features):
        raise BadInput(Code.MODEL_CUT, f"model: {model} runs {last!r} before {layer!r}, so it cannot be split there.")
    result = next(node for node in nodes if node.op == "output").all_input_nodes[0]
    ends = {"encoder": (x, features), "body": (features, inner), "last": (inner, result)}
    return {name: _piece(nodes, begin, end, layer, model) for name, (begin, end) in ends.items()}


def _reads(graph: fx.Graph, layer: str, model: str) -> fx.Node:
    for node in graph.nodes:
        if node.op == "call_module" and node.target == layer:
            given: fx.Node = node.all_input_nodes[0]
            return given
    raise BadInput(Code.MODEL_CUT, f"model: the forward pass of {model} has no layer {layer!r} to split at.")


def _piece(nodes: Sequence[fx.Node], begin: fx.Node, end: fx.Node, layer: str, model: str) -> fx.Graph:
    """Return the part of the graph that computes `end` from `begin`."""
    needed: set[fx.Node] = set()
    waiting = [end]
    while waiting:
        node = waiting.pop()
        if node is begin or node in needed:
            continue
        if node.op == "placeholder" and begin.op != "placeholder":
            raise BadInput(Code.MODEL_CUT, f"model: what follows {layer!r} in {model} reads more than its features.")
        needed.add(node)
        waiting += node.all_input_nodes
    piece = fx.Graph()
    made = {begin: piece.placeholder("x")}
    for node in nodes:
        if node in needed:
            made[node] = (
                piece.placeholder(str(node.target))
                if node.op == "placeholder"
                else piece.node_copy(node, lambda other: made[other])
            )
    piece.output(made[end])
    return piece
