"""Centaur and its baselines: the specification's acceptance tests, and what settings do."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.fleets import run
from helpers.pairs import (
    AP,
    CENTAUR,
    MLP,
    UCD,
    counts_of,
    device_task,
    epochs_of,
    pairs,
    same,
    settings,
    windows,
)
from torch._C._functorch import is_batchedtensor

from potluck import keys, methods
from potluck.errors import BadInput
from potluck.fleet import Data, Local
from potluck.learn import plain
from potluck.methods import centaur
from potluck.methods.centaur import Config
from potluck.methods.parts.centaur import mobility
from potluck.methods.parts.centaur.handover import Handover
from potluck.methods.parts.centaur.partial import features_of
from potluck.methods.parts.selection import EVERYTHING, expected_shares
from potluck.models import build
from potluck.wire.codec import decode, encode

# -- the acceptance tests of the specification (1 and 2 are in parts/test_selection.py) --------------------------------


def test_a_device_round_leaves_the_encoder_alone() -> None:
    """Acceptance test 3: weights and buffers."""
    model, local = windows()
    task = device_task(model, settings())
    done = centaur.collect(task, local)
    assert done.update.buffers == {}
    assert set(done.update.classifier) == {"fc.weight", "fc.bias"}
    assert not same(done.update.classifier, task.classifier)

    cfg = settings()
    fleet, state = pairs(CENTAUR, cfg)
    after = run(CENTAUR, cfg, fleet, state, 1)
    encoder = MLP.split().encoder
    assert same({n: state.weights[n] for n in encoder}, {n: after.weights[n] for n in encoder})
    assert not same(state.weights, after.weights)


def test_statistics_drift_only_where_asked() -> None:
    """The released code's behaviour: the encoder's weights stay, its batch statistics move."""
    model, local = windows()
    task = device_task(model, settings(batch_norm="train"))
    moved = centaur.collect(task, local).update.buffers
    assert moved
    assert all(name.rpartition(".")[2].startswith("running") for name in moved)
    assert any(not torch.equal(moved[name], task.encoder[name]) for name in moved)


def test_a_batch_of_one_is_no_batch_to_take_statistics_of() -> None:
    model, local = windows(9)
    for statistics, trained in (("eval", 9), ("train", 8)):
        task = replace(
            device_task(model, settings(batch_norm=statistics, batch=4)), rule=EVERYTHING, share=1.0, offline=-2
        )
        assert counts_of(centaur.collect(task, local)).trained == trained


@pytest.mark.parametrize("textbook", [False, True])
@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_cached_features_give_the_same_bits(textbook: bool, gamma: float) -> None:
    """Acceptance test 4, dropout off."""
    model = build("convnet", (24, 5), 3, {"width": 4, "features": 6, "norm": "batch", "dropout": 0.0, "form": "short"})
    _, local = windows()
    local = replace(local, model=model)
    answers = []
    for cache in (True, False):
        task = device_task(model, settings(cache=cache, gamma=gamma, lr=0.01))
        if textbook:
            with plain():
                answers.append(centaur.collect(task, local))
        else:
            answers.append(centaur.collect(task, local))
    cached, uncached = answers
    assert same(cached.update.classifier, uncached.update.classifier)
    assert torch.equal(cached.update.counts, uncached.update.counts)
    assert counts_of(cached).trained > 0


def test_steps_relative_to_training_on_everything() -> None:
    """Acceptance test 5: 0.4225 of UCD training's steps; 41.5 % fewer at equal data."""
    cfg = Config()
    units = [mobility.offline_units(0.5, 0, i) for i in range(30_000)]
    every = np.array([cfg.recipe.epochs + k for k in units], dtype=float)
    gathered = np.array([cfg.connection.gathered(k) for k in units])
    keep = expected_shares(cfg.selection)[1]
    assert float((every * gathered).sum() / every.sum() * keep) == pytest.approx(0.4225, abs=0.01)
    assert 1 - keep == pytest.approx(0.415, abs=0.001)


def test_steps_as_counted_on_devices() -> None:
    """The same ratio out of real rounds of all three, with the same offline times."""
    sizes, rounds, found = (100,) * 4, 4, []
    for method, more in ((CENTAUR, {}), (UCD, {}), (UCD, {"exposure": "collected"})):
        cfg = settings(method, connected=0.5, batch=100, lr=0.01, **more)
        fleet, state = pairs(method, cfg, sizes)
        found.append(run(method, cfg, fleet, state, 2 * rounds if method is CENTAUR else rounds).samples)
    chosen, everything, equal = found
    units = [cfg.connection.offline(cfg.seed, f"c{i}", pair) for i in range(len(sizes)) for pair in range(rounds)]
    gathered = sum((3 + k) * cfg.connection.gathered(k) for k in units) / sum(3 + k for k in units)
    assert everything.steps == sum((3 + k) * 100 for k in units)
    assert equal.steps == pytest.approx(gathered * everything.steps)
    assert chosen.steps / everything.steps == pytest.approx(gathered * 0.5853, abs=0.015)
    assert chosen.steps / equal.steps == pytest.approx(0.585, abs=0.02)
    assert chosen.ap_steps > 0


def test_both_halves_of_a_pair_have_the_same_clients() -> None:
    """Acceptance test 6."""
    cfg = settings(cohort=2)
    fleet, state = pairs(CENTAUR, cfg, (30,) * 6)
    asked: list[tuple[str, str]] = []
    send = fleet.send

    def spy(task: Any, to: str, legs: int = 1) -> None:
        asked.append((type(task).__name__, to))
        send(task, to, legs)

    fleet.send = spy
    program = CENTAUR.server(fleet, state, cfg)
    several = set()
    for _ in range(5):
        asked.clear()
        next(program), next(program)
        chosen = [name for kind, name in asked if kind == "Collect"]
        partners = [name for kind, name in asked if kind == "Retrain"]
        assert len(chosen) == 2
        assert partners == [fleet.clients[name].partner for name in chosen]
        several.add(tuple(chosen))
    assert len(several) > 1


@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize("method", [CENTAUR, AP, UCD], ids=lambda m: m.name)
def test_goes_on_from_any_half(method: methods.Method, cut: int) -> None:
    cfg = settings(method, cohort=2)
    fleet, state = pairs(method, cfg)
    end = run(method, cfg, fleet, state, 4)
    fleet, state = pairs(method, cfg)
    state = run(method, cfg, fleet, state, cut)
    saved = decode(encode({"state": state, "fleet": fleet.snapshot()}), method.classes)
    again, _ = pairs(method, cfg)
    again.restore(saved["fleet"])
    assert same(run(method, cfg, again, saved["state"], 4 - cut).weights, end.weights)


VARIANTS = [
    (CENTAUR, {}), (CENTAUR, {"encode": "kept"}), (CENTAUR, {"hand_over": "all", "redraw": True}),
    (AP, {}), (AP, {"samples": "selected"}), (AP, {"samples": "redrawn"}), (UCD, {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "more"), VARIANTS, ids=lambda v: v.name if isinstance(v, methods.Method) else str(v)
)
def test_stacked_pairs_equal_pairs_one_by_one(method: methods.Method, more: dict[str, Any]) -> None:
    cfg = settings(method, **more)
    ends = []
    for stacking in ("always", "never"):
        fleet, state = pairs(method, cfg, stacking=stacking)
        ends.append(run(method, cfg, fleet, state, 4).weights)
    for name in ends[0]:
        torch.testing.assert_close(ends[0][name], ends[1][name], atol=1e-5, rtol=1e-5)


def test_rounds_leave_nothing_behind() -> None:
    """Parcels, private states and models of earlier rounds are gone, however many rounds there were."""
    cfg = settings(cohort=3, queue=8, device="scaffold", momentum=0.0)
    fleet, state = pairs(CENTAUR, cfg, (30,) * 6)
    program, held = CENTAUR.server(fleet, state, cfg), []
    for number in range(24):
        state = next(program)
        fleet.log.drain()
        if number % 2:  # after the access points: nothing is waiting to be trained on
            gc.collect()
            there = (t for t in gc.get_objects() if type(t) is torch.Tensor and not is_batchedtensor(t))
            found = (t.untyped_storage() for t in there)
            held.append(sum({storage.data_ptr(): storage.nbytes() for storage in found}.values()))
    assert max(held[6:]) <= 1.01 * max(held[3:6])


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tier", ["device", "ap"])
@pytest.mark.parametrize("merge", ["fedprox", "scaffold"])
def test_other_aggregators_for_either_tier(tier: str, merge: str) -> None:
    plain_cfg, cfg = settings(momentum=0.0), settings(momentum=0.0, **{tier: merge})
    fleet, state = pairs(CENTAUR, plain_cfg)
    usual = run(CENTAUR, plain_cfg, fleet, state, 4)
    fleet, state = pairs(CENTAUR, cfg)
    other = run(CENTAUR, cfg, fleet, state, 4)
    assert all(bool(torch.isfinite(value).all()) for value in other.weights.values())
    assert not same(usual.weights, other.weights)
    control = getattr(other.control, tier)
    assert bool(control) == (merge == "scaffold")


def test_a_strong_proximal_term_holds_the_devices() -> None:
    model, local = windows()
    moved = []
    for mu in (0.0, 20.0):
        cfg = settings(momentum=0.0, lr=0.02, batch=5, device="fedprox", mu=mu)
        task = device_task(model, cfg)
        trained = centaur.collect(task, local).update.classifier
        moved.append(float(sum(((trained[n] - task.classifier[n]) ** 2).sum() for n in trained)))
    assert moved[1] < moved[0] / 4


def test_outliers_set_aside_keep_flipped_labels_from_the_access_point() -> None:
    """The paper's own limitation: wrong labels have the highest losses, so they crowd the hand-over."""
    n, wrong = 400, 20
    draw = keys.normal(keys.key("spread"), (n, 2))
    y = torch.arange(n) % 2
    x = draw * 0.3 + torch.stack([y * 2.0 - 1.0, torch.zeros(n)], 1)
    label = torch.where(torch.arange(n) < wrong, 1 - y, y)
    model = build("softmax", (2,), 2, {})
    weights = {"fc.weight": torch.tensor([[-2.0, 0.0], [2.0, 0.0]]), "fc.bias": torch.zeros(2)}
    local = Local(model, Data(x, label, torch.ones(n)), None, keys.key(3))
    flipped = []
    for outliers in (0.0, 0.06):
        cfg = settings(batch=64, lr=0.001, base=1.0, outliers=outliers)
        how = Handover.of(0, here=True, again=False, storage=1e6)
        task = centaur.Collect.of(centaur.State(weights), cfg, frozenset(weights), 0, how)
        handed = centaur.collect(task, local).handoff
        real = handed.weight > 0
        flipped.append(float((handed.y[real] != (handed.x[real, 0] > 0)).float().mean()))
    assert flipped[0] > 0.12
    assert flipped[1] < flipped[0] / 4


@pytest.mark.parametrize("textbook", [False, True])
def test_a_device_may_choose_by_losses_of_earlier_rounds(textbook: bool) -> None:
    """Nothing is known at first; then what was trained on is, and what was handed over no longer is."""
    n = 300
    model, local = windows(n)
    task = device_task(model, settings(encode="kept", base=1.0, lr=0.01))
    with plain() if textbook else nullcontext():
        first = centaur.collect(task, local)
        again = centaur.collect(task, replace(local, mine=first.mine, key=keys.key(8)))
    for before, done in ((torch.full((n,), -1.0), first), (first.mine.known, again)):
        known, sent = done.mine.known, done.mine.stamps != 0
        assert bool((known[sent] == -1.0).all())
        assert counts_of(done).kept == float(((known >= 0) & (known != before)).sum())
        assert counts_of(done).trained == epochs_of(task) * counts_of(done).kept
    losses = first.mine.known
    kept = (again.mine.known != losses) & (again.mine.known >= 0)
    low = (losses >= 0) & (losses < losses[losses >= 0].quantile(0.2))
    assert float(kept[low].float().mean()) < float(kept[losses >= 0].float().mean())


def test_a_device_encodes_only_what_it_chose() -> None:
    model, local = windows(20)
    split, weights, calls = model.split(), model.init(3), []
    only = (torch.arange(20) % 3 == 0).float()
    seen = SimpleNamespace(given=split.given, encode=lambda w, x: calls.append(len(x)) or split.encode(w, x))
    with plain():
        every = features_of(split, weights, local.data, 4)
        some = features_of(seen, weights, local.data, 4, only)  # type: ignore[arg-type]
        assert not features_of(split, weights, local.data, 4, only * 0).any()
    assert torch.equal(some, every * only[:, None])
    assert sum(calls) == 12  # seven samples in groups of four, and one group for the shape where there is none


def test_the_share_handed_over_stands_in_the_record() -> None:
    shares = {}
    for how in ("first", "any", "all"):
        cfg = settings(hand_over=how, connected=0.5, lr=0.01)
        fleet, state = pairs(CENTAUR, cfg, (200, 200))
        after = run(CENTAUR, cfg, fleet, state, 4)
        shares[how] = CENTAUR.record(after)["share_handed"]
        assert after.samples.handed_so_far == shares[how] * after.samples.collected_so_far
    assert shares["first"] == pytest.approx(0.25, abs=0.03)
    assert 0.35 < shares["any"] < 0.55
    assert shares["all"] == 1.0


def test_redrawn_selection_trains_on_fewer() -> None:
    handed, redrawn = settings(), settings(redraw=True)
    steps = []
    for cfg in (handed, redrawn):
        fleet, state = pairs(CENTAUR, cfg, (60, 60))
        steps.append(run(CENTAUR, cfg, fleet, state, 4).samples.ap_steps)
    assert 0 < steps[1] < steps[0]


def test_a_queue_of_losses_is_kept_by_the_device() -> None:
    model, local = windows()
    done = centaur.collect(device_task(model, settings(queue=16)), local)
    assert done.update.examples == 14  # nothing was known yet: all that was gathered is kept
    assert float(done.mine.queue.weight.sum()) == 16
    again = centaur.collect(device_task(model, settings(queue=16)), replace(local, mine=done.mine))
    assert again.update.examples < 14


def test_baselines_have_the_data_they_are_said_to_have() -> None:
    base = {"connected": 1.0}  # never offline: half of the data is gathered
    found = {}
    for name, method, more in (
        ("ap", AP, {}), ("bound", AP, {"unconstrained": True}), ("capped", AP, {"capped": True, "storage_kb": 0.07}),
        ("ucd", UCD, {}), ("equal", UCD, {"exposure": "collected"}),
    ):  # fmt: skip
        cfg = settings(method, **base, **more)
        fleet, state = pairs(method, cfg, (20, 20))
        samples = run(method, cfg, fleet, state, 1).samples
        found[name] = samples.handed if method is AP else samples.collected
    assert found == {"ap": 20, "bound": 40, "capped": 8, "ucd": 40, "equal": 20}


def test_ucd_sends_the_encoder_once() -> None:
    cfg = settings(UCD)
    fleet, state = pairs(UCD, cfg)
    run(UCD, cfg, fleet, state, 3)
    tasks, _ = fleet.log.drain()
    first, second, third = ([t.bytes_down for t in tasks if t.client == "c0"][i] for i in range(3))
    assert first > second + 4 * 4 * 8
    assert second == third


@pytest.mark.parametrize(
    ("name", "value"),
    [("connection.base", 0.0), ("connection.connected", 1.5), ("connection.mobility", [0.8, 0.2]),
     ("encoder.batch_norm", "off"), ("encoder.stream", 0), ("merge.ap", "median"), ("merge.mu", -1.0),
     ("selection.alpha", -1), ("selection.redraw", "none"), ("selection.hand_over", "last"),
     ("selection.encode", "no"), ("selection.outliers", 1.0), ("storage_kb", -1),
     ("recipe.clip", 1.0)],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_the_whole_name(name: str, value: Any) -> None:
    with pytest.raises(BadInput, match=f"^method.{name}: "):
        CENTAUR.configure({name: value})


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(BadInput, match=r"^method.selection.gamma: must be 0 where encode is 'kept', got 1"):
        CENTAUR.configure({"selection.encode": "kept", "selection.gamma": 1.0})
    with pytest.raises(BadInput, match=r"^method.samples: 'some' is not known. Allowed: all, redrawn, selected"):
        AP.configure({"samples": "some"})
    with pytest.raises(BadInput, match=r"^method.selection.alpha: must stay 5.0, got 2.0"):
        AP.configure({"selection.alpha": 2.0})


@pytest.mark.parametrize(
    ("method", "old", "new"),
    [(CENTAUR, "alpha", "selection.alpha"), (CENTAUR, "pn_form", "selection.form"),
     (CENTAUR, "ap_selection", "selection.redraw"), (CENTAUR, "ucd_bn", "encoder.batch_norm"),
     (CENTAUR, "mobility", "connection.mobility"), (AP, "ap_merge", "merge.ap"), (UCD, "device_merge", "merge.device")],
)  # fmt: skip
def test_an_old_name_is_refused_with_the_new_one(method: methods.Method, old: str, new: str) -> None:
    with pytest.raises(BadInput, match=f"^method.{old}: is now called method.{new}"):
        method.configure({old: 1})


@pytest.mark.parametrize(("method", "idle"), [(AP, "device"), (UCD, "ap")])
def test_a_baseline_refuses_to_aggregate_the_tier_that_does_not_train(method: methods.Method, idle: str) -> None:
    with pytest.raises(BadInput, match=f"^method.merge.{idle}: must stay fedavg, got scaffold"):
        method.configure({f"merge.{idle}": "scaffold"})
