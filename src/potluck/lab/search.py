"""The loop of the lab: draw a scenario, carry it out, compare it with its plain twin, and keep what fails."""

from __future__ import annotations

import tempfile
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from potluck.errors import BadInput
from potluck.lab import holds, wire
from potluck.lab.holds import Left, Violation
from potluck.lab.scenario import ENGINES, Scenario, draw, names
from potluck.lab.simulate import simulate
from potluck.runs.results import Run

KEPT = 32  # plain twins that are kept in memory


@dataclass(frozen=True)
class Found:
    """A scenario in which something did not hold."""

    scenario: Scenario
    broken: str

    @property
    def rule(self) -> str:
        """What did not hold, without the details."""
        return self.broken.partition(":")[0]

    @property
    def repro(self) -> str:
        return f"potluck lab --repro '{self.scenario.line}'"


@dataclass
class Lab:
    """Carries scenarios out. Twins are kept, because several scenarios in a row share one."""

    methods: Sequence[str] = ()
    engines: Sequence[str] = ENGINES
    _twins: OrderedDict[tuple[Scenario, Any], Left] = field(default_factory=OrderedDict)
    done: Counter[str] = field(default_factory=Counter)  # scenarios by engine, faults by kind
    refused: Counter[str] = field(default_factory=Counter)  # federations that cannot be, by the reason

    def __post_init__(self) -> None:
        self.methods = names(self.methods)

    def search(self, first: int, count: int, seconds: float = float("inf")) -> Iterator[Found | None]:
        """Carry out so many scenarios, or as many as there is time for; None for each in which everything held."""
        began = time.monotonic()
        for number in range(first, first + count):
            if time.monotonic() - began > seconds:
                return
            scenario = draw(number, self.methods, self.engines)
            broken = self.broken(scenario)
            self.done[scenario.engine] += 1
            self.done.update(one.kind for one in scenario.faults)
            yield None if broken is None else Found(scenario, broken)

    def broken(self, scenario: Scenario) -> str | None:
        """What does not hold in a scenario, in a sentence; None if everything does."""
        try:
            with tempfile.TemporaryDirectory(prefix="potluck-lab-") as place:
                self._check(scenario, Path(place))
        except Violation as violation:
            return str(violation)
        except BadInput as refused:  # by the plain twin: the method cannot take part in such a federation at all
            self.refused[refused.told] += 1
        return None

    def _check(self, scenario: Scenario, place: Path) -> None:
        if scenario.engine == "local":
            twin = self._twin(scenario, None, lambda at: simulate(scenario.base, at))
            run, what = simulate(scenario, place), "same bits after all crashes"
        else:
            listen = scenario.seed % 4 == 0 and scenario.clients > 2  # of two, one alone may make a mean
            run, lost = wire.carry_out(scenario, place, listen=listen)
            twin = self._twin(scenario, lost, lambda at: wire.carry_out(scenario.base, at, lost)[0])
            what = "as if the liar had not been"
        holds.well_formed(run)
        holds.bytes_add_up(run)
        if scenario.epsilon:
            holds.ledger_kept(run, scenario.epsilon)
        left = Left.of(run, _models(scenario, run, place))
        if scenario.engine == "local":
            holds.same_rows(left, twin)
        holds.same_models(left.models, twin.models, what)

    def _twin(self, scenario: Scenario, lost: Any, make: Callable[[Path], Run]) -> Left:
        key = (scenario.base, lost)
        if key not in self._twins:
            with tempfile.TemporaryDirectory(prefix="potluck-lab-") as place:
                run = make(Path(place))
                self._twins[key] = Left.of(run, _models(scenario, run, Path(place)))
            while len(self._twins) > KEPT:
                self._twins.popitem(last=False)
        return self._twins[key]


def _models(scenario: Scenario, run: Run, place: Path) -> holds.Models:
    """All models of a run: the server's, and on the wire those that the clients keep."""
    found = holds.models_of(run.folder / "models")
    if scenario.engine == "wire":
        for folder in sorted((place / "machines").glob("*/models/run")):
            found |= {f"{folder.parts[-3]}/{name}": one for name, one in holds.models_of(folder).items()}
    return found
