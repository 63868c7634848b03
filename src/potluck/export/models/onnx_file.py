"""A graph as an ONNX model: input `x` (n, ...) raw samples, output `scores` (n, outputs).

A classifier also gives `class` (n), and ordinal classes `level` (n).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from potluck.errors import Code, Missing, install_extra
from potluck.export.models.graph import Graph, Op
from potluck.runs.results import Personal
from potluck.tasks import Ordinal, Task

OPSET, IR = 18, 10  # ONNX 1.13 and later read it
ACTS = {"relu": "Relu", "tanh": "Tanh", "leaky_relu": "LeakyRelu", "sigmoid": "Sigmoid"}
# ONNX orders the gates in another way than PyTorch does.
ORDER = {"gru": (1, 0, 2), "lstm": (0, 3, 1, 2), "rnn": (0,)}


class _Writer:
    def __init__(self, prefix: str = "") -> None:
        self.nodes: list[Any] = []
        self.numbers: dict[str, Any] = {}
        self.prefix = prefix

    def number(self, value: Tensor | Sequence[int] | float, like: str = "k") -> str:
        """Store constants and return their name."""
        if isinstance(value, Tensor):
            array = value.numpy()
        else:
            array = np.asarray(value, dtype=np.float32 if isinstance(value, float) else np.int64)
        name = f"{self.prefix}{like}{len(self.numbers)}"
        self.numbers[name] = numpy_helper.from_array(array, name)
        return name

    def node(self, kind: str, inputs: Sequence[str], output: str = "", **settings: Any) -> str:
        output = output or f"{self.prefix}v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **settings))
        return output


def _per_channel(w: _Writer, op: Op, x: str, first: str, second: str) -> str:
    """Two steps with one number per channel each."""
    wide = [1] * (len(op.shape) + 1)
    wide[op.settings.get("axis", 0) + 1] = -1
    a, b = (w.number(value.reshape(wide)) for value in op.weights.values())
    return w.node(second, [w.node(first, [x, a]), b])


def _standardise(w: _Writer, op: Op, x: str) -> str:
    out = _per_channel(w, op, x, "Sub", "Mul")
    return w.node("Where", [w.node("IsNaN", [out]), w.number(torch.zeros(1)), out])


def _affine(w: _Writer, op: Op, x: str) -> str:
    return _per_channel(w, op, x, "Mul", "Add")


def _group_norm(w: _Writer, op: Op, x: str) -> str:
    """Instance norm over groups, then a scale and a shift per channel; GroupNormalization came late to ONNX."""
    groups, channels = op.settings["groups"], op.shape[0]
    apart = w.node("Reshape", [x, w.number([0, groups, -1])])
    ones, zeros = w.number(torch.ones(groups)), w.number(torch.zeros(groups))
    normed = w.node("InstanceNormalization", [apart, ones, zeros], epsilon=op.settings["eps"])
    back = w.node("Reshape", [normed, w.number([-1, *op.shape])])
    wide = (1, channels, *(1,) * (len(op.shape) - 1))
    scaled = w.node("Mul", [back, w.number(op.weights["weight"].reshape(wide))])
    return w.node("Add", [scaled, w.number(op.weights["bias"].reshape(wide))])


def _linear(w: _Writer, op: Op, x: str) -> str:
    return w.node("Gemm", [x, w.number(op.weights["weight"]), w.number(op.weights["bias"])], transB=1)


def _conv(w: _Writer, op: Op, x: str) -> str:
    s = op.settings
    pads = [*s["padding"], *s["padding"]]
    given = [x, w.number(op.weights["weight"]), w.number(op.weights["bias"])]
    return w.node("Conv", given, strides=list(s["stride"]), pads=pads, group=s["groups"])


def _sequence(w: _Writer, op: Op, x: str) -> str:
    """(n, T, I) -> (n, T, H); ONNX wants time first and gives (T, directions, n, H)."""

    def gates(name: str) -> Tensor:
        parts = op.weights[name].chunk(len(ORDER[op.kind]), 0)
        return torch.cat([parts[k] for k in ORDER[op.kind]], 0)

    bias = torch.cat((gates("bias_ih"), gates("bias_hh")))
    given = [w.number(value.unsqueeze(0)) for value in (gates("weight_ih"), gates("weight_hh"), bias)]
    more: dict[str, Any] = {"linear_before_reset": 1} if op.kind == "gru" else {}
    direction = "reverse" if op.settings["back"] else "forward"
    first = w.node("Transpose", [x], perm=[1, 0, 2])
    states = w.node(op.kind.upper(), [first, *given], hidden_size=op.shape[1], direction=direction, **more)
    return w.node("Transpose", [w.node("Squeeze", [states, w.number([1])])], perm=[1, 0, 2])


def _cfc(w: _Writer, op: Op, x: str) -> str:
    """ONNX's Scan over the steps; its body is one step of the cell."""
    g, inside, hidden = op.weights, _Writer("cell_"), op.shape[0]

    def act(value: str) -> str:
        return inside.node("Mul", [value, inside.node("Sigmoid", [value])]) if silu else inside.node("Tanh", [value])

    silu = op.settings["silu"]
    both = inside.node("Concat", ["now", "before"], axis=1)
    z = act(_gemm(inside, both, g["backbone"], g["backbone_bias"]))
    if g["first"].shape[0]:
        q = act(_gemm(inside, z, g["first"], g["first_bias"]))
        z = q if g["last"].shape[1] == g["first"].shape[0] else inside.node("Concat", [q, z], axis=1)
    heads = _gemm(inside, z, g["last"], g["last_bias"])
    f, gg, h = (
        inside.node(
            "Slice", [heads, inside.number([k * hidden]), inside.number([(k + 1) * hidden]), inside.number([1])]
        )
        for k in range(3)
    )
    share = inside.node("Sigmoid", [inside.node("Neg", [f])])
    kept = inside.node("Mul", [share, inside.node("Tanh", [gg])])
    new = inside.node("Tanh", [h])
    if op.settings["gated"]:
        new = inside.node("Mul", [inside.node("Sub", [inside.number(torch.ones(1)), share]), new])
    inside.node("Add", [kept, new], "after")
    body = helper.make_graph(
        inside.nodes,
        "cell",
        [_value("before", ("n", hidden)), _value("now", ("n", g["backbone"].shape[1] - hidden))],
        [_value("after", ("n", hidden))],
        list(inside.numbers.values()),
    )
    rows = w.node("Slice", [w.node("Shape", [x]), w.number([0]), w.number([1])])
    size = w.node("Concat", [rows, w.number([hidden])], axis=0)
    start = w.node("Expand", [w.number(torch.zeros(1, 1)), size])
    return w.node("Scan", [start, x], body=body, num_scan_inputs=1, scan_input_axes=[1])


def _gemm(w: _Writer, x: str, weight: Tensor, bias: Tensor) -> str:
    return w.node("Gemm", [x, w.number(weight), w.number(bias)], transB=1)


def _permute(w: _Writer, op: Op, x: str) -> str:
    return w.node("Transpose", [x], perm=[0, *(axis + 1 for axis in op.settings["order"])])


def _pool(w: _Writer, op: Op, x: str) -> str:
    size = list(op.settings["size"])
    return w.node("MaxPool", [x], kernel_shape=size, strides=size)


def _mean(w: _Writer, op: Op, x: str) -> str:
    return w.node("ReduceMean", [x, w.number([2, 3])], keepdims=0)


def _step(w: _Writer, op: Op, x: str) -> str:
    return w.node("Gather", [x, w.number(torch.tensor(op.settings["at"]))], axis=1)


KINDS: dict[str, Callable[[_Writer, Op, str], str]] = {
    "reshape": lambda w, op, x: w.node("Reshape", [x, w.number([-1, *op.shape])]),
    "divide": lambda w, op, x: w.node("Div", [x, w.number(op.settings["by"])]),
    "act": lambda w, op, x: w.node(ACTS[op.settings["name"]], [x]),
    "softmax": lambda w, op, x: w.node("Softmax", [x], axis=-1),
    "standardise": _standardise, "affine": _affine, "group_norm": _group_norm, "linear": _linear, "conv": _conv,
    "gru": _sequence, "lstm": _sequence, "rnn": _sequence, "cfc": _cfc, "permute": _permute, "pool": _pool,
    "mean": _mean, "step": _step,
}  # fmt: skip


def _value(name: str, shape: Sequence[int | str], kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, list(shape))


def _apart(w: _Writer, a: str, b: str) -> str:
    """The mean squared difference of two values."""
    away = w.node("Sub", [a, b])
    return w.node("ReduceMean", [w.node("Mul", [away, away]), w.number([1])], keepdims=1)


PAIRS: dict[str, Callable[[_Writer, str, str], str]] = {
    "add": lambda w, a, b: w.node("Add", [a, b]),
    "join": lambda w, a, b: w.node("Concat", [a, b], axis=1),
    "apart": _apart,
}


def _choice(w: _Writer, task: Task | None) -> list[Any]:
    """The class or the level beside the scores, where the task has one."""
    if task is None or task.has_classes:
        name = w.node("ArgMax", ["scores"], "class", axis=-1, keepdims=0)
    elif isinstance(task, Ordinal):
        above = w.node("Cast", [w.node("Greater", ["scores", w.number(0.5)])], to=TensorProto.INT64)
        name = w.node("ReduceSum", [above, w.number([1])], "level", keepdims=0)
    else:
        return []
    return [_value(name, ("n",), TensorProto.INT64)]


def onnx_bytes(graph: Graph, about: dict[str, str], task: Task | None = None) -> bytes:
    """The model as the bytes of an ONNX file; `about` becomes its metadata. Without a task, it is a classifier."""
    w, names = _Writer(), ["x"]
    for op in graph.ops[1:]:
        given = [names[at] for at in op.inputs]
        names.append(PAIRS[op.kind](w, *given) if op.kind in PAIRS else KINDS[op.kind](w, op, given[0]))
    w.node("Identity", [names[-1]], "scores")
    outputs = [_value("scores", ("n", *graph.ops[-1].shape)), *_choice(w, task)]
    made = helper.make_graph(
        w.nodes, "potluck", [_value("x", ("n", *graph.ops[0].shape))], outputs, list(w.numbers.values())
    )
    return _finished(helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)]), about)


def _finished(model: Any, about: dict[str, str]) -> bytes:
    model.ir_version = min(model.ir_version, IR)
    model.producer_name = "potluck"
    helper.set_model_props(model, about)
    onnx.checker.check_model(model)
    found: bytes = model.SerializeToString(deterministic=True)
    return found


class _Alone(nn.Module):
    """`Personal.scores` as a module, for PyTorch's exporter."""

    def __init__(self, one: Personal) -> None:
        super().__init__()
        self.one = one
        for k, value in enumerate(one.weights.values()):
            self.register_buffer(f"w{k}", value.detach())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        weights = {name: getattr(self, f"w{k}") for k, name in enumerate(self.one.weights)}
        scores = self.one.model.logits(weights, self.one.prepared(x))
        scores = scores.softmax(-1) if self.one.model.loss == "cross_entropy" else scores
        return scores, scores.argmax(-1)


def traced_bytes(one: Personal, shape: tuple[int, ...], about: dict[str, str]) -> bytes:
    """Export a network that has no graph, such as your own, with PyTorch's exporter. It takes some seconds."""
    try:
        import onnxscript  # noqa: F401 (PyTorch's exporter needs it)
    except ImportError:
        raise Missing(
            Code.EXTRA, f"--to onnx: onnxscript is not installed; `{install_extra('onnx')}` adds it."
        ) from None
    made = torch.onnx.export(
        _Alone(one).eval(),
        (torch.zeros(2, *shape),),
        dynamo=True,
        verbose=False,
        input_names=["x"],
        output_names=["scores", "class"],
        dynamic_shapes=({0: torch.export.Dim("n")},),
    )
    assert made is not None
    return _finished(made.model_proto, about)
