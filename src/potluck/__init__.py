"""Potluck: personalised federated learning across unlike devices.

The names in `__all__` are public, and so are the modules that a method or its tests need: `potluck.fleet`,
`potluck.learn`, `potluck.tensors`, `potluck.keys`, `potluck.testing`, and `potluck.errors.BadInput`. They keep their
meaning between releases; CHANGELOG.md says when one changes. Other modules may move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from potluck.runs.engines import ENGINES

if TYPE_CHECKING:
    from potluck.planner.plan import Plan
    from potluck.report import Comparison
    from potluck.runs.engines import Engine
    from potluck.runs.results import Personal, Run
    from potluck.runs.watcher import Watcher

__version__ = "0.2.0"  # the only place; pyproject.toml reads it from here
__all__ = ["__version__", "compare", "open_model", "open_run", "plan", "resume", "run", "write_report"]


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


def plan(experiment: Mapping[str, Any] | str | Path, methods: Sequence[str] = (), **asked: Any) -> Plan:
    """Say what methods would cost and bring, without a full run: a TOML file's path or nested settings.

    `asked` is as for `potluck.planner.api.made`: `wishes`, `settings`, `look`, `seeds`, and without data `shape`,
    `classes` and `rows`.

    >>> potluck.plan({"fleet": {"devices": "mixed"}}, wishes=["at most 2 MB per device and day"])  # doctest: +SKIP
    """
    from potluck.planner.api import made
    from potluck.runs.experiment import read_toml

    values = read_toml(Path(experiment)) if isinstance(experiment, str | Path) else experiment
    return made(values, methods, **asked)


def resume(folder: str | Path, watcher: Watcher | None = None) -> Run:
    """Resume a run that was stopped or killed, and drive it to its end."""
    from potluck.runs.drive import resume as go_on

    return go_on(Path(folder), watcher)


def open_run(folder: str | Path) -> Run:
    """Open the folder of a run, finished or not."""
    from potluck.runs.results import Run

    return Run(Path(folder))


def open_model(path: str | Path) -> Personal:
    """Open a model file of `potluck export --to safetensors`, or one that a client of a deployment keeps."""
    from potluck.runs.results import open_model as load

    return load(Path(path))


def compare(*runs: Run | str | Path) -> Comparison:
    """Compare the methods of runs: accuracies, costs, and how sure the differences are. Jupyter shows it as a table.

    `runs` are runs or folders; a folder that holds runs stands for all of them.
    """
    from potluck import report
    from potluck.report.reading.folders import runs_in

    return report.compare(
        runs_in([Path(one) if isinstance(one, str | Path) else one.folder for one in runs], "compare")
    )


def write_report(*runs: Run | str | Path, out: str | Path | None = None, title: str | None = None) -> Path:
    """Write the report of runs as one HTML file that needs no network, and return its path.

    `runs` are runs or folders; a folder that holds runs stands for all of them, and several runs are compared. The
    file is `out`, or report.html: of one run or one folder in it, of several in the folder that holds the first one.

    >>> potluck.write_report(done)                                                      # doctest: +SKIP
    >>> potluck.write_report("runs/fedavg-made-s0", "runs/local-made-s0", out="b.html")  # doctest: +SKIP
    """
    from potluck import report
    from potluck.report.reading.folders import runs_in

    folders = [Path(one) if isinstance(one, str | Path) else one.folder for one in runs]
    found = runs_in(folders, "report")
    place = folders[0] if len(folders) == 1 else found[0].folder.parent
    return report.write(found, place / "report.html" if out is None else Path(out), title)


def _flower_simulation() -> Engine:
    from potluck.deploy import simulated

    return simulated


ENGINES["flower-sim"] = _flower_simulation
