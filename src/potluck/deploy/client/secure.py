"""A client's side of secure sums: its update waits here until it is masked, and the server gets no change of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from potluck.engines.flower.protocol import Envelope
from potluck.errors import BadInput, Code
from potluck.fleet import Message
from potluck.release import Release, release_of, vector, with_vector
from potluck.secure.client import SumClient
from potluck.secure.cost import PUBLIC, SEALED
from potluck.secure.fixed import Fixed
from potluck.secure.graph import FEW

MOST = 64  # vectors and sums that a client remembers


@dataclass
class SecureDoor:
    """What one client remembers of its sums. It is in memory only: after a restart it is out of the sums under way."""

    name: str
    releases: Mapping[type, Release]
    _vectors: OrderedDict[str, NDArray[np.float32]] = field(default_factory=OrderedDict)  # by number of the task
    _sums: OrderedDict[str, SumClient] = field(default_factory=OrderedDict)

    def keep(self, ticket: str, update: Message, task: Message) -> Message:
        """Keep the change, and return an update without it: the weights that the task brought."""
        release = release_of(self.releases, update)
        values = vector(update, task, release)
        if not len(values):
            return update
        _remember(self._vectors, ticket.rpartition(".")[2], values.numpy().astype(np.float32))
        return with_vector(update, task, release, torch.zeros_like(values))

    def answer(self, ask: Envelope) -> Envelope:
        """Answer one step of a sum."""
        head, number, step = ask.head, str(ask.head.get("sum"))[:64], str(ask.head.get("step"))
        if step == "keys":
            if number in self._sums:
                raise BadInput(Code.MESSAGE, "secure sum: its keys are given once.")
            _remember(self._sums, number, SumClient(self.name, number))
        own = self._sums.get(number)
        steps: dict[str, Callable[[], bytes]] = {} if own is None else {
            "keys": own.keys,
            "shares": lambda: b"".join(own.shares(_pairs(head, ask.body, 2 * PUBLIC), int(head["threshold"]))),
            "masked": lambda: self._masked(own, head, ask.body),
            "opened": lambda: self._opened(own, head),
        }  # fmt: skip
        if step not in steps:
            raise BadInput(Code.MESSAGE, "secure sum: its step must be keys, shares, masked or opened of a known sum.")
        return Envelope({"kind": "secure", "client": self.name, "sum": number, "step": step}, steps[step]())

    def _masked(self, own: SumClient, head: Mapping[str, Any], body: bytes) -> bytes:
        values = self._vectors.pop(str(int(head["task"])), None)  # a vector is masked once
        if values is None:
            raise BadInput(Code.MESSAGE, "secure sum: there is no change of this task here.")
        held = dict(_pairs(head, body, SEALED))
        if len(held) + 1 < FEW:
            raise BadInput(Code.MESSAGE, f"secure sum: must have at least {FEW} clients, got {len(held) + 1}.")
        fixed = Fixed(float(head["largest"]), int(head["terms"]))
        share = min(1.0, max(0.0, float(head["share"])))
        return own.masked(fixed.write(values * share), held).astype("<u4").tobytes()

    @staticmethod
    def _opened(own: SumClient, head: Mapping[str, Any]) -> bytes:
        stayed, gone = [str(name) for name in head["stayed"]], [str(name) for name in head["gone"]]
        found = own.opened(stayed, gone)
        return b"".join(found[name] for name in (*stayed, *gone) if name in found)


def _pairs(head: Mapping[str, Any], body: bytes, size: int) -> list[tuple[str, bytes]]:
    names = [str(name) for name in head["names"]]
    if len(body) != size * len(names):
        raise BadInput(Code.MESSAGE, f"secure sum: must have {size} bytes for each of {len(names)} names.")
    return [(name, body[size * place : size * (place + 1)]) for place, name in enumerate(names)]


def _remember(kept: OrderedDict[str, Any], key: str, value: Any) -> None:
    kept[key] = value
    while len(kept) > MOST:
        kept.popitem(last=False)
