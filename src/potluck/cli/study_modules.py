"""`potluck study modules`: what each module of a network is worth to a federation, as a table and a picture."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from potluck.cli import text

if TYPE_CHECKING:
    from potluck.studies.modules import Row


def ask(
    path: Path, settings: list[str], seeds: list[int], lr: float, only: str, picture: Path | None, as_json: bool
) -> None:
    """Run all ways to train, and show what each gains on going alone."""
    from potluck.runs.build import model_of
    from potluck.runs.deal import federation_of
    from potluck.runs.experiment import Experiment
    from potluck.studies import modules, plots

    experiment = Experiment.read(path, settings)
    model = model_of(experiment, federation_of(experiment))
    own = {name: value for name, value in experiment.method.items() if name != "recipe"}
    arms = modules.chosen(modules.arms_of(model, own), [part.strip() for part in only.split(",") if part.strip()])
    rows = modules.measure(experiment, arms, seeds, (lr,) if lr else modules.RATES, text.doing)
    if picture is not None:
        plots.modules(rows, picture)
    if as_json:
        text.as_json([asdict(row) for row in rows])
        return
    _show(rows)


def _show(rows: list[Row]) -> None:
    from potluck.studies import modules

    gained = modules.gains(rows)
    table = text.sheet("module", "trained how", ">learning rate", ">accuracy", ">gain on alone", ">kB up", ">kB down")
    for row in rows:
        gain = [100 * value for value in gained[row.module, row.how]]
        half = interval(gain)
        shown = f"{statistics.mean(gain):+.1f}" + (f" ± {half:.1f}" if half is not None else "")
        kilobytes = (f"{nbytes / 1000:.2f}" for nbytes in (row.up, row.down))
        table.add_row(row.module, row.how, f"{row.lr:g}", text.spread(row.accuracy), shown, *kilobytes)
    text.show(table)
    text.line("gain in points, with its 95 % interval over seeds; kB of a client in a round")


def interval(values: list[float]) -> float | None:
    """Half of the 95 % interval of the mean, by Student's distribution; None for a single value."""
    if len(values) < 2:
        return None
    from scipy.stats import t

    quantile = float(t.ppf(0.975, len(values) - 1))
    return quantile * statistics.stdev(values) / math.sqrt(len(values))
