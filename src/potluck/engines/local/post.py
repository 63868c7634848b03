"""Mail: notes that a client at work reads between legs, and how long they take to each of many clients."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from potluck import keys
from potluck.devices import Link
from potluck.devices.draws import uniform
from potluck.engines.local.flight import Flight, TaskRecord
from potluck.engines.local.roster import Roster
from potluck.fleet import ClientId

NONE = -1


@dataclass(frozen=True, eq=False)
class Post:
    """A note to many."""

    note: Any
    nbytes: int
    at: float


class Letter(NamedTuple):
    """A note on its way to one client."""

    came: float  # when it is there
    joules: float
    post: Post


class Mail:
    """The notes that clients have not read, in the order they were posted.

    A leg reads the newest note that came before it began; older ones are out of date. The first leg reads what came
    before its task was sent, so that an engine may run it at any time. A post to many clients at work is a few
    operations on arrays of everybody's last note: a client's box is touched only by the first note for another leg.
    """

    def __init__(self, boxes: Mapping[int, Sequence[Letter]] | None = None) -> None:
        self._boxes = {client: list(notes) for client, notes in (boxes or {}).items()}  # all but the last notes
        self.open = False  # from the first post on

    def start(self, clients: int, flights: Mapping[int, Flight]) -> None:
        """The first post of a run, or after it was taken up again; `flights`: who is at work on what."""
        self.open = True
        self._ends = np.full((clients, 1), np.nan)  # until when each leg's mail must have come; NaN for the idle
        self._leg = np.full(clients, NONE)  # of everybody's last note: the first leg that can read it,
        self._came = np.zeros(clients)  # when it is there,
        self._joules = np.zeros(clients)  # what that costs,
        self._post = np.full(clients, None, dtype=object)  # and the note
        boxes, self._boxes = self._boxes, {}
        for client, flight in flights.items():
            self.begin(client, flight)
        for client, notes in boxes.items():
            self._keep(client, notes)

    def begin(self, client: int, flight: Flight) -> None:
        """The client is at work on this flight from now on."""
        if not self.open:
            return
        ends = [flight.sent, *flight.starts[1:]]
        beyond = len(ends) - self._ends.shape[1]
        if beyond > 0:
            self._ends = np.hstack([self._ends, np.repeat(self._ends[:, -1:] + np.inf, beyond, axis=1)])
        self._ends[client] = np.inf
        self._ends[client, : len(ends)] = ends
        if self._leg[client] != NONE:
            self._leg[client] = bisect_right(ends, self._came[client])

    def end(self, client: int) -> None:
        if self.open:
            self._ends[client] = np.nan

    def put(
        self, clients: NDArray[np.int64], came: NDArray[np.float64], joules: NDArray[np.float64], post: Post
    ) -> None:
        """Into the boxes of these clients; what nobody will read is dropped."""
        ends, before = self._ends[clients], self._leg[clients]
        legs, idle = (ends <= came[:, None]).sum(1), np.isnan(ends[:, 0])
        for place in np.flatnonzero((before != NONE) & (idle | (before != legs))).tolist():
            client = int(clients[place])
            box = self._boxes.setdefault(client, [])
            box.append(self._last(client))
            if idle[place]:
                box[:] = box[max(0, _newest(box, post.at)) :]
        self._leg[clients], self._came[clients], self._joules[clients] = legs, came, joules
        self._post[clients] = post

    def read(self, client: int, before: float) -> Letter | None:
        """The newest note that came before this moment, or None."""
        notes = self.notes(client)
        place = _newest(notes, before)
        if place < 0:
            return None
        self._keep(client, notes[place + 1 :])
        return notes[place]

    def notes(self, client: int) -> list[Letter]:
        """What the client has not read."""
        box = self._boxes.get(client, [])
        return [*box, self._last(client)] if self.open and self._leg[client] != NONE else box

    def snapshot(self) -> dict[int, list[Any]]:
        last = np.flatnonzero(self._leg != NONE).tolist() if self.open else []
        return {
            client: [[one.came, one.joules, one.post.note, one.post.nbytes, one.post.at] for one in self.notes(client)]
            for client in sorted({*self._boxes, *last})
        }

    @classmethod
    def restored(cls, saved: Mapping[int, Sequence[Sequence[Any]]]) -> Mail:
        return cls(
            {
                client: [Letter(came, joules, Post(note, nbytes, at)) for came, joules, note, nbytes, at in notes]
                for client, notes in saved.items()
            }
        )

    def _last(self, client: int) -> Letter:
        return Letter(float(self._came[client]), float(self._joules[client]), self._post[client])

    def _keep(self, client: int, notes: list[Letter]) -> None:
        """These are the client's notes from now on."""
        self._boxes[client] = notes
        if not self.open:
            return
        last = notes.pop() if notes else None
        if not notes:
            del self._boxes[client]
        if last is None:
            self._leg[client], self._post[client] = NONE, None
            return
        self._came[client], self._joules[client], self._post[client] = last
        self._leg[client] = int((self._ends[client] <= last.came).sum())


def _newest(notes: Sequence[Letter], before: float) -> int:
    """The place of the note posted last among those that came before a moment; -1 for none."""
    return max((place for place, note in enumerate(notes) if note.came < before), default=-1)


def delivered(client: ClientId, letter: Letter) -> TaskRecord:
    """The line of a note that was read."""
    came, joules, post = letter
    kind = type(post.note).__name__
    return TaskRecord(-1, client, kind, post.at, came, came, came, post.nbytes, 0, 0, 0.0, 0, joules, "post")


def delays(
    roster: Roster, who: NDArray[np.int64], nbytes: int, now: float, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Seconds until the note is there, and joules it costs, for each client; jitter from (seed, moment, client)."""
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
    return seconds, seconds * watts


def _steady(link: Link, nbytes: int, u: NDArray[np.float64]) -> NDArray[np.float64]:
    """`Link.transfer` of a link without a trace."""
    z = ndtri(np.clip(u, 1e-9, 1.0 - 1e-9))
    factor = np.exp(link.jitter * z - link.jitter**2 / 2.0)
    return np.asarray((link.latency + 8.0 * nbytes / link.down) * factor)
