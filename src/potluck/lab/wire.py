"""A scenario on the Flower engine, in one process: hostile machines, a bad wire, and crashes on either side.

A fault is bound to one task of one client (how many tasks it had before), not to a moment: a server that was killed
and asks again meets the same fault again. So each run has a plain twin: the same federation in which these tasks are
lost. The two must end with the same models.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from potluck.deploy.client import card
from potluck.deploy.client.machine import ClientMachine
from potluck.engines.flower.protocol import Envelope, Reply
from potluck.engines.flower.server.members import Members
from potluck.errors import BadInput, Code
from potluck.lab.chance import Chance
from potluck.lab.disk import Crash, Disk, Killed, watched
from potluck.lab.holds import Violation
from potluck.lab.lies import LIES
from potluck.lab.scenario import WIRE, Fault, Scenario
from potluck.lab.simulate import lives
from potluck.runs import drive
from potluck.runs.deal import federation_of
from potluck.runs.results import Run
from potluck.runs.watcher import Silent
from potluck.testing.leaks import Ears
from potluck.testing.loopback import Loopback, machines, owners, staged

ASKS = ("hello", "join", "evaluate", "task")
AWAY = "its node went offline"
SOME_SECONDS = 0.01  # that the clock goes on at each pause of the server

Task = tuple[int, str, int, int]  # node, client (a device and its access point share one), its tasks before, leg


@dataclass(frozen=True)
class Lost:
    """What a run's plain twin does without: greetings, joins and scores of these nodes, and these tasks."""

    hello: frozenset[int] = frozenset()
    join: frozenset[int] = frozenset()
    evaluate: frozenset[int] = frozenset()
    tasks: frozenset[Task] = frozenset()


class Wire(Loopback):
    """The loopback with faults. It outlives the server's processes, as a network does."""

    def __init__(
        self,
        homes: Mapping[str, ClientMachine],
        disks: Mapping[str, Disk],
        faults: Collection[Fault] = (),
        lost: Lost | None = None,
        ears: Ears | None = None,
    ) -> None:
        super().__init__(homes)
        self._disks = {number: disks[name] for number, (name, _) in self.machines.items()}
        self._faults = {(one.client + 1, one.at): one for one in faults if one.kind in WIRE}
        # A lie about anything but a task is told always.
        told = [(one, LIES[one.lie][0]) for one in faults if one.kind == "lie" and one.client < len(homes)]
        self._lies = {(one.client + 1, kind): one for one, kind in told if kind != "task"}
        self._lost = lost or Lost()
        self._ears = ears
        self.away = set(self._lost.hello)
        self.spoiled: set[tuple[str, Any]] = set()  # what the plain twin does without: kind, and task or node
        self._before: dict[tuple[int, str], Envelope] = {}  # the last answer of each client to another task
        self._held: list[tuple[int, Reply]] = []  # polls to wait, reply
        self._died: set[Task] = set()

    @property
    def greeting(self) -> int:
        """How many machines greet the server in a way that it can accept."""
        return len(self.machines) - len(self.away | {node for node, kind in self._lies if kind == "hello"})

    def push(self, node: int, envelope: Envelope, ttl: float) -> str | None:
        if node in self.away:
            return None
        number = next(self._numbers)
        polls, replies = self._answers(node, envelope)
        for one in replies:
            content, error = (None, one) if isinstance(one, str) else (one, "")
            self._held.append((polls, Reply(str(number), content, error, number)))
        return str(number)

    def pull(self, messages: Collection[str]) -> list[Reply]:
        self._arrived += [reply for polls, reply in self._held if polls <= 0]
        self._held = [(polls - 1, reply) for polls, reply in self._held if polls > 0]
        return super().pull(messages)

    def _answers(self, node: int, ask: Envelope) -> tuple[int, list[Envelope | str]]:
        """How many polls to wait, and what arrives."""
        if ask.kind == "join" and node in self._lost.join:
            return 0, [Envelope({"refused": "not today"})]
        if ask.kind == "evaluate" and node in self._lost.evaluate:
            self.machines[node][1].handle(ask)  # it keeps its model, and its scores are lost
            return 0, [AWAY]
        head = ask.head
        task = (node, str(head["client"]), int(head["count"]), int(head["leg"])) if ask.kind == "task" else None
        if task is not None and task in self._lost.tasks:
            return 0, [AWAY]
        fault = self._lies.get((node, ask.kind)) if task is None else self._faults.get((node, task[2]))
        if fault is not None and fault.kind == "lie" and LIES[fault.lie][0] != ask.kind:
            fault = None
        if task is not None and fault is not None and fault.kind.startswith("client"):
            return self._dies(node, task, ask, fault)
        name, machine = self.machines[node]
        answer = machine.handle(ask)
        if self._ears is not None:
            self._ears.hear(name, machine, ask, answer)
        return self._spoiled(node, task, ask, answer, fault)

    def _spoiled(
        self, node: int, task: Task | None, ask: Envelope, answer: Envelope, fault: Fault | None
    ) -> tuple[int, list[Envelope | str]]:
        before = None if task is None else self._before.get(task[:2])
        if task is not None:
            self._before[task[:2]] = answer
        if fault is None:
            return 0, [answer]
        if fault.kind == "twice":
            return 0, [answer, answer]
        if fault.kind == "delay":
            return fault.detail, [answer]
        if fault.kind == "stale" and (before is None or before.head.get("ticket") == answer.head.get("ticket")):
            return 0, [answer]
        told: Envelope | str = AWAY
        if fault.kind == "lie":
            of_body = ask.kind == "task" and fault.lie in BODY
            told = answer if of_body and not answer.body else LIES[fault.lie][1](ask, answer, Chance(fault.detail))
            if told is answer:
                return 0, [answer]
        elif fault.kind == "stale" and before is not None:
            told = before
        self.spoiled.add((ask.kind, task if task is not None else node))
        return 0, [told, answer] if fault.kind == "stale" else [told]

    def _dies(self, node: int, task: Task, ask: Envelope, fault: Fault) -> tuple[int, list[Envelope | str]]:
        """The machine crashes while it works; it is started again and knows what is on its disk."""
        self.spoiled.add(("task", task))
        if task in self._died:
            return 0, [AWAY]
        self._died.add(task)
        name, machine = self.machines[node]
        disk = self._disks[node]
        disk.expect(Crash(fault.kind.removeprefix("client-"), 1 + fault.detail % 12, fault.detail))
        try:
            machine.handle(ask)
        except Killed:
            disk.settle()
        disk.expect(None)
        self.machines[node] = (name, ClientMachine(machine.owner))
        return 0, [AWAY]


BODY = (
    "not a number",
    "infinite",
    "shape",
    "float8",
    "float64",
    "complex",
    "400 digits",
    "cut short",
    "noise",
    "header",
)


@contextmanager
def _own_time(faults: Collection[Fault]) -> Iterator[Any]:
    """A clock that goes on at the server's pauses only, and jumps ahead where a fault says so. No speed is measured."""
    jumps = [(one.at, one.detail) for one in faults if one.kind == "clock"]
    seen = {"now": 0.0, "pauses": 0}

    def rest(members: Members) -> None:
        seen["pauses"] += 1
        seen["now"] += SOME_SECONDS + sum(seconds for at, seconds in jumps if seen["pauses"] == at)

    with mock.patch.object(Members, "rest", rest), mock.patch.object(card, "_speed", return_value=1e9):
        yield lambda: seen["now"]


def carry_out(scenario: Scenario, folder: Path, lost: Lost | None = None, listen: bool = False) -> tuple[Run, Lost]:
    """Carry the scenario out, or with `lost` its plain twin. Return the run, and what its twin does without."""
    experiment = scenario.experiment(str(folder))
    faults = scenario.faults if lost is None else ()
    homes = machines(experiment, folder / "machines", **owners(experiment))
    for name in homes:
        (folder / "machines" / name).mkdir(exist_ok=True)
    disks = {name: Disk(folder / "machines" / name) for name in homes}
    run = folder / "server" / "run"
    run.mkdir(parents=True)
    server = Disk(folder / "server")
    ears = Ears(homes) if listen else None
    wire = Wire(homes, disks, faults, lost, ears)
    crashes = lives(scenario) if lost is None else [None]
    with _own_time(faults) as clock, watched([server, *disks.values()]):
        for crash in crashes:
            server.expect(crash)
            try:
                found = drive.carry_out(run, staged(experiment, wire, count=wire.greeting, clock=clock), Silent())
                break
            except Killed:
                server.settle()
            except BadInput as error:
                if crash is None or crash.kind != "full" or error.code is not Code.OUTPUT_PLACE:
                    raise Violation(f"the run goes on: {error.told}") from error
                server.settle()
            except Exception as error:
                raise Violation(f"the run goes on: {type(error).__name__}: {error}") from error
    without = _twin(wire)
    if ears is not None and without == Lost():  # the mean of a single update is that client's model
        for leak in ears.leaks(federation_of(experiment)):
            raise Violation(f"nobody is served another's model: {leak}")
    return found, without


def _twin(wire: Wire) -> Lost:
    return Lost(*(frozenset(one for told, one in wire.spoiled if told == kind) for kind in ASKS))
