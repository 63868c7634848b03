"""Mail: notes that a client at work reads between two legs.

A broadcast to a million clients must not cost the engine a million entries. So a post is one entry of a list, however
many clients it is for, and nothing is delivered when it is posted. When a leg begins, it searches the list backwards
for the newest note to its client that has arrived by then. How long a note takes is a function of client and post, and
is computed in that search. `_read` remembers per client how far back its search has to go. `tidy` drops posts that no
leg can read any more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from potluck import keys
from potluck.devices.draws import uniform_one
from potluck.engines.local.roster import Roster
from potluck.engines.log import TaskRecord
from potluck.fleet import ClientId

LEAST = 128  # posts that may pile up before `tidy` is worth its time


@dataclass(frozen=True, eq=False)
class Post:
    """A note to any number of clients."""

    note: Any
    nbytes: int
    at: float
    to: Collection[ClientId]
    number: int = -1


class Letter(NamedTuple):
    """A note on its way to one client."""

    came: float  # when it arrives
    joules: float
    post: Post


Delay = Callable[[int, Post], tuple[float, float]]  # (client, post) -> seconds on the way, joules at the client
Soonest = Callable[[int, int], float]  # (client, bytes) -> the least seconds that such a note takes


class Mail:
    """The notes that clients have not read, in the order they were posted.

    A leg reads the newest note that arrived before it began; older ones are out of date. The first leg reads the last
    note posted before its task was sent, if it had arrived by then. It does not read older ones: the task is newer.
    """

    def __init__(self, names: Sequence[ClientId], delay: Delay, soonest: Soonest = lambda client, nbytes: 0.0) -> None:
        self._names = names
        self._delay = delay
        self._soonest = soonest
        self._smallest: int | None = None  # bytes of the smallest note so far
        self._posts: list[Post] = []
        self._moments: list[float] = []  # of the posts
        self._read: dict[int, int] = {}  # client -> its searches can skip all posts up to this number
        self._next = 0
        self._longest = 0.0  # seconds that any note took so far
        self._most = LEAST

    def put(self, note: Any, nbytes: int, at: float, to: Collection[ClientId]) -> None:
        """Post a note to these clients. A collection that cannot change is kept as it is."""
        lasting = isinstance(to, Hashable) and not isinstance(to, tuple)
        self._add(Post(note, nbytes, at, to if lasting else frozenset(to)))

    @property
    def none(self) -> bool:
        """Whether there is no note that anybody may still read."""
        return not self._posts

    @property
    def crowded(self) -> bool:
        """Whether it is time to `tidy`: so seldom that its cost per post does not grow with the fleet."""
        return len(self._posts) >= self._most

    def first(self, client: int, sent: float) -> Letter | None:
        """The note that the first leg of a task reads, given when the task was sent."""
        letter = next(self._letters(client, bisect_left(self._moments, sent)), None)
        if letter is None:
            return None
        there = letter.came < sent
        self._read[client] = letter.post.number - (not there)  # later legs may read it
        return letter if there else None

    def read(self, client: int, before: float) -> Letter | None:
        """The newest note that arrived before this moment, or None."""
        # Notes that cannot have arrived yet are skipped: in a busy fleet there are many.
        end = bisect_left(self._moments, before - self._soonest(client, self._smallest or 0) * (1.0 - 1e-9))
        empty = True
        for letter in self._letters(client, end):
            if letter.came < before:
                self._read[client] = letter.post.number
                return letter
            empty = False
        if empty and end:
            self._read[client] = max(self._posts[end - 1].number, self._read.get(client, -1))
        return None

    def notes(self, client: int, now: float, legs: Sequence[float] = ()) -> list[Letter]:
        """What a client may still read, oldest first. `legs`: when the mail of each leg ahead must have arrived.

        These are the newest note that arrived in time for each leg ahead, and all that are still on their way.
        """
        kept: dict[int, Letter] = {}
        for moment in (now, *(leg for leg in legs if leg < now)):
            end = len(self._posts) if moment == now else bisect_left(self._moments, moment)
            for letter in self._letters(client, end):
                kept[letter.post.number] = letter
                if letter.came < moment:
                    break
        return [kept[number] for number in sorted(kept)]

    def tidy(self, now: float, legs: Mapping[int, Sequence[float]]) -> None:
        """Drop posts that no client will read. `legs`: for each client at work, as for `notes`.

        Of what was posted well before the earliest leg that has not run, each client reads the newest at most. All
        that was posted later is kept.
        """
        earliest = min((now, *(moments[0] for moments in legs.values() if moments)))
        end = bisect_left(self._moments, earliest - self._longest)
        wanted: set[int] = set()
        for client in range(len(self._names)):
            for letter in self._letters(client, end):
                wanted.add(letter.post.number)
                if letter.came < earliest:
                    break
        self._posts = [post for place, post in enumerate(self._posts) if place >= end or post.number in wanted]
        self._moments = [post.at for post in self._posts]
        self._most = len(self._posts) + max(LEAST, len(self._names) // 4)

    def snapshot(self, now: float, legs: Mapping[int, Sequence[float]]) -> list[list[Any]]:
        """Each post that some client may still read, and which clients."""
        if self.none:  # the usual case: it must not ask each of a million clients
            return []
        readers: dict[int, list[ClientId]] = {}
        for client, name in enumerate(self._names):
            for letter in self.notes(client, now, legs.get(client, ())):
                readers.setdefault(letter.post.number, []).append(name)
        posts = [post for post in self._posts if post.number in readers]
        return [[post.note, post.nbytes, post.at, readers[post.number]] for post in posts]

    def restore(self, saved: Sequence[Sequence[Any]]) -> None:
        for note, nbytes, at, to in saved:
            self.put(note, nbytes, at, to)

    def _add(self, post: Post) -> None:
        self._smallest = post.nbytes if self._smallest is None else min(self._smallest, post.nbytes)
        self._posts.append(replace(post, number=self._next))
        self._moments.append(post.at)
        self._next += 1

    def _letters(self, client: int, end: int) -> Iterator[Letter]:
        """The client's notes among the first `end` posts that it has not read, newest first."""
        name, seen = self._names[client], self._read.get(client, -1)
        for place in range(end - 1, -1, -1):
            post = self._posts[place]
            if post.number <= seen:
                return
            if name in post.to:
                seconds, joules = self._delay(client, post)
                self._longest = max(self._longest, seconds)
                yield Letter(post.at + seconds, joules, post)


def delivered(client: ClientId, letter: Letter) -> TaskRecord:
    """The record of a note that was read."""
    came, joules, post = letter
    kind = type(post.note).__name__
    times = (post.at, came, came, came)
    return TaskRecord(-1, client, kind, *times, post.nbytes, 0, 0, 0.0, 0, joules, "post", radio_joules=joules)


def delays(roster: Roster, seed: int) -> Delay:
    """How long a note takes to a client, and what it costs there. Jitter is drawn from (seed, moment, client).

    A note that goes along with another message is there when that is.
    """

    @lru_cache(maxsize=4096)
    def drawn(at: float) -> int:
        return keys.number(seed, "mail", str(at))

    def delay(client: int, post: Post) -> tuple[float, float]:
        link = roster.link(client)
        u = uniform_one(client ^ drawn(post.at), "mail")
        phase = 0.0 if link.trace is None else link.phase(keys.number(seed, roster.names[client]))
        seconds = link.transfer(post.nbytes, up=False, at=post.at + phase, u=u)
        return 0.0 if link.along else seconds, seconds * link.down_watts

    return delay


def soonest(roster: Roster) -> Soonest:
    """The shortest time of a transfer with any jitter; 0 where the link follows a trace."""

    @lru_cache(maxsize=1024)
    def least(code: int, nbytes: int) -> float:
        link = roster.equipment[code][1]
        return 0.0 if link.trace is not None or link.along else link.transfer(nbytes, up=False, at=0.0, u=0.0)

    return lambda client, nbytes: least(int(roster.codes[client]), nbytes)
