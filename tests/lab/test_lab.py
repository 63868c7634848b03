"""The fault lab: its federations hold, it finds what it should find, and what it finds is short."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from potluck.cli import app
from potluck.errors import BadInput
from potluck.lab import Fault, Lab, Scenario, draw, shrink
from potluck.lab.scenario import names, read


def held(lab: Lab, first: int, count: int, seconds: float = float("inf")) -> int:
    """How many federations were carried out; every one of them holds."""
    found = list(lab.search(first, count, seconds))
    assert [one.repro + " " + one.broken for one in found if one is not None] == []
    assert not lab.refused
    return len(found)


def test_a_few_federations_hold() -> None:
    assert held(Lab(["fedavg", "scaffold", "ftl"], ["local"]), 0, 16) == 16
    assert held(Lab(["fedavg", "ftl"], ["wire"]), 0, 4) == 4


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "wire"])
def test_federations_of_all_methods_hold(engine: str) -> None:
    """Bounded in count and in time; `potluck lab --count 10000` is a night's run."""
    assert held(Lab((), [engine]), 100_000, 400, seconds=400) > 20


FOUND = {
    "a client that missed the first download": '{"method":"fedcfc","clients":2,"seed":638,"simulated":[["dropout",0.1],'
    '["duplicate",0.2],["oversize",0.1]],"faults":[{"kind":"cut","at":20,"detail":722}]}',
    "passes that depend on rounding": '{"method":"fedem","clients":2,"faults":[{"kind":"cut","at":19,"detail":994}]}',
    "a model equal to the shared": '{"method":"fedconv","clients":2,"rounds":1,"simulated":[["late",0.2],["nan",0.3],'
    '["oversize",0.3]],"faults":[{"kind":"kill","at":19}]}',
    "a lie with the last leg": '{"method":"echopfl","engine":"wire","rounds":1,"faults":[{"kind":"lie","client":2,'
    '"detail":830894,"lie":"infinite"}]}',
    "a device and its access point": '{"method":"centaur","engine":"wire","clients":2,"faults":[{"kind":"stale",'
    '"detail":101251}]}',
    "a client twice in one private sum": '{"method":"fedbuff","clients":4,"rounds":3,"epsilon":4.0,"faults":'
    '[{"kind":"kill","at":20}]}',
    "attackers where no client can take part": '{"method":"ucd","clients":2,"rounds":1,"simulated":[["oversize",0.2],'
    '["hostile",0.3]],"faults":[{"detail":130,"kind":"kill"}]}',
    "a full disk in the first moment": '{"method":"fedavg","faults":[{"kind":"full","at":4,"detail":4}]}',
}


@pytest.mark.parametrize("what", FOUND)
def test_what_the_lab_found_stays_mended(what: str) -> None:
    assert Lab().broken(read(FOUND[what])) is None


def test_a_number_is_one_federation_and_a_line_says_it_all() -> None:
    every = names()
    for number in range(0, 400, 7):
        scenario = draw(number, every)
        assert scenario == draw(number, every)
        assert read(scenario.line) == scenario
        assert "\n" not in scenario.line


def test_federations_of_a_row_share_their_twin() -> None:
    assert len({draw(number, ["fedavg"]).base for number in range(8)}) == 1
    assert draw(8, ["fedavg"]).base != draw(7, ["fedavg"]).base


@pytest.mark.parametrize(
    "line", ["", "{", "[]", '{"method": 3}', '{"faults": [{"kind": "no"}]}', '{"rounds": "many"}', '{"engine": "x"}']
)
def test_a_line_that_is_no_scenario_is_refused(line: str) -> None:
    with pytest.raises(BadInput):
        read(line)


def test_a_failing_scenario_becomes_short() -> None:
    kinds = ("kill", "cut", "full", "cut", "kill")
    faults = tuple(Fault(kind, at, detail=at) for at, kind in enumerate(kinds, start=20))
    long = Scenario(clients=6, devices=3, rounds=4, seed=77, simulated=(("nan", 0.3),), faults=faults)

    def fails(one: Scenario) -> bool:
        return any(fault.kind == "full" and fault.at >= 7 for fault in one.faults) and one.rounds >= 3

    short = shrink(long, fails)
    assert [(one.kind, one.at) for one in short.faults] == [("full", 7)]
    assert (short.clients, short.rounds, short.seed, short.simulated) == (2, 3, 0, ())


def test_the_command() -> None:
    run = CliRunner()
    done = run.invoke(app, ["lab", "--count", "3", "--method", "fedavg", "--engine", "local", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["federations"] == {"local": 3}
    assert told["violations"] == []
    line = replace(Scenario(), faults=(Fault("kill", 9),)).line
    again = run.invoke(app, ["lab", "--repro", line])
    assert again.exit_code == 0
    assert "1 federations (1 local), 0 violations." in again.stdout
    assert run.invoke(app, ["lab", "--repro", "{"]).exit_code == 2
    assert run.invoke(app, ["lab", "--engine", "none"]).exit_code == 2
    assert run.invoke(app, ["lab", "--method", "none"]).exit_code == 2
