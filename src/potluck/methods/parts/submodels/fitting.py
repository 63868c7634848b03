"""What a sub-model of each width costs its device, and which width a device can afford.

Counted, not estimated: one training task of one mini-batch is run on blank samples under PyTorch's operation counter
and a tracker of live tensors, as the engine prices tasks. The resource profile of FedConv (Shen et al., MobiSys 2024,
section 4.1) is the device's memory for training and, where a bound is set, the seconds one training step may take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch.utils.flop_counter import FlopCounterMode

from potluck import keys
from potluck._peak import Peak
from potluck.fleet import Data, Local, Params, Profile
from potluck.learn import Recipe, plain
from potluck.methods.parts.submodels.train import ADAM, Mine, Train, train
from potluck.methods.parts.submodels.widths import cut, leading, plan_of
from potluck.models import Model


@dataclass(frozen=True)
class Cost:
    """Of training a sub-model."""

    ratio: float
    parameters: int
    nbytes: int  # one way, per round
    macs: float  # of one training step of one mini-batch
    memory: int  # peak while training


def costs(model: Model, weights: Params, ratios: Iterable[float], recipe: Recipe = ADAM) -> list[Cost]:
    """One line per width, the widest first."""
    plan = plan_of(model)
    batch = recipe.batch
    data = Data(torch.zeros(batch, *model.shape), torch.zeros(batch, dtype=torch.int64), torch.ones(batch))
    lines = []
    for ratio in sorted(ratios, reverse=True):
        sub = cut(weights, plan, leading(plan, ratio))
        task = Train(sub, replace(recipe, epochs=1))
        with plain(), FlopCounterMode(display=False) as flops, Peak() as peak:
            train(task, Local(model, data, Mine({}), keys.key(0)))
        nbytes = sum(value.numel() * value.element_size() for value in sub.values())
        brought = nbytes + data.x.numel() * data.x.element_size() + data.y.numel() * data.y.element_size()
        parameters = sum(value.numel() for name, value in sub.items() if name in model.trainable)
        lines.append(Cost(ratio, parameters, nbytes, flops.get_total_flops() / 2.0, brought + peak.peak))
    return lines


def affordable(lines: Sequence[Cost], memory: float | None, macs: float | None) -> float:
    """The widest sub-model within bytes of memory and MACs per step; the narrowest where none is."""
    for line in lines:
        if (memory is None or line.memory <= memory) and (macs is None or line.macs <= macs):
            return line.ratio
    return lines[-1].ratio


def budget(profile: Profile, share: float, seconds: float) -> tuple[float | None, float | None]:
    """What a client states: a share of its memory, and the MACs it does in so many seconds (0: any number)."""
    memory = None if profile.memory is None else share * profile.memory
    macs = None if profile.macs_per_second is None or seconds <= 0 else seconds * profile.macs_per_second
    return memory, macs
