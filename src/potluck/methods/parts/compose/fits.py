"""Whether the settings suit the parts that are chosen; `choice.py` says whether the parts suit each other."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from potluck.errors import BadInput, Code
from potluck.methods.parts.compose.choice import AXES, PARTS


def check(cfg: Any) -> None:
    """Raise BadInput for settings that the chosen parts have no use for, or cannot follow."""
    _unused(cfg)
    who = _needs_sgd(cfg)
    if who and (cfg.recipe.optimiser != "sgd" or (who == "share 'gradient'" and cfg.recipe.momentum)):
        got = "adam" if cfg.recipe.optimiser != "sgd" else f"a momentum of {cfg.recipe.momentum:g}"
        plain = "sgd without momentum" if who == "share 'gradient'" else "sgd"
        raise BadInput(Code.SETTINGS_CLASH, f"recipe.optimiser: must be {plain} with {who}, got {got}.")
    if cfg.merge == "stale" and cfg.tuning.of == "models":
        raise BadInput(Code.SETTINGS_CLASH, "tuning.of: must be auto or changes with merge 'stale', got models.")
    if cfg.shape == "fedconv" and cfg.kernels.pre != "none" and cfg.tuning.used(cfg.merge).of == "changes":
        raise BadInput(
            Code.SETTINGS_CLASH,
            f"kernels.pre: must be none where changes are dilated, got {cfg.kernels.pre}: it has constants of its own.",
        )
    if cfg.grouping == "clusters" and cfg.share != "all":
        for name, by_weights in (("assign", ("l1",)), ("first", ("l1", "direction", "answers"))):
            value = getattr(cfg.clusters, name)
            if value not in by_weights:
                raise BadInput(
                    Code.SETTINGS_CLASH,
                    f"clusters.{name}: must be l1 where layers stay on the clients, got {value}: no model answers.",
                )


def _needs_sgd(cfg: Any) -> str:
    """The part whose steps are plain gradient descent."""
    if cfg.share == "gradient" and not cfg.gradient.devices:
        return "share 'gradient'"
    if cfg.grouping == "relation":
        return "grouping 'relation'"
    if cfg.local == "proximal":
        return "local 'proximal'"
    by_legs = cfg.grouping == "clusters" and cfg.pace not in ("rounds", "deadline")
    return f"grouping 'clusters' at pace {cfg.pace!r}" if by_legs else ""


def _unused(cfg: Any) -> None:
    """Refuse settings of parts that are not chosen: they would mislead."""
    used = {group for axis in AXES for group in PARTS[axis][getattr(cfg, axis)].settings}
    owners = {group: one for axis in AXES for one in PARTS[axis].values() for group in one.settings}
    if cfg.local == "select" and cfg.select.encode != "all":
        raise BadInput(
            Code.SETTINGS_CLASH, f"select.encode: must be 'all' with local 'select', got {cfg.select.encode!r}."
        )
    for one in fields(cfg):
        if one.name not in owners or one.name in used:
            continue
        value, default = getattr(cfg, one.name), one.default
        if one.name == "gradient" and value.devices:
            continue  # some devices share a gradient, whatever the others share
        if value != default:
            part = owners[one.name]
            raise BadInput(
                Code.SETTINGS_CLASH,
                f"{one.name}: belongs to {part.axis} {part.name!r}, got {part.axis} {getattr(cfg, part.axis)!r}.",
            )
