"""What a round costs that decides on the way how much to do: expected, before anyone knows its samples.

Cost is affine in the epochs and in the rows trained on, so a few counted rounds give it: choosing without an epoch, and
what an epoch on everything adds to a round without one. They are counted on few rows, all of them: it is a line, and a
share of few rows is rounded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from potluck.fleet import Local, Work
from potluck.methods.parts.centaur.handover import sample_bytes
from potluck.methods.parts.selection import EVERYTHING, expected_sent, expected_shares


def device_round(task: Any, local: Local, samples: int) -> list[Work]:
    """Centaur's `Collect`: every sample gathered is looked at, the expected shares are trained on and handed over."""
    keep, send = expected_shares(task.rule)[1], expected_sent(task.rule, task.epochs)
    fits = task.storage // sample_bytes(local.data)
    handed = min(fits, send * task.share * samples) / max(1, samples) * float(task.here)
    recipe = replace(task.recipe, epochs=1, batch=min(16, task.recipe.batch))
    choosing = replace(task, recipe=recipe, offline=-1, share=1.0, storage=1e15)  # no epoch at all
    idle = replace(choosing, rule=EVERYTHING)
    training = keep * task.epochs * task.share
    return [
        Work(choosing, macs=task.share, up=1.0, handoff=handed),
        Work(replace(idle, offline=0), macs=training),
        Work(idle, macs=-training),
    ]


def ap_round(task: Any, local: Local, samples: int) -> list[Work]:
    """Centaur's `Retrain`: every epoch costs the same; redrawing leaves the share P_M of the samples."""
    share = expected_shares(replace(task.rule, alpha=0.0))[2] if task.redraw else 1.0
    once = task.epochs * share
    one = replace(task, recipe=replace(task.recipe, epochs=1), more=0, redraw=False)
    return [Work(one, macs=once, up=1.0), Work(replace(one, more=-1), macs=1.0 - once)]


def upload(task: Any, local: Local, samples: int) -> list[Work]:
    """AP training's `Upload`: the share gathered, as far as there is room for it."""
    fits = task.storage // sample_bytes(local.data) if task.storage else samples
    handed = min(fits, task.share * samples) / max(1, samples)
    return [Work(replace(task, share=1.0, storage=0.0), macs=1.0, up=1.0, handoff=handed)]
