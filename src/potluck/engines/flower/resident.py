"""One client on its own machine: does the legs it is asked for, once each, and answers as often as it is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from potluck import keys
from potluck.engines.execute import Executor, Job
from potluck.engines.flower.journal import Finished, Journal, Working
from potluck.engines.flower.words import Envelope
from potluck.errors import BadInput, Code
from potluck.fleet import ClientId, ClientProgram, Data
from potluck.learn import take
from potluck.wire.codec import decode, encode, size, walk
from potluck.wire.gate import look
from potluck.wire.noise import blurred


@dataclass
class Resident:
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
    still: set[str] = field(default_factory=set)  # what noise leaves alone
    limit: int = 1 << 30
    partner: ClientId | None = None
    parcel: Callable[[str], Any] = lambda ticket: None  # what the partner had handed over when it did this task

    def mine(self, taken: str) -> Any:
        return self.journal.mine(taken, self.private)

    def work(self, ask: Envelope) -> Envelope:
        """One leg; a task that was done before is answered again, not done again."""
        head = ask.head
        ticket, leg, legs = str(head["ticket"]), int(head["leg"]), int(head["legs"])
        taken = {str(name): str(one) for name, one in head["taken"].items()}
        before = taken.get(self.name, "")
        answer = {"kind": "task", "client": self.name, "ticket": ticket, "leg": leg}
        if ticket not in self.journal:
            self.journal.forget(str(head["safe"].get(self.name, "")), before)
            working, mail = self._begun(ask, ticket, leg)
            if leg < working.leg:  # done before, and the answer got lost
                return Envelope(answer | {"worked": 0.0})
            finished = self._leg(working, int(head["count"]), legs, taken, mail)
            if finished is None:
                return Envelope(answer | {"worked": 0.0})
            self.journal.finish(ticket, finished, before)
        finished = self.journal.finished(ticket)
        handed = 0 if finished.handoff is None else size(finished.handoff)
        return Envelope(answer | {"worked": finished.worked, "handed": handed}, encode(finished.update))

    def _begun(self, ask: Envelope, ticket: str, leg: int) -> tuple[Working, Any]:
        """The task as it stands, and the mail that came with this leg."""
        if len(ask.body) > self.limit:
            raise BadInput(
                Code.MESSAGE, f"task {ticket}: {len(ask.body)} bytes, this machine takes at most {self.limit}."
            )
        content = decode(ask.body, self.classes)
        if not isinstance(content, dict) or set(content) != {"task", "mail"}:
            raise BadInput(Code.MESSAGE, f"task {ticket}: a message of a task and its mail is needed.")
        for part in content.values():
            if not look(part).finite:
                raise BadInput(Code.MESSAGE, f"task {ticket}: it holds numbers that are not finite.")
        task, mail = content["task"], content["mail"]
        working = self.journal.working
        if working is not None and working.ticket == ticket:
            return working, mail
        if leg > 0:
            raise BadInput(Code.MESSAGE, f"task {ticket}: leg {leg + 1} is asked for, the legs before it are not here.")
        if type(task) not in self.programs:
            raise BadInput(Code.MESSAGE, f"task {ticket}: {type(task).__name__} is none of this method's tasks.")
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
        if self.noise:  # on what leaves the machine: the server never sees it without
            update = blurred(update, self.noise, keys.key(self.seed, self.name, count, "noise"), self.still)
        return Finished(update, mine if done.mine is None else done.mine, packed(done.handoff), worked)


def packed(handoff: Any) -> Any:
    """What is meant for the partner, and nothing else: samples of weight 0 only fill a place in a stack."""
    if not isinstance(handoff, Data):
        return handoff
    rows = torch.nonzero(handoff.weight > 0).flatten()
    return take(handoff, rows, handoff.weight[rows]) if len(rows) else walk(handoff, lambda value: value[:1] * 0)
