"""Offline time and the mobility model of Centaur."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.pairs import MLP, device_task, epochs_of

from potluck.methods.centaur import Config
from potluck.methods.parts.centaur import mobility
from potluck.methods.parts.centaur.mobility import Connection


def test_offline_units_are_geometric() -> None:
    units = [mobility.offline_units(0.25, 1, i) for i in range(10_000)]
    assert np.mean(units) == pytest.approx(3.0, abs=0.15)  # (1 - p) / p
    assert np.mean([k == 0 for k in units]) == pytest.approx(0.25, abs=0.02)
    assert mobility.offline_units(1.0, 0) == 0
    assert mobility.offline_units(0.0, 0) == 100
    assert max(mobility.offline_units(0.001, i) for i in range(500)) == 100


def test_a_day_begins_and_ends_at_the_best_connected_location() -> None:
    day = mobility.day(4, "c1")
    assert len(day) == 24
    assert day[0] == day[-1] == int(np.argmax(mobility.locations(4)))
    assert mobility.day(4, "c1") != mobility.day(4, "c2")


def test_a_study_range_is_met_at_both_ends() -> None:
    chances = [mobility.connection(4, "c1", slot, 0.1, 0.4) for slot in range(24)]
    assert min(chances) == pytest.approx(0.1)
    assert max(chances) == chances[0] == pytest.approx(0.4)
    assert mobility.connection(4, "c1", 24, 0.1, 0.4) == chances[0]


def test_more_time_offline_more_data_and_more_epochs() -> None:
    cfg = Config()
    tasks = [device_task(MLP, cfg, units) for units in (0, 1, 2, 3, 9)]
    assert [task.share for task in tasks] == pytest.approx([0.5, 0.7, 0.9, 1.0, 1.0])
    assert [epochs_of(task) for task in tasks] == [3, 4, 5, 6, 12]


def test_offline_time_and_the_share_gathered_tell_each_other() -> None:
    connection = Connection()
    assert [connection.units(connection.gathered(units)) for units in (0, 1, 2)] == [0, 1, 2]
    assert connection.units(1.0) == 2  # beyond that there is nothing left to gather


def test_a_range_of_connections_takes_the_place_of_lambda() -> None:
    always, never = Connection(mobility=(1.0, 1.0), connected=0.0), Connection(mobility=(0.0, 0.0), connected=1.0)
    assert always.offline(0, "c1", 3) == 0
    assert never.offline(0, "c1", 3) == mobility.LONGEST
