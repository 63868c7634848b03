"""Compare recurrent and continuous-time networks: at sampling rates they were not trained on, and on irregular series.

Dai and Tan, "FedCFC", sections 3.1.3 (Figure 3) and 3.1.4 (Table 2). All networks have the same hidden width, see the
same samples in the same order and are trained in the same way, one stack of seeds at a time. Networks that model time
get time stamps. If no learning rate is given, each network gets the one that is best on validation rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from potluck.data.dataset import Dataset
from potluck.data.resample import resampled
from potluck.fleet import Data, Params
from potluck.models import Model, build
from potluck.studies import stacks

HERTZ, OTHERS = 50.0, (30.0, 100.0)  # of the windows, and of the tests
INTERVALS = {"air_quality": 1.0, "physionet2012": 0.5, "bosch_cnc_irregular": 4.0}  # nominal, in the unit of t
TIMED = ("cfc", "ltc")
VALID = 0.2  # share of the rows that are not for testing
RATES = (0.001, 0.003, 0.01, 0.03)  # learning rates to try for each network
TRIALS = (100, 101)  # seeds of these trials; they are in no table


@dataclass(frozen=True)
class Row:
    model: str
    parameters: int
    lr: float
    scores: dict[str, list[float]]  # by test, one per seed


def _silent(what: str) -> None:
    pass


@dataclass(frozen=True)
class Training:
    """How the networks are trained; `say` is called with what is being done."""

    seeds: Sequence[int]
    hidden: int = 16
    rows: int = 1200
    epochs: int = 6
    lr: float = 0.0  # 0: the best of RATES on validation rows, for each network
    cfc: Mapping[str, Any] = field(default_factory=dict)  # more settings of the CFC
    say: Callable[[str], None] = _silent


@dataclass(frozen=True)
class _Task:
    """What the networks learn, and what they are tested on."""

    train: Data
    valid: Data
    tests: Mapping[str, Data]
    classes: int
    interval: float
    balanced: bool


def sampling(dataset: Dataset, names: Sequence[str], how: Training) -> list[Row]:
    """Train on windows at 50 Hz, test at 50, 30 and 100 Hz on the same windows."""
    train, valid, known = _rows(dataset, how)
    tests = {f"{HERTZ:g} Hz": known}
    for rate in OTHERS:  # after standardisation; the order does not matter, because both are linear
        x, t = resampled(known.x.numpy(), HERTZ, rate)
        clock = torch.from_numpy(np.broadcast_to(t, x.shape[:2]).copy())
        tests[f"{rate:g} Hz"] = replace(known, x=torch.from_numpy(x), t=clock)
    return _compare(names, _Task(train, valid, tests, dataset.classes, 1.0 / HERTZ, balanced=False), how)


def irregular(dataset: Dataset, names: Sequence[str], how: Training) -> list[Row]:
    """Balanced accuracy on series whose samples come at irregular times."""
    train, valid, test = _rows(dataset, how)
    interval = INTERVALS.get(dataset.name, 1.0)
    task = _Task(train, valid, {"balanced accuracy": test}, dataset.classes, interval, balanced=True)
    return _compare(names, task, how)


def _rows(dataset: Dataset, how: Training) -> list[Data]:
    """Training, validation and test rows."""
    federation = stacks.together(dataset, how.seeds[0], valid_share=VALID)
    return [stacks.rows_of(federation, part, how.rows, how.seeds[0]) for part in ("train", "valid", "test")]


def _compare(names: Sequence[str], task: _Task, how: Training) -> list[Row]:
    return [_one(name, _model(name, task, how), task, how) for name in names]


def _model(name: str, task: _Task, how: Training) -> Model:
    settings: dict[str, Any] = {"hidden": how.hidden}
    if name == "cfc":
        settings |= {"backbone": 3 * how.hidden // 2, "head": how.hidden, **how.cfc}
    if name in TIMED:
        settings["interval"] = task.interval
    return build(name, tuple(task.train.x.shape[1:]), task.classes, settings)


def _one(name: str, model: Model, task: _Task, how: Training) -> Row:
    def trained(seeds: Sequence[int], lr: float) -> Params:
        weights = stacks.stacked([model.init(seed) for seed in seeds])
        return stacks.train(model, weights, task.train, seed=seeds[0], lr=lr, epochs=how.epochs, batch=32)

    lr = how.lr
    if not lr:
        known = {}
        for tried in RATES:
            how.say(f"{name}: learning rate {tried:g} on validation rows")
            known[tried] = sum(stacks.accuracies(model, trained(TRIALS, tried), task.valid, task.balanced))
        lr = max(known, key=lambda tried: known[tried])
    how.say(f"{name}: {len(how.seeds)} networks, learning rate {lr:g}")
    weights = trained(how.seeds, lr)
    scores = {test: stacks.accuracies(model, weights, data, task.balanced) for test, data in task.tests.items()}
    return Row(name, sum(value[0].numel() for value in weights.values()), lr, scores)
