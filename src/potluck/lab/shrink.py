"""Make a failing scenario short: fewer faults first, then a smaller federation, then earlier and simpler faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from potluck.lab.scenario import Scenario

MOST = 120  # scenarios to try


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool], most: int = MOST) -> Scenario:
    """The smallest scenario found that still fails. `fails` is asked at most so many times."""
    tried = 0
    smaller = True
    while smaller:
        smaller = False
        for one in _simpler(scenario):
            if tried >= most:
                return scenario
            tried += 1
            if fails(one):
                scenario, smaller = one, True
                break
    return scenario


def _simpler(scenario: Scenario) -> Iterator[Scenario]:
    """Simpler scenarios, the most promising ones first."""
    faults = scenario.faults
    half = len(faults) // 2
    if half:
        yield replace(scenario, faults=faults[:half])
        yield replace(scenario, faults=faults[half:])
    for i in range(len(faults)):
        if len(faults) > 1:
            yield replace(scenario, faults=faults[:i] + faults[i + 1 :])
    if scenario.simulated:
        yield replace(scenario, simulated=())
    plain = Scenario(method=scenario.method, engine=scenario.engine)
    for name in ("devices", "duty", "every", "saved", "seed"):
        if getattr(scenario, name) != getattr(plain, name):
            yield replace(scenario, **{name: getattr(plain, name)})
    for name, least in (("clients", 2), ("rounds", 1)):
        if getattr(scenario, name) > least:
            yield replace(scenario, **{name: getattr(scenario, name) - 1})
    for i, one in enumerate(faults):
        for at in sorted({1 if one.kind in ("kill", "cut", "full") else 0, one.at // 2, one.at - 1}):
            if 0 <= at < one.at:
                yield replace(scenario, faults=(*faults[:i], replace(one, at=at), *faults[i + 1 :]))
