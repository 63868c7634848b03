"""The fleet: the clients, and the traffic with them. Methods are written against it, engines implement it.

    server program   (fleet, state, cfg) -> yields State       runs where the server is
    client program   (task, local) -> Done                     runs where the client is

A server program sends tasks and receives updates. Both are frozen dataclasses of tensors and small settings. It knows
nothing of processes, sockets or clocks beyond `fleet.now`. A client program is a pure function written for one client;
an engine may run many of them at once as a stack. Federated averaging, as a whole method:

    @dataclass(frozen=True)
    class Config:                             # what a user may set
        lr: float = 0.1

    @dataclass(frozen=True)
    class State:                              # everything the server must remember
        weights: Params
        round: int = 0

    @dataclass(frozen=True)
    class Train:                              # server to client
        weights: Params
        lr: float

    @dataclass(frozen=True)
    class Trained:                            # client to server
        weights: Params
        examples: Tensor

    def start(weights, cfg):
        return State(weights)

    def server(fleet, state, cfg):
        while True:
            task = Train(state.weights, cfg.lr)
            answers = fleet.gather({client: task for client in fleet.idle})
            weights = state.weights
            if answers:                       # any client may be lost, even all of them
                weights = mean(column(answers, "weights"), column(answers, "examples"))
            state = State(weights, state.round + 1)
            yield state                       # the run records, evaluates, saves and stops here

    def train(task, local):
        weights = sgd(local.model, task.weights, local.data, key=local.key, lr=task.lr, batch=32)
        return Done(Trained(weights, local.data.weight.sum()))

    PROGRAMS = {Train: train}

    def shared(state):                        # the model for all clients
        return state.weights

Some field names mean something to the engines and to the driver. Use them for that and for nothing else:

    Config.recipe    the recipe of local training (`learn.Recipe`), set as `method.recipe.lr`
    Config.cohort    clients asked per round; more than the fleet has raises BadInput
    Config.seed      filled with the seed of the run
    Config.rounds    filled with the number of rounds of the run, where that is known
    State.round      counted by `stop.rounds` and `run.evaluate_every`; without it each yield is a round
    task.recipe, task.batch
                     `recipe.batch` (or `batch`) is the size of a mini-batch; costs are counted with it
    update.examples  samples behind an update; the check before the method refuses more than the client has, and none
                     unless the class of the update has MAY_BE_EMPTY
    update.buffers   gets no noise from `wire.noise`
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
    """A client's samples. They are padded to a common length; `weight` is 1 for a sample and 0 for padding."""

    x: Tensor
    y: Tensor
    weight: Tensor
    t: Tensor | None = None  # time stamps of irregular series
    length: Tensor | None = None  # true lengths of padded series


@dataclass(frozen=True)
class Profile:
    """What the server may know of a client before it sends a task."""

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
    """What a client program finds on its side."""

    model: Any  # potluck.models.Model
    data: Data
    mine: Any  # private state, as this client's last accepted task left it; before that, what `private` returned
    key: Tensor  # randomness of this task and leg
    carry: Any = None  # what the previous leg left
    mail: Any = None  # the newest note that arrived before this leg began
    parcel: Any = None  # what the partner handed over
    valid: Data | None = None  # validation rows (partition.valid_share); never test rows


@dataclass(frozen=True)
class Done:
    """What a client program returns: for the server, for itself, for its next leg, for its partner.

    The client keeps `mine` only if the server accepts the update; None keeps the private state as it is. A refused
    task is as if it had not been done.

    `own` is the model as local training left it. It is never sent and costs nothing: the engine keeps the newest
    accepted one of each evaluated client, and measures it beside the model that the client would receive. A method
    whose `personal` is that model leaves it out and declares `HEADLINE = "own"`.
    """

    update: Message
    mine: Any = None
    carry: Any = None
    handoff: Any = None
    own: Params | None = None


@dataclass(frozen=True)
class Work:
    """One term of a task's expected cost: a task to measure, and factors for its MACs, its upload and its hand-off.

    The samples that gradient steps visit have the factor of the MACs.

    An engine must know how long a task takes before it runs, so it runs the program on blank data and counts. A program
    that decides on the way how much to do needs help: its method declares
    `WORK = {Task: function(task, local, samples) -> [Work, ...]}`, whose terms add up to the expected cost. The engine
    measures them for a client before its first task.
    """

    task: Message
    macs: float = 0.0
    up: float = 0.0
    handoff: float = 0.0


@dataclass(frozen=True)
class Arrival:
    """An update that was accepted."""

    client: ClientId
    update: Message
    task: int  # the number of the task it answers
    sent: float  # when that task was sent
    at: float  # when the update arrived


@dataclass(frozen=True)
class Lost:
    """A client that will not answer this task: it left, timed out, was refused or has too little memory."""

    client: ClientId
    task: int
    at: float
    reason: str


class FleetEmpty(RuntimeError):
    """No client is here and none will come: the run cannot continue."""


def column(answers: Sequence[Arrival], field: str) -> Sequence[Any]:
    """One field of all updates. Where an engine computed them as a stack, it is not taken apart."""
    stacked: Callable[[str], Sequence[Any]] | None = getattr(answers, "column", None)
    return [getattr(answer.update, field) for answer in answers] if stacked is None else stacked(field)


class Fleet(Protocol):
    """The traffic with the clients. `idle` and `clients` may hold a million names: index them, do not copy them."""

    @property
    def now(self) -> float:
        """Seconds since the run started, in virtual or wall time."""

    @property
    def home(self) -> Local:
        """The server's own side: the model, its own data if the experiment gives it any, its key."""

    @property
    def clients(self) -> Mapping[ClientId, Profile]:
        """All registered clients, also those that are busy or away."""

    @property
    def idle(self) -> Sequence[ClientId]:
        """The clients that are here and have nothing to do, in the order of the roster."""

    @property
    def resting(self) -> Collection[ClientId]:
        """The clients that must wait before their next task (`fleet.duty`, `fleet.rows_per_hour`).

        They are not idle and come back by themselves. Synchronous methods wait for them (`parts/cohort.py`).
        """

    @property
    def progress(self) -> float:
        """The share of the run that is over at the last yield, 0 to 1: of the budget, the rounds or the time limit.

        Where several limits are set, the largest share counts. A method that plans ahead uses this.
        """

    def send(self, task: Message, to: ClientId, legs: int = 1) -> None:
        """Give a task to an idle client and return at once. A task of several legs reads notes between them."""

    def post(self, note: Message, to: Collection[ClientId]) -> None:
        """Send a note, which clients read between legs and never answer. A newer note replaces an unread one.

        `to` may be any collection that supports `in`. A collection that cannot change is not copied.
        """

    def receive(self, until: float | None = None) -> Arrival | Lost | None:
        """Wait for the next arrival or loss. Return None at the moment `until`, or when a client joined or returned."""

    def gather(self, tasks: Mapping[ClientId, Message], until: float | None = None) -> Sequence[Arrival]:
        """Send all tasks and wait for all answers, at most until the moment `until`.

        The arrivals come in the order asked, without the lost clients.
        """

    def spend(self, seconds: float, what: str = "") -> None:
        """Charge server work to the clock. `what` is shown while it is done and recorded."""


ServerProgram = Callable[[Fleet, Any, Any], Iterator[Any]]
ClientProgram = Callable[[Any, Local], Done]
Expectation = Callable[[Any, Local, int], Sequence[Work]]
