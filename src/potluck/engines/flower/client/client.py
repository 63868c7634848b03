"""One client on its own machine: does each leg once, and answers as often as it is asked.

The server may ask twice for the same leg, when its program was killed or an answer got lost. The journal on disk knows
what is done. A finished task is answered from there, with the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from potluck import keys
from potluck.engines.chunks import Job
from potluck.engines.execute import Executor
from potluck.engines.flower.client.journal import Finished, Journal, Working
from potluck.engines.flower.protocol import Envelope
from potluck.errors import BadInput, Code
from potluck.fleet import ClientId, ClientProgram, Data, Message
from potluck.learn import take
from potluck.wire.codec import decode, encode, size, walk
from potluck.wire.gate import inspect
from potluck.wire.noise import blurred

Guard = Callable[[Message, Message, torch.Tensor], Message]  # (update, task, key) -> the update as it leaves


class Door(Protocol):
    """A client's side of secure sums."""

    def keep(self, ticket: str, update: Message, task: Message) -> Message:
        """Keep the change of an update, and return the update without it."""

    def answer(self, ask: Envelope) -> Envelope:
        """Answer one step of a sum."""


@dataclass
class FlowerClient:
    """A client that has joined a run."""

    name: ClientId
    seed: int
    samples: int
    executor: Executor
    programs: Mapping[type, ClientProgram]
    classes: Mapping[str, type]
    journal: Journal
    private: Any = None
    noise: float = 0.0
    still: set[str] = field(default_factory=set)  # names of tensors that get no noise
    guard: Guard | None = None  # what happens to an update before it leaves
    secret: int = 0  # known to this client alone; its noise cannot be computed from the run's seed
    door: Door | None = None  # keeps the changes of updates for secure sums
    limit: int = 1 << 30
    partner: ClientId | None = None
    parcel: Callable[[str], Any] = lambda ticket: None  # ticket of the partner -> what it had handed over by then

    def mine(self, taken: str) -> Any:
        """The private state after the last accepted task."""
        return self.journal.mine(taken, self.private)

    def work(self, ask: Envelope) -> Envelope:
        """Do one leg and return the answer. A leg that was done before is answered again, not done again."""
        head = ask.head
        ticket, leg, legs = str(head["ticket"]), int(head["leg"]), int(head["legs"])
        taken = {str(name): str(one) for name, one in head["taken"].items()}
        before = taken.get(self.name, "")
        answer = {"kind": "task", "client": self.name, "ticket": ticket, "leg": leg}
        if ticket not in self.journal:
            self.journal.forget(str(head["safe"].get(self.name, "")), before)
            working, mail = self._begun(ask, ticket, leg)
            if leg < working.leg:  # it was done before, and the answer got lost
                return Envelope(answer | {"worked": 0.0})
            finished = self._leg(working, int(head["count"]), legs, taken, mail)
            if finished is None:
                return Envelope(answer | {"worked": 0.0})
            self.journal.finish(ticket, finished, before)
        finished = self.journal.finished(ticket)
        handed = 0 if finished.handoff is None else size(finished.handoff)
        return Envelope(answer | {"worked": finished.worked, "handed": handed}, encode(finished.update))

    def _begun(self, ask: Envelope, ticket: str, leg: int) -> tuple[Working, Any]:
        """The task with what its earlier legs left, and the mail that came with this leg."""
        if len(ask.body) > self.limit:
            raise BadInput(
                Code.MESSAGE,
                f"task {ticket}: must have at most {self.limit} bytes here, got {len(ask.body)}.",
            )
        content = decode(ask.body, self.classes)
        if not isinstance(content, dict) or set(content) != {"task", "mail"}:
            raise BadInput(Code.MESSAGE, f"task {ticket}: the body must hold a task and its mail.")
        for part in content.values():
            if not inspect(part).finite:
                raise BadInput(Code.MESSAGE, f"task {ticket}: all numbers must be finite.")
        task, mail = content["task"], content["mail"]
        working = self.journal.working
        if working is not None and working.ticket == ticket:
            return working, mail
        if leg > 0:
            raise BadInput(Code.MESSAGE, f"task {ticket}: leg {leg + 1} needs the legs before it, which are missing.")
        if type(task) not in self.programs:
            raise BadInput(Code.MESSAGE, f"task {ticket}: {type(task).__name__} is not a task of this method.")
        return Working(ticket, 0, task, None, 0.0), mail

    def _leg(
        self, working: Working, count: int, legs: int, taken: Mapping[ClientId, str], mail: Any
    ) -> Finished | None:
        began, before = time.monotonic(), taken.get(self.name, "")
        mine = self.mine(before)
        job = Job(
            number=0,
            client=0,
            samples=self.samples,
            task=working.task,
            key=keys.number(self.seed, self.name, count, working.leg),
            mine=mine,
            carry=working.carry,
            mail=mail,
            parcel=None if self.partner is None else self.parcel(taken.get(self.partner, "")),
        )
        done = self.executor.run([job])[0].done
        worked = working.worked + time.monotonic() - began
        if working.leg + 1 < legs:
            self.journal.leave(Working(working.ticket, working.leg + 1, working.task, done.carry, worked))
            return None
        update = done.update
        if self.noise:
            update = blurred(update, self.noise, keys.key(self.seed, self.name, count, "noise"), self.still)
        if self.guard is not None:  # here, so that the server never sees the update without it
            update = self.guard(update, working.task, keys.key(self.seed, self.name, count, self.secret, "guard"))
        if self.door is not None:
            update = self.door.keep(working.ticket, update, working.task)
        own = self.journal.own(before) if done.own is None else done.own
        return Finished(update, mine if done.mine is None else done.mine, without_padding(done.handoff), worked, own)


def without_padding(handoff: Any) -> Any:
    """A parcel without its padding: samples of weight 0, which only fill up a stack."""
    if not isinstance(handoff, Data):
        return handoff
    rows = torch.nonzero(handoff.weight > 0).flatten()
    return take(handoff, rows, handoff.weight[rows]) if len(rows) else walk(handoff, lambda value: value[:1] * 0)
