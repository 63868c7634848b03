"""Engines that need more than this process to carry out a run, by their name in `run.engine`.

The driver builds a local run itself. Other engines build on the driver, so the driver cannot import them. The package's
top (`potluck/__init__.py`) knows both and enters each of them here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from potluck.runs.experiment import Experiment
    from potluck.runs.results import Run
    from potluck.runs.watcher import Watcher


class Engine(Protocol):
    """Carries out whole runs. A module with these two functions is one."""

    def start(self, experiment: Experiment, watcher: Watcher) -> Run:
        """Run an experiment in a new folder."""

    def go_on(self, folder: Path, watcher: Watcher) -> Run:
        """Continue a run that was stopped or killed."""


ENGINES: dict[str, Callable[[], Engine]] = {}
