"""The fleet: who is there, and the traffic with them. Methods are written against it, engines implement it.

    server program   (fleet, state, cfg) -> yields State       runs where the server is
    client program   (task, local) -> Done                     runs where the client is

A server program sends tasks, which are frozen dataclasses of tensors and small settings, and receives updates,
which are too. It knows nothing of processes, sockets or clocks beyond `fleet.now`. A client program is a pure
function written for one client; an engine may run many at once as a stack.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

ClientId = str
Params = dict[str, Tensor]
Message = Any  # a frozen dataclass declared in the method's file: tensors, dicts of tensors, numbers, strings


@dataclass(frozen=True)
class Data:
    """A client's samples, padded so that stacks do not split; `weight` is 1 for a sample and 0 for padding."""

    x: Tensor
    y: Tensor
    weight: Tensor
    t: Tensor | None = None  # time stamps of irregular series
    length: Tensor | None = None  # true lengths of padded series


@dataclass(frozen=True)
class Profile:
    """What the server may know of a client before asking it anything."""

    device: str
    link: str
    samples: int
    kind: str = "client"
    partner: ClientId | None = None
    memory: int | None = None  # bytes usable for training, where the device's figures are known
    storage: int | None = None  # bytes for samples and models at rest
    macs_per_second: float | None = None  # multiply-accumulates, while training


@dataclass(frozen=True)
class Local:
    """What a client program finds on its own side."""

    model: Any  # potluck.models.Model
    data: Data
    mine: Any  # private state, as this client's last task left it; what `Method.private` gives before the first
    key: Tensor  # randomness of this task and leg
    carry: Any = None  # what the leg before left
    mail: Any = None  # the newest note posted to this client and delivered before this leg began
    parcel: Any = None  # what the partner handed over
    valid: Data | None = None  # rows kept for choices (partition.valid_share); never test rows


@dataclass(frozen=True)
class Done:
    """What a client program leaves: for the server, for itself, for its next leg, for its partner.

    `mine` is kept once the update was taken (None keeps what there was): a refused task is as if it had not been done.
    """

    update: Message
    mine: Any = None
    carry: Any = None
    handoff: Any = None


@dataclass(frozen=True)
class Work:
    """A task to be counted, and how often its MACs, its update and its hand-over are to be expected.

    An engine must know how long a task takes before it runs, and counts its program on blank data. Where a program
    decides on the way how much to do, its method says `WORK = {Task: function(task, local, samples) -> [Work, ...]}`:
    counted tasks that add up to what is expected. They are counted for a client that begins.
    """

    task: Message
    macs: float = 0.0
    up: float = 0.0
    handoff: float = 0.0


@dataclass(frozen=True)
class Arrival:
    """An update that passed the gate."""

    client: ClientId
    update: Message
    task: int  # the number of the task it answers
    sent: float  # when that task was sent
    at: float  # when the update arrived


@dataclass(frozen=True)
class Lost:
    """A client that will not answer this task: it left, timed out, was refused or cannot hold the model."""

    client: ClientId
    task: int
    at: float
    reason: str


class FleetEmpty(RuntimeError):
    """Nobody is there and nobody ever will be: the run cannot go on."""


class Fleet(Protocol):
    """The traffic with the clients. `idle` and `clients` may hold a million names: index them, do not copy them."""

    @property
    def now(self) -> float:
        """Seconds since the run began, virtual or wall."""

    @property
    def home(self) -> Local:
        """What the server has on its own side: the model, its own data if the experiment gives it any, its key."""

    @property
    def clients(self) -> Mapping[ClientId, Profile]:
        """Everybody registered, also those who are busy or away."""

    @property
    def idle(self) -> Sequence[ClientId]:
        """Who is here and has nothing to do, in the order of the roster."""

    def send(self, task: Message, to: ClientId, legs: int = 1) -> None:
        """Give an idle client work; returns at once. A task of several legs reads its mail between them."""

    def post(self, note: Message, to: Collection[ClientId]) -> None:
        """Mail: read between legs, never answered; a newer note replaces an unread one, which is then never sent.

        `to` may be any collection that knows who is in it; one that cannot change is not copied.
        """

    def receive(self, until: float | None = None) -> Arrival | Lost | None:
        """The next arrival or loss in order of arrival; None at the moment `until`, or when someone new came."""

    def gather(self, tasks: Mapping[ClientId, Message], until: float | None = None) -> list[Arrival]:
        """Send all, wait for all (or until the moment `until`): answers in the order asked, without the lost."""

    def spend(self, seconds: float, what: str = "") -> None:
        """Server work, charged to the clock; `what` is shown while it is done and written down."""


ServerProgram = Callable[[Fleet, Any, Any], Iterator[Any]]
ClientProgram = Callable[[Any, Local], Done]
Expectation = Callable[[Any, Local, int], Sequence[Work]]
