"""What EchoPFL declares of its settings: which matter most, what to tune, what they need, which names are old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from potluck.errors import BadInput, Code
from potluck.methods.parts import checks
from potluck.needs import SERVER_ROWS, SERVER_SHARE, Need
from potluck.spaces import Choice, Range, Space

if TYPE_CHECKING:
    from potluck.methods.echopfl import Config

KEY_SETTINGS = ("recipe.lr", "recipe.epochs", "clusters.count", "broadcast.c_gain", "legs")
SPACE: Space = {
    "recipe.lr": Range(0.005, 0.5, log=True),
    "clusters.count": Choice(1, 2, 4),
    "broadcast.c_gain": Choice(0.5, 1.0, 2.0),
}
NEEDS = {"server.share": Need(SERVER_SHARE, when={"method.clusters.assign": "kl"})}  # a probe set
OLD_NAMES = {"on_broadcast": "broadcast.on_arrival", "parts": "legs", "clusters": "clusters.count"}


def uses(cfg: Config) -> tuple[str, ...]:
    """Server rows are a probe set, for assignment by kl and for refinement."""
    return (SERVER_ROWS,) if cfg.clusters.assign == "kl" or cfg.clusters.refine else ()


def checked(cfg: Config) -> None:
    """Raise BadInput for settings that are out of range or do not go together."""
    checks.unused(cfg)
    checks.at_least(cfg, "legs", 1)
    if cfg.pace.most_epochs < cfg.recipe.epochs:
        least = f"{cfg.recipe.epochs} or more, as recipe.epochs"
        raise BadInput(Code.SETTING_VALUE, f"pace.most_epochs: must be {least}, got {cfg.pace.most_epochs}.")
