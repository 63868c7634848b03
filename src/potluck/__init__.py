"""Potluck: personalised federated learning across unlike devices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from potluck.runs.engines import ENGINES

if TYPE_CHECKING:
    from potluck.runs.engines import Engine
    from potluck.runs.results import Run
    from potluck.runs.watcher import Watcher

__version__ = "0.2.0"  # the only place; pyproject.toml reads it from here
__all__ = ["__version__", "open_run", "resume", "run"]


def run(experiment: Mapping[str, Any] | str | Path | Any, watcher: Watcher | None = None) -> Run:
    """Run an experiment: a TOML file's path, nested settings, or an `Experiment`.

    >>> import potluck
    >>> done = potluck.run({"data": {"source": "made"}, "method": {"name": "fedavg"}})  # doctest: +SKIP
    >>> done.personal("s01").predict(x)                                                 # doctest: +SKIP
    """
    from potluck.runs.drive import start
    from potluck.runs.experiment import Experiment

    if isinstance(experiment, str | Path):
        experiment = Experiment.read(experiment)
    elif not isinstance(experiment, Experiment):
        experiment = Experiment.of(experiment)
    return start(experiment, watcher)


def resume(folder: str | Path, watcher: Watcher | None = None) -> Run:
    """Go on with a run that was stopped or killed."""
    from potluck.runs.drive import resume as go_on

    return go_on(Path(folder), watcher)


def open_run(folder: str | Path) -> Run:
    """A run that is already there."""
    from potluck.runs.results import Run

    return Run(Path(folder))


def _flower_simulation() -> Engine:
    from potluck.deploy import simulated

    return simulated


ENGINES["flower-sim"] = _flower_simulation
