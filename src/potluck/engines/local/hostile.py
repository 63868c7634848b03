"""Attackers in the simulator: some clients send updates that are meant to do harm (`faults.hostile`).

An attacker trains like everybody else. Then it sends another change than its own:

    sign      its change, reversed and `scale` times as large
    scale     its change, `scale` times as large
    noise     Gaussian noise, `scale` times as large as its change
    collude   a direction that all attackers share, `scale` times as large as its change

Two attacks lie in the data, before training:

    labels    its labels are reversed: the first class becomes the last
    backdoor  every second sample carries a trigger and the label of class 0, and the change is `scale` times as large

The trigger is a corner of an image, the first steps of a series or the first features, set to 3, three standard
deviations of standardised data. `potluck.runs.backdoor` measures how often it works on the honest clients' rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from potluck import keys
from potluck.engines.samples import Materialise
from potluck.fleet import ClientId, Data, Message
from potluck.wire.bound import base_of, changed
from potluck.wire.codec import walk

ATTACKS = ("sign", "scale", "noise", "labels", "backdoor", "collude")
TARGET = 0  # the class that a backdoor's trigger asks for


@dataclass(frozen=True)
class Hostile:
    """Who attacks, and how."""

    places: frozenset[int] = frozenset()  # indices of the clients
    attack: str = "sign"
    scale: float = 10.0
    seed: int = 0

    def sends(self, update: Message, task: Message, client: ClientId, count: int) -> Message:
        """What an attacker sends instead of its update."""
        if self.attack == "labels":
            return update
        factor = -self.scale if self.attack == "sign" else self.scale
        began = {id(value): base_of(value, origin) for field in changed(update, task) for value, origin in field.pairs}
        many = 0

        def lie(value: Tensor) -> Tensor:
            nonlocal many
            if id(value) not in began:
                return value
            base = began[id(value)]
            change = value - base
            if self.attack in ("noise", "collude"):
                who = (client, count) if self.attack == "noise" else ()
                drawn = keys.normal(keys.key(self.seed, "attack", *who, many), value.shape)
                change = drawn * (change.float().square().mean().sqrt() if change.numel() else 0.0)
            many += 1
            return (base + factor * change).to(value.dtype)

        return walk(update, lie)

    def labels(self, client: int, given: tuple[int, ...] | None, classes: int) -> tuple[int, ...] | None:
        """The new number of each label of a client, after a drift and the attack."""
        if self.attack != "labels" or client not in self.places:
            return given
        return tuple(classes - 1 - label for label in (given or range(classes)))

    def poisoned(self, materialise: Materialise) -> Materialise:
        """The clients' training samples, those of attackers with a trigger on every second one."""
        if self.attack != "backdoor" or not self.places:
            return materialise

        def with_triggers(clients: Sequence[int], capacity: int) -> Data:
            data = materialise(clients, capacity)
            rows = [i for i, client in enumerate(clients) if client in self.places]
            if not rows:
                return data
            x, y = data.x.clone(), data.y.clone()
            x[rows, ::2] = triggered(x[rows, ::2])
            y[rows, ::2] = TARGET
            return replace(data, x=x, y=y)

        return with_triggers


def triggered(x: Tensor) -> Tensor:
    """Samples (clients x samples x ...) with the trigger of a backdoor."""
    x = x.clone()
    if x.dim() == 5:  # images: channels, height, width
        x[..., :3, :3] = 3.0
    elif x.dim() == 4:  # series: time, channels
        x[:, :, : max(1, x.shape[2] // 10)] = 3.0
    else:
        x[..., : max(1, x.shape[-1] // 20)] = 3.0
    return x


def chosen(share: float, clients: int, seed: int) -> frozenset[int]:
    """The indices of the attackers: a share of the clients, at least one, drawn by the seed."""
    if not share or not clients:
        return frozenset()
    many = max(1, round(share * clients))
    return frozenset(int(i) for i in keys.rng(seed, "hostile").choice(clients, many, replace=False))
