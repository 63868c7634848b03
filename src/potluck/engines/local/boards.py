"""Clients whose programs run on a board (a microcontroller), while the fleet and its virtual clock stay as they are.

The local engine decides as for all other clients what is sent when and in which order things arrive. So a run with
boards sends the same tasks in the same order as a run without. Only the training happens on the boards, all at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from potluck.fleet import Done

if TYPE_CHECKING:
    from potluck.engines.chunks import Job


@dataclass(frozen=True)
class Outcome:
    """What came back from a board: a result, or why there is none; and a note for the run's log."""

    done: Done | None
    lost: str = ""
    note: str = ""


class ExternalClient(Protocol):
    """A client that trains outside this process."""

    def run(self, job: Job) -> Outcome:
        """Do a task. A board that does not answer gives an outcome without a result, never an error."""

    def took(self, number: int) -> None:
        """The task's update was accepted, so the private state that it left on the board counts from now on."""

    def fetch(self) -> Any:
        """The private state on the board, or None if it was fetched before."""

    def snapshot(self) -> Any:
        """What a resumed run must know to see whether the board is still in step with it."""

    def restore(self, saved: Any) -> None: ...

    def close(self) -> None: ...


class Boards:
    """All clients with a board, by client index."""

    def __init__(self, clients: Mapping[int, ExternalClient]) -> None:
        self._clients = dict(clients)
        self._pool = ThreadPoolExecutor(len(clients), thread_name_prefix="board") if clients else None

    def __iter__(self) -> Iterator[int]:
        return iter(self._clients)

    def __len__(self) -> int:
        return len(self._clients)

    def begin(self, jobs: Sequence[Job]) -> dict[int, Future[Outcome]]:
        """Start the jobs of clients with a board. Return their outcomes by job number, to be awaited later."""
        if self._pool is None:
            return {}
        return {
            job.number: self._pool.submit(self._clients[job.client].run, job)
            for job in jobs
            if job.client in self._clients
        }

    def took(self, client: int, number: int) -> None:
        if client in self._clients:
            self._clients[client].took(number)

    def fetch(self, client: int) -> Any:
        return self._clients[client].fetch() if client in self._clients else None

    def snapshot(self) -> dict[int, Any]:
        return {client: board.snapshot() for client, board in self._clients.items()}

    def restore(self, saved: Mapping[int, Any]) -> None:
        for client, value in saved.items():
            if client in self._clients:
                self._clients[client].restore(value)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        for board in self._clients.values():
            board.close()
