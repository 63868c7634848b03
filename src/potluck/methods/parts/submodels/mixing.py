"""Learned weights of models in a mean: one per model and layer, or one per model and parameter.

FedConv (Shen et al., MobiSys 2024), section 4.3, equation (4): W_l = sum_j v_jl s_j w_jl / sum_j s_j (`mixed`). With
v = 1 this is the mean weighted by examples. There v also scales the layer, and weighs what fills a dilated model.
`stepped` weighs the clients' changes: W = W_old + sum_j p_j (w_j - W_old), with p_j = v_j s_j / sum v s over the
clients that hold an entry. So all p of an entry add up to 1, and v = 1 is HeteroFL's mean over holders. The KL term of
equation (5) does not contain v, so it has no gradient; `divergence_start` uses it for the first v instead. The [0, 1]
scaling of the paper has no stated inverse; `matched` is its replacement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from potluck import keys
from potluck.errors import BadInput, Code
from potluck.fleet import Params
from potluck.methods.parts import checks

_NONE = 1e-12  # below this nobody holds an entry


@dataclass(frozen=True)
class Mix:
    """How dilated models become one."""

    agg: Literal["scalar", "element", "mean"] = "scalar"  # v per client and layer, per parameter, or 1
    on: Literal["changes", "models"] = "changes"  # what v weighs; models, as published, where they are filled up
    init: Literal["ones", "normal"] = "ones"  # the first v; normal: N(0, 1), as released
    epochs: int = 10  # e_a, of tuning v
    lr: float = 1e-3
    kld_init: bool = False  # begin with the v of `divergence_start`
    kld_lambda: float = 0.2  # lambda
    scale_match: bool = False  # give each dilated tensor the spread of the global one

    def __post_init__(self) -> None:
        checks.at_least(self, "epochs", 0)
        checks.above(self, "lr", 0.0)
        if self.init == "normal" and self.on == "changes":
            raise BadInput(
                Code.SETTINGS_CLASH, "init: must be ones with on = changes, got normal: v is at least 0 there."
            )


def stacked(models: Sequence[Params]) -> Params:
    """Models as one, each tensor with the models along its first axis; nothing for no models."""
    return {name: torch.stack([model[name] for model in models]) for name in (models[0] if models else ())}


def mixed(stack: Params, share: Tensor, v: Params, layers: Mapping[str, str]) -> Params:
    """Equation (4). `v` has one vector (models,) per layer or one tensor (models, ...) per parameter; none is 1."""
    out = {}
    for name, values in stack.items():
        if not values.is_floating_point():
            out[name] = values[0]
        elif name in v:  # one number per parameter
            out[name] = torch.tensordot(share, v[name] * values, 1)
        else:
            weight = share * v[layers[name]] if layers.get(name) in v else share
            out[name] = (weight @ values.flatten(1)).reshape(values.shape[1:])
    return out


class Changes(NamedTuple):
    """What each client changed of the global model: of the entries that it holds, and of others (by tuned kernels)."""

    before: Params
    held: Params  # (clients, ...), 0 where a client does not hold the entry
    beyond: Params  # the same for entries it does not hold; only tensors where there is any
    masks: list[Params]  # by width: 1 where a client of that width holds the entry
    width: Tensor  # (clients,) which of the masks
    counts: Tensor  # (clients,) s


def changes(before: Params, stack: Params, masks: list[Params], width: Tensor, counts: Tensor) -> Changes:
    held, beyond = {}, {}
    for name, values in stack.items():
        if values.is_floating_point():
            moved = values - before[name]
            inside = torch.stack([mask[name] for mask in masks])[width].to(moved.dtype)
            held[name] = moved * inside
            if bool((moved != held[name]).any()):
                beyond[name] = moved - held[name]
    return Changes(before, held, beyond, masks, width, counts)


def stepped(given: Changes, v: Params, layers: Mapping[str, str]) -> Params:
    """W = W_old + sum_j p_j (w_j - W_old); entries that nobody holds stay, but for what tuned kernels wrote there."""
    out = dict(given.before)
    widths = torch.nn.functional.one_hot(given.width, len(given.masks)).to(given.counts.dtype)  # (clients, widths)
    for name, moved in given.held.items():
        own = v.get(name, v.get(layers.get(name, "")))
        weight = given.counts if own is None else own.clamp_min(0.0).movedim(0, -1) * given.counts
        weight = weight.movedim(-1, 0)  # (clients,), or (clients, ...) with one number per parameter
        masks = torch.stack([mask[name] for mask in given.masks]).to(moved.dtype)
        if weight.dim() == 1:
            among = torch.tensordot(weight @ widths, masks, 1)
            total = (weight @ moved.flatten(1)).reshape(moved.shape[1:])
        else:
            among, total = (weight * masks[given.width]).sum(0), (weight * moved).sum(0)
        step = total / among.clamp_min(_NONE)
        if name in given.beyond:
            step = step + torch.tensordot(given.counts / given.counts.sum(), given.beyond[name], 1)
        out[name] = given.before[name] + step
    return out


def drawn(v: Params, key: Tensor) -> Params:
    """The same, drawn from N(0, 1)."""
    return {name: keys.normal(keys.fold(key, name), tuple(value.shape)) for name, value in v.items()}


def ones(stack: Params, names: frozenset[str], layers: Mapping[str, str], by: str) -> Params:
    """v = 1: the sample-weighted mean."""
    count = next(iter(stack.values())).shape[0]
    if by == "element":
        return {name: torch.ones_like(stack[name]) for name in stack if name in names}
    return {layers[name]: torch.ones(count) for name in stack if name in names}


def divergence_start(v: Params, stack: Params, weights: Params, layers: Mapping[str, str], strength: float) -> Params:
    """v_jl = n softmax_j(-strength KL(p_l || q_jl)), p and q the softmax of a layer's parameters."""
    by_layer: dict[str, list[str]] = {}
    for name in stack:
        if layers.get(name) in v or name in v:
            by_layer.setdefault(layers[name], []).append(name)
    out = dict(v)
    for layer, names in by_layer.items():
        log_p = torch.cat([weights[name].flatten() for name in names]).log_softmax(0)
        log_q = torch.cat([stack[name].flatten(1) for name in names], 1).log_softmax(1)
        distance = (log_p.exp() * (log_p - log_q)).sum(1)
        start = len(distance) * (-strength * distance).softmax(0)
        if layer in v:
            out[layer] = start
        for name in names:
            if name in v:
                out[name] = start.reshape(-1, *(1,) * (v[name].dim() - 1)) * torch.ones_like(v[name])
    return out


def matched(model: Params, weights: Params, names: frozenset[str]) -> Params:
    """Every tensor with the spread of the global model's."""
    out = dict(model)
    for name in names:
        if weights[name].numel() > 1:
            spread = model[name].std().clamp_min(1e-12)
            out[name] = model[name] * (weights[name].std() / spread)
    return out
