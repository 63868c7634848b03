"""A session: everything the driver needs of an engine.

One driver (`runs/drive.py`) serves a simulation (`LocalSession`) and real machines (in `potluck.deploy`) alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from potluck.engines.log import Log
from potluck.fleet import ClientId, Fleet, Params, Profile
from potluck.methods import Method
from potluck.models import Model
from potluck.runs.energy import Query
from potluck.runs.evaluation import Evaluation
from potluck.runs.experiment import Experiment
from potluck.runs.protection import Protection

# client, device, link, kind, partner, number of training samples, number of test samples
ClientRow = tuple[str, str, str, str, str | None, int, int]


class RunFleet(Fleet, Protocol):
    """A fleet as the driver sees it: it also keeps a log and can be saved and restored."""

    log: Log
    doing: Callable[[str], None]  # called with what the server works on
    scratch: Path | None  # a folder for temporary files
    progress: float  # set by the driver after every step

    @property
    def clients(self) -> Mapping[ClientId, Profile]: ...
    @property
    def at_work(self) -> int:
        """The number of clients that work on a task now."""

    @property
    def spent(self) -> float:
        """The share of `fleet.passes` that the clients have used; 0 without such a limit."""

    @property
    def holders(self) -> int:
        """The number of clients that hold training samples."""

    @property
    def unfit(self) -> list[ClientId]:
        """The clients whose device has too little memory to train."""

    def snapshot(self) -> dict[str, Any]: ...
    def restore(self, saved: dict[str, Any]) -> None: ...


class Session(Protocol):
    """The parts of one run, built and ready to start."""

    @property
    def experiment(self) -> Experiment: ...
    @property
    def method(self) -> Method: ...
    @property
    def config(self) -> Any: ...
    @property
    def model(self) -> Model: ...
    @property
    def weights(self) -> Params:
        """The weights that the run starts with."""

    @property
    def fleet(self) -> RunFleet: ...
    @property
    def fingerprint(self) -> str:
        """A digest of the samples; empty where they are on other machines."""

    @property
    def protection(self) -> Protection | None:
        """Privacy and secure sums, where the experiment has any."""

    @property
    def differs(self) -> str:
        """What differs from the local engine, in a sentence; empty if nothing does."""

    @property
    def clock(self) -> str:
        """What the fleet's seconds are: virtual or wall."""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences to show before the run starts."""

    @property
    def checkpoint_seconds(self) -> float:
        """Seconds between checkpoints; 0 saves after every step."""

    def new_notes(self) -> list[str]:
        """Return the sentences that came up since the last call."""

    def client_rows(self) -> Iterable[ClientRow]:
        """List the clients that are evaluated."""

    def evaluate(self, state: Any) -> Evaluation | None:
        """Evaluate the personal models and the shared one on the clients' test rows; None if no client answered."""

    def save_models(self, folder: Path, state: Any) -> None:
        """Write the models that the run leaves."""

    def costs(self, rows: Query, joules: float) -> dict[str, Any]:
        """Return energy_joules, idle_joules, energy and mean_stack of the summary; None where they cannot be known.

        `rows` asks the run's database; `joules` is the energy of all tasks.
        """

    def close(self) -> None: ...
