"""Figures of the methods with sub-models, for the run's database and its report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from potluck.fleet import ClientId, Params
from potluck.models import Model

_STEPS = 40  # of a histogram


def record(state: Any) -> dict[str, Any]:
    """The widths of the clients that have answered."""
    return {"widths": state.known}


def mixture(state: Any) -> dict[str, Any]:
    """FedConv's: the widths, each client's weights in the last mean, and what the server measured on its own rows."""
    return {**record(state), "v": numbers(state.v), **state.figures}


def numbers(v: Mapping[ClientId, Params]) -> dict[ClientId, dict[str, float]]:
    """The learned weight of each client's layers as plain numbers."""
    return {client: {layer: float(value) for layer, value in own.items()} for client, own in v.items()}


def spread(model: Model, weights: Params, subs: Mapping[float, Params]) -> dict[str, list[float]]:
    """How the parameters of the global model and of the sub-models made of it are distributed (FedConv, Figure 6).

    Shares of 40 equal steps, from minus to plus the size that 99.5 % of the global model's parameters stay within.
    """
    sizes = torch.cat([weights[name].detach().abs().flatten() for name in model.trainable])
    reach = float(sizes.kthvalue(max(1, int(0.995 * sizes.numel()))).values) or 1.0
    shares = {}
    for width, sub in {1.0: weights, **subs}.items():
        flat = torch.cat([sub[name].detach().flatten() for name in sub if name in model.trainable])
        shares[f"{width:g}"] = (torch.histc(flat, _STEPS, -reach, reach) / flat.numel()).tolist()
    return {"reach": [reach], **shares}
