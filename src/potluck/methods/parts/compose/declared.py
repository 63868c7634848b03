"""What a composed method declares of its settings: which matter most, what to tune, what parts need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from potluck.methods.parts.compose.messages import Change, Trained
from potluck.needs import ACCESS_POINT, SERVER_SHARE, Need
from potluck.release import Release
from potluck.spaces import Range, Space

KEY_SETTINGS = ("pace", "grouping", "shape", "local", "share", "merge", "recipe.lr")
SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True)}
PAIRS = True  # devices may have access points
NEEDS = {
    "fleet.access_point": Need(ACCESS_POINT, when={"method.local": "handover"}),
    "server.share": Need(SERVER_SHARE, when={"method.shape": "fedconv"}),
}


def releases(cfg: Any) -> dict[type, Release] | str:
    """What updates tell; where uploads are merged one by one, or devices and access points report apart, why not."""
    if cfg.local == "handover" or cfg.share == "gradient" or cfg.gradient.devices:
        return "devices report in unlike ways"
    narrow = cfg.shape == "fedconv" and cfg.grouping != "relation" and cfg.tuning.used(cfg.merge).of == "changes"
    if narrow and cfg.grouping == "choice" and cfg.merge != "stale":
        return "clients of unlike width report in unlike ways"
    single = "" if cfg.merge == "mean" and cfg.grouping in ("one", "given") else "it merges each upload by itself"
    single = "it dilates each upload by itself" if cfg.shape == "fedconv" else single
    told = Release(("weights",), ("feedback", "loss"), weight="examples", open=("version", "group"), single=single)
    changed = replace(told, models=(), changes=("weights", "feedback", "loss"))
    return {
        Trained: changed if cfg.merge == "stale" else told,
        Change: changed if cfg.merge == "stale" or narrow else told,
    }
