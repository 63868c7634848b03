"""Hostile machines by the hundred: what they send is mutated at random, and must leave no trace in the run.

Each machine lies about one kind of message, every time that it is asked. A run is carried out twice: once with the
lies; once in their place with silence, except for those that the server accepted, because an honest client could have
sent them. Both runs must end with the same models, and without a number that is not finite.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from safetensors.numpy import load

from potluck.deploy.client import card
from potluck.deploy.client.machine import ClientMachine
from potluck.engines.flower.protocol import Envelope, Reply
from potluck.engines.flower.server import words
from potluck.engines.flower.server.members import LONGEST_BACKOFF, Members
from potluck.engines.flower.server.words import Registered
from potluck.errors import BadInput, Code
from potluck.lab import holds
from potluck.lab.chance import Chance
from potluck.lab.holds import Violation
from potluck.lab.mutate import TICKET, mutated
from potluck.lab.scenario import SIZES, by_the_clock, trial
from potluck.runs import drive
from potluck.runs.experiment import Experiment
from potluck.runs.results import Run
from potluck.runs.watcher import Silent
from potluck.testing.loopback import Loopback, machines, owners, staged

KINDS = ("hello", "join", "task", "evaluate")
HOSTILE = {"hello": 100, "join": 100, "task": 150, "evaluate": 100}  # machines by the kind of message they lie about
HONEST = 3
ROUNDS = 12
LABELS = ["class 0", "class 1", "class 2"]
LISTED = 2 * LONGEST_BACKOFF  # seconds between two lists of nodes: about one a round
AWAY = "its node went offline"

Sent = tuple[str, int]  # a client, and how many tasks it had before


@dataclass
class Tally:
    """Mutated messages so far, by kind, and what the server did with those about tasks."""

    sent: Counter[str] = field(default_factory=Counter)
    accepted: int = 0  # answers to tasks that an honest client could have given
    runs: int = 0

    @property
    def total(self) -> int:
        return sum(self.sent.values())


class Crowd(Loopback):
    """Honest machines that work, and hostile ones that send what an honest one said, mutated."""

    def __init__(self, homes: Mapping[str, ClientMachine], seed: int, replayed: Collection[Sent] | None) -> None:
        super().__init__(homes)
        self.sent: Counter[str] = Counter()
        self.now = 0.0
        self._seed = seed
        self._replayed = replayed  # of the twin: the lies that are told again; all others are silence
        roles = [kind for kind, many in HOSTILE.items() for _ in range(many)]
        self._roles = dict(enumerate(roles, start=len(self.machines) + 1))
        self._told: Counter[tuple[int, str]] = Counter()
        self._said: dict[str, Envelope] = {}  # the last honest answer of each kind
        self._starts = 0

    @property
    def greeting(self) -> int:
        """How many machines greet the server as an honest one does, and stay."""
        return len(self.machines) + sum(role in ("task", "evaluate") for role in self._roles.values())

    def nodes(self) -> dict[int, tuple[str, str]]:
        """Machines that lie in greetings and joins start again all the time: they are greeted again, and lie again."""
        self._starts += 1
        found = super().nodes()
        for node, role in self._roles.items():
            if node not in self.away:
                found[node] = (f"h{node:04d}", str(self._starts // 2) if role in ("hello", "join") else "first")
        return found

    def push(self, node: int, envelope: Envelope, ttl: float) -> str | None:
        if node in self.machines:
            number = super().push(node, envelope, ttl)
            self.asked.clear()
            said = self._arrived[-1].envelope
            assert said is not None
            self._said[_form(envelope)] = said
            return number
        if node in self.away:
            return None
        number = str(next(self._numbers))
        told = self._answer(node, self._roles[node], envelope)
        content, error = (None, told) if isinstance(told, str) else (told, "")
        self._arrived.append(Reply(number, content, error, float(number)))
        return number

    def pull(self, messages: Collection[str]) -> list[Reply]:
        self.now += 1.0 + LONGEST_BACKOFF  # so nobody has to rest
        return super().pull(messages)

    def _answer(self, node: int, role: str, ask: Envelope) -> Envelope | str:
        honest = self._as_honest(node, ask)
        if honest is None:
            return AWAY
        if role != ask.kind:
            return honest if ask.kind in ("hello", "join") else AWAY
        if ask.kind == "task":
            sent = str(ask.head["client"]), int(ask.head["count"])
            chance = Chance("message", self._seed, *sent, int(ask.head["leg"]))
        else:
            sent, chance = None, Chance("message", self._seed, node, ask.kind, self._asked_before(node, ask.kind))
        if self._replayed is not None and ask.kind in ("task", "evaluate") and sent not in self._replayed:
            return AWAY
        self.sent[ask.kind] += 1
        told = mutated(honest, chance.one(list(self._said.values())), chance, str(ask.head.get("ticket", "")))
        if self._replayed is None:
            return told
        if ask.kind == "task":
            finite(told.body)
        return told if plausible(ask.kind, told, f"h{node:04d}") else Envelope({"refused": "not today"})

    def _asked_before(self, node: int, kind: str) -> int:
        """How often: in greetings and joins since when it is there, which is the same in the twin."""
        self._told[node, kind] += 1
        return self._starts // 2 if kind in ("hello", "join") else self._told[node, kind]

    def _as_honest(self, node: int, ask: Envelope) -> Envelope | None:
        """What an honest client would say in this place; None if no one was asked that yet."""
        said = self._said.get(_form(ask))
        if said is None:
            return None
        name = f"h{node:04d}"
        if ask.kind == "hello":
            first = said.head["clients"][0]
            one = {**first, "name": name, "kind": "client", "partner": None}
            return Envelope({**said.head, "clients": [one]})
        new: dict[str, Any] = {
            key: ask.head[key] for key in ("client", "ticket", "leg") if key in said.head and key in ask.head
        }
        if ask.kind == "task":  # neither wall time nor the length of a number may decide what a mutation changes
            new |= {"worked": 0.25, "ticket": TICKET}
        return Envelope({**said.head, **new}, said.body)


def _form(ask: Envelope) -> str:
    last = ask.kind != "task" or int(ask.head["leg"]) + 1 == int(ask.head["legs"])
    return ask.kind if last else "leg"


def plausible(kind: str, told: Envelope, name: str) -> bool:
    """Whether a greeting or a join is one that an honest machine could have sent; others count as accepted."""
    try:
        if kind == "hello":
            words.greeting(told.head, name, True, lambda client: Registered(None, tuple(LABELS)))
        elif kind == "join":
            words.read(words.Joined, told.head)
    except BadInput:
        return False
    return True


def finite(body: bytes) -> None:
    """Raise Violation for a body with a number that is not finite; the server accepted it."""
    for name, value in load(body).items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise Violation(f"no number is not finite: tensor {name} of an accepted update.")


@contextmanager
def _patient() -> Iterator[None]:
    with mock.patch.object(Members, "rest", return_value=None), mock.patch.object(card, "_speed", return_value=1e9):
        yield


def _carry_out(
    experiment: Experiment, folder: Path, seed: int, replayed: Collection[Sent] | None
) -> tuple[Run, Crowd, holds.Models]:
    homes = machines(experiment, folder / "machines", **owners(experiment))
    crowd = Crowd(homes, seed, replayed)
    run = folder / "run"
    run.mkdir()
    with _patient():
        session = staged(
            experiment, crowd, patience=1e12, count=crowd.greeting, clock=lambda: crowd.now, list_every=LISTED
        )
        try:
            found = drive.carry_out(run, session, Silent())
        except Exception as error:
            raise Violation(f"no run ends: {type(error).__name__}: {error}") from error
    models = {"global": holds.models_of(run / "models").get("global.safetensors", {})}
    for name in homes:
        kept = holds.models_of(folder / "machines" / name / "models" / "run")
        models |= {f"{name}/{file}": one for file, one in kept.items()}
    return found, crowd, models


def flood(
    count: int, first: int, methods: Sequence[str], tally: Tally, seconds: float = float("inf")
) -> Iterator[tuple[str, str]]:
    """Runs until so many mutated messages were sent, or for so long.

    Yield for each run that fails a sentence, and a line to see it again.
    Methods to which the order of answers matters are left out: a lie and a silence do not arrive in the same order.
    """
    methods, number = [method for method in methods if not by_the_clock(method)], first
    if not methods:
        raise BadInput(Code.FLAG_VALUE, "--method: must be one that does not depend on the order of answers.")
    began = time.monotonic()
    while tally.total < count and (not tally.runs or time.monotonic() - began <= seconds):
        method = methods[number % len(methods)]
        try:
            one_run(method, number, tally)
        except Violation as violation:
            yield str(violation), f"potluck lab --messages 1 --first {number} --method {method}"
        number += 1


def one_run(method: str, number: int, tally: Tally) -> None:
    """One run with lies and its twin; Violation says what did not hold."""
    tally.runs += 1
    with tempfile.TemporaryDirectory(prefix="potluck-lab-") as place:
        experiment = trial(
            method
        ).experiment(
            data={"classes": LABELS},  # otherwise a greeting may add labels, and outputs to the model
            partition={"kind": "sizes", "sizes": list(SIZES[:HONEST])},
            stop={"rounds": ROUNDS},
            run={"seed": number % 1000, "evaluate_every": 1, "out": place, "name": "run"},
        )
        places = [Path(place) / name for name in ("lies", "twin")]
        for one in places:
            one.mkdir()
        run, crowd, models = _carry_out(experiment, places[0], number, None)
        tally.sent += crowd.sent
        taken = _accepted(run.table("tasks"))
        tally.accepted += len(taken)
        holds.well_formed(run)
        holds.bytes_add_up(run)
        holds.all_finite(run, models)
        _, _, wanted = _carry_out(experiment, places[1], number, taken)
        holds.same_models(models, wanted, "as if the refused messages had not been")


def _accepted(tasks: Sequence[Mapping[str, Any]]) -> set[Sent]:
    """The tasks of hostile machines whose answers were accepted."""
    count: Counter[str] = Counter()
    taken = set()
    for task in sorted(tasks, key=lambda one: one["number"]):
        if task["number"] < 0 or task["outcome"] == "repeat":
            continue
        if task["client"].startswith("h") and task["outcome"] == "accepted":
            taken.add((task["client"], count[task["client"]]))
        count[task["client"]] += 1
    return taken
