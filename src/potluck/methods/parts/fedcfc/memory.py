"""The memory that a round of FedCFC takes on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from potluck.fleet import Local
from potluck.methods.parts.fedcfc import depths, precision
from potluck.models.memory import need

if TYPE_CHECKING:
    from potluck.methods.fedcfc import Round


def memory(task: Round, local: Local) -> int:
    """Bytes on a device: it trains by hand-written loops, one sample after another (section 6.1, `firmware/`)."""
    model, weights = local.model, local.mine.weights
    own = need(model, precision=precision.form_of(weights), layers=depths.layers(depths.of(weights))).total
    if local.mine.cfg.recipe.momentum:
        own += sum(4 * w.numel() for name, w in weights.items() if not name.endswith("#scale"))
    return own + sum(w.numel() * 4 for part in (task.weights, task.control) for w in part.values())
