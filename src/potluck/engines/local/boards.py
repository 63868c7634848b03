"""Clients whose programs run somewhere else, on a board of their own, while the fleet and its clock stay as they are.

Who is there, what is sent when, and in which order things arrive is the local engine's business as for everybody: a run
with boards sends the same tasks in the same order as one without. Only the work is done elsewhere, all boards at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from potluck.fleet import Done

if TYPE_CHECKING:
    from potluck.engines.execute import Job


@dataclass(frozen=True)
class Outcome:
    """What came back: a result, or why there is none; and a line for the run's log."""

    done: Done | None
    lost: str = ""
    note: str = ""


class ExternalClient(Protocol):
    """One such client."""

    def run(self, job: Job) -> Outcome:
        """Carry out a task; a place that does not answer is an outcome without a result, never an error."""

    def took(self, number: int) -> None:
        """The task's update was taken: what it left there is the client's from now on."""

    def fetch(self) -> Any:
        """The private state over there where it is newer than what was fetched last, or None."""

    def snapshot(self) -> Any:
        """What must be known after a restart to tell whether the place is where the run is."""

    def restore(self, saved: Any) -> None: ...

    def close(self) -> None: ...


class Boards:
    """Everybody who is elsewhere, by position in the roster."""

    def __init__(self, clients: Mapping[int, ExternalClient]) -> None:
        self._clients = dict(clients)
        self._pool = ThreadPoolExecutor(len(clients), thread_name_prefix="board") if clients else None

    def __iter__(self) -> Iterator[int]:
        return iter(self._clients)

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
        return {client: place.snapshot() for client, place in self._clients.items()}

    def restore(self, saved: Mapping[int, Any]) -> None:
        for client, value in saved.items():
            if client in self._clients:
                self._clients[client].restore(value)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        for place in self._clients.values():
            place.close()
