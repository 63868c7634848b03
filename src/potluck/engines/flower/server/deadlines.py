"""How long the server waits for one answer: as the experiment says, or by what answers took so far.

A client may be far slower than the others. So its own longest answer counts, too, also one that came too late: a client
that was given up once is waited for the next time.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from potluck.fleet import ClientId

TIMES = 10  # times the median answer of all clients
OWN_TIMES = 3  # times the longest answer of the client itself
LEAST = {"task": 60.0, "evaluate": 30.0}  # seconds: an idle network may pause for so long
ENOUGH = 3  # answers that make a median
REMEMBERED = 200  # answers


@dataclass
class Deadlines:
    """Seconds for each kind of message."""

    told: Mapping[str, float] = field(default_factory=dict)  # by the experiment; 0: by what answers took
    most: Mapping[str, float] = field(default_factory=lambda: {"task": 3600.0, "evaluate": 600.0})
    _took: dict[str, deque[float]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=REMEMBERED)))
    _own: dict[tuple[str, ClientId], float] = field(default_factory=dict)

    def note(self, kind: str, client: ClientId, seconds: float) -> None:
        """An answer came after so many seconds, in time or not."""
        self._took[kind].append(seconds)
        self._own[kind, client] = max(seconds, self._own.get((kind, client), 0.0))

    def seconds(self, kind: str, client: ClientId) -> float:
        """How long to wait for an answer of this client."""
        told = self.told.get(kind, 0.0)
        if told:
            return told
        took = self._took[kind]
        if len(took) < ENOUGH:
            return self.most[kind]
        usual = max(LEAST[kind], TIMES * median(took), OWN_TIMES * self._own.get((kind, client), 0.0))
        return min(self.most[kind], usual)
