"""Which client gets which width: dealt by the seed, or the widest sub-model that its device can afford.

What a sub-model costs is counted, not estimated. One training task of one mini-batch runs on blank samples under
PyTorch's operation counter and a tracker of live tensors, as the engine prices tasks. The resource profile of FedConv
(Shen et al., MobiSys 2024, section 4.1) is the device's memory for training and, where a bound is set, the seconds that
one training step may take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch.utils.flop_counter import FlopCounterMode

from potluck import keys
from potluck._peak import Peak
from potluck.errors import BadInput, Code
from potluck.fleet import ClientId, Data, Fleet, Local, Params, Profile
from potluck.learn import Recipe, plain
from potluck.methods.parts import checks
from potluck.methods.parts.submodels.train import ADAM, Mine, Train, train
from potluck.methods.parts.submodels.widths import cut, leading, plan_of
from potluck.models import Model
from potluck.needs import Need


@dataclass(frozen=True)
class Sizes:
    """Widths of sub-models, and what share of the clients gets each."""

    widths: tuple[float, ...] = (1.0, 0.75, 0.5, 0.25)  # shrinkage ratios r
    shares: tuple[float, ...] = (4.0, 8.0, 4.0, 4.0)  # of the clients, one number per width

    def __post_init__(self) -> None:
        widths, shares = list(self.widths), list(self.shares)
        if not widths or not all(0.0 < width <= 1.0 for width in widths) or len(set(widths)) < len(widths):
            raise BadInput(Code.SETTING_VALUE, f"widths: must be unequal ratios above 0 and at most 1, got {widths}.")
        if len(shares) != len(widths) or min(shares) < 0 or not sum(shares) > 0:
            wanted = f"{len(widths)} numbers of 0 or more, one per width, not all 0"
            raise BadInput(Code.SETTINGS_CLASH, f"shares: must be {wanted}, got {shares}.")

    def dealt(self, clients: Iterable[ClientId], seed: int) -> dict[ClientId, float]:
        """The width of each client: the shares met to the nearest client, in an order that the seed shuffles."""
        names = list(clients)
        hand = self._hand(len(names))
        order = keys.rng(seed, "widths").permutation(len(names))
        return {name: hand[int(order[i])] for i, name in enumerate(names)}

    def by_speed(self, clients: Mapping[ClientId, Profile]) -> dict[ClientId, float]:
        """The width of each client: the same shares, the widest for the fastest; equally fast ones as listed."""
        order = sorted(clients, key=lambda client: -(clients[client].macs_per_second or 0.0))
        hand = sorted(self._hand(len(order)), reverse=True)
        return dict(zip(order, hand, strict=True))

    def _hand(self, count: int) -> list[float]:
        """So many widths, the shares met to the nearest client."""
        total = sum(self.shares)
        edges = [round(count * sum(self.shares[: k + 1]) / total) for k in range(len(self.shares))]
        return [width for k, width in enumerate(self.widths) for _ in range(edges[k] - (edges[k - 1] if k else 0))]


@dataclass(frozen=True)
class FittedSizes(Sizes):
    """The same, by speed, or the widest sub-model that a device can afford."""

    assign: Literal["dealt", "speed", "auto"] = (
        "dealt"  # speed: the fastest get the widest; auto: what a device affords
    )
    memory_share: float = 1.0  # auto: of the device's memory that training may take
    step_seconds: float = 0.0  # auto: that one training step may take; 0: any number

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.above(self, "memory_share", 0.0)
        checks.at_least(self, "step_seconds", 0)

    def fitted(self, fleet: Fleet, weights: Params, recipe: Recipe, seed: int) -> Mapping[ClientId, float]:
        """The width of each client, as it would report it once; of one that joins later when it is first asked for."""
        if self.assign == "dealt":
            return _Widths(self.dealt(fleet.clients, seed), lambda client: min(self.widths))
        if self.assign == "speed":
            return _Widths(self.by_speed(fleet.clients), lambda client: min(self.widths))
        lines = costs(fleet.home.model, weights, self.widths, recipe)

        def widest(client: ClientId) -> float:
            return affordable(lines, *budget(fleet.clients[client], self.memory_share, self.step_seconds))

        return _Widths({client: widest(client) for client in fleet.clients}, widest)


class _Widths(dict[ClientId, float]):
    """Widths by client. Whoever was not there when they were dealt out gets one later: the narrowest, or what fits."""

    def __init__(self, dealt: Mapping[ClientId, float], later: Callable[[ClientId], float]) -> None:
        super().__init__(dealt)
        self._later = later

    def __missing__(self, client: ClientId) -> float:
        self[client] = self._later(client)
        return self[client]


@dataclass(frozen=True)
class Cost:
    """Of training a sub-model."""

    ratio: float
    parameters: int
    nbytes: int  # one way, per round
    macs: float  # of one training step of one mini-batch
    memory: int  # peak while training


# Each device trains the widest sub-model that fits in its memory, unless the user deals widths out.
FITTED = {"method.sizes.assign": Need("auto", unless=("method.sizes.widths", "method.sizes.shares"))}


@dataclass(frozen=True)
class Slices:
    """Settings that all methods with sub-models have."""

    sizes: FittedSizes = FittedSizes()
    recipe: Recipe = ADAM
    cohort: int = 0  # clients per round; 0: all
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)


def costs(model: Model, weights: Params, ratios: Iterable[float], recipe: Recipe = ADAM) -> list[Cost]:
    """One line per width, the widest first."""
    plan, batch = plan_of(model), recipe.batch
    data = Data(torch.zeros(batch, *model.shape), model.task.blank(batch), torch.ones(batch))
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
