"""What the driver saves in the checkpoint for itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from potluck.errors import BadInput


@dataclass
class DriveState:
    """Counts and figures of a run so far."""

    step: int = 0
    wall: float = 0.0
    best: float | None = None  # the best mean score so far
    since_best: int = 0
    accuracy: float | None = None  # the mean score at the last evaluation
    sure: float | None = None  # that which no liar reached alone
    best_sure: float | None = None
    evaluated: int = 0  # the round of the last evaluation
    looked: float = 0.0  # and its moment
    reached: dict[str, float] = field(default_factory=dict)
    accepted: int = 0
    refused: int = 0
    lost: int = 0
    progress: float = 0.0  # the largest share of a limit that is used
    grew: int = 0  # the round in which it last grew
    measured: int = -1  # the step of the last evaluation
    backdoor: float | None = None  # how often the trigger of an attack worked then
    ended: str = ""  # the reason why the run ended; empty while it runs


class NothingRan(BadInput):
    """The run did nothing that is worth a folder."""
