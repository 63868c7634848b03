"""Potluck's own networks as graphs, by the tensors of a trained model; so narrower sub-models work too."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from torch import Tensor, nn

from potluck.errors import BadInput, Code
from potluck.export.models.graph import Graph
from potluck.fleet import Params
from potluck.models import Model
from potluck.models.answering import Answering
from potluck.models.cfc import Cfc, as_series, joined_heads
from potluck.models.cfc_steps import CEILING, STEEPNESS, is_plain
from potluck.models.compact import Compact, Separable
from potluck.models.conv import Cnn, ConvNet
from potluck.models.conv1d import Cnn1d
from potluck.models.dense import Dense
from potluck.models.layers import BatchNorm, GroupNorm
from potluck.models.recurrent import BiLstm, RecurrentNet
from potluck.models.resnet import BasicBlock, ResNet18


def supported(model: Model) -> bool:
    """Whether this network has a graph; others can be exported to ONNX only, by PyTorch's own exporter."""
    if isinstance(model, Answering):  # answers by more than its network
        return False
    module = model.module
    if isinstance(module, Cfc) and not is_plain(module.settings):
        return False
    return type(module) in NETWORKS or isinstance(module, Dense | RecurrentNet)


def add_network(graph: Graph, x: int, model: Model, weights: Params) -> int:
    """Append the operations of a network to a graph; return the position of its logits."""
    module = model.module
    if isinstance(model, Answering):
        raise BadInput(
            Code.MODEL_EXPORT,
            f"--to: a model of {model.by} is more than one network, so it has no form in C; export it to safetensors.",
        )
    if isinstance(module, Dense):
        return _dense(graph, x, module, weights)
    if isinstance(module, RecurrentNet):
        return _recurrent(graph, x, module, weights)
    if not supported(model):
        raise BadInput(Code.MODEL_EXPORT, f"--to: the model {model.name!r} has no form in C; export it to onnx.")
    return NETWORKS[type(module)](graph, x, module, weights)


def _linear(graph: Graph, x: int, weights: Params, name: str) -> int:
    return graph.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])


def _heads(graph: Graph, x: int, names: list[str], weights: Params, activation: str) -> int:
    for name in names[:-1]:
        x = _linear(graph, x, weights, name)
        x = graph.act(x, activation) if activation else x
    return _linear(graph, x, weights, names[-1])


def _norm(graph: Graph, x: int, module: nn.Module, weights: Params, name: str) -> int:
    if isinstance(module, GroupNorm):  # and LayerNorm
        channels = graph.shape(x)[0]
        most = max(1, min(module.groups, channels // 2))
        groups = next(n for n in range(most, 0, -1) if channels % n == 0)
        given = {"weight": weights[f"{name}.weight"], "bias": weights[f"{name}.bias"]}
        return graph.add("group_norm", (x,), graph.shape(x), given, groups=groups, eps=module.eps)
    if isinstance(module, BatchNorm):  # in evaluation it is a scale and a shift per channel
        spread = weights[f"{name}.running_var"].double().add(module.eps).rsqrt()
        scale = weights[f"{name}.weight"].double() * spread
        shift = weights[f"{name}.bias"].double() - weights[f"{name}.running_mean"].double() * scale
        return graph.add("affine", (x,), graph.shape(x), {"scale": scale, "shift": shift})
    return x


def _conv(graph: Graph, x: int, module: nn.Module, weights: Params, name: str) -> int:
    assert isinstance(module, nn.Conv2d)
    pads, steps = module.padding, module.stride
    assert isinstance(pads, tuple)
    weight = weights[f"{name}.weight"]
    groups = graph.shape(x)[0] // weight.shape[1]  # of a narrower model fewer than the module says
    return graph.conv(x, weight, weights.get(f"{name}.bias"), (steps[0], steps[1]), (pads[0], pads[1]), groups)


def _dense(graph: Graph, x: int, module: Dense, weights: Params) -> int:
    return _heads(graph, graph.flat(x), module.names, weights, module.activation)


def _cnn(graph: Graph, x: int, module: Any, weights: Params) -> int:
    x = graph.reshape(x, tuple(module.image))
    for conv, norm in module.blocks:
        x = _conv(graph, x, module.get_submodule(conv), weights, conv)
        x = _norm(graph, x, module.get_submodule(norm), weights, norm)
        x = graph.pool(x, (module.pool, module.pool)) if module.pool > 1 else x
        x = graph.act(x, module.activation)
    return _heads(graph, graph.flat(x), module.heads, weights, module.activation)


def _cnn1d(graph: Graph, x: int, module: Any, weights: Params) -> int:
    x = graph.permute(x, (1, 0))
    channels, steps = graph.shape(x)
    x = graph.reshape(x, (channels, 1, steps))
    for name in module.convs:
        conv = module.get_submodule(name)
        weight = weights[f"{name}.weight"].unsqueeze(2)
        x = graph.conv(x, weight, weights[f"{name}.bias"], (1, conv.stride[0]), (0, conv.padding[0]))
        x = graph.pool(x, (1, module.pool)) if module.pool > 1 else x
        x = graph.act(x, module.activation)
    return _heads(graph, graph.flat(x), module.names, weights, module.activation)


def _convnet(graph: Graph, x: int, module: Any, weights: Params) -> int:
    x = graph.permute(x, (1, 0))
    x = graph.reshape(x, (1, *graph.shape(x)))
    for conv, norm in module.blocks:
        x = _conv(graph, x, module.get_submodule(conv), weights, conv)
        x = graph.act(_norm(graph, x, module.get_submodule(norm), weights, norm), "leaky_relu")
    return _heads(graph, graph.mean(x), module.heads, weights, "relu" if module.classifier_relu else "")


def _compact(graph: Graph, x: int, module: Any, weights: Params) -> int:
    x = graph.reshape(x, tuple(module.image))
    x = _conv(graph, x, module.first, weights, "first")
    x = graph.act(_norm(graph, x, module.first_norm, weights, "first_norm"), "relu")
    for name in module.names:
        block = module.get_submodule(name)
        assert isinstance(block, Separable)
        for conv, norm in (("depth", "norm1"), ("point", "norm2")):
            x = _conv(graph, x, block.get_submodule(conv), weights, f"{name}.{conv}")
            x = graph.act(_norm(graph, x, block.get_submodule(norm), weights, f"{name}.{norm}"), "relu")
    return _heads(graph, graph.mean(x), module.heads, weights, "relu" if module.classifier_relu else "")


def _resnet(graph: Graph, x: int, module: Any, weights: Params) -> int:
    x = _conv(graph, graph.reshape(x, tuple(module.image)), module.conv, weights, "conv")
    x = graph.act(_norm(graph, x, module.norm, weights, "norm"), "relu")
    for name in module.names:
        block = module.get_submodule(name)
        assert isinstance(block, BasicBlock)
        out = _conv(graph, x, block.conv1, weights, f"{name}.conv1")
        out = graph.act(_norm(graph, out, block.norm1, weights, f"{name}.norm1"), "relu")
        out = _conv(graph, out, block.conv2, weights, f"{name}.conv2")
        out = _norm(graph, out, block.norm2, weights, f"{name}.norm2")
        if block.turns:
            x = _conv(graph, x, block.shortcut, weights, f"{name}.shortcut")
            x = _norm(graph, x, block.shortcut_norm, weights, f"{name}.shortcut_norm")
        x = graph.act(graph.add("add", (out, x), graph.shape(out)), "relu")
    return _linear(graph, graph.mean(x), weights, "fc")


def _sequence(graph: Graph, x: int, cell: str, weights: Params, name: str, back: bool = False) -> int:
    given = {part: weights[f"{name}.{part}"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    shape = (graph.shape(x)[0], given["weight_hh"].shape[1])
    return graph.add(cell, (x,), shape, given, back=back)


def _last(graph: Graph, x: int, at: int = -1) -> int:
    return graph.add("step", (x,), graph.shape(x)[1:], at=at % graph.shape(x)[0])


def _recurrent(graph: Graph, x: int, module: RecurrentNet, weights: Params) -> int:
    for name in module.names:
        x = _sequence(graph, x, module.cell, weights, name)
    return _linear(graph, _last(graph, x), weights, "fc")


def _bilstm(graph: Graph, x: int, module: Any, weights: Params) -> int:
    ahead = _last(graph, _sequence(graph, x, "lstm", weights, "ahead"))
    back = _last(graph, _sequence(graph, x, "lstm", weights, "back", back=True), 0)
    both = graph.add("join", (ahead, back), (graph.shape(ahead)[0] + graph.shape(back)[0],))
    return _linear(graph, both, weights, "fc")


def _cfc(graph: Graph, x: int, module: Any, weights: Params) -> int:
    """The state after the last step, of samples that are regular in time."""
    x = graph.reshape(x, as_series(graph.shape(x)))
    first, first_bias, last, last_bias = joined_heads(weights)
    given: dict[str, Tensor] = {
        "backbone": weights["backbone.weight"], "backbone_bias": weights["backbone.bias"],
        "first": first, "first_bias": first_bias, "last": last, "last_bias": last_bias,
    }  # fmt: skip
    if module.settings["activation"] == "lecun_tanh":  # 1.7159 tanh(0.666 a): the factors go into the weights
        given["backbone"], given["backbone_bias"] = (STEEPNESS * given[n] for n in ("backbone", "backbone_bias"))
        given["first"], given["first_bias"] = STEEPNESS * CEILING * first, STEEPNESS * first_bias
        given["last"] = CEILING * last
    hidden = weights["fc.weight"].shape[1]
    settings = module.settings
    silu, gated = settings["activation"] == "silu", settings["gate"] == "gated"
    x = graph.add("cfc", (x,), (hidden,), given, silu=silu, gated=gated)
    return _linear(graph, x, weights, "fc")


NETWORKS: dict[type[nn.Module], Callable[[Graph, int, Any, Params], int]] = {
    Cnn: _cnn,
    Cnn1d: _cnn1d,
    ConvNet: _convnet,
    Compact: _compact,
    ResNet18: _resnet,
    BiLstm: _bilstm,
    Cfc: _cfc,
}


def size(graph: Graph) -> int:
    """How many numbers a graph holds."""
    return sum(prod(value.shape) for op in graph.ops for value in op.weights.values())
