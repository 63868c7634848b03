"""Learned weights of models in a mean: one per model and layer, or one per model and parameter.

FedConv (Shen et al., MobiSys 2024), section 4.3, equation (4): W_l = sum_j v_jl s_j w_jl / sum_j s_j. With v = 1 this
is the mean weighted by examples. The KL term of equation (5) does not contain v, so it has no gradient;
`divergence_start` uses it for the first v instead. The [0, 1] scaling of the paper has no stated inverse; `matched`
is its replacement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from potluck.fleet import Params
from potluck.methods.parts import checks


@dataclass(frozen=True)
class Mix:
    """How dilated models become one."""

    agg: Literal["scalar", "element", "mean"] = "scalar"  # v per client and layer, per parameter, or 1
    epochs: int = 10  # e_a, of tuning v
    lr: float = 1e-3
    kld_init: bool = False  # begin with the v of `divergence_start`
    kld_lambda: float = 0.2  # lambda
    scale_match: bool = False  # give each dilated tensor the spread of the global one

    def __post_init__(self) -> None:
        checks.at_least(self, "epochs", 0)
        checks.above(self, "lr", 0.0)


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
