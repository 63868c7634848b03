"""Some modules of a network averaged while the rest stays personal: by FedAvg, FedProx or SCAFFOLD.

McMahan et al., AISTATS 2017; Li et al., MLSys 2020; Karimireddy et al., ICML 2020, option II. What travels are the
modules themselves and their changes; a control variate c travels beside them where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from potluck.fleet import Params
from potluck.tensors import each, mean


def merged(
    weights: Params,
    control: Params,
    changes: Sequence[Params],
    drifts: Sequence[Params],
    samples: Sequence[float],
    fleet: int,
) -> tuple[Params, Params]:
    """The modules and c after a round: the mean change, weighted by samples but for SCAFFOLD; c moves by |S| / N."""
    step = mean(changes, None if control else samples)
    if control:
        drift = mean(drifts)
        control = each(lambda c, d: c + len(drifts) / fleet * d, control, drift)
    return each(torch.add, weights, step), control


def corrected(gradient: Params, weights: Params, begun: Params, mu: float, control: Params, own: Params) -> Params:
    """The gradient with FedProx's mu (w - w_0), or SCAFFOLD's c - c_i, for the modules that are averaged."""
    out = dict(gradient)
    for name in begun:
        if mu:
            out[name] = out[name] + mu * (weights[name].float() - begun[name])
        if control:
            out[name] = out[name] + control[name] - own[name]
    return out


def new_control(own: Params, control: Params, change: Params, steps: Tensor, lr: float) -> Params:
    """SCAFFOLD line 12, option II: c_i+ = c_i - c + (x - y) / (K eta)."""
    return {name: own[name] - c - change[name] / (steps * lr) for name, c in control.items()}
