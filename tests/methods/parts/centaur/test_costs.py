"""What Centaur and its baselines are charged for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from helpers.fleets import run
from helpers.pairs import (
    AP,
    CENTAUR,
    device_task,
    epochs_of,
    lasting,
    pairs,
    settings,
    windows,
)

from potluck.engines.price import Prices
from potluck.methods import centaur
from potluck.methods.centaur import Collect, Retrain
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
    one_pass = price - keep * epochs_of(task) * (once - none)
    # Selection: E and C forward, once for every sample; a step: E and C forward, C backward (its first layer: once).
    assert once - none == pytest.approx(one_pass + 64 * classifier, rel=0.01)
    cached = prices.of(device_task(model, settings(batch=16), units=3), local, 64).macs.of(64)
    assert cached < price / 3


@pytest.mark.parametrize("cache", [True, False])
def test_a_devices_price_grows_with_what_it_has_gathered(cache: bool) -> None:
    """Counted on few rows, where 70 % of them are no whole number of groups to encode."""
    model, local = windows(64)
    prices = Prices(CENTAUR.programs, CENTAUR.work)
    task = device_task(model, settings(batch=64, cache=cache, stream=4), units=1)
    macs = [prices.of(replace(task, share=share), local, 330).macs.of(330) for share in (0.5, 0.7, 0.9, 1.0)]
    assert macs == pytest.approx([share * macs[-1] for share in (0.5, 0.7, 0.9, 1.0)], rel=1e-6)


@pytest.mark.parametrize("more", [{}, {"capped": True, "storage_kb": 5.0}, {"unconstrained": True}], ids=str)
def test_ap_training_pays_for_the_samples_it_hands_over(more: dict[str, Any]) -> None:
    cfg = settings(AP, connected=0.5, epochs=1, batch=200, **more)
    fleet, state = pairs(AP, cfg, (1000, 601, 800))
    handed = run(AP, cfg, fleet, state, 1).samples.handed
    tasks, _ = fleet.log.drain()
    sample = 4 * 4 + 8 + 4  # four features, its label, its weight
    assert sum(task.bytes_handoff for task in tasks) == pytest.approx(sample * handed, rel=0.03)


def test_an_access_point_is_priced_by_what_it_was_handed() -> None:
    cfg = settings()
    model, local = windows(30)
    state = centaur.start(model.init(0), cfg)
    task: Retrain = Retrain.of(state, cfg, 0)
    prices = Prices(CENTAUR.programs, CENTAUR.work)
    parcel = local.data
    with_parcel = replace(local, parcel=parcel)
    few, many = (prices.of(task, with_parcel, n).macs.of(n) for n in (10, 20))
    assert few > 0
    assert many == pytest.approx(2 * few, rel=0.01)
    assert prices.of(replace(task, more=3), with_parcel, 10).macs.of(10) == pytest.approx(2 * few, rel=0.01)
