"""Watchers: they receive the progress of a run, for the terminal, for a log, or for nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from potluck.metrics import ACCURACY, Metric

if TYPE_CHECKING:
    from potluck.runs.results import Run
    from potluck.runs.session import Session


@dataclass(frozen=True)
class Progress:
    """Where a run is after one step."""

    step: int
    round: int
    rounds: int | None  # how many there will be, where that is known
    virtual: float
    wall: float
    accuracy: float | None  # the mean score over clients, by `metric`
    at_work: int  # clients that work at this moment
    clients: int
    refused: int
    lost: int  # without the unfit clients
    unfit: int = 0  # clients whose device has too little memory to train
    answered: int = 0  # clients whose update this step accepted
    clock: str = "virtual"  # what `virtual` and `seconds` are: seconds of the virtual or of the wall clock
    seconds: float | None = None  # the virtual time at which the run ends at the latest, where that is known
    used: float | None = None  # the share of its budget that the run has used, where it has one
    metric: Metric = ACCURACY

    @property
    def share(self) -> float | None:
        """The share of the run that is done, by rounds, virtual time or budget; None if no end is known."""
        shares = [self.round / self.rounds] if self.rounds else []
        shares += [self.virtual / self.seconds] if self.seconds else []
        shares += [] if self.used is None else [self.used]
        return min(1.0, max(shares)) if shares else None

    @property
    def working(self) -> int:
        """Clients that work now or answered in this step: at the end of a synchronous round all clients are idle."""
        return min(self.clients, max(self.at_work, self.answered))


class Watcher(Protocol):
    """Receives what happens in one run."""

    def start(self, run: Run, session: Session) -> None: ...
    def step(self, progress: Progress) -> None:
        """Show the progress after a step."""

    def say(self, sentence: str) -> None:
        """Show a sentence that the user should read."""

    def show_activity(self, what: str) -> None:
        """Show what the server works on between two steps."""

    def end(self, run: Run) -> None: ...


class Silent:
    """A watcher that shows nothing."""

    def start(self, run: Run, session: Session) -> None: ...
    def step(self, progress: Progress) -> None: ...
    def say(self, sentence: str) -> None: ...
    def show_activity(self, what: str) -> None: ...
    def end(self, run: Run) -> None: ...
