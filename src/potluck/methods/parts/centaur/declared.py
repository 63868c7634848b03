"""What Centaur declares of its settings: which matter most, what to tune, what they need, which names are old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from potluck.methods.parts import checks
from potluck.methods.parts.centaur.needed import NETWORK, PAIRS_OF_ROUNDS, PARTNERS
from potluck.methods.parts.centaur.samples import BESIDE as BESIDE
from potluck.needs import ACCESS_POINTS
from potluck.spaces import Choice, Range, Space

if TYPE_CHECKING:
    from potluck.methods.centaur import Config

KEY_SETTINGS = ("recipe.lr", "selection.beta", "selection.hand_over", "connection.connected", "storage_kb")
SPACE: Space = {
    "recipe.lr": Range(0.001, 0.1, log=True),
    "selection.alpha": Choice(0.0, 2.0, 5.0),
    "selection.beta": Choice(0.0, 1.0, 3.0),
}
PAIRS = True  # each device has an access point (fleet.access_point)
NEEDS = {**PARTNERS, **NETWORK, **PAIRS_OF_ROUNDS}
USES = (ACCESS_POINTS,)
OLD_NAMES = {
    "selection": "selection.by",
    "pn_form": "selection.form",
    "ap_selection": "selection.redraw",
    "ucd_bn": "encoder.batch_norm",
    "device_merge": "merge.device",
    "ap_merge": "merge.ap",
}


def checked(cfg: Config) -> None:
    """Raise BadInput for settings that are out of range."""
    checks.unused(cfg)
    checks.at_least(cfg, "cohort", 0)
    checks.at_least(cfg, "storage_kb", 0.0)
