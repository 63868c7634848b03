"""The ledger: what each device was charged for what was released of it, and whether it can afford more.

A charge is written before its release is handed to the method, and it is in the checkpoint that holds the release. A
run that is killed repeats the same releases with the same noise, so it is charged once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from potluck.fleet import ClientId
from potluck.privacy import account, tree
from potluck.privacy.account import Charge


@dataclass
class Ledger:
    """Charges by device. `leaves` are the releases under tree noise in which a device took part."""

    delta: float
    budget: float | None = None
    accountant: str = "pld"
    height: int = 0  # of the trees; 0: noise is independent
    noise: float = 0.0  # of a tree's nodes
    charged: dict[ClientId, Counter[Charge]] = field(default_factory=dict)
    leaves: dict[ClientId, list[int]] = field(default_factory=dict)

    def charge(self, clients: Iterable[ClientId], charge: Charge, times: int = 1) -> None:
        for client in clients:
            self.charged.setdefault(client, Counter())[charge] += times

    def took_part(self, client: ClientId, release: int) -> None:
        """Note a part in a release under tree noise."""
        self.leaves.setdefault(client, []).append(release)

    def charges(self, client: ClientId, more: Charge | None = None, times: int = 1, leaf: int = -1) -> Counter[Charge]:
        """All charges of a device; with `more` or `leaf` as they would be after one more release."""
        found = Counter(self.charged.get(client, ()))
        if more is not None:
            found[more] += times
        leaves = [*self.leaves.get(client, ()), *([leaf] * times if leaf >= 0 else [])]
        for squared in tree.sensitivities(leaves, self.height):
            found[Charge(self.noise / squared**0.5)] += 1
        return found

    def epsilon(self, client: ClientId) -> float:
        return account.epsilon(self.charges(client).items(), self.delta, self.accountant)

    def affords(self, client: ClientId, more: Charge | None = None, times: int = 1, leaf: int = -1) -> bool:
        """Whether a device may take part in one more release."""
        if self.budget is None:
            return True
        after = self.charges(client, more, times, leaf)
        if len(after) == 1:
            ((charge, count),) = after.items()
            return count <= account.most(charge, self.budget, self.delta, self.accountant)
        return account.epsilon(after.items(), self.delta, self.accountant) <= self.budget

    def epsilons(self, clients: Collection[ClientId]) -> dict[ClientId, float]:
        """The epsilon of each client, zero for one of which nothing was released."""
        return {client: self.epsilon(client) for client in clients}

    def snapshot(self) -> dict[str, Any]:
        return {
            "charged": {
                client: [[charge.noise, charge.rate, count] for charge, count in found.items()]
                for client, found in self.charged.items()
            },
            "leaves": {client: list(found) for client, found in self.leaves.items()},
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        self.charged = {
            client: Counter({Charge(noise, rate): count for noise, rate, count in found})
            for client, found in saved["charged"].items()
        }
        self.leaves = {client: list(found) for client, found in saved["leaves"].items()}
