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


def test_a_device_that_chooses_first_encodes_only_what_it_keeps() -> None:
    """The pass over all samples is gone; what is trained on and handed over costs the same."""
    model, local = windows(64)
    prices = Prices(CENTAUR.programs, CENTAUR.work)
    tasks = {how: device_task(model, settings(batch=16, encode=how), units=3) for how in ("all", "kept")}
    macs = {how: prices.of(task, local, 64).macs.of(64) for how, task in tasks.items()}
    keep = expected_shares(Rule())[1]
    one_pass = Prices(CENTAUR.programs).of(replace(lasting(tasks["all"], 0), rule=EVERYTHING), local, 64).macs.of(64)
    logits = 64 * model.init(3)["fc.weight"].numel()  # selection's pass through the classifier
    assert macs["all"] - macs["kept"] == pytest.approx((1 - keep) * one_pass + logits, rel=1e-6)
    assert prices.of(tasks["all"], local, 64).handoff == prices.of(tasks["kept"], local, 64).handoff


@pytest.mark.parametrize(("how", "share"), [("selected", 0.25), ("redrawn", 1.0)])
def test_ap_training_as_released_trains_on_a_quarter(how: str, share: float) -> None:
    sizes = (800, 800)
    found = {}
    for samples in ("all", how):
        cfg = settings(AP, connected=0.5, epochs=2, batch=200, samples=samples)
        fleet, state = pairs(AP, cfg, sizes)
        found[samples] = run(AP, cfg, fleet, state, 2).samples
        tasks, _ = fleet.log.drain()
        work = [task.macs for task in tasks if task.program == "Upload"]
        assert all(work) if samples == "selected" else not any(work)  # the device's pass
        handed = sum(task.bytes_handoff for task in tasks)
        assert handed == pytest.approx((4 * 4 + 8 + 4) * found[samples].handed_so_far, rel=0.05)
    assert found[how].share_handed == pytest.approx(share, abs=0.03)
    assert found[how].ap_steps / found["all"].ap_steps == pytest.approx(0.25, abs=0.03)
    assert found[how].collected_so_far == found["all"].collected_so_far


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
