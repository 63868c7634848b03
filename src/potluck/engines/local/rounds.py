"""A whole round at once: all tasks of a `gather` planned, run and recorded as columns, one entry per client.

Most rounds of synchronous methods are calm: nothing else is in flight, all clients stay, and nothing is done to updates
on their way. Then all that happens between the first task and the last answer is known when the round begins, and it
costs a fraction of what the same tasks cost one by one. The results are the same to the bit. A client whose task is
lost or refused takes the usual way (`flight.plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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

    apart: Apart
    price: Price
    mine: Any
    samples: int
    amounts: Amounts

    @property
    def weights(self) -> tuple[int, int, int]:
        """Bytes down, up and handed off."""
        return self.apart.nbytes, self.amounts.up, self.amounts.handoff


class Kinds(NamedTuple):
    kinds: Sequence[Kind]
    which: NDArray[np.int64]  # of them each task is


@dataclass(frozen=True)
class Sent:
    """The tasks of a round as columns."""

    first: int  # the number of the first one
    clients: list[int]
    names: list[ClientId]
    earlier: list[int]  # how many tasks each client had before
    codes: NDArray[np.int64]  # of the clients' equipment
    kinds: Sequence[Kind]  # that there are
    which: NDArray[np.int64]  # of them each task is

    def __len__(self) -> int:
        return len(self.clients)

    def kind(self, i: int) -> Kind:
        return self.kinds[int(self.which[i])]

    def each(self, values: Sequence[Any]) -> Iterable[Any]:
        """A value of each kind, for every task."""
        return repeat(values[0], len(self)) if len(values) == 1 else [values[j] for j in self.which.tolist()]


class Ways(NamedTuple):
    """When each task gets where, and what it costs, as its record has it: columns, in the order of the tasks."""

    started: NDArray[np.float64]
    trained: NDArray[np.float64]
    arrives: NDArray[np.float64]
    macs: NDArray[np.float64]
    joules: NDArray[np.float64]
    passes: NDArray[np.float64]
    train_joules: NDArray[np.float64]
    radio_joules: NDArray[np.float64]
    ops: NDArray[np.float64]
    recorded: NDArray[np.float64]
    moved: NDArray[np.float64]
    fresh: NDArray[np.float64]


@dataclass(frozen=True)
class Rounds:
    """What a round needs."""

    roster: Roster
    presence: Presence
    executor: Executor
    conditions: Conditions
    kept: Kept
    initial: Any  # private state of a client before its first task
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
        clients = self.roster.indices_of(names)
        found = self._kinds(list(tasks.values()), clients, apart)
        codes = self.roster.codes[clients]
        if any(
            too_small(self.roster.equipment[code][0], found.kinds[kind].price.memory)
            for code, kind in set(zip(codes.tolist(), found.which.tolist(), strict=True))
        ):
            return None
        return Sent(first, clients, names, list(map(counts.get, clients, repeat(0))), codes, *found)

    def _kinds(self, tasks: Sequence[Message], clients: Sequence[int], apart: Callable[[Message], Apart]) -> Kinds:
        samples = self.roster.samples[clients]
        mines: Sequence[Any] = [self.initial] if self.kept.untouched else list(map(self.private, clients))
        if all(task is tasks[0] for task in tasks) and all(mine is mines[0] for mine in mines):
            sizes, which = _numbered(samples)
            return Kinds([self._kind(apart(tasks[0]), mines[0], rows) for rows in sizes], which)
        known: dict[tuple[int, int, int], int] = {}  # by task and private state (one object or not), and samples
        kinds: list[Kind] = []
        places = []
        whose = repeat(mines[0]) if len(mines) == 1 else mines
        for task, mine, rows in zip(tasks, whose, samples.tolist(), strict=False):
            place = known.setdefault((id(task), id(mine), rows), len(kinds))
            if place == len(kinds):
                kinds.append(self._kind(apart(task), mine, rows))
            places.append(place)
        return Kinds(kinds, np.array(places))

    def _kind(self, task: Apart, mine: Any, rows: int) -> Kind:
        price = self.price(task, mine, rows)
        return Kind(task, price, mine, rows, price.at(rows))

    def answers(self, sent: Sent, now: float) -> Sequence[Arrival]:
        """Run the tasks, and end them in the order of their arrival. The accepted ones, in the order of the tasks."""
        ways, lost = self._ways(sent, now)
        blocks = self.executor.blocks(self._jobs(sent, lost))
        records = self._records(sent, ways, now)
        together = None if lost else self._together(sent, blocks, ways.arrives, now, records)
        if together is not None:
            return together
        results = {number: one for block in blocks for number, one in block.results.items()}
        moments: list[float] = ways.arrives.tolist()
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
            (done, seen), kind = results[sent.first + i], sent.kind(i)
            fits = formal.get((id(seen), id(kind)))
            if fits is None:
                fits = formal[id(seen), id(kind)] = formed(seen, kind.price.expected, self.conditions.limit)
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
        self,
        sent: Sent,
        blocks: Sequence[Block],
        moments: NDArray[np.float64],
        now: float,
        records: Sequence[TaskRecord],
    ) -> Answers | None:
        """All updates as stacks, where each of them is accepted as it is; else None."""
        stacks = [block.whole for block in blocks if block.whole is not None]
        if len(stacks) < len(blocks) or any(stack.looks != stacks[0].looks for stack in stacks):
            return None
        like, places = stacks[0].first(), np.empty((len(sent), 2), np.int64)
        samples = np.array([kind.samples for kind in sent.kinds])
        for at, (block, stack) in enumerate(zip(blocks, stacks, strict=True)):
            rows = np.array(block.numbers) - sent.first
            places[rows, 0], places[rows, 1] = at, np.arange(len(rows))
            kinds = sent.which[rows]
            looks = {(id(seen), kind): seen for seen, kind in zip(block.seen, kinds.tolist(), strict=True)}
            if not all(
                formed(seen, sent.kinds[kind].price.expected, self.conditions.limit)
                for (_, kind), seen in looks.items()
            ):
                return None
            if not all_plausible(like, stack.field("examples"), samples[kinds]):
                return None
        if self.bound.times:
            sizes = [seen.sizes for block in blocks for seen in block.seen]
            if not self.bound.within(like, sent.kinds[0].apart.value, sizes):
                return None
        order = np.argsort(moments, kind="stable").tolist()
        left = [[stack.column(part) if stack.has(part) else None for part in (MINE, OWN)] for stack in stacks]
        if any(part is not None for parts in left for part in parts):
            for i in order:
                stack, row = places[i]
                self.kept.take(sent.clients[i], *(None if part is None else part[row] for part in left[stack]))
        else:
            self.kept.took([sent.clients[i] for i in order])
        self.log.tasks.extend([records[i] for i in order])
        self.clock(float(moments.max()))
        return Answers(sent.names, sent.first, now, moments, stacks, places, self.executor.sharing)

    def _refuse(self, sent: Sent, i: int, now: float, done: Done, seen: Seen) -> None:
        kind = sent.kind(i)
        reason = refusal(done.update, seen, kind.price.expected, kind.samples, self.conditions.limit)
        assert reason is not None
        self.ended(self._flight(sent, i, now), "refused", reason.told, "refused")

    def _records(self, sent: Sent, ways: Ways, now: float) -> list[TaskRecord]:
        """The record of each task, if it is accepted."""
        kinds, floats = sent.kinds, np.array(ways).tolist()
        programs, down, up, handoff, memory = (
            sent.each(values)
            for values in (
                [type(kind.apart.value).__name__ for kind in kinds],
                *zip(*(kind.weights for kind in kinds), strict=True),
                [kind.price.memory for kind in kinds],
            )
        )
        rows = zip(
            range(sent.first, sent.first + len(sent)), sent.names, programs, repeat(now), *floats[:3], down, up,
            handoff, floats[3], memory, floats[4], repeat("accepted"), repeat(""), *floats[5:], repeat(0.0),
            strict=False,
        )  # fmt: skip
        return list(map(tuple.__new__, repeat(TaskRecord), rows))

    def _jobs(self, sent: Sent, lost: Mapping[int, Flight]) -> list[Job]:
        own = keys.numbers(self.conditions.seed, sent.names, sent.earlier, 0)[0].tolist()
        rows = zip(
            range(sent.first, sent.first + len(sent)), sent.clients, sent.each([kind.samples for kind in sent.kinds]),
            sent.each([kind.apart.value for kind in sent.kinds]), own, sent.each([kind.mine for kind in sent.kinds]),
            repeat(None), repeat(None), repeat(None), repeat(None), self.kept.wanted(sent.clients),
            sent.each([kind.apart for kind in sent.kinds]), strict=False,
        )  # fmt: skip
        jobs: list[Job] = list(map(tuple.__new__, repeat(Job), rows))
        return [job for i, job in enumerate(jobs) if i not in lost] if lost else jobs

    def _ways(self, sent: Sent, now: float) -> tuple[Ways, dict[int, Flight]]:
        """The way of each task, and the flights of those that are lost, by their places."""
        draws = keys.shares_of(keys.numbers(self.conditions.draws, sent.names, sent.earlier, "task")[0], DRAWS)
        costs = np.array([[*kind.amounts, kind.samples] for kind in sent.kinds]).T
        columns = np.empty((len(Ways._fields), len(sent)))
        lost: dict[int, Flight] = {}
        for bytes_, places in self._alike(sent):
            where = self.presence.situation(sent.clients[places[0]])
            _, *u, u_drop, _ = draws[:, places]
            macs, visits, _, _, ops, recorded, moved, fresh, rows = costs[:, sent.which[places]]
            went = course(where, now, bytes_, macs, Effort(ops, recorded, moved, fresh), u)
            used: Any = spent(where.device, where.link, went.train, went.up, went.down)
            passes = np.divide(visits, rows, out=np.zeros(len(rows)), where=rows > 0)
            columns[:, places] = (
                went.begin, went.trained, went.arrives, macs, used.total, passes, used.training, used.radio, ops,
                recorded, moved, fresh,
            )  # fmt: skip
            gone = np.flatnonzero(u_drop < where.link.dropout) if where.link.dropout else ()
            lost |= {int(places[j]): self._flight(sent, int(places[j]), now) for j in gone}
        return Ways._make(columns), lost

    def _alike(self, sent: Sent) -> Iterator[tuple[tuple[int, int, int], NDArray[np.int64]]]:
        """The tasks that bring equally many bytes each way to the same equipment, and these bytes."""
        weights = list(dict.fromkeys(kind.weights for kind in sent.kinds))
        known = {each: place for place, each in enumerate(weights)}
        group = sent.codes * len(weights) + np.array([known[kind.weights] for kind in sent.kinds])[sent.which]
        numbers, places = _numbered(group)
        for place, number in enumerate(numbers):
            yield weights[number % len(weights)], np.flatnonzero(places == place)

    def _flight(self, sent: Sent, i: int, now: float) -> Flight:
        """The same task by itself."""
        client, kind = sent.clients[i], sent.kind(i)
        order = Order(
            sent.first + i, client, sent.names[i], sent.earlier[i], kind.apart, 1, now, kind.samples, rows=kind.samples
        )
        return plan(order, self.presence.situation(client), kind.price, self.conditions.draws, self.conditions.faults)


def _numbered(values: NDArray[Any]) -> tuple[list[int], NDArray[np.int64]]:
    """The different values in their order, and the place of each one among them."""
    if (values == values[0]).all():
        return [int(values[0])], np.zeros(len(values), np.int64)
    different, places = np.unique(values, return_inverse=True)
    return different.tolist(), places
