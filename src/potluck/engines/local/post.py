"""Mail: notes that a client at work reads between legs, and how long they take to each of many clients."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from potluck import keys
from potluck.devices import Link
from potluck.devices.draws import uniform
from potluck.engines.local.flight import Flight
from potluck.engines.local.roster import Roster


class Mail(dict[int, list[tuple[float, Any]]]):
    """Client -> the notes it has not read, in the order they were posted, each with the moment it comes.

    A leg reads the newest note that came before it began; older ones are out of date. The first leg reads what came
    before its task was sent, so that an engine may run it at any time.
    """

    def put(self, client: int, at: float, note: Any, now: float, flight: Flight | None) -> None:
        """Into the box of a client that is at work on this flight, or on none; what nobody will read is dropped."""
        notes = self.setdefault(client, [])
        if flight is None:
            notes[:] = notes[max(0, _newest(notes, now)) :]
        elif notes:
            ends = [flight.sent, *flight.starts[1:]]  # until when each leg's mail must have come
            if bisect_right(ends, notes[-1][0]) == bisect_right(ends, at):
                notes.pop()
        notes.append((at, note))

    def read(self, client: int, before: float) -> Any:
        """The newest note that came before this moment, or None."""
        notes = self.get(client, [])
        place = _newest(notes, before)
        if place < 0:
            return None
        self[client] = notes[place + 1 :]
        return notes[place][1]


def _newest(notes: Sequence[tuple[float, Any]], before: float) -> int:
    """The place of the note posted last among those that came before a moment; -1 for none."""
    return max((place for place, (came, _) in enumerate(notes) if came < before), default=-1)


def delays(
    roster: Roster, places: Sequence[int], nbytes: int, now: float, seed: int
) -> tuple[list[float], list[float]]:
    """Seconds until the note is there, and joules it costs, for each client; jitter from (seed, moment, client)."""
    who = np.asarray(places, dtype=np.int64)
    draws = uniform(who ^ np.int64(keys.number(seed, "mail", str(now))), "mail")
    codes = roster.codes[who]
    seconds, watts = np.empty(len(who)), np.empty(len(who))
    for code in np.unique(codes):
        link, mine = roster.equipment[int(code)][1], codes == code
        watts[mine] = link.down_watts
        if link.trace is None:
            seconds[mine] = _steady(link, nbytes, draws[mine])
        else:
            phases = [link.phase(keys.number(seed, roster.names[int(i)])) for i in who[mine]]
            seconds[mine] = [
                link.transfer(nbytes, up=False, at=now + phase, u=float(u))
                for phase, u in zip(phases, draws[mine], strict=True)
            ]
    return seconds.tolist(), (seconds * watts).tolist()


def _steady(link: Link, nbytes: int, u: NDArray[np.float64]) -> NDArray[np.float64]:
    """`Link.transfer` of a link without a trace."""
    z = ndtri(np.clip(u, 1e-9, 1.0 - 1e-9))
    factor = np.exp(link.jitter * z - link.jitter**2 / 2.0)
    return np.asarray((link.latency + 8.0 * nbytes / link.down) * factor)
