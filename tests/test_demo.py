from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from potluck import demo
from potluck.data import PartitionSpec, federate
from potluck.data.load import load
from potluck.errors import Missing
from potluck.methods import METHODS
from potluck.methods import load as load_method
from potluck.report import Comparison, Row, Spread
from potluck.runs.compare import Reached
from potluck.settings import nested


def test_methods_take_part_with_settings_they_have() -> None:
    planned = demo.plan("runs", seeds=2)
    assert {run.method for run in planned.runs} == set(demo.SETTINGS) <= set(METHODS)
    assert len(planned.runs) == 2 * len(demo.SETTINGS)
    assert planned.notes == ()
    assert {"local", "fedavg", "clusterfl", "echopfl", "fedcfc", "centaur", "fedconv"} == set(demo.SETTINGS)
    for method, settings in demo.SETTINGS.items():
        assert settings.keys() <= set(load_method(method).settings)


def test_everybody_gets_the_same_budget() -> None:
    """As many passes over a client's rows: Centaur counts the rounds of devices and of access points."""
    for run in demo.plan("runs", seeds=1).runs:
        chosen = run.experiment
        assert nested(demo.BUDGET)["recipe"].items() <= chosen.method["recipe"].items()
        assert chosen.stop.rounds == demo.ROUNDS * (2 if run.method == "centaur" else 1)
        assert (chosen.data.source, chosen.server.share, chosen.fleet.devices) == (demo.DATA, 0.05, "mixed")


def test_methods_that_do_not_take_part_are_named() -> None:
    welcome = demo.welcome(demo.plan("runs", seeds=1))
    assert all(method in welcome for method in METHODS if method not in demo.SETTINGS)


def test_no_test_row_helps_to_choose_settings() -> None:
    try:
        whole = load(demo.DATA)
    except Missing as missing:
        pytest.skip(str(missing))
    federation = federate(whole, PartitionSpec(seed=7))
    tested = {whole.x[row].tobytes() for i in range(len(federation)) for row in federation.test_rows(i)}
    kept = demo.without_test()
    assert not tested & {row.tobytes() for row in kept.x}
    assert len(federate(kept, PartitionSpec())) == 20
    assert np.unique(kept.y).tolist() == list(range(7))


def row(method: str, accuracy: float, tenth: float, moved: float, best: bool = False) -> Row:
    nothing = {field.name: None for field in dataclasses.fields(Row)}
    given = {"method": method, "name": method, "seeds": [0, 1], "finished": True, "unfinished": [], "best": best}
    seconds = {"virtual_seconds": moved / 1000}
    figures = {"accuracy": accuracy, "worst_tenth": tenth, "bytes_up": moved, "bytes_down": moved} | seconds
    return Row(**(nothing | given | {name: Spread(value, 0.0) for name, value in figures.items()}))


def test_findings_name_winners_and_losers() -> None:
    rows = [row("ftl", 0.9, 0.5, 1e6, best=True), row("fedavg", 0.8, 0.6, 2e6), row("local", 0.7, 0.1, 1e3)]
    comparison = Comparison("watch", 20, rows, "ftl", "ftl is ahead.", ["Three could not train."])
    reached = Reached(0.75, {"ftl": [20.0, 40.0], "fedavg": [10.0, 12.0], "local": [1.0, None]})
    told = [text.replace("\N{NO-BREAK SPACE}", " ") for text in demo.findings(comparison, reached, [])]
    assert told == [
        "ftl is ahead.",
        "local comes last with 70.0 %, on the same samples and devices and with as many rounds.",
        "The worst tenth of the clients does best with fedavg (60.0 %) and worst with local (10.0 %).",
        "fedavg sends the most, 4 MB; local the least, 2 kB.",
        "For the same number of rounds the fleet needed 1 s of virtual time with local and 33.3 min with fedavg.",
        "fedavg is the first to reach 75 %, after 11 s of virtual time; local did not reach it with every seed.",
        "Three could not train.",
    ]
