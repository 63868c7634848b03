"""study.db: a tuning as Optuna's studies in SQLite, one per method. `optuna-dashboard sqlite:///study.db` shows it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from potluck.methods import short_name
from potluck.spaces import Space
from potluck.tune.optuna_sampler import distribution, holds, imported
from potluck.tune.search import Searched

FILE = "study.db"


def write_study(searched: Mapping[str, Searched], spaces: Mapping[str, Space], folder: Path) -> Path:
    """Write all candidates: those of the last rung complete, the others pruned, with their scores by rung."""
    optuna = imported()
    path, part = folder / FILE, folder / f".{FILE}.{os.getpid()}.part"
    part.unlink(missing_ok=True)
    storage = optuna.storages.RDBStorage(f"sqlite:///{part}")
    try:
        for method, found in searched.items():
            name = short_name(method)
            study = optuna.create_study(study_name=name, storage=storage, direction="maximize")
            study.add_trials(_trials(optuna, spaces[method], found))
    finally:
        storage.remove_session()
        storage.engine.dispose()
    part.replace(path)
    return path


def _trials(optuna: Any, space: Space, found: Searched) -> list[Any]:
    states = optuna.trial.TrialState
    made = []
    for one in found.candidates:
        scores = {k: rung.scores[one.number] for k, rung in enumerate(found.rungs) if one.number in rung.scores}
        known = holds(space, one.settings)
        made.append(
            optuna.trial.create_trial(
                state=states.COMPLETE if len(scores) == len(found.rungs) else states.PRUNED,
                value=scores[max(scores)],
                params=one.settings if known else {},
                distributions={name: distribution(part) for name, part in space.items()} if known else {},
                intermediate_values=scores,
                user_attrs={"candidate": one.number, "default": one.default, "settings": dict(one.settings)},
            )
        )
    return made
