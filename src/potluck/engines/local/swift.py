"""Tasks one by one that nothing disturbs: how long they take is known for a wave at once, before they are sent.

In an asynchronous run each arrival sends one task, and most of these are alike: a message of one pattern, for clients
that hold equally many samples, without faults, private state or traces. How long the transfers and the training take
depends on the draws of the task then, not on the moment. So it is computed as columns while the task before is trained
(`Swifts.prepare`). `send` adds three durations to the clock, and a `Swift` keeps no more than that. The results are
those of `flight.plan` to the bit. Where a task is not of this kind, the usual way is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potluck import keys
from potluck.devices import Effort, spent, too_small
from potluck.engines.local.conditions import Conditions
from potluck.engines.local.flight import DRAWS, Flight, Order, course, plan
from potluck.engines.local.roster import Presence, Roster
from potluck.engines.log import TaskRecord
from potluck.engines.price import Price
from potluck.fleet import ClientId, Done
from potluck.wire.apart import Apart, Pattern
from potluck.wire.gate import Seen, formed

FEW = 8  # clients with one kind of equipment and task; for fewer, columns cost more than they save


@dataclass(eq=False)
class Kind:
    """What tasks of one pattern for clients with equally many samples have in common."""

    pattern: Pattern
    samples: int
    mine: Any  # the private state, which is one object for all
    price: Price
    fitting: dict[int, bool] = field(default_factory=dict)  # equipment -> whether its memory is large enough
    _seen: Seen | None = None  # what the last update looked like
    _good: bool = False

    def good(self, seen: Seen, limit: int) -> bool:
        """Whether an update may look like this. One object says it of all updates of a stack."""
        if seen is not self._seen:
            self._seen, self._good = seen, formed(seen, self.price.expected, limit)
        return self._good

    @cached_property
    def program(self) -> str:
        return self.pattern.kind.__name__

    @cached_property
    def weights(self) -> tuple[int, int, int]:
        """Bytes down, up and handed off."""
        amounts = self.price.at(self.samples)
        return self.pattern.apart.nbytes, amounts.up, amounts.handoff


# How long the parts of a task take (down, training, up), and the end of the record of an accepted one from `bytes_down`
# on. Plain tuples, which are made in columns.
Way = tuple[Kind, float, float, float, tuple[Any, ...]]
# What is known of a client's next task: how many it had before, the draws of a wave and the place of its own among
# them, and its way, if it is like the one before.
Ahead = tuple[int, NDArray[np.float64], int, Way | None]
UNKNOWN: Ahead = (-1, np.empty((0, 0)), 0, None)


class Swift:
    """A task in flight that nothing disturbs. What is seldom asked of it comes from the `Flight` that it stands for."""

    __slots__ = (
        "_plan", "abandoned", "apart", "arrives", "client", "count", "done", "fair", "kind", "leg", "lost", "name",
        "number", "seen", "sent", "started", "tail", "trained",
    )  # fmt: skip
    legs, carry, parcel, fault = 1, None, None, None

    def __init__(
        self, number: int, client: int, name: ClientId, count: int, apart: Apart, way: Way, sent: float, swifts: Swifts
    ) -> None:
        self.number = number
        self.client = client
        self.name = name
        self.count = count
        self.apart = apart
        self.kind, down, train, up, self.tail = way
        self.sent = sent
        self.started = started = sent + down
        self.trained = trained = started + train
        self.arrives = trained + up
        self.leg = 0
        self.lost: str | None = None
        self.abandoned = False
        self.done: Done | None = None
        self.seen: Seen | None = None
        self.fair = False  # whether its `examples` are known to be believed (`wire.gate.implausible`)
        self._plan = swifts

    @property
    def task(self) -> Any:
        return self.apart.value

    @property
    def starts(self) -> list[float]:
        return [self.started]

    @property
    def complete(self) -> bool:
        return self.leg > 0

    @property
    def record(self) -> TaskRecord:
        """The record of an accepted task."""
        head = self.number, self.name, self.kind.program, self.sent, self.started, self.trained, self.arrives
        return tuple.__new__(TaskRecord, head + self.tail)

    @property
    def whole(self) -> Flight:
        """The same as any other task in flight."""
        flight = self._plan.flight(self)
        flight.leg, flight.done, flight.seen = self.leg, self.done, self.seen
        flight.lost, flight.abandoned = self.lost, self.abandoned
        return flight

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.whole, name)


class Swifts:
    """Which tasks take the short way, and what is known of them before they are sent."""

    def __init__(self, roster: Roster, presence: Presence, conditions: Conditions, boards: int) -> None:
        self._roster = roster
        self._presence = presence
        self._conditions = conditions
        steady = [link.trace is None for _, link in roster.equipment]
        self.able = conditions.calm and presence.alike and all(steady) and not boards
        self._kinds: dict[tuple[Pattern, int], Kind] = {}
        self.ahead: dict[int, Ahead] = {}

    def known(self, pattern: Pattern, mine: Any, client: int, count: int) -> Way | None:
        """The way of a client's next task, if it is like the one before: then its device can hold this one, too."""
        earlier, _, _, way = self.ahead.get(client, UNKNOWN)
        if way is None or earlier != count:
            return None
        kind = way[0]
        return way if kind.pattern is pattern and kind.mine is mine else None

    def kind(self, pattern: Pattern, samples: int, mine: Any) -> Kind | None:
        """The kind of a task, if it is known."""
        kind = self._kinds.get((pattern, samples))
        return kind if kind is not None and kind.mine is mine else None

    def learn(self, pattern: Pattern, samples: int, mine: Any, price: Price) -> Kind:
        """Note what such tasks cost."""
        if len(self._kinds) >= 1024:
            self._kinds.clear()
        kind = self._kinds[pattern, samples] = Kind(pattern, samples, mine, price)
        return kind

    def way(self, kind: Kind, client: int, name: ClientId, count: int) -> Way | None:
        """How long a task takes, if nothing disturbs it and the device can hold it."""
        code = int(self._roster.codes[client])
        fits = kind.fitting.get(code)
        if fits is None:
            device = self._roster.equipment[code][0]
            fits = kind.fitting[code] = too_small(device, kind.price.memory) is None
        if not fits:
            return None
        return self._way(kind, client, self.drawn(client, name, count))

    def drawn(self, client: int, name: ClientId, count: int) -> Sequence[float]:
        """The draws of a task."""
        earlier, draws, place, _ = self.ahead.pop(client, UNKNOWN)
        if earlier == count:
            drawn: list[float] = draws[:, place].tolist()
            return drawn
        return keys.shares(keys.number(self._conditions.draws, name, count, "task"), DRAWS)

    def flight(self, swift: Swift) -> Flight:
        order = Order(
            swift.number, swift.client, swift.name, swift.count, swift.apart, 1, swift.sent, swift.kind.samples,
            rows=swift.kind.samples,
        )  # fmt: skip
        situation = self._presence.situation(swift.client)
        return plan(order, situation, swift.kind.price, self._conditions.draws, self._conditions.faults)

    def prepare(self, wave: Sequence[Flight | Swift], names: Sequence[ClientId]) -> None:
        """Draw and plan the next task of each client in a wave, if it is like this one.

        Where others take their turns (`fleet.at_once`), hardly any of these clients is next.
        """
        if self._conditions.at_once:
            return
        following = [flight.count + 1 for flight in wave]
        draws = keys.shares_of(keys.numbers(self._conditions.draws, names, following, "task")[0], DRAWS)
        ways: list[Way | None] = [None] * len(wave)
        if self.able:
            groups: dict[tuple[int, Kind], list[int]] = {}
            codes = self._roster.codes[[flight.client for flight in wave]].tolist()
            for i, (code, flight) in enumerate(zip(codes, wave, strict=True)):
                if isinstance(flight, Swift):
                    groups.setdefault((code, flight.kind), []).append(i)
            for (_, kind), places in groups.items():
                if len(places) >= FEW:
                    found = self._ways(kind, wave[places[0]].client, draws[:, places])
                    for i, way in zip(places, found, strict=True):
                        ways[i] = way
        known = zip(following, repeat(draws), range(len(wave)), ways, strict=False)
        self.ahead.update(zip([flight.client for flight in wave], known, strict=True))

    def _way(self, kind: Kind, client: int, drawn: Sequence[float]) -> Way | None:
        """The way of one task."""
        where, amounts, weights = self._presence.situation(client), kind.price.at(kind.samples), kind.weights
        _, *u, u_drop, _ = drawn
        if u_drop < where.link.dropout:
            return None
        macs, effort = amounts.macs, Effort(amounts.ops, amounts.recorded, amounts.moved, amounts.fresh)
        went = course(where, 0.0, weights, macs, effort, u)
        used = spent(where.device, where.link, went.train, went.up, went.down)
        passes = amounts.visits / kind.samples if kind.samples else 0.0
        tail = (
            *weights, macs, kind.price.memory, used.total, "accepted", "", passes, used.training, used.radio, *effort,
            0.0,
        )  # fmt: skip
        return kind, went.down, went.train, went.up, tail

    def _ways(self, kind: Kind, client: int, draws: NDArray[np.float64]) -> list[Way | None]:
        """The ways of tasks with these draws, for clients with the equipment of this one; None where one is lost."""
        where, amounts, weights = self._presence.situation(client), kind.price.at(kind.samples), kind.weights
        _, *u, u_drop, _ = draws
        macs, effort = amounts.macs, Effort(amounts.ops, amounts.recorded, amounts.moved, amounts.fresh)
        went = course(where, 0.0, weights, macs, effort, u)
        used: Any = spent(where.device, where.link, went.train, went.up, went.down)
        passes = amounts.visits / kind.samples if kind.samples else 0.0
        tails = zip(
            repeat(weights[0], len(u_drop)), repeat(weights[1]), repeat(weights[2]), repeat(macs),
            repeat(kind.price.memory), used.total.tolist(), repeat("accepted"), repeat(""), repeat(passes),
            used.training.tolist(), used.radio.tolist(), *map(repeat, effort), repeat(0.0), strict=False,
        )  # fmt: skip
        rows = zip(
            repeat(kind, len(u_drop)), went.down.tolist(), went.train.tolist(), went.up.tolist(), tails, strict=False
        )
        ways: list[Way | None] = list(rows)
        for i in np.flatnonzero(u_drop < where.link.dropout) if where.link.dropout else ():
            ways[i] = None
        return ways
