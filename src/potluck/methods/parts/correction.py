"""Corrections of local training that keep clients from drifting apart: FedProx's proximal term, SCAFFOLD's variates.

Li et al., MLSys 2020, equation (2); Karimireddy et al., ICML 2020, Algorithm 1 with option II. Both add a term to the
gradient that is affine in the weights, a `Pull`. Control variates assume plain SGD: no momentum, no Adam.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from potluck.fleet import Params
from potluck.learn import Pull
from potluck.tensors import mean


def prox(mu: float, start: Params) -> Pull:
    """FedProx: the gradient of mu/2 ||w - start||² is mu w - mu start."""
    return Pull(mu, start, times=-mu)


def variate(control: Params, own: Params) -> Pull:
    """SCAFFOLD, line 10: y <- y - eta_l (g(y) - c_i + c), where c is `control` and c_i is `own`."""
    return Pull(0.0, control, minus=own)


def pull_of(mu: float, start: Params, control: Params, own: Params) -> Pull | None:
    """The correction that these settings ask for: `mu` above 0, or control variates, or none."""
    if mu:
        return prox(mu, start)
    return variate(control, own) if control else None


def corrected(gradient: Params, weights: Params, pull: Pull | None) -> Params:
    """A gradient with the correction added, for methods that write their own training loop."""
    if pull is None or pull.shift is None:
        return gradient
    added = {name: gradient[name] + pull.scale * weights[name].float() + pull.constant(name) for name in pull.shift}
    return gradient | added


def new_own(
    own: Params, control: Params, start: Params, trained: Params, steps: Tensor, lr: float, names: Iterable[str]
) -> Params:
    """SCAFFOLD, line 12, option II: c_i+ = c_i - c + (x - y) / (K eta_l), K being the local steps really taken.

    `names` are the parameters that training moved. Buffers have no gradient, so they keep the variate they had. A
    client without steps keeps all of them.
    """
    span = steps.clamp_min(1.0) * lr
    new = {name: own[name] - control[name] + (start[name] - trained[name]) / span for name in names}
    return own | {name: torch.where(steps > 0, value, own[name]) for name, value in new.items()}


def change(new: Params, old: Params) -> Params:
    return {name: value - old[name] for name, value in new.items()}


def moved(control: Params, changes: Sequence[Params], clients: int) -> Params:
    """SCAFFOLD, line 17: c moves by |S|/N of the mean change of the clients' variates."""
    if not changes or not changes[0]:
        return control
    step, share = mean(changes), len(changes) / clients
    return control | {name: control[name] + share * step[name] for name in step if control[name].is_floating_point()}
