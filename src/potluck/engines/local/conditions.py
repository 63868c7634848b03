"""The settings of a simulated fleet, and what they do to an update on its way to the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from potluck import keys
from potluck.devices import Hours
from potluck.engines.local.faults import SPOILING, Faults, spoil
from potluck.engines.local.flight import Flight, View, unchanged
from potluck.engines.local.hostile import Hostile
from potluck.engines.local.pace import Rules
from potluck.engines.local.roster import Roster
from potluck.errors import BadInput
from potluck.fleet import ClientId, Data, Message
from potluck.models import Model
from potluck.wire.gate import Seen, inspect, refusal
from potluck.wire.noise import blurred

# (update, task, key) -> the update as it leaves the client
Guard = Callable[[Message, Message, Tensor], Message]


@dataclass(frozen=True)
class Conditions:
    """The settings of a simulated fleet."""

    seed: int = 0
    faults: Faults = Faults()
    limit: int = 1 << 30  # bytes of the largest update that is accepted
    noise: float = 0.0  # standard deviation of the noise on every update
    floor: float = 0.0  # bit/s; a client with a slower link at the moment is cut off
    pace: Rules = Rules()  # how fast devices may work
    view: View = unchanged  # whose samples and labels a client has at a moment, after a drift
    bound: float = 0.0  # the largest change of an update, in medians of all (`wire.bound`); 0: any
    hostile: Hostile = Hostile()
    hours: Hours | None = None  # when devices take tasks; None: at any time
    guard: Guard | None = None  # what every client does with its updates before they leave
    at_once: int = 0  # clients at work at the same time at most; 0: any number
    chance: int | None = None  # seed of what differs from task to task: speed, transfers, losses; None: as `seed`

    @property
    def draws(self) -> int:
        """The seed of what differs from task to task."""
        return self.seed if self.chance is None else self.chance

    @property
    def calm(self) -> bool:
        """Whether nothing happens to tasks and updates on their way, beside what links and devices do."""
        changed = self.faults.any or self.noise or self.hostile.places or self.guard is not None
        return not changed and self.view is unchanged and self.pace.trivial


@dataclass(frozen=True)
class Holdings:
    """How many samples the clients hold."""

    roster: Roster
    view: View

    def trained_on(self, client: int, parcel: Any, at: float) -> int:
        """How many samples a task trains on: the client's own, or without any those that its partner handed over."""
        own = int(self.roster.samples[self.view(client, at)[0]])
        return own if own or not isinstance(parcel, Data) else int(parcel.weight.sum())

    def rows(self, client: int, at: float) -> int:
        """How many training samples a client holds; for an access point those of its device."""
        partner = self.roster.partner(client)
        own = int(self.roster.samples[self.view(client, at)[0]])
        return own if own or partner is None else int(self.roster.samples[partner])

    @cached_property
    def holders(self) -> int:
        """The clients that hold training samples."""
        return int(np.count_nonzero(self.roster.samples))


def arrived(
    flight: Flight, name: ClientId, samples: int, conditions: Conditions, model: Model
) -> tuple[Any, Seen, BadInput | None]:
    """The update as it arrives, with its attack, its noise and its fault, and why it is refused, if it is."""
    assert flight.done is not None
    update, seen, limit = flight.done.update, flight.seen, conditions.limit
    if flight.client in conditions.hostile.places:
        update, seen = conditions.hostile.sends(update, flight.task, name, flight.count), None
    if conditions.guard is not None:  # the same names and shapes
        update = conditions.guard(update, flight.task, keys.key(conditions.seed, name, flight.count, "guard"))
        seen = None
    if conditions.noise:  # the same names and shapes; a sum of finite numbers
        still = {"buffers", *(buffer for buffer, _ in model.module.named_buffers())}
        update = blurred(update, conditions.noise, keys.key(conditions.seed, name, flight.count, "noise"), still)
        seen = None if seen is None else replace(seen, sizes=None)
    if flight.fault in SPOILING or seen is None:
        update = spoil(update, flight.fault, limit)
        seen = inspect(update)
    return update, seen, refusal(update, seen, flight.expected, samples, limit)
