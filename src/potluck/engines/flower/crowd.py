"""Who is there: nodes come and go, say which clients they speak for, and join the run.

A node may speak for the name it was registered under, and for names that begin with it and a dash: the two clients of
one household sit behind one node. What claims another's name is turned away, and said so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from potluck.engines.flower.words import PROTOCOL, Envelope, Reply, Wire
from potluck.engines.log import Event
from potluck.errors import BadInput, Code, retold
from potluck.fleet import ClientId, FleetEmpty, Profile

NODES_EVERY = 3.0  # seconds between looks at who is there
LONGEST_BACKOFF = 60.0


@dataclass(frozen=True)
class Sizes:
    """What a client says of its rows."""

    train: int
    test: int
    valid: int
    shape: tuple[int, ...]
    classes: tuple[str, ...]  # the names of the labels, in this client's own order
    times: bool  # irregular series have time stamps
    lengths: bool


@dataclass
class Member:
    """A client, present or not."""

    name: ClientId
    profile: Profile
    sizes: Sizes
    count: int = 0  # tasks sent so far
    taken: str = ""  # the last task whose update was taken
    like: Any = None  # private state of the right shapes; what is in it is the client's own
    node: int | None = None  # where it is now
    joined: bool = False
    failures: int = 0
    not_before: float = 0.0  # asked again from then on

    def saved(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "profile": dict(vars(self.profile)),
            "sizes": dict(vars(self.sizes)),
            "count": self.count,
            "taken": self.taken,
            "like": self.like,
        }

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Member:
        sizes = Sizes(**saved["sizes"])
        return cls(saved["name"], Profile(**saved["profile"]), sizes, saved["count"], saved["taken"], saved["like"])


@dataclass
class Crowd(Mapping[ClientId, Profile]):
    wire: Wire
    hello: dict[str, Any]  # rules that a client needs before it can say how many rows it has
    poll: float = 0.3  # seconds between looks for answers, at first; each look costs the SuperLink
    ttl: float = 3600.0  # seconds after which a message that nobody answered is given up
    clock: Callable[[], float] = time.monotonic
    members: dict[ClientId, Member] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    joining: Envelope | None = None  # what the run is, once that is known
    classes: tuple[str, ...] = ()  # that the run's model tells apart, once that is known
    left: Callable[[ClientId], None] = lambda client: None  # told who went away
    news: int = 0  # how often somebody came
    _pending: dict[str, Callable[[Reply], None]] = field(default_factory=dict)
    _nodes: dict[int, tuple[str, str]] = field(default_factory=dict)
    _looked: float = float("-inf")
    _quiet: int = 0  # looks in a row that found nothing

    # -- the roster --------------------------------------------------------------------------------------------------

    def __getitem__(self, name: ClientId) -> Profile:
        return self.members[name].profile

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def here(self, name: ClientId) -> bool:
        member = self.members[name]
        return member.node is not None and member.joined and member.not_before <= self.clock()

    def household(self, name: ClientId) -> list[Member]:
        """Everybody behind the same node."""
        node = self.members[name].node
        return [member for member in self.members.values() if member.node == node]

    def muster(self, count: int, patience: float, enough: Callable[[], bool] = lambda: True) -> None:
        """Wait until so many clients have said hello."""
        began = self.clock()
        while True:
            self.pump()
            present = sum(member.node is not None for member in self.members.values())
            if present >= count and enough() and not self._pending:
                self._sort()
                return
            if self.clock() - began > patience:
                said = "; ".join(f"{e.client}: {e.detail}" for e in self.events if e.kind == "refused")
                why = f" ({said})" if said else ""
                raise FleetEmpty(f"fleet: {present} of {count} clients came within {patience:g} seconds{why}")
            self.rest()

    def rest(self) -> None:
        """Nothing came: a pause that grows to three times its length while that lasts."""
        time.sleep(self.poll * min(3.0, 1.2**self._quiet))
        self._quiet += 1

    def _sort(self) -> None:
        """By name, access points behind the devices: the order of a simulation over the same clients."""
        order = sorted(self.members.values(), key=lambda one: (one.profile.kind == "access-point", one.name))
        self.members = {member.name: member for member in order}

    # -- traffic -----------------------------------------------------------------------------------------------------

    def ask(self, node: int, envelope: Envelope, then: Callable[[Reply], None], ttl: float | None = None) -> bool:
        """Send, and have `then` called with whatever comes back; false where nobody is there any more."""
        message = self.wire.push(node, envelope, ttl or self.ttl)
        if message is None:
            return False
        self._pending[message] = then
        return True

    def pump(self) -> bool:
        """Look who is there and what has come; whether anything has."""
        if self.clock() - self._looked >= NODES_EVERY:
            self._looked = self.clock()
            self._census(self.wire.nodes())
        replies = self.wire.pull(list(self._pending)) if self._pending else []
        for reply in sorted(replies, key=lambda one: one.at):
            then = self._pending.pop(reply.message, None)
            if then is None:
                self.say("refused", "", "an answer to a message that was answered before")
                continue
            then(reply)
        if replies:
            self._quiet = 0
        return bool(replies)

    def failed(self, name: ClientId) -> None:
        """Do not ask a client again at once that has just failed."""
        member = self.members[name]
        member.failures += 1
        if member.failures > 1:
            member.not_before = self.clock() + min(LONGEST_BACKOFF, 2.0**member.failures / 2)

    def say(self, kind: str, client: str, detail: str) -> None:
        self.events.append(Event(0.0, kind, client, detail))

    # -- coming and going --------------------------------------------------------------------------------------------

    def _census(self, nodes: dict[int, tuple[str, str]]) -> None:
        """A node that was started anew between two looks went and came, too: its tasks went with it."""
        before = self._nodes
        for node in [node for node, seen in before.items() if nodes.get(node) != seen]:
            for member in self.members.values():
                if member.node == node:
                    member.node, member.joined = None, False
                    self.say("left", member.name, "its node went away" if node not in nodes else "started anew")
                    self.left(member.name)
        self._nodes = dict(nodes)
        for node in sorted(node for node, seen in nodes.items() if before.get(node) != seen):
            self._greet(node, nodes[node][0])

    def _greet(self, node: int, name: str) -> None:
        def heard(reply: Reply) -> None:
            if reply.envelope is None:
                self.say("refused", name, f"no greeting: {reply.error}")
                self._nodes.pop(node, None)  # greeted again at the next look, if it is still there
                return
            try:
                self._introduce(node, name, reply.envelope.head)
            except (KeyError, TypeError, ValueError) as error:
                reason = error.told if isinstance(error, BadInput) else f"{error} [{Code.MESSAGE}]"
                self.say("refused", name, f"its greeting cannot be used: {reason}")

        self.ask(node, Envelope({"kind": "hello", "protocol": PROTOCOL, **self.hello}), heard, ttl=600.0)

    def _introduce(self, node: int, registered: str, head: Mapping[str, Any]) -> None:
        if "refused" in head:
            raise retold(str(head["refused"]), Code.NOT_JOINED)
        if head.get("protocol") != PROTOCOL:
            raise BadInput(
                Code.NOT_JOINED,
                f"it speaks protocol {head.get('protocol')!r}, here is {PROTOCOL}; update potluck there.",
            )
        for told in head["clients"]:
            name = str(told["name"])
            if registered and name != registered and not name.startswith(f"{registered}-"):
                raise BadInput(Code.NOT_JOINED, f"it claims the name {name!r} and is registered as {registered!r}.")
            there = self.members.get(name)
            if there is not None and there.node is not None and there.node != node:
                raise BadInput(Code.NOT_JOINED, f"the name {name!r} is in use by another node.")
            profile, sizes = _told(told)
            if there is None:
                self._fits(name, sizes)
                self.members[name] = Member(name, profile, sizes, node=node)
            else:
                there.profile, there.sizes, there.node = profile, sizes, node
                there.failures, there.not_before = 0, 0.0
        if self.joining is not None:
            self.join(node)

    def _fits(self, name: ClientId, sizes: Sizes) -> None:
        """Late joiners must bring samples of the shape the model takes."""
        strange = sorted(set(sizes.classes) - set(self.classes)) if self.classes else []
        if strange:
            raise BadInput(
                Code.NOT_JOINED, f"{name}: it has the label {strange[0]!r}, which the run's model does not know."
            )
        first = next((one.sizes for one in self.members.values()), None)
        if first is not None and (sizes.shape, sizes.times, sizes.lengths) != (first.shape, first.times, first.lengths):
            raise BadInput(
                Code.NOT_JOINED, f"{name}: samples of shape {list(sizes.shape)}, the others have {list(first.shape)}."
            )

    def join(self, node: int) -> None:
        """Tell a node what the run is."""
        assert self.joining is not None

        def heard(reply: Reply) -> None:
            refused = reply.error if reply.envelope is None else reply.envelope.head.get("refused", "")
            for member in self.members.values():
                if member.node == node:
                    member.joined = not refused
                    self.say("refused" if refused else "joined", member.name, str(refused))
            if not refused:
                self.news += 1

        self.ask(node, self.joining, heard, ttl=600.0)

    def begin(self, joining: Envelope, classes: tuple[str, ...]) -> None:
        """The run is known: everybody who is here joins it."""
        self.joining, self.classes = joining, classes
        for node in sorted({member.node for member in self.members.values() if member.node is not None}):
            self.join(node)


def _told(told: Mapping[str, Any]) -> tuple[Profile, Sizes]:
    profile = Profile(
        device=str(told["device"]),
        link=str(told["link"]),
        samples=int(told["train"]),
        kind=str(told["kind"]),
        partner=None if told["partner"] is None else str(told["partner"]),
        memory=None if told["memory"] is None else int(told["memory"]),
        macs_per_second=None if told["macs_per_second"] is None else float(told["macs_per_second"]),
        storage=None if told["storage"] is None else int(told["storage"]),
    )
    shape = tuple(int(n) for n in told["shape"])
    counts = int(told["train"]), int(told["test"]), int(told["valid"])
    classes = tuple(str(one) for one in told["classes"])
    if min(counts) < 0 or not shape or min(shape) < 1 or not classes or len(set(classes)) < len(classes):
        raise BadInput(
            Code.NOT_JOINED, f"{told['name']}: {counts} rows of shape {shape} in the classes {classes} cannot be."
        )
    return profile, Sizes(*counts, shape, classes, bool(told["times"]), bool(told["lengths"]))
