"""The clients that registered with a deployed server: their machines come and go, say hello, and join the run.

A machine is one node of Flower. It may host the client it was registered as, and clients whose names begin with that
name and a dash, such as a device's access point. A node that claims another name is refused, and the run's log says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from potluck.engines.flower.protocol import PROTOCOL, Envelope, Reply, Transport
from potluck.engines.log import Event
from potluck.errors import BadInput, Code, retold
from potluck.fleet import ClientId, FleetEmpty, Profile

LONGEST_BACKOFF = 60.0  # seconds


@dataclass(frozen=True)
class Sizes:
    """What a client says of its samples."""

    train: int
    test: int
    valid: int
    shape: tuple[int, ...]
    classes: tuple[str, ...]  # the names of its labels, in its own order
    times: bool  # irregular series have time stamps
    lengths: bool


@dataclass
class Member:
    """A client that said hello once, online or not."""

    name: ClientId
    profile: Profile
    sizes: Sizes
    count: int = 0  # tasks sent so far
    taken: str = ""  # the ticket of the last task whose update was accepted
    like: Any = None  # private state of the right shapes; its values stay with the client
    node: int | None = None  # its node, while that is online
    joined: bool = False
    failures: int = 0
    not_before: float = 0.0  # after failures: when it may get a task again

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
class Members(Mapping[ClientId, Profile]):
    """All members by name, and the messages to their nodes."""

    transport: Transport
    hello: dict[str, Any]  # the rules of the split: a client needs them to count its samples
    poll: float = 0.3  # seconds between two polls for answers, at first; each poll costs the SuperLink
    list_every: float = 3.0  # seconds between two lists of the nodes that are online
    ttl: float = 3600.0  # seconds after which an unanswered message is given up
    clock: Callable[[], float] = time.monotonic
    by_name: dict[ClientId, Member] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    joining: Envelope | None = None  # the join message, once the run is known
    classes: tuple[str, ...] = ()  # the labels of the run's model, once they are known
    left: Callable[[ClientId], None] = lambda client: None  # called for each client that goes offline
    undecided: set[int] = field(default_factory=set)  # nodes that have not answered the join message yet
    _pending: dict[str, Callable[[Reply], None]] = field(default_factory=dict)
    _nodes: dict[int, tuple[str, str]] = field(default_factory=dict)
    _listed: float = float("-inf")
    _quiet: int = 0  # polls in a row without a reply

    # -- the clients -------------------------------------------------------------------------------------------------

    def __getitem__(self, name: ClientId) -> Profile:
        return self.by_name[name].profile

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)

    def here(self, name: ClientId) -> bool:
        member = self.by_name[name]
        return member.node is not None and member.joined and member.not_before <= self.clock()

    @property
    def online(self) -> set[int]:
        """The nodes of the members that are online."""
        return {member.node for member in self.by_name.values() if member.node is not None}

    def on_same_machine(self, name: ClientId) -> list[Member]:
        """All clients on the same machine, itself included."""
        node = self.by_name[name].node
        return [member for member in self.by_name.values() if member.node == node]

    def wait_for(self, count: int, patience: float, enough: Callable[[], bool] = lambda: True) -> None:
        """Wait until `count` machines have said hello, at most `patience` seconds.

        A machine counts once, also where it hosts an access point next to its device.
        """
        began = self.clock()
        while True:
            self.pump()
            present = len(self.online)
            if present >= count and enough() and not self._pending:
                self._sort()
                return
            if self.clock() - began > patience:
                refused = "; ".join(f"{e.client}: {e.detail}" for e in self.events if e.kind == "refused")
                why = f" ({refused})" if refused else ""
                raise FleetEmpty(f"fleet: {present} of {count} clients came online within {patience:g} seconds{why}")
            self.rest()

    def rest(self) -> None:
        """Pause after a poll without a reply; the pause grows to three times its length."""
        time.sleep(self.poll * min(3.0, 1.2**self._quiet))
        self._quiet = min(self._quiet + 1, 10)  # 1.2**10 is above 3; a power of thousands overflows

    def _sort(self) -> None:
        """Order by name, access points after devices: the order of a simulation of the same clients."""
        order = sorted(self.by_name.values(), key=lambda one: (one.profile.kind == "access-point", one.name))
        self.by_name = {member.name: member for member in order}

    # -- traffic -----------------------------------------------------------------------------------------------------

    def ask(self, node: int, envelope: Envelope, then: Callable[[Reply], None], ttl: float | None = None) -> bool:
        """Send, and call `then` with the reply when it comes. Return False where the node is not online."""
        message = self.transport.push(node, envelope, ttl or self.ttl)
        if message is None:
            return False
        self._pending[message] = then
        return True

    def pump(self) -> bool:
        """List the nodes when it is time, and hand out the replies. Return whether there was any."""
        if self.clock() - self._listed >= self.list_every:
            self._listed = self.clock()
            self._census(self.transport.nodes())
        replies = self.transport.pull(list(self._pending)) if self._pending else []
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
        """Keep a client that failed twice or more in a row idle for a while."""
        member = self.by_name[name]
        member.failures += 1
        if member.failures > 1:
            member.not_before = self.clock() + min(LONGEST_BACKOFF, 2.0**member.failures / 2)

    def say(self, kind: str, client: str, detail: str) -> None:
        self.events.append(Event(0.0, kind, client, detail))

    # -- coming and going --------------------------------------------------------------------------------------------

    def _census(self, nodes: dict[int, tuple[str, str]]) -> None:
        """Compare with the list before. A node that restarted in between lost its tasks: it left and came back."""
        before = self._nodes
        for node in [node for node, seen in before.items() if nodes.get(node) != seen]:
            self.undecided.discard(node)
            for member in self.by_name.values():
                if member.node == node:
                    member.node, member.joined = None, False
                    self.say("left", member.name, "its node went away" if node not in nodes else "its node restarted")
                    self.left(member.name)
        self._nodes = dict(nodes)
        for node in sorted(node for node, seen in nodes.items() if before.get(node) != seen):
            self._greet(node, nodes[node][0])

    def _greet(self, node: int, name: str) -> None:
        def on_reply(reply: Reply) -> None:
            if reply.envelope is None:
                self.say("refused", name, f"no answer to hello: {reply.error}")
                self._nodes.pop(node, None)  # if it is still online it is greeted again
                return
            try:
                self._introduce(node, name, reply.envelope.head)
            except (KeyError, TypeError, ValueError) as error:
                reason = error.told if isinstance(error, BadInput) else f"{error} [{Code.MESSAGE}]"
                self.say("refused", name, f"its answer to hello is not valid: {reason}")

        self.ask(node, Envelope({"kind": "hello", "protocol": PROTOCOL, **self.hello}), on_reply, ttl=600.0)

    def _introduce(self, node: int, registered: str, head: Mapping[str, Any]) -> None:
        if "refused" in head:
            raise retold(str(head["refused"]), Code.NOT_JOINED)
        if head.get("protocol") != PROTOCOL:
            raise BadInput(
                Code.NOT_JOINED,
                f"its protocol must be {PROTOCOL}, got {head.get('protocol')!r}; update potluck on that machine.",
            )
        for card in head["clients"]:
            name = str(card["name"])
            if registered and name != registered and not name.startswith(f"{registered}-"):
                raise BadInput(Code.NOT_JOINED, f"it claims the name {name!r} but is registered as {registered!r}.")
            there = self.by_name.get(name)
            if there is not None and there.node is not None and there.node != node:
                raise BadInput(Code.NOT_JOINED, f"the name {name!r} is in use by another node.")
            profile, sizes = _read(card)
            if there is None:
                self._fits(name, sizes)
                self.by_name[name] = Member(name, profile, sizes, node=node)
            else:
                there.profile, there.sizes, there.node = profile, sizes, node
                there.failures, there.not_before = 0, 0.0
        if self.joining is not None:
            self.join(node)

    def _fits(self, name: ClientId, sizes: Sizes) -> None:
        """Raise BadInput for a late client whose labels or samples do not fit the run's model."""
        strange = sorted(set(sizes.classes) - set(self.classes)) if self.classes else []
        if strange:
            raise BadInput(
                Code.NOT_JOINED, f"{name}: has the label {strange[0]!r}, which the run's model does not know."
            )
        first = next((one.sizes for one in self.by_name.values()), None)
        if first is not None and (sizes.shape, sizes.times, sizes.lengths) != (first.shape, first.times, first.lengths):
            raise BadInput(
                Code.NOT_JOINED, f"{name}: samples must have the shape {list(first.shape)}, got {list(sizes.shape)}."
            )

    def join(self, node: int) -> None:
        """Send a node the join message."""
        assert self.joining is not None

        def on_reply(reply: Reply) -> None:
            self.undecided.discard(node)
            refused = reply.error if reply.envelope is None else reply.envelope.head.get("refused", "")
            for member in self.by_name.values():
                if member.node == node:
                    member.joined = not refused
                    self.say("refused" if refused else "joined", member.name, str(refused))

        if self.ask(node, self.joining, on_reply, ttl=600.0):
            self.undecided.add(node)

    def begin(self, joining: Envelope, classes: tuple[str, ...]) -> None:
        """The run is known: send all nodes that are online the join message."""
        self.joining, self.classes = joining, classes
        for node in sorted(self.online):
            self.join(node)


def _read(card: Mapping[str, Any]) -> tuple[Profile, Sizes]:
    """Check and read a client's entry in the answer to a hello."""
    profile = Profile(
        device=str(card["device"]),
        link=str(card["link"]),
        samples=int(card["train"]),
        kind=str(card["kind"]),
        partner=None if card["partner"] is None else str(card["partner"]),
        memory=None if card["memory"] is None else int(card["memory"]),
        macs_per_second=None if card["macs_per_second"] is None else float(card["macs_per_second"]),
        storage=None if card["storage"] is None else int(card["storage"]),
    )
    shape = tuple(int(n) for n in card["shape"])
    counts = int(card["train"]), int(card["test"]), int(card["valid"])
    classes = tuple(str(one) for one in card["classes"])
    if min(counts) < 0 or not shape or min(shape) < 1 or not classes or len(set(classes)) < len(classes):
        raise BadInput(
            Code.NOT_JOINED,
            f"{card['name']}: {counts} samples of shape {shape} in the classes {classes} are not possible.",
        )
    return profile, Sizes(*counts, shape, classes, bool(card["times"]), bool(card["lengths"]))
