"""The bandwidth floor: who is cut off follows from the trace, and so does when she comes back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.fleets import LINK, PC, fleet_of, made, run

from potluck import devices, methods
from potluck.devices.floor import Floor
from potluck.devices.trace import Trace
from potluck.fleet import FleetEmpty

STEPS = Trace((1.0, 1.0, 0.1, 1.0), seconds=10.0)
LINKED = replace(LINK, name="swinging", up=10e6, down=10e6, trace=STEPS)


def test_a_steady_link_is_above_or_below_for_ever() -> None:
    steady = replace(LINK, up=5e6)
    assert Floor(steady, 4e6).available(3, 1.0)
    assert not Floor(steady, 6e6).available(3, 1.0)
    assert Floor(steady, 6e6).next_change_many([3], 1.0)[0] == np.inf


def test_a_client_is_away_exactly_in_the_slow_step() -> None:
    floor = Floor(LINKED, 4e6)
    phase = STEPS.phase(7)
    for moment in np.arange(0.5, 80.0, 1.0):
        assert floor.available(7, float(moment)) == (STEPS.at(float(moment) + phase) * 10e6 >= 4e6)


def test_the_next_change_is_a_change_and_the_first() -> None:
    floor = Floor(LINKED, 4e6)
    numbers = [1, 2, 3, 4, 5]
    for moment in (0.0, 3.3, 17.0, 39.9):
        changes = floor.next_change_many(numbers, moment)
        for number, change in zip(numbers, changes, strict=True):
            before = floor.available(number, moment)
            assert change > moment
            assert floor.available(number, float(change)) != before
            for between in np.linspace(moment, float(change) - 1e-3, 7):
                assert floor.available(number, float(between)) == before


def test_the_run_goes_on_without_those_cut_off_and_they_come_back() -> None:
    method = methods.load("fedavg")
    config = method.configure({"recipe.epochs": 1, "recipe.batch": 5, "recipe.lr": 0.1})
    slow = replace(PC, macs_per_second=500.0)  # a round takes a second or so
    equipment = [(slow, replace(LINK, up=1e9)), (slow, LINKED)]
    fleet, state = fleet_of(method, config, made((12, 9, 15, 11)), equipment=equipment, floor=4e6)
    seen, absent = set(), False
    program = method.server(fleet, state, config)
    while fleet.now < 2 * STEPS.period:
        here = set(fleet.idle)
        seen |= here
        absent |= here < {"c0", "c1", "c2", "c3"}
        state = next(program)
    assert absent
    assert seen == {"c0", "c1", "c2", "c3"}
    assert state.round > 10


def test_a_fleet_below_the_floor_for_ever_is_told_so() -> None:
    method = methods.load("fedavg")
    config = method.configure({})
    fleet, state = fleet_of(method, config, made((12, 9)), floor=1e12)
    with pytest.raises(FleetEmpty, match="reachable"):
        run(method, config, fleet, state, 1)


def test_the_catalogue_has_a_third_on_each_network() -> None:
    mix = devices.Mix.parse("clusterfl-traces")
    assert set(mix.links) == {"lte-varying", "wifi-varying", "ethernet"}
