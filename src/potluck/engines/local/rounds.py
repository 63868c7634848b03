"""A whole round at once: all tasks of a `gather` planned, run and recorded as columns, one entry per client.

Most rounds of synchronous methods are calm: nothing else is in flight, all clients stay, and nothing is done to updates
on their way. Then all that happens between the first task and the last answer is known when the round begins, and it
costs a fraction of what the same tasks cost one by one. The results are the same to the bit. A client whose task is
lost or refused takes the usual way (`flight.plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from potluck import keys
from potluck.devices import Effort, spent, too_small
from potluck.engines.execute import Executor, Job, Result
from potluck.engines.local.conditions import Conditions
from potluck.engines.local.flight import Flight, Order, course, plan
from potluck.engines.local.kept import Kept
from potluck.engines.local.roster import Presence, Roster
from potluck.engines.log import Log, TaskRecord
from potluck.engines.price import Price
from potluck.fleet import Arrival, ClientId, Message
from potluck.wire.apart import Apart
from potluck.wire.bound import Bound
from potluck.wire.gate import refusal

FEW = 8  # clients with one kind of equipment; for fewer, columns cost more than they save


class Sent(NamedTuple):
    """One task of a round."""

    number: int
    client: int
    name: ClientId
    earlier: int  # how many tasks this client had before
    samples: int
    apart: Apart
    price: Price
    mine: Any


class Way(NamedTuple):
    """When a task gets where, and what it costs, as its record has it."""

    started: float
    trained: float
    arrives: float
    macs: float
    joules: float
    passes: float
    train_joules: float
    radio_joules: float
    ops: float
    recorded: float
    moved: float


@dataclass(frozen=True)
class Rounds:
    """What a round needs."""

    roster: Roster
    presence: Presence
    executor: Executor
    conditions: Conditions
    kept: Kept
    private: Callable[[int], Any]  # client index -> its private state
    price: Callable[[Apart, Any, int], Price]  # task, private state, samples
    bound: Bound
    log: Log
    clock: Callable[[float], None]  # moves the clock on to a moment
    ended: Callable[[Flight, str, str, str], None]  # records a task without effect: outcome, reason, kind of event

    def calm(self, count: int) -> bool:
        """Whether rounds of so many clients may be done at once."""
        return count >= FEW * len(self.roster.equipment) and self.conditions.calm and self.presence.constant

    def orders(
        self,
        tasks: Mapping[ClientId, Message],
        apart: Callable[[Message], Apart],
        first: int,
        counts: Mapping[int, int],
    ) -> list[Sent] | None:
        """The tasks, numbered from `first`, with their prices; None where a device cannot hold one of them."""
        clients = [self.roster.index_of(name) for name in tasks]
        samples = self.roster.samples[clients].tolist()
        known: dict[tuple[int, int, int], tuple[Apart, Price]] = {}  # by task, private state (one object or not), rows
        sent = []
        for number, (client, rows, (name, task)) in enumerate(zip(clients, samples, tasks.items(), strict=True), first):
            mine = self.private(client)
            kind = id(task), id(mine), rows
            if kind not in known:
                one = apart(task)
                known[kind] = one, self.price(one, mine, rows)
            sent.append(Sent(number, client, name, counts.get(client, 0), rows, *known[kind], mine))
        largest = {(int(self.roster.codes[one.client]), one.price.memory) for one in sent}
        if any(too_small(self.roster.equipment[code][0], memory) for code, memory in largest):
            return None
        return sent

    def answers(self, sent: Sequence[Sent], now: float) -> list[Arrival]:
        """Run the tasks, and end them in the order of their arrival. The accepted ones, in the order of the tasks."""
        ways, lost = self._ways(sent, now)
        results = self.executor.run(self._jobs([one for i, one in enumerate(sent) if i not in lost]))
        moments = [lost[i].arrives if i in lost else ways[i].arrives for i in range(len(sent))]
        came: dict[int, Arrival] = {}
        for i in sorted(range(len(sent)), key=moments.__getitem__):
            self.clock(moments[i])
            if i in lost:
                self.ended(lost[i], "lost", str(lost[i].lost), "lost")
                continue
            arrival = self._arrival(sent[i], ways[i], results[sent[i].number], now)
            if arrival is not None:
                came[i] = arrival
        return [came[i] for i in sorted(came)]

    def _arrival(self, sent: Sent, way: Way, result: Result, now: float) -> Arrival | None:
        """Check an answer, and let it count."""
        done, seen = result
        expected, limit = sent.price.expected, self.conditions.limit
        reason = refusal(done.update, seen, expected, sent.samples, limit)
        if reason is not None:
            self.ended(self._flight(sent, now), "refused", reason.told, "refused")
            return None
        self.bound.expect(sent.number, sent.apart.value, seen.sizes, done.update)
        self.kept.accept(sent.client, done)
        amounts = sent.price.at(sent.samples)
        self.log.tasks.append(
            TaskRecord(
                sent.number, sent.name, type(sent.apart.value).__name__, now, way.started, way.trained, way.arrives,
                sent.apart.nbytes, amounts.up, amounts.handoff, way.macs, sent.price.memory, way.joules, "accepted", "",
                *way[5:],
            )
        )  # fmt: skip
        return Arrival(sent.name, done.update, sent.number, now, way.arrives)

    def _jobs(self, sent: Sequence[Sent]) -> list[Job]:
        names, earlier = [one.name for one in sent], [one.earlier for one in sent]
        own = keys.numbers(self.conditions.seed, names, earlier, 0).tolist()
        wanted = self.kept.wants_own
        return [
            Job(
                one.number, one.client, one.samples, one.apart.value, key, one.mine, own=wanted(one.client),
                apart=one.apart,
            )
            for one, key in zip(sent, own, strict=True)
        ]  # fmt: skip

    def _ways(self, sent: Sequence[Sent], now: float) -> tuple[dict[int, Way], dict[int, Flight]]:
        """The way of each task, and the flights of those that are lost, by their places."""
        names, earlier = [one.name for one in sent], [one.earlier for one in sent]
        draws = keys.shares_of(keys.numbers(self.conditions.seed, names, earlier, "task"), 6)
        groups: dict[tuple[int, int, int, int], list[int]] = {}  # with the same equipment and the same bytes
        codes = self.roster.codes[[one.client for one in sent]].tolist()
        for i, (one, code) in enumerate(zip(sent, codes, strict=True)):
            amounts = one.price.at(one.samples)
            groups.setdefault((code, one.apart.nbytes, amounts.up, amounts.handoff), []).append(i)
        ways: dict[int, Way] = {}
        lost: dict[int, Flight] = {}
        for (_, *weights), places in groups.items():
            where = self.presence.situation(sent[places[0]].client)
            _, *u, u_drop, _ = draws[:, places]
            rows = np.array([sent[i].samples for i in places])
            costs: Any = np.array([sent[i].price.at(sent[i].samples) for i in places]).T
            macs, visits, _, _, ops, recorded, moved = costs
            went = course(where, now, weights, macs, Effort(ops, recorded, moved), u)
            used: Any = spent(where.device, where.link, went.train, went.up, went.down)
            passes = np.divide(visits, rows, out=np.zeros(len(rows)), where=rows > 0)
            columns = (
                went.begin, went.trained, went.arrives, macs, used.total, passes, used.training, used.radio, ops,
                recorded, moved,
            )  # fmt: skip
            ways.update(zip(places, map(Way._make, zip(*(c.tolist() for c in columns), strict=True)), strict=True))
            lost |= {places[j]: self._flight(sent[places[j]], now) for j in np.flatnonzero(u_drop < where.link.dropout)}
        return ways, lost

    def _flight(self, sent: Sent, now: float) -> Flight:
        """The same task by itself."""
        order = Order(
            sent.number, sent.client, sent.name, sent.earlier, sent.apart, 1, now, sent.samples, rows=sent.samples
        )
        situation = self.presence.situation(sent.client)
        return plan(order, situation, sent.price, self.conditions.seed, self.conditions.faults)
