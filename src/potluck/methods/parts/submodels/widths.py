"""Sub-models of a width: which axes of which tensors shrink with the shrinkage ratio, and which never do.

A layer with n channels has floor(r n) in the sub-model of ratio r, at least one (FedConv, Shen et al., MobiSys 2024,
section 4.1; HeteroFL, Diao et al., ICLR 2021). The forward pass is traced once (torch.fx), so that a linear layer after
a flatten, a residual sum or several outputs of one layer are seen rather than guessed from names. Inputs that come from
the sample and outputs that reach the result keep their size. Layers that add up share one *group* of channels.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn

from potluck.errors import BadInput, Code
from potluck.fleet import Local, Params
from potluck.models import Model
from potluck.models.layers import BatchNorm, GroupNorm

Indices = Mapping[str, Tensor]  # group -> the channels kept, in order
_plans: WeakKeyDictionary[Model, Plan] = WeakKeyDictionary()


@dataclass(frozen=True)
class Axis:
    """One axis of a tensor: `channels` of a group, each `per` entries long; no group where it never shrinks."""

    group: str | None
    channels: int
    per: int = 1

    @property
    def size(self) -> int:
        return self.channels * self.per

    def at(self, ratio: float) -> int:
        return self.size if self.group is None else kept(self.channels, ratio) * self.per


@dataclass(frozen=True)
class Plan:
    """The axes (outputs, inputs) of every tensor of a model; further axes (a kernel's sides) never shrink."""

    axes: dict[str, tuple[Axis, ...]]
    groups: dict[str, int]  # group -> channels
    grouped_norm: str = ""  # a group norm's name, where there is one: it depends on the order of channels
    layers: dict[str, str] = field(default_factory=dict)  # tensor -> the layer it belongs to

    def shapes(self, weights: Params, ratio: float) -> dict[str, tuple[int, ...]]:
        """The shapes of the sub-model."""
        return {
            name: (*(axis.at(ratio) for axis in self.axes[name]), *value.shape[len(self.axes[name]) :])
            for name, value in weights.items()
        }


def kept(channels: int, ratio: float) -> int:
    return max(1, math.floor(ratio * channels + 1e-9))


def plan_of(model: Model) -> Plan:
    """How this model shrinks; a layer that cannot be shrunk is refused by its name."""
    if model not in _plans:
        _plans[model] = _Reading(model).plan()
    return _plans[model]


def check(cfg: Any, home: Local) -> None:
    """Raise BadInput, before anything runs, for a model that cannot be cut."""
    plan_of(home.model)


def leading(plan: Plan, ratio: float) -> Indices:
    """The first channels of every group."""
    return {group: torch.arange(kept(n, ratio)) for group, n in plan.groups.items()}


def reach(channels: int, count: int, stride: int) -> int:
    """The step between kept channels: the stride, or the longest that fits so many channels."""
    return 1 if count in (1, channels) else min(stride, (channels - 1) // (count - 1))


def spaced(plan: Plan, ratio: float, stride: int) -> Indices:
    """Channels of every group at equal steps; the first ones for a stride of 1."""
    return {group: torch.arange(kept(n, ratio)) * reach(n, kept(n, ratio), stride) for group, n in plan.groups.items()}


def rolled(plan: Plan, ratio: float, shift: int) -> Indices:
    """A window of channels that begins at `shift` and goes round (FedRolex, Alam et al., NeurIPS 2022, eq. 3)."""
    return {group: (torch.arange(kept(n, ratio)) + shift) % n for group, n in plan.groups.items()}


def places(axis: Axis, indices: Indices) -> Tensor:
    """The entries of an axis that belong to the kept channels."""
    if axis.group is None:
        return torch.arange(axis.size)
    inner = torch.arange(axis.per)
    return (indices[axis.group][:, None] * axis.per + inner).reshape(-1)


def cut(weights: Params, plan: Plan, indices: Indices) -> Params:
    """The sub-model of the kept channels."""
    out = {}
    for name, value in weights.items():
        for position, axis in enumerate(plan.axes[name]):
            if axis.group is not None:
                value = value.index_select(position, places(axis, indices))
        out[name] = value
    return out


def masks_of(plan: Plan, stack: Params, ratio: float, stride: int = 1) -> Params:
    """Of models in a stack, True where the sub-model of this width holds an entry."""
    indices, out = spaced(plan, ratio, stride), {}
    for name, values in stack.items():
        mask = torch.zeros(values.shape[1:], dtype=torch.bool)
        where = torch.meshgrid(*(places(axis, indices) for axis in plan.axes[name]), indexing="ij")
        mask[where] = True
        out[name] = mask
    return out


def merged(weights: Params, plan: Plan, parts: Sequence[tuple[Params, Indices, float | Tensor]]) -> Params:
    """The weighted mean of each entry over the sub-models that hold it; entries that none holds stay as they were."""
    out = {}
    for name, old in weights.items():
        if not old.is_floating_point() or not parts:
            out[name] = old
            continue
        total, share = torch.zeros_like(old), torch.zeros_like(old)
        for sub, indices, weight in parts:
            where = torch.meshgrid(*(places(axis, indices) for axis in plan.axes[name]), indexing="ij")
            total[where] += weight * sub[name]
            share[where] += weight
        out[name] = torch.where(share > 0, total / share.clamp_min(1e-12), old)
    return out


def sorted_channels(weights: Params, plan: Plan) -> Params:
    """The same function, the channels of every group in falling order of the norm of what they come from."""
    if plan.grouped_norm:
        raise BadInput(
            Code.SETTINGS_CLASH,
            "method.kernels.sort_channels: must be false, got true: "
            f"the group norm {plan.grouped_norm!r} depends on the order of channels.",
        )
    norms = channel_squares(weights, plan)
    return cut(
        weights, plan, {group: torch.argsort(norm, descending=True, stable=True) for group, norm in norms.items()}
    )


def channel_squares(weights: Params, plan: Plan) -> Params:
    """For every group the squared norms of the weights that its channels come from."""
    squares: Params = {}
    for name, value in weights.items():
        outputs = plan.axes[name][0]
        if outputs.group is not None and value.dim() > 1:
            own = value.square().flatten(1).sum(1)
            squares[outputs.group] = squares[outputs.group] + own if outputs.group in squares else own
    return squares


@dataclass(frozen=True)
class _Flow:
    """What a value in the forward pass carries on its second axis: a group's channels, or None for the sample's own."""

    group: str | None
    channels: int = 0


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return next(m.children(), None) is None


def _own(part: nn.Module) -> Iterator[str]:
    """The parameters of a layer, not of the layers in it."""
    return (name for name, _ in part.named_parameters(recurse=False))


class _Reading:
    """Walks the traced forward pass once."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._module = model.module
        self._tied: dict[str, str] = {}  # group -> the group it was found to be one with
        self._channels: dict[str, int] = {}
        self._axes: dict[str, tuple[Axis, ...]] = {}
        self._norm = ""

    def plan(self) -> Plan:
        self._refuse_unknown()
        optional = {"t", "length"} & set(inspect.signature(self._module.forward).parameters)
        try:
            graph = _Tracer().trace(self._module, concrete_args=dict.fromkeys(optional))
        except Exception as error:
            raise BadInput(
                Code.MODEL_CUT,
                f"model: {self._model.name} has a forward pass that cannot be traced, so no sub-model can be made of "
                f"it ({type(error).__name__}).",
            ) from error
        flows: dict[fx.Node, _Flow | None] = {}
        for node in graph.nodes:
            flows[node] = self._flow(node, [flows[other] for other in node.all_input_nodes])
        result = next(node for node in graph.nodes if node.op == "output").all_input_nodes[0]
        final = flows[result]
        fixed = {self._root(final.group)} if final is not None and final.group is not None else set()
        axes = {name: tuple(self._settled(axis, fixed) for axis in pair) for name, pair in self._axes.items()}
        groups = {axis.group: axis.channels for pair in axes.values() for axis in pair if axis.group is not None}
        self._check(axes)
        return Plan(axes, groups, self._norm, {name: name.rpartition(".")[0] or name for name in axes})

    def _refuse_unknown(self) -> None:
        layers = [(name, part) for name, part in self._module.named_modules() if next(_own(part), None) is not None]
        for name, part in layers:
            convolution = isinstance(part, nn.Conv1d | nn.Conv2d | nn.Conv3d)
            if not convolution and not isinstance(part, nn.Linear | BatchNorm | GroupNorm):
                why = "only convolutions, linear layers, batch and group norms can"
                raise self._refusal(name or next(_own(part)), part, why)
            if convolution and part.groups > 1:
                raise self._refusal(name, part, "a convolution in groups has no plane of outputs and inputs")
        if self._model.kind == "recurrent":
            raise self._refusal(*layers[0], "it is used again at every step of time")

    def _refusal(self, name: str, part: Any, why: str) -> BadInput:
        which = f"the layer {name!r} ({type(part).__name__}) of {self._model.name}"
        return BadInput(Code.MODEL_CUT, f"model: {which} cannot be compressed: {why}.")

    def _flow(self, node: fx.Node, given: list[_Flow | None]) -> _Flow | None:
        if node.op == "placeholder":
            return _Flow(None)
        known = [flow for flow in given if flow is not None]
        if node.op == "call_module":
            return self._through(str(node.target), self._module.get_submodule(str(node.target)), known[0])
        if not known or (node.op == "call_function" and node.target is getattr):
            return None  # a shape, a number
        if node.target in (torch.cat, torch.stack, "cat", "stack"):
            raise self._refusal(node.name, node.target, "layers may be added, not joined")
        first, *others = known
        for other in others:
            if (first.group is None) != (other.group is None) or first.channels != other.channels:
                raise self._refusal(node.name, node.target, "only layers with equally many channels may be added")
            if first.group is not None and other.group is not None:
                self._tied[self._root(other.group)] = self._root(first.group)
        return first

    def _through(self, name: str, part: nn.Module, given: _Flow) -> _Flow:
        if isinstance(part, BatchNorm | GroupNorm):
            if isinstance(part, GroupNorm) and part.groups > 1:
                self._norm = self._norm or name
            tensors = (*part.named_parameters(), *part.named_buffers())
            self._axes |= {f"{name}.{key}": (Axis(given.group, len(value)),) for key, value in tensors}
            return given
        if next(part.parameters(), None) is None:
            return given
        weight = part.get_parameter("weight")
        outputs, inputs = int(weight.shape[0]), int(weight.shape[1])
        if f"{name}.weight" in self._axes:
            raise self._refusal(name, part, "a layer may be used once")
        if given.group is not None and inputs % given.channels:
            raise self._refusal(
                name, part, f"its {inputs} inputs must be a multiple of the {given.channels} channels before"
            )
        source = (
            Axis(None, inputs) if given.group is None else Axis(given.group, given.channels, inputs // given.channels)
        )
        self._axes[f"{name}.weight"] = (Axis(name, outputs), source)
        if getattr(part, "bias", None) is not None:
            self._axes[f"{name}.bias"] = (Axis(name, outputs),)
        return _Flow(name, outputs)

    def _root(self, group: str) -> str:
        while self._tied.get(group, group) != group:
            group = self._tied[group]
        return group

    def _settled(self, axis: Axis, fixed: set[str]) -> Axis:
        group = None if axis.group is None else self._root(axis.group)
        return Axis(None, axis.size) if group is None or group in fixed else Axis(group, axis.channels, axis.per)

    def _check(self, axes: dict[str, tuple[Axis, ...]]) -> None:
        """A sub-model of half the width must run: a forward pass that reshapes channels would not."""
        weights = self._model.init(0)
        missing = [name for name in weights if name not in axes]
        if missing:
            raise BadInput(
                Code.MODEL_CUT,
                f"model: {missing[0]!r} of {self._model.name} is not used by its forward pass, so no sub-model can be "
                "made of it.",
            )
        groups = {axis.group: axis.channels for pair in axes.values() for axis in pair if axis.group is not None}
        plan = Plan(axes, groups)
        try:
            self._model.logits(cut(weights, plan, leading(plan, 0.5)), torch.zeros(1, *self._model.shape))
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise BadInput(
                Code.MODEL_CUT, f"model: {self._model.name} does not run at half its width ({reason})."
            ) from error
