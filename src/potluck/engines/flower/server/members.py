"""The clients that registered with a deployed server: their machines come and go, say hello, and join the run.

A machine is one node of Flower. It may host the client it was registered as, and that client's access point. Whatever
it says passes `words.py` first. A machine that claims more is refused, and the run's log says so.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any

from potluck.engines.flower.protocol import PROTOCOL, Envelope, Reply, Transport
from potluck.engines.flower.server import words
from potluck.engines.flower.server.words import Card, Registered
from potluck.engines.log import Event
from potluck.errors import BadInput, Code
from potluck.fleet import ClientId, FleetEmpty, Profile

LONGEST_BACKOFF = 60.0  # seconds
PROBE = 60.0  # seconds between two greetings to machines that do not answer
HEAVIEST = 10  # rows of a client count at most so many times the median client's, unless they are registered
MOST_LABELS = 20  # labels that a client may name where others name few; else twice as many as the median client


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

    @classmethod
    def of(cls, card: Card) -> Sizes:
        shape, classes = tuple(card.shape), tuple(card.classes)
        return cls(card.train, card.test, card.valid, shape, classes, card.times, card.lengths)

    @property
    def form(self) -> tuple[tuple[int, ...], bool, bool]:
        """What must be the same on all clients."""
        return self.shape, self.times, self.lengths


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
    mute: bool = False  # it is online and did not answer in time: it gets no task until it is heard again
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
    pairs: bool = True  # whether the method has a use for access points
    labels: tuple[str, ...] = ()  # the labels of the experiment; empty: the clients say theirs
    registered: Mapping[str, Registered] = field(default_factory=dict)  # what the operator registered, by name
    by_name: dict[ClientId, Member] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    joining: Envelope | None = None  # the join message, once the run is known
    classes: tuple[str, ...] = ()  # the labels of the run's model, once they are known
    left: Callable[[ClientId], None] = lambda client: None  # called for each client that goes offline
    undecided: set[int] = field(default_factory=set)  # nodes that have not answered the join message yet
    _pending: dict[str, Callable[[Reply], None]] = field(default_factory=dict)
    _nodes: dict[int, tuple[str, str]] = field(default_factory=dict)
    _listed: float = float("-inf")
    _probed: float = 0.0  # when mute machines were greeted last
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
        there = member.node is not None and member.joined and not member.mute
        return there and member.not_before <= self.clock()

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
            if not self._pending:
                self._settle()
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
        if self.clock() - self._probed >= PROBE:
            self._probed = self.clock()
            for node in sorted({one.node for one in self.by_name.values() if one.mute and one.node is not None}):
                self._greet(node, self._nodes[node][0])
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

    def heard(self, name: ClientId) -> None:
        """A client answered: it is no longer mute."""
        member = self.by_name[name]
        if member.mute:
            member.mute = False
            self.say("back", name, "answers again")

    def silent(self, name: ClientId) -> None:
        """A client did not answer in time."""
        self.by_name[name].mute = True

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
                self.say("refused", name, f"no answer to hello: {words.reason(reply.error)}")
                self._nodes.pop(node, None)  # if it is still online it is greeted again
                return
            try:
                self._introduce(node, name, reply.envelope.head)
            except BadInput as error:
                self.say("refused", name, f"its answer to hello is not valid: {error.told}")

        self.ask(node, Envelope({"kind": "hello", "protocol": PROTOCOL, **self.hello}), on_reply, ttl=600.0)

    def _introduce(self, node: int, registered: str, head: Mapping[str, Any]) -> None:
        """Take a machine's clients in, or none of them."""
        cards = words.greeting(head, registered, self.pairs, self._known)
        for card in cards:
            there = self.by_name.get(card.name)
            if there is not None and there.node is not None and there.node != node:
                raise BadInput(Code.NOT_JOINED, f"the name {card.name!r} is in use by another node.")
            self._fits(card.name, Sizes.of(card))
        for card in cards:
            member = self.by_name.setdefault(card.name, Member(card.name, card.profile, Sizes.of(card)))
            member.profile, member.sizes, member.node = card.profile, Sizes.of(card), node
            member.failures, member.not_before, member.mute = 0, 0.0, False
        if self.joining is not None:
            self.join(node)

    def _known(self, name: str) -> Registered:
        known = self.registered.get(name, Registered())
        return Registered(known.rows, self.labels) if self.labels else known

    def _fits(self, name: ClientId, sizes: Sizes) -> None:
        """Raise BadInput for a late client whose labels or samples do not fit the run's model."""
        strange = sorted(set(sizes.classes) - set(self.classes)) if self.classes else []
        if strange:
            raise BadInput(
                Code.NOT_JOINED, f"{name}: has the label {strange[0]!r}, which the run's model does not know."
            )
        first = next((one.sizes for one in self.by_name.values()), None) if self.classes else None
        if first is not None and sizes.form != first.form:
            raise self._other_shape(name, sizes, first)

    @staticmethod
    def _other_shape(name: ClientId, sizes: Sizes, wanted: Sizes) -> BadInput:
        got = list(sizes.shape) if sizes.shape != wanted.shape else "other time stamps or lengths"
        return BadInput(Code.NOT_JOINED, f"{name}: samples must have the shape {list(wanted.shape)}, got {got}.")

    def _settle(self) -> None:
        """Turn away who differs from the others: the shape of most clients counts, and a plausible number of labels.

        No client can refuse the run for everybody, or give everybody's model thousands of outputs.
        """
        there = [member for member in self.by_name.values() if member.node is not None]
        if not there or self.joining is not None:
            return
        form = Counter(member.sizes.form for member in there).most_common(1)[0][0]
        wanted = next(member.sizes for member in there if member.sizes.form == form)
        most = max(MOST_LABELS, 2 * median_low(len(member.sizes.classes) for member in there))
        for member in there:
            if member.sizes.form != form:
                self._turn_away(member, self._other_shape(member.name, member.sizes, wanted))
            elif len(member.sizes.classes) > most and self._known(member.name).classes is None:
                named = len(member.sizes.classes)
                sentence = f"{member.name}: must have at most {most} labels, got {named}. Set data.classes."
                self._turn_away(member, BadInput(Code.NOT_JOINED, sentence))

    def _turn_away(self, member: Member, why: BadInput) -> None:
        for other in [one for one in self.by_name.values() if one.node == member.node]:
            del self.by_name[other.name]
        self.say("refused", member.name, why.told)

    def counts(self, name: ClientId) -> int:
        """The rows that a client's update may count for: what it has, as far as the operator or the others vouch."""
        member = self.by_name[name]
        if self._known(name).rows is not None:
            return member.sizes.train
        held = [one.sizes.train for one in self.by_name.values() if one.sizes.train]
        return min(member.sizes.train, HEAVIEST * median_low(held)) if held else 0

    def join(self, node: int) -> None:
        """Send a node the join message."""
        assert self.joining is not None

        def on_reply(reply: Reply) -> None:
            self.undecided.discard(node)
            refused = words.reason(reply.error)
            if reply.envelope is not None:
                try:
                    words.read(words.Joined, reply.envelope.head)
                except BadInput as error:
                    said = reply.envelope.head.get("refused")
                    refused = error.told if said is None else words.reason(said)
            for member in self.by_name.values():
                if member.node == node:
                    member.joined = not refused
                    self.say("refused" if refused else "joined", member.name, refused)

        if self.ask(node, self.joining, on_reply, ttl=600.0):
            self.undecided.add(node)

    def begin(self, joining: Envelope, classes: tuple[str, ...]) -> None:
        """The run is known: send all nodes that are online the join message."""
        self.joining, self.classes = joining, classes
        for node in sorted(self.online):
            self.join(node)
