"""Model initialisation under a memory limit: which classifier a constrained device can train.

Mo et al. (Centaur), Eq. (1): of the candidate classifiers, the smallest whose parameters times bytes stay below the
memory a device has for training. `largest` takes the largest that fits instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from potluck.errors import BadInput, Code
from potluck.models.catalogue import build
from potluck.models.model import Model
from potluck.tasks import Task

CANDIDATES = ("small", "medium", "large")
PREFERENCES = ("smallest", "largest")
STORED = 4  # bytes of a parameter at rest
TRAINED = 12  # of one being trained: itself, its gradient, its momentum


def fitting(
    name: str,
    shape: Sequence[int],
    classes: int,
    settings: Mapping[str, Any],
    memory: int,
    prefer: str = "smallest",
    split: str = "",
    task: Task | None = None,
) -> Model:
    """Build the model whose classifier satisfies Eq. (1): P(m) x B < M, with M the `memory` that the encoder leaves."""
    needs = {}
    for candidate in CANDIDATES:
        model = build(name, shape, classes, {**settings, "classifier": candidate}, task)
        weights, parts = model.init(0), model.split(split)
        encoder = sum(weights[part].numel() for part in parts.encoder)
        classifier = sum(weights[part].numel() for part in parts.classifier)
        needs[candidate] = classifier * TRAINED
        room = memory - encoder * STORED
        if needs[candidate] < room and prefer == "smallest":
            return model
        if needs[candidate] < room:
            best = model
        elif candidate == CANDIDATES[0]:
            raise BadInput(
                Code.NOT_FITTING,
                f"model.classifier: training the smallest takes {needs[candidate]} bytes beside an encoder of "
                f"{encoder * STORED}; the smallest device has {memory} in all.",
            )
    return best
