"""A secure sum over real clients: the server's steps, each a question to the clients of a group."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from potluck.engines.flower.protocol import Envelope
from potluck.fleet import Arrival, ClientId
from potluck.release import Release
from potluck.runs.privacy_section import SecureSection
from potluck.runs.sums import Sum, weights_of
from potluck.secure.cost import SEALED, SHARES
from potluck.secure.fixed import Fixed
from potluck.secure.graph import FEW
from potluck.secure.server import NotRecovered, SumServer


@dataclass(frozen=True)
class SecureAdder:
    """Asks the clients of a group for their sum. Who does not answer a step is out of the sum."""

    settings: SecureSection
    hides: bool = True
    about: dict[str, Any] = field(default_factory=lambda: {"sums": 0, "lost": 0, "left_out": 0})

    def __call__(
        self, fleet: Any, group: list[Arrival], tasks: Sequence[Any], release: Release, shares: Sequence[float]
    ) -> Sum | None:
        weights = dict(zip([one.client for one in group], weights_of(group, release, shares).tolist(), strict=True))
        numbers = {one.client: one.task for one in group}
        server = SumServer(list(weights), os.urandom(8).hex(), self.settings.dropout, self.settings.corrupt)
        most = max(*weights.values(), 1e-12)
        fixed = Fixed(self.settings.largest, len(group))
        try:
            if len(group) < FEW:
                raise NotRecovered("too few clients to hide one")
            self._steps(fleet, server, numbers, {name: weight / most for name, weight in weights.items()}, fixed)
            total = server.total(self._opened(fleet, server))
        except NotRecovered:
            self.about["lost"] += 1
            return None
        there = set(server.stayed)
        self.about["sums"] += 1
        self.about["left_out"] += len(group) - len(there)
        left = [one for one in group if one.client in there]
        weight = sum(weights[one.client] for one in left)
        return Sum(torch.from_numpy(fixed.read(total) * most).float(), weight, left)

    def _steps(
        self,
        fleet: Any,
        server: SumServer,
        numbers: Mapping[ClientId, int],
        shares: Mapping[ClientId, float],
        fixed: Fixed,
    ) -> None:
        names = server.names
        public = self._asked(fleet, server, "keys", {name: ({}, b"") for name in names})
        asks: dict[ClientId, tuple[dict[str, Any], bytes]] = {}
        for name, others in server.neighbours(public).items():
            head = {"threshold": server.graph.threshold, "names": [one for one, _ in others]}
            asks[name] = head, b"".join(key for _, key in others)
        sealed = self._asked(fleet, server, "shares", asks)
        asks = {}
        for name, held in server.held({name: _cut(body, SEALED) for name, body in sealed.items()}).items():
            head = {"names": list(held), "task": numbers[name], "share": shares[name]}
            asks[name] = head | {"largest": fixed.largest, "terms": fixed.terms}, b"".join(held.values())
        for name, body in self._asked(fleet, server, "masked", asks).items():
            if len(body) % 4 == 0:
                server.add(name, np.frombuffer(body, dtype="<u4"))
        if len(server.stayed) < FEW:
            raise NotRecovered("too few clients stayed to hide one")

    def _opened(self, fleet: Any, server: SumServer) -> dict[ClientId, dict[str, bytes]]:
        """Step 4. A client answers with the shares of its neighbours in the order of the question."""
        asked = server.asks()
        asks = {name: ({"stayed": stayed, "gone": gone}, b"") for name, (stayed, gone) in asked.items()}
        answers = self._asked(fleet, server, "opened", asks)
        return {
            name: dict(zip([*asked[name][0], *asked[name][1]], _cut(body, SHARES), strict=False))
            for name, body in answers.items()
        }

    def _asked(
        self, fleet: Any, server: SumServer, step: str, asks: Mapping[ClientId, tuple[dict[str, Any], bytes]]
    ) -> dict[ClientId, bytes]:
        head = {"kind": "secure", "sum": server.number, "step": step}
        found: dict[ClientId, bytes] = fleet.secure(
            {name: Envelope({**head, **own}, body) for name, (own, body) in asks.items()}, self.settings.seconds
        )
        return found


def _cut(body: bytes, size: int) -> list[bytes]:
    return [body[place : place + size] for place in range(0, len(body) - size + 1, size)]
