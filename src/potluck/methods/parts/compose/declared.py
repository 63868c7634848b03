"""What a composed method declares of its settings: which matter most, what to tune, what parts need."""

from __future__ import annotations

from potluck.needs import ACCESS_POINT, SERVER_SHARE, Need
from potluck.spaces import Range, Space

KEY_SETTINGS = ("pace", "grouping", "shape", "local", "share", "merge", "recipe.lr")
SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True)}
PAIRS = True  # devices may have access points
NEEDS = {
    "fleet.access_point": Need(ACCESS_POINT, when={"method.local": "handover"}),
    "server.share": Need(SERVER_SHARE, when={"method.shape": "fedconv"}),
}
