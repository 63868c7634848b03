"""What Centaur and its baselines are charged for, and the offline time that decides how much they do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.fleets import run
from helpers.pairs import (
    AP,
    CENTAUR,
    MLP,
    device_task,
    lasting,
    pairs,
    settings,
    windows,
)

from potluck.engines.price import Prices
from potluck.methods import centaur
from potluck.methods.centaur import Collect, Config, Retrain
from potluck.methods.parts.centaur import mobility
from potluck.methods.parts.selection import EVERYTHING, Rule, expected_shares


def test_a_devices_price_has_selection_and_the_expected_share_of_training() -> None:
    model, local = windows(64)
    cfg = settings(batch=16, cache=False)
    task = device_task(model, cfg, units=3)  # everything gathered
    prices = Prices(CENTAUR.programs, CENTAUR.work)
    price = prices.of(task, local, 64).macs.of(64)
    weights = model.init(3)

    def counted(task: Collect) -> float:
        return Prices(CENTAUR.programs).of(replace(task, rule=EVERYTHING), local, 64).macs.of(64)

    once, none = counted(lasting(task, 1)), counted(lasting(task, 0))
    classifier = sum(weights[n].numel() for n in ("fc.weight",))
    keep = expected_shares(Rule())[1]
    one_pass = price - keep * task.epochs * (once - none)
    # Selection: E and C forward, once for every sample; a step: E and C forward, C backward (its first layer: once).
    assert once - none == pytest.approx(one_pass + 64 * classifier, rel=0.01)
    cached = prices.of(device_task(model, settings(batch=16), units=3), local, 64).macs.of(64)
    assert cached < price / 3


@pytest.mark.parametrize("cache", [True, False])
def test_a_devices_price_grows_with_what_it_has_gathered(cache: bool) -> None:
    """Counted on few rows, where 70 % of them are no whole number of groups to encode."""
    model, local = windows(64)
    prices = Prices(CENTAUR.programs, CENTAUR.work)
    task = replace(device_task(model, settings(batch=64, cache=cache), units=1), stream=4)
    macs = [prices.of(replace(task, share=share), local, 330).macs.of(330) for share in (0.5, 0.7, 0.9, 1.0)]
    assert macs == pytest.approx([share * macs[-1] for share in (0.5, 0.7, 0.9, 1.0)], rel=1e-6)


@pytest.mark.parametrize("more", [{}, {"capped": True, "storage_kb": 5.0}, {"unconstrained": True}], ids=str)
def test_ap_training_pays_for_the_samples_it_hands_over(more: dict[str, Any]) -> None:
    cfg = settings(AP, connected=0.5, epochs=1, batch=200, **more)
    fleet, state = pairs(AP, cfg, (1000, 601, 800))
    handed = run(AP, cfg, fleet, state, 1).tally.handed
    tasks, _ = fleet.log.drain()
    sample = 4 * 4 + 8 + 4  # four features, its label, its weight
    assert sum(task.bytes_handoff for task in tasks) == pytest.approx(sample * handed, rel=0.03)


def test_an_access_point_is_priced_by_what_it_was_handed() -> None:
    cfg = settings()
    model, local = windows(30)
    state = centaur.start(model.init(0), cfg)
    task: Retrain = centaur.retrain_task(state, cfg, 0)
    prices = Prices(CENTAUR.programs, CENTAUR.work)
    parcel = local.data
    with_parcel = replace(local, parcel=parcel)
    few, many = (prices.of(task, with_parcel, n).macs.of(n) for n in (10, 20))
    assert few > 0
    assert many == pytest.approx(2 * few, rel=0.01)
    assert prices.of(replace(task, more=3), with_parcel, 10).macs.of(10) == pytest.approx(2 * few, rel=0.01)


# -- offline time and mobility -----------------------------------------------------------------------------------------


def test_offline_units_are_geometric() -> None:
    units = [mobility.offline_units(0.25, 1, i) for i in range(10_000)]
    assert np.mean(units) == pytest.approx(3.0, abs=0.15)  # (1 - p) / p
    assert np.mean([k == 0 for k in units]) == pytest.approx(0.25, abs=0.02)
    assert mobility.offline_units(1.0, 0) == 0
    assert mobility.offline_units(0.0, 0) == 100
    assert max(mobility.offline_units(0.001, i) for i in range(500)) == 100


def test_a_day_begins_and_ends_at_the_best_connected_place() -> None:
    day = mobility.day(4, "c1")
    assert len(day) == 24
    assert day[0] == day[-1] == int(np.argmax(mobility.places(4)))
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
    assert [task.epochs for task in tasks] == [3, 4, 5, 6, 12]
