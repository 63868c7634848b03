"""The variants of FedCFC (section 5.1): modules that are bound, and modules averaged by FedAvg, FedProx or SCAFFOLD."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import torch

from potluck.fleet import Arrival, ClientId, Params, Profile
from potluck.methods.parts import correction
from potluck.models.cfc import in_head
from potluck.tensors import each, mean

Variant = Literal["fbind", "favg", "fprox", "fscaf", "fgh"]
Head = Literal["f", "g", "h"]
BINDS: tuple[Variant, ...] = ("fbind", "fgh")
CONTROLS: tuple[Variant, ...] = ("fscaf", "fgh")  # SCAFFOLD on the averaged modules


def averaged_names(names: Iterable[str], variant: Variant, federate: Head) -> list[str]:
    """The weights whose values travel: none for fbind, the other two modules for fgh, else the coordinated module."""
    heads = {"fbind": "", "fgh": "fgh".replace(federate, "")}.get(variant, federate)
    return [name for name in names if any(in_head(name, head) for head in heads)]


def averaged(
    weights: Params, control: Params, arrivals: Sequence[Arrival], clients: Mapping[ClientId, Profile]
) -> tuple[Params, Params]:
    """The averaged modules and c after a round. The mean is weighted by samples, but not with control variates."""
    if not weights or not arrivals:
        return weights, control
    samples = None if control else [float(clients[arrival.client].samples) for arrival in arrivals]
    step = mean([arrival.update.weights for arrival in arrivals], samples)
    control = correction.moved(control, [arrival.update.control for arrival in arrivals], len(clients))
    return each(torch.add, weights, step), control
