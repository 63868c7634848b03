"""A whole round at once: all tasks of a `gather` planned, run and recorded as columns, one entry per client.

Most rounds of synchronous methods are calm: nothing else is in flight, all clients stay, and nothing is done to updates
on their way. Then all that happens between the first task and the last answer is known when the round begins, and it
costs a fraction of what the same tasks cost one by one. The results are the same to the bit. A client whose task is
lost or refused takes the usual way (`flight.plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from potluck import keys
from potluck.devices import Effort, spent, too_small
from potluck.engines.chunks import Job
from potluck.engines.execute import Executor
from potluck.engines.local.answers import Answers, arrival_of
from potluck.engines.local.conditions import Conditions
from potluck.engines.local.flight import DRAWS, Flight, Order, course, plan
from potluck.engines.local.kept import Kept
from potluck.engines.local.roster import Presence, Roster
from potluck.engines.log import Log, TaskRecord
from potluck.engines.price import Amounts, Price
from potluck.engines.results import MINE, OWN, Block
from potluck.fleet import Arrival, ClientId, Done, Message
from potluck.wire.apart import Apart
from potluck.wire.bound import Bound
from potluck.wire.gate import Seen, all_plausible, formed, implausible, refusal

FEW = 8  # clients with one kind of equipment; for fewer, columns cost more than they save


class Kind(NamedTuple):
    """What tasks of a round have in common that bring the same objects to clients with equally many samples."""

    place: int  # among the kinds of the round
    apart: Apart
    price: Price
    mine: Any
    samples: int
    amounts: Amounts

    @property
    def weights(self) -> tuple[int, int, int]:
        """Bytes down, up and handed off."""
        return self.apart.nbytes, self.amounts.up, self.amounts.handoff


@dataclass(frozen=True)
class Sent:
    """The tasks of a round as columns."""

    first: int  # the number of the first one
    clients: list[int]
    names: list[ClientId]
    earlier: list[int]  # how many tasks each client had before
    kinds: list[Kind]  # of each task
    distinct: list[Kind]

    def __len__(self) -> int:
        return len(self.clients)


class Ways(NamedTuple):
    """When each task gets where, and what it costs, as its record has it: columns, in the order of the tasks."""

    started: list[float]
    trained: list[float]
    arrives: list[float]
    macs: list[float]
    joules: list[float]
    passes: list[float]
    train_joules: list[float]
    radio_joules: list[float]
    ops: list[float]
    recorded: list[float]
    moved: list[float]
    fresh: list[float]


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
    ) -> Sent | None:
        """The tasks, numbered from `first`, with their prices; None where a device cannot hold one of them."""
        names = list(tasks)
        clients = list(map(self.roster.index_of, names))
        mines = list(map(self.private, clients))
        known: dict[tuple[int, int, int], Kind] = {}  # by task and private state (one object or not), and samples
        kinds = []
        for task, mine, rows in zip(tasks.values(), mines, self.roster.samples[clients].tolist(), strict=True):
            kind = known.get((id(task), id(mine), rows))
            if kind is None:
                one = apart(task)
                price = self.price(one, mine, rows)
                kind = Kind(len(known), one, price, mine, rows, price.at(rows))
                known[id(task), id(mine), rows] = kind
            kinds.append(kind)
        largest = {(code, kind.price.memory) for code, kind in zip(self._codes(clients), kinds, strict=True)}
        if any(too_small(self.roster.equipment[code][0], memory) for code, memory in largest):
            return None
        return Sent(first, clients, names, [counts.get(client, 0) for client in clients], kinds, list(known.values()))

    def answers(self, sent: Sent, now: float) -> Sequence[Arrival]:
        """Run the tasks, and end them in the order of their arrival. The accepted ones, in the order of the tasks."""
        ways, lost = self._ways(sent, now)
        blocks = self.executor.blocks(self._jobs(sent, lost))
        records = self._records(sent, ways, now)
        together = None if lost else self._together(sent, blocks, ways.arrives, now, records)
        if together is not None:
            return together
        results = {number: one for block in blocks for number, one in block.results.items()}
        moments = ways.arrives
        for i, flight in lost.items():
            moments[i] = flight.arrives
        came: list[Arrival | None] = [None] * len(sent)
        formal: dict[tuple[int, int], bool] = {}  # what an update looks like, and the kind of its task -> as it must be
        record, bounded = self.log.tasks.append, self.bound.times > 0
        for i in sorted(range(len(sent)), key=moments.__getitem__):
            if i in lost:
                self.clock(moments[i])
                self.ended(lost[i], "lost", str(lost[i].lost), "lost")
                continue
            (done, seen), kind = results[sent.first + i], sent.kinds[i]
            fits = formal.get((id(seen), kind.place))
            if fits is None:
                fits = formal[id(seen), kind.place] = formed(seen, kind.price.expected, self.conditions.limit)
            if not fits or implausible(done.update, kind.samples) is not None:
                self.clock(moments[i])
                self._refuse(sent, i, now, done, seen)
                continue
            if bounded:
                self.bound.expect(sent.first + i, kind.apart.value, seen.sizes, done.update)
            self.kept.accept(sent.clients[i], done)
            record(records[i])
            came[i] = arrival_of(sent.names[i], done.update, sent.first + i, now, moments[i])
        self.clock(max(moments))
        return [one for one in came if one is not None]

    def _together(
        self, sent: Sent, blocks: Sequence[Block], moments: Sequence[float], now: float, records: Sequence[TaskRecord]
    ) -> Answers | None:
        """All updates as stacks, where each of them is accepted as it is; else None."""
        stacks = [block.whole for block in blocks if block.whole is not None]
        if len(stacks) < len(blocks) or any(stack.looks != stacks[0].looks for stack in stacks):
            return None
        like, places = stacks[0].first(), np.empty((len(sent), 2), np.int64)
        for at, (block, stack) in enumerate(zip(blocks, stacks, strict=True)):
            rows = np.array(block.numbers) - sent.first
            places[rows, 0], places[rows, 1] = at, np.arange(len(rows))
            kinds = [sent.kinds[row] for row in rows.tolist()]
            looks = {(id(seen), id(kind)): (seen, kind) for seen, kind in zip(block.seen, kinds, strict=True)}
            if not all(formed(seen, kind.price.expected, self.conditions.limit) for seen, kind in looks.values()):
                return None
            if not all_plausible(like, stack.field("examples"), [kind.samples for kind in kinds]):
                return None
        sizes = [seen.sizes for block in blocks for seen in block.seen]
        if not self.bound.within(like, sent.kinds[0].apart.value, sizes):
            return None
        order = sorted(range(len(sent)), key=moments.__getitem__)
        left = [[stack.column(part) if stack.has(part) else None for part in (MINE, OWN)] for stack in stacks]
        if any(part is not None for parts in left for part in parts):
            for i in order:
                stack, row = places[i]
                self.kept.take(sent.clients[i], *(None if part is None else part[row] for part in left[stack]))
        else:
            self.kept.took([sent.clients[i] for i in order])
        self.log.tasks.extend([records[i] for i in order])
        self.clock(max(moments))
        return Answers(sent.names, sent.first, now, moments, stacks, places, self.executor.sharing)

    def _refuse(self, sent: Sent, i: int, now: float, done: Done, seen: Seen) -> None:
        reason = refusal(done.update, seen, sent.kinds[i].price.expected, sent.kinds[i].samples, self.conditions.limit)
        assert reason is not None
        self.ended(self._flight(sent, i, now), "refused", reason.told, "refused")

    def _records(self, sent: Sent, ways: Ways, now: float) -> list[TaskRecord]:
        """The record of each task, if it is accepted."""
        rows = [(type(k.apart.value).__name__, *k.weights, k.price.memory) for k in sent.distinct]
        programs, down, up, handoff, memory = zip(*(rows[kind.place] for kind in sent.kinds), strict=True)
        return list(
            map(
                TaskRecord._make,
                zip(
                    range(sent.first, sent.first + len(sent)), sent.names, programs, repeat(now), *ways[:3],
                    down, up, handoff, ways.macs, memory, ways.joules, repeat("accepted"), repeat(""), *ways[5:],
                    repeat(0.0), strict=False,
                ),
            )
        )  # fmt: skip

    def _jobs(self, sent: Sent, lost: Mapping[int, Flight]) -> list[Job]:
        own = keys.numbers(self.conditions.seed, sent.names, sent.earlier, 0).tolist()
        wanted = map(self.kept.wants_own, sent.clients)
        columns = (
            range(sent.first, sent.first + len(sent)), sent.clients, [k.samples for k in sent.kinds],
            [k.apart.value for k in sent.kinds], own, [k.mine for k in sent.kinds], repeat(None), repeat(None),
            repeat(None), repeat(None), wanted, [k.apart for k in sent.kinds],
        )  # fmt: skip
        return [job for i, job in enumerate(map(Job._make, zip(*columns, strict=False))) if i not in lost]

    def _codes(self, clients: list[int]) -> list[int]:
        codes: list[int] = self.roster.codes[clients].tolist()
        return codes

    def _ways(self, sent: Sent, now: float) -> tuple[Ways, dict[int, Flight]]:
        """The way of each task, and the flights of those that are lost, by their places."""
        draws = keys.shares_of(keys.numbers(self.conditions.seed, sent.names, sent.earlier, "task"), DRAWS)
        groups: dict[tuple[int, tuple[int, int, int]], list[int]] = {}  # with the same equipment and the same bytes
        weights = [kind.weights for kind in sent.distinct]
        for i, (code, kind) in enumerate(zip(self._codes(sent.clients), sent.kinds, strict=True)):
            groups.setdefault((code, weights[kind.place]), []).append(i)
        costs = np.array([[*kind.amounts, kind.samples] for kind in sent.distinct]).T
        kinds = np.array([kind.place for kind in sent.kinds])
        columns = np.empty((len(Ways._fields), len(sent)))
        lost: dict[int, Flight] = {}
        for (_, bytes_), places in groups.items():
            where = self.presence.situation(sent.clients[places[0]])
            _, *u, u_drop, _ = draws[:, places]
            macs, visits, _, _, ops, recorded, moved, fresh, rows = costs[:, kinds[places]]
            went = course(where, now, bytes_, macs, Effort(ops, recorded, moved, fresh), u)
            used: Any = spent(where.device, where.link, went.train, went.up, went.down)
            passes = np.divide(visits, rows, out=np.zeros(len(rows)), where=rows > 0)
            columns[:, places] = (
                went.begin, went.trained, went.arrives, macs, used.total, passes, used.training, used.radio, ops,
                recorded, moved, fresh,
            )  # fmt: skip
            gone = np.flatnonzero(u_drop < where.link.dropout) if where.link.dropout else ()
            lost |= {places[j]: self._flight(sent, places[j], now) for j in gone}
        return Ways._make(columns.tolist()), lost

    def _flight(self, sent: Sent, i: int, now: float) -> Flight:
        """The same task by itself."""
        client, kind = sent.clients[i], sent.kinds[i]
        order = Order(
            sent.first + i, client, sent.names[i], sent.earlier[i], kind.apart, 1, now, kind.samples, rows=kind.samples
        )
        return plan(order, self.presence.situation(client), kind.price, self.conditions.seed, self.conditions.faults)
