"""Scenarios: which federation, and what happens to it. Plain data, drawn from a number, written as one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib.util import find_spec
from typing import Any

from potluck.errors import BadInput, Code, must_be, unknown
from potluck.lab.chance import Chance
from potluck.lab.lies import LIES
from potluck.methods import METHODS
from potluck.runs.build import build
from potluck.runs.experiment import Experiment
from potluck.testing.trial import DEVICE, Trial

ENGINES = ("local", "wire")
SIZES = (12, 7, 20, 15, 9, 11)  # training rows of the clients
DEVICES: tuple[Any, ...] = (DEVICE, "raspberry-pi-4", {DEVICE: 0.5, "raspberry-pi-4": 0.5}, "phones")
CRASHES = ("kill", "cut", "full")  # each ends the process that runs the server program; it is started again
WIRE = ("lie", "lost", "twice", "delay", "stale", "client-kill", "client-cut")
KINDS = (*CRASHES, "clock", *WIRE)
VARIANTS = 8  # scenarios in a row that share a federation, and so the run that they are compared with
LATEST = 90  # a crash at a later change is as none: a short run has fewer
ALONE = ("centralised", "centralised_clusters", "serveralone", "standalone")  # without tasks: nothing can go wrong


@dataclass(frozen=True)
class Fault:
    """One thing that happens. `at` counts changes of a disk, or the tasks of a client; 0 for the first."""

    kind: str
    at: int = 0
    client: int = 0  # the machine, from 0
    detail: int = 0  # the seed of a power cut or of a lie, seconds of a clock, changes on a full disk, polls of delay
    lie: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown(Code.SETTING_VALUE, "fault", self.kind, KINDS)
        if self.kind == "lie" and self.lie not in LIES:
            raise unknown(Code.SETTING_VALUE, "lie", self.lie, LIES)


@dataclass(frozen=True)
class Scenario:
    """A federation and what happens to it."""

    method: str = "fedavg"
    engine: str = "local"
    clients: int = 3
    devices: int = 0  # which of DEVICES, on the local engine
    duty: float = 1.0  # share of the time that a device may train
    rounds: int = 2
    seed: int = 0
    every: int = 1  # rounds between two evaluations
    saved: float = 0.0  # seconds between two checkpoints
    simulated: tuple[tuple[str, float], ...] = ()  # shares of [faults], on the local engine
    epsilon: float = 0.0  # the privacy budget of each device, on the local engine; 0: no privacy
    faults: tuple[Fault, ...] = ()

    @property
    def base(self) -> Scenario:
        """The same federation without faults."""
        return replace(self, faults=())

    @property
    def line(self) -> str:
        """The scenario as one line that `read` takes."""
        values = {name: value for name, value in asdict(self).items() if value != getattr(Scenario(), name)}
        if self.faults:
            values["faults"] = [
                {key: value for key, value in asdict(one).items() if value != getattr(Fault("kill"), key, None)}
                | {"kind": one.kind}
                for one in self.faults
            ]
        return json.dumps(values, separators=(",", ":"))

    def experiment(self, out: str) -> Experiment:
        run = {"seed": self.seed, "evaluate_every": self.every, "checkpoint_seconds": self.saved}
        fleet: dict[str, Any] = {"devices": DEVICES[self.devices] if self.engine == "local" else DEVICES[0]}
        privacy = {"unit": "client", "noise": 1.0, "epsilon": self.epsilon, "delta": 0.01, "accountant": "rdp"}
        return trial(self.method).experiment(
            privacy=privacy if self.epsilon else {},
            partition={"kind": "sizes", "sizes": list(SIZES[: self.clients])},
            stop={"rounds": self.rounds},
            faults=dict(self.simulated),
            fleet=fleet | ({"duty": self.duty} if self.duty < 1 else {}),
            run={**run, "out": out, "name": "run"},
        )


def read(line: str) -> Scenario:
    """Read a scenario; anything else raises BadInput."""
    try:
        values = json.loads(line)
        faults = tuple(Fault(**one) for one in values.pop("faults", ()))
        simulated = tuple((str(kind), float(share)) for kind, share in values.pop("simulated", ()))
        found = Scenario(**values, simulated=simulated, faults=faults)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise BadInput(
            Code.SETTING_VALUE, f"scenario: must be one line of JSON as the lab prints it ({error})."
        ) from None
    if found.engine not in ENGINES:
        raise unknown(Code.SETTING_VALUE, "scenario: engine", found.engine, ENGINES)
    for one in fields(Scenario):
        want = type(getattr(Scenario(), one.name))
        if not isinstance(getattr(found, one.name), (int, float) if want is float else want):
            raise must_be(Code.SETTING_VALUE, f"scenario: {one.name}", f"a {want.__name__}", getattr(found, one.name))
    return found


@cache
def trial(method: str) -> Trial:
    """Settings and a model with which a method's run is short."""
    return Trial(method)


@cache
def by_the_clock(method: str) -> bool:
    """Whether the order or the moment of answers matters to a method."""
    return trial(method).plain.seen.by_the_clock


@cache
def private(method: str) -> bool:
    """Whether a method runs under privacy, with what is installed here."""
    if find_spec("dp_accounting") is None:
        return False
    try:
        build(Scenario(method, epsilon=50.0).experiment("runs"))
    except BadInput:
        return False
    return True


def names(only: Sequence[str] = ()) -> list[str]:
    """The methods that scenarios draw from."""
    for name in only:
        if name not in METHODS:
            raise unknown(Code.METHOD_UNKNOWN, "--method", name, METHODS)
    return list(only) or [name for name in METHODS if name not in ALONE]


def draw(number: int, methods: Sequence[str], engines: Sequence[str] = ENGINES) -> Scenario:
    """The scenario of a number: always the same one."""
    base = Chance("federation", number // VARIANTS)
    engine, method = base.one(list(engines)), base.one(list(methods))
    simulated: tuple[tuple[str, float], ...] = ()
    if engine == "local":
        kinds = base.some(("dropout", "late", "duplicate", "corrupt", "nan", "oversize"), base.whole(0, 3))
        simulated = tuple((kind, base.one((0.1, 0.2, 0.3))) for kind in sorted(kinds))
    scenario = Scenario(
        method=method,
        engine=engine,
        clients=base.whole(3, len(SIZES)),
        devices=base.whole(0, len(DEVICES) - 1),
        duty=base.one((1.0, 1.0, 0.5)) if engine == "local" else 1.0,
        rounds=base.whole(2, 4),
        seed=base.whole(0, 999),
        every=base.one((1, 1, 2)),
        saved=base.one((0.0, 0.0, 3600.0)) if engine == "local" else 0.0,
        simulated=simulated,
    )
    if engine == "local" and base.share() < 0.3:  # some clients attack; the last draw, so that the others stay
        scenario = replace(scenario, simulated=(*simulated, ("hostile", 0.3)))
    if engine == "local" and base.share() < 0.2 and private(method):
        scenario = replace(scenario, epsilon=base.one((4.0, 6.0, 50.0)))  # enough for one, three or all rounds
    return replace(scenario, faults=_faults(scenario, Chance("faults", number)))


def _faults(scenario: Scenario, chance: Chance) -> tuple[Fault, ...]:
    clocked = scenario.engine == "wire" and by_the_clock(scenario.method)
    found = [] if clocked else [_crash(chance) for _ in range(chance.whole(0, 4))]
    jumps = (-3600, 60, 4000, 10**7) if scenario.engine == "local" else (30, 100)  # the wire gives up after minutes
    if not clocked and chance.share() < 0.3:
        found.append(Fault("clock", chance.whole(0, LATEST), detail=chance.one(jumps)))
    if scenario.engine == "local":
        return tuple(found or [_crash(chance)])
    return (*found, *_on_the_wire(scenario, chance, clocked))


def _crash(chance: Chance) -> Fault:
    kind = chance.one(("kill", "cut", "cut", "full"))
    return Fault(kind, chance.whole(1, LATEST), detail=chance.whole(1, 9) if kind == "full" else chance.whole(0, 998))


def _on_the_wire(scenario: Scenario, chance: Chance, clocked: bool) -> list[Fault]:
    """Faults of machines and messages. A client fails at most every other task: after two in a row it has to rest."""
    found = []
    kinds = [kind for kind in WIRE if not (clocked and kind in ("delay", "stale"))] + ["lie"] * 4
    for client in chance.some(range(scenario.clients), chance.whole(1, 2)):
        for at in range(chance.whole(0, 1), scenario.rounds + 2, 2):
            kind = chance.one(kinds)
            lie = chance.one(list(LIES)) if kind == "lie" else ""
            most = 3 if kind == "delay" else 12 if kind.startswith("client") else 10**6
            found.append(Fault(kind, at, client, chance.whole(1, most), lie))
    return found
