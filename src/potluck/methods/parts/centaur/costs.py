"""The expected cost of rounds that select their samples on the way.

The cost is affine in the epochs and in the samples trained on. So a few counted rounds give it: selection without an
epoch, and what one epoch on all samples adds. They are counted on few samples and all of them, because a share of few
samples would be rounded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from potluck.fleet import Local, Work
from potluck.methods.parts.centaur.handover import sample_bytes
from potluck.methods.parts.centaur.pairs import AMPLE
from potluck.methods.parts.selection import EVERYTHING, expected_sent, expected_shares, expected_trained


def device_round(task: Any, local: Local, samples: int) -> list[Work]:
    """Centaur's `Collect`: selection sees every sample gathered; the expected shares are trained on and handed over.

    A device that chooses before it encodes has no selection to pay for: it encodes what it keeps.
    """
    epochs = task.recipe.epochs + task.offline
    send = expected_sent(task.rule, epochs)
    fits = task.handover.storage // sample_bytes(local.data)
    handed = min(fits, send * task.share * samples) / max(1, samples) * float(task.handover.here)
    recipe = replace(task.recipe, epochs=1, batch=min(16, task.recipe.batch))
    ample = replace(task.handover, storage=AMPLE)
    choosing = replace(task, recipe=recipe, offline=-1, share=1.0, handover=ample)  # no epoch at all
    idle = replace(choosing, rule=EVERYTHING)
    training = expected_trained(task.rule, epochs) * task.share
    encoded = expected_shares(task.rule)[1] * task.share if task.rule.remembers else 0.0
    return [
        Work(choosing, macs=0.0 if task.rule.remembers else task.share, up=1.0, handoff=handed),
        Work(replace(idle, offline=0), macs=training),
        Work(idle, macs=encoded - training),
    ]


def ap_round(task: Any, local: Local, samples: int) -> list[Work]:
    """Centaur's `Retrain`: all epochs cost the same; a redraw trains on the share P_M of the samples."""
    share = expected_shares(replace(task.rule, alpha=0.0))[2] if task.rule.redraw else 1.0
    once = (task.recipe.epochs + task.more) * share
    one = replace(task, recipe=replace(task.recipe, epochs=1), more=0, rule=EVERYTHING)
    return [Work(one, macs=once, up=1.0), Work(replace(one, more=-1), macs=1.0 - once)]


def upload(task: Any, local: Local, samples: int) -> list[Work]:
    """AP training's `Upload`: the share gathered, or what is selected of it, limited by the device's storage."""
    fits = task.storage // sample_bytes(local.data)
    send = expected_sent(task.rule, 1) if task.classifier else 1.0
    handed = min(fits, send * task.share * samples) / max(1, samples)
    return [Work(replace(task, share=1.0, storage=AMPLE), macs=task.share, up=1.0, handoff=handed)]
