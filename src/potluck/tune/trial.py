"""One trial: an ordinary run with one candidate's settings and one seed, evaluated on validation rows.

It pauses at the share of the budget that its rung allows. If its candidate goes on, the same run is continued, with the
bits of a run that never paused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from potluck.errors import BadInput, Code
from potluck.files import write_json
from potluck.metrics import Metric, headline
from potluck.runs import drive
from potluck.runs.compare import clear
from potluck.runs.experiment import Experiment
from potluck.runs.needs import metric_of
from potluck.runs.record import read
from potluck.runs.results import Run
from potluck.runs.watcher import Watcher
from potluck.tasks.numbers import DIVERGED

PATIENCE = 30.0  # seconds to wait for a process that a killed tuning left behind; it ends after its present round


@dataclass(frozen=True)
class Score:
    """How a trial did up to a pause."""

    accuracy: float  # on the validation rows; of another metric the merit, so that more is better
    share: float  # of the budget that was used
    evaluations: int
    passes: float
    wall: float


@dataclass(frozen=True)
class Trial:
    """One candidate with one seed, to be carried on to a share of its budget."""

    method: str
    experiment: Experiment
    folder: Path
    share: float

    @property
    def file(self) -> Path:
        return self.folder / f"at-{self.share:.6f}.json"

    @property
    def score(self) -> Score | None:
        """What it showed, once it was that far."""
        try:
            return Score(**json.loads(self.file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None


def carry_on(trial: Trial, watcher: Watcher) -> Run:
    """Carry a trial on to its share of the budget, and write its score; without a score it was interrupted.

    With settings that no client can train with, or that do not suit the model, the score is 0 (an error: the largest).
    """
    try:
        run = _run(trial, watcher)
    except BadInput as error:
        if error.code not in (Code.NOT_FITTING, Code.METHOD_NEEDS):
            raise
        trial.folder.mkdir(parents=True, exist_ok=True)
        write_json(trial.file, asdict(Score(_worst(metric_of(trial.experiment)), trial.share, 0, 0.0, 0.0)))
        return Run(trial.folder)
    if run.summary["ended"] != "interrupted":
        write_json(trial.file, asdict(score_of(run)))
    return run


def _run(trial: Trial, watcher: Watcher) -> Run:
    pause = None if trial.share >= 1.0 else trial.share
    if trial.folder.is_dir() and not (trial.folder / "experiment.toml").exists():
        for path in trial.folder.glob("at-*.json"):  # of settings that no client could train with
            path.unlink()
        clear(trial.folder)
    if trial.folder.is_dir():
        return _resumed(trial.folder, watcher, pause)
    return drive.start(trial.experiment, watcher, pause)


def _resumed(folder: Path, watcher: Watcher, pause: float | None) -> Run:
    began = time.monotonic()
    while True:
        try:
            return drive.resume(folder, watcher, pause)
        except BadInput as error:
            if error.code != Code.BUSY or time.monotonic() - began > PATIENCE:
                raise
            time.sleep(0.2)


def _used(experiment: Experiment, summary: Mapping[str, Any]) -> float:
    """The share of the budget that was used; a single step may have used more than all of its passes."""
    most = experiment.budget.local_passes
    return max(float(summary["progress"]), summary["local_passes"] / most if most else 0.0)


def _worst(metric: Metric) -> float:
    return 0.0 if not metric.lower else -DIVERGED


def score_of(run: Run) -> Score:
    """The score of a run that is paused or finished: its last evaluation."""
    summary = run.summary
    metric = headline(summary)
    found = summary[metric.name]["mean"]
    (row,) = read(run.folder / "run.db", "SELECT count(*) AS evaluations FROM evaluations WHERE step > 0")
    return Score(
        _worst(metric) if found is None else metric.merit(float(found)),
        _used(run.experiment, summary),
        int(row["evaluations"]),
        float(summary["local_passes"]),
        float(summary["wall_seconds"]),
    )
