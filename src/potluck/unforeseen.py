"""What a plan cannot know of a method: it decides by the values of updates or rows. Method files declare it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Unforeseen:
    """`UNFORESEEN` of a method's file. Without it, a dry run has the costs of the run to the byte.

    `dry` has settings of the method that stand for what usually happens. A plan runs dry with them, and once as the
    settings are: its interval holds both.
    """

    what: str  # a clause: "when a client prunes"
    dry: Mapping[str, Any] = field(default_factory=dict)


def unforeseen_in(module: Any) -> Unforeseen | None:
    """What a method's file declares; None: a dry run knows everything."""
    found: Unforeseen | None = getattr(module, "UNFORESEEN", None)
    return found
