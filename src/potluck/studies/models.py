"""Recurrent and continuous-time networks side by side: at sampling rates they did not see, and on irregular series.

Dai and Tan, "FedCFC", sections 3.1.3 (Figure 3) and 3.1.4 (Table 2). All networks have the same hidden width, see the
same rows in the same order and are trained alike, one stack of seeds at a time. Those that know time get time stamps.
Networks learn best at unlike step sizes; where none is given, each gets its own, by the validation rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from potluck.data.dataset import Dataset
from potluck.data.resample import resampled
from potluck.fleet import Data, Params
from potluck.models import Model, build
from potluck.studies import stacks

RATE, OTHERS = 50.0, (30.0, 100.0)  # Hz of the windows, and of the tests
INTERVALS = {"air_quality": 1.0, "physionet2012": 0.5, "bosch_cnc_irregular": 4.0}  # nominal, in the unit of t
TIMED = ("cfc", "ltc")
VALID = 0.2  # of the rows that are not for testing
STEP_SIZES = (0.001, 0.003, 0.01, 0.03)  # tried for each network
TRIALS = (100, 101)  # the seeds they are tried with, which are in no table
Told = Callable[[str], None]  # what is being done


@dataclass(frozen=True)
class Row:
    model: str
    parameters: int
    lr: float
    scores: dict[str, list[float]]  # by test, one per seed


def _compare(
    names: Sequence[str], train: Data, valid: Data, tests: Mapping[str, Data], classes: int, interval: float,
    hidden: int, seeds: Sequence[int], epochs: int, lr: float, balanced: bool, told: Told, cfc: Mapping[str, Any],
) -> list[Row]:  # fmt: skip
    out = []
    for name in names:
        settings: dict[str, Any] = {"hidden": hidden}
        if name == "cfc":
            settings |= {"backbone": 3 * hidden // 2, "head": hidden, **cfc}
        if name in TIMED:
            settings["interval"] = interval
        model = build(name, tuple(train.x.shape[1:]), classes, settings)

        def trained(chosen: Sequence[int], lr: float, model: Model = model) -> Params:
            weights = stacks.stacked([model.init(seed) for seed in chosen])
            return stacks.train(model, weights, train, seed=chosen[0], lr=lr, epochs=epochs, batch=32)

        used = lr
        if not used:
            known = {}
            for tried in STEP_SIZES:
                told(f"{name}: step size {tried:g} on validation rows")
                known[tried] = sum(stacks.accuracies(model, trained(TRIALS, tried), valid, balanced))
            used = max(known, key=lambda tried: known[tried])
        told(f"{name}: {len(seeds)} networks, step size {used:g}")
        weights = trained(seeds, used)
        scores = {test: stacks.accuracies(model, weights, data, balanced) for test, data in tests.items()}
        out.append(Row(name, sum(value[0].numel() for value in weights.values()), used, scores))
    return out


def _silent(what: str) -> None:
    pass


def sampling(
    dataset: Dataset, names: Sequence[str], *, seeds: Sequence[int], hidden: int = 16, rows: int = 1200,
    epochs: int = 6, lr: float = 0.0, told: Told = _silent, cfc: Mapping[str, Any] = MappingProxyType({}),
) -> list[Row]:  # fmt: skip
    """Trained on windows at 50 Hz, tested at 50, 30 and 100 Hz on the same windows."""
    federation = stacks.together(dataset, seeds[0], valid_share=VALID)
    train, valid = (stacks.rows_of(federation, part, rows, seeds[0]) for part in ("train", "valid"))
    known = stacks.rows_of(federation, "test", rows, seeds[0])
    tests = {f"{RATE:g} Hz": known}
    for rate in OTHERS:  # standardised first, resampled then: both are linear
        x, t = resampled(known.x.numpy(), RATE, rate)
        clock = torch.from_numpy(np.broadcast_to(t, x.shape[:2]).copy())
        tests[f"{rate:g} Hz"] = replace(known, x=torch.from_numpy(x), t=clock)
    return _compare(
        names, train, valid, tests, dataset.classes, 1.0 / RATE, hidden, seeds, epochs, lr, False, told, cfc
    )


def irregular(
    dataset: Dataset, names: Sequence[str], *, seeds: Sequence[int], hidden: int = 16, rows: int = 1200,
    epochs: int = 6, lr: float = 0.0, told: Told = _silent, cfc: Mapping[str, Any] = MappingProxyType({}),
) -> list[Row]:  # fmt: skip
    """Balanced accuracy on series whose samples come at irregular times."""
    federation = stacks.together(dataset, seeds[0], valid_share=VALID)
    train, valid = (stacks.rows_of(federation, part, rows, seeds[0]) for part in ("train", "valid"))
    tests = {"balanced accuracy": stacks.rows_of(federation, "test", rows, seeds[0])}
    interval = INTERVALS.get(dataset.name, 1.0)
    return _compare(names, train, valid, tests, dataset.classes, interval, hidden, seeds, epochs, lr, True, told, cfc)
