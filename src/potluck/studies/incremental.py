"""Class-incremental learning: the accuracy on old classes while a fleet learns new ones, one at a time.

Dai and Tan, "FedCFC", section 5.4 and Figure 11. The experiment's method must be fedcfc with `classes.first`. The run
goes on to the end of its last class. After each class all personal models are tested on the classes so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from potluck.errors import BadInput, Code
from potluck.methods.parts.fedcfc.start import needed
from potluck.runs.build import build
from potluck.runs.evaluate import stacked
from potluck.runs.experiment import Experiment
from potluck.runs.local_session import LocalSession


@dataclass(frozen=True)
class Stage:
    """Accuracies of the clients after one more class; NaN for a client without rows of it."""

    classes: int  # number of classes so far
    new: list[float]  # on the newest class, by client
    old: list[float]  # on the first classes, by client


def measure(experiment: Experiment) -> list[Stage]:
    if experiment.method.get("name") != "fedcfc" or not experiment.method.get("classes", {}).get("first"):
        raise BadInput(
            Code.SETTINGS_CLASH, "study incremental: the experiment's method must be fedcfc with classes.first set."
        )
    session = build(experiment)
    config: Any = session.config
    first, every, last = config.classes.first, config.classes.every, session.model.classes
    download = needed(config)  # a round of its own
    out: list[Stage] = []
    try:
        begin = session.method.start(session.weights, config)
        known = config.pretrain.epochs > 0  # the first classes, from pre-training
        stages = last - first + (not known)
        end = stages * every + download
        for state in session.method.server(session.fleet, begin, config):
            done, ready = state.round - download, not download or state.round > 0
            if done % every == 0 and ready and (done or known):
                classes = min(last, first + done // every - (not known))
                out.append(_stage(session, state, classes, first))
            if state.round >= end:
                break
    finally:
        session.close()
    return out


def forgotten(stages: list[Stage], k: int) -> float:
    """How much accuracy on the first classes is lost after the k-th stage: the mean over clients."""
    then, now = (float(np.nanmean(stages[at].old)) for at in (0, k))
    return then - now


@torch.no_grad()
def _stage(session: LocalSession, state: Any, classes: int, first: int) -> Stage:
    new, old = [], []
    model = session.method.answering(session.model)
    for place, client in enumerate(session.federation.names):
        rows = stacked(session.federation, [place], "test", int(session.federation.test_sizes[place]))
        weights = session.personal(state, place, client)
        t, length = (None if value is None else value[0] for value in (rows.t, rows.length))
        right = (model.logits(weights, rows.x[0], t=t, length=length).argmax(-1) == rows.y[0]).numpy()
        y = rows.y[0].numpy()
        new.append(_mean(right[y == classes - 1]))
        old.append(_mean(right[y < first]))
    return Stage(classes, new, old)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")
