"""Who gets a broadcast."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from potluck.fleet import ClientId


@dataclass(frozen=True, eq=False)
class Listeners(Collection[ClientId]):
    """The clients that get a broadcast, without a list of them. The sender is none of them: it gets a reply."""

    members: Collection[ClientId]
    newcomers: Collection[ClientId]
    sender: ClientId

    def __contains__(self, client: object) -> bool:
        return client != self.sender and (client in self.members or client in self.newcomers)

    def __iter__(self) -> Iterator[ClientId]:
        return (client for group in (self.members, self.newcomers) for client in group if client != self.sender)

    def __len__(self) -> int:
        return len(self.members) + len(self.newcomers) - (self.sender in self.members or self.sender in self.newcomers)
