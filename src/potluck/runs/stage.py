"""What the driver needs of an engine, so that one driver serves a simulation and a fleet of real machines alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from potluck.engines.log import Log
from potluck.fleet import ClientId, Fleet, Params, Profile
from potluck.methods import Method
from potluck.models import Model
from potluck.runs.evaluate import Evaluation
from potluck.runs.experiment import Experiment

ClientRow = tuple[str, str, str, str, str | None, int, int]  # client, device, link, kind, partner, train and test rows


class RunFleet(Fleet, Protocol):
    """A fleet as the driver sees it: also what happened, and how to go on later."""

    log: Log
    doing: Callable[[str], None]
    scratch: Path | None

    @property
    def clients(self) -> Mapping[ClientId, Profile]: ...
    @property
    def at_work(self) -> int: ...
    @property
    def unfit(self) -> list[ClientId]: ...
    def snapshot(self) -> dict[str, Any]: ...
    def restore(self, saved: dict[str, Any]) -> None: ...


class Stage(Protocol):
    """All that a run is made of, before anything has happened."""

    @property
    def experiment(self) -> Experiment: ...
    @property
    def method(self) -> Method: ...
    @property
    def config(self) -> Any: ...
    @property
    def model(self) -> Model: ...
    @property
    def weights(self) -> Params: ...
    @property
    def fleet(self) -> RunFleet: ...
    @property
    def notes(self) -> Sequence[str]:
        """What is to be said before the run begins."""

    @property
    def checkpoint_seconds(self) -> float:
        """Seconds between checkpoints; 0 for one at every step."""

    def news(self) -> list[str]:
        """What has come up since the last time."""

    def client_rows(self) -> Iterable[ClientRow]:
        """The clients that are looked at by name."""

    def evaluate(self, state: Any) -> Evaluation | None:
        """Everybody's personal model, and the shared one, on the clients' own test rows; None if nobody answered."""

    def save_models(self, folder: Path, state: Any) -> None:
        """What the run leaves behind."""

    def costs(self, busy: Sequence[tuple[ClientId, float, int]], joules: float) -> dict[str, float | None]:
        """energy_joules, idle_joules and mean_stack of the summary; None for what this engine cannot know."""

    def close(self) -> None: ...
