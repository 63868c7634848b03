"""Centaur and its baselines: the specification's acceptance tests, and what passes between a device and its partner."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from fleets import PC, fleet_of, made, run

from potluck import devices, keys, methods
from potluck.engines.local.price import Prices
from potluck.errors import BadInput
from potluck.fleet import Data, Local, Profile
from potluck.learn import plain
from potluck.methods import centaur
from potluck.methods.centaur import Collect, Config, Retrain
from potluck.methods.parts import mobility
from potluck.methods.parts.pairs import storage as storage_of
from potluck.methods.parts.selection import EVERYTHING, Rule, expected_shares
from potluck.models import build
from potluck.runs.checkpoint import registry
from potluck.wire.codec import decode, encode, size

CENTAUR, AP, UCD = (methods.load(name) for name in ("centaur", "ap", "ucd"))
SIZES = (12, 20, 15, 9)
MLP = build("mlp", (4,), 3, {"hidden": [8]})
UCD_LINK, AP_LINK = devices.link("centaur-ucd"), devices.link("centaur-ap")


def pairs(method: methods.Method, config: Any, sizes: tuple[int, ...] = SIZES, **options: Any) -> tuple[Any, Any]:
    """Devices c0 to c(n-1), and behind them their access points; one after another, which is quicker for so few."""
    return fleet_of(method, config, made(sizes), **{"model": MLP, "stacking": "never", "pairs": True, **options})


def settings(method: methods.Method = CENTAUR, **values: Any) -> Any:
    """Always connected unless told: then all devices have the same task, and it is counted once."""
    return method.configure({"cohort": 0, "batch": 10, "lr": 0.1, "connected": 1.0, **values})


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def windows(n: int = 20) -> tuple[Any, Local]:
    """A small ConvNet with batch norm, and a client with n windows of 24 steps and 5 sensors."""
    model = build("convnet", (24, 5), 3, {"width": 4, "features": 6, "norm": "batch", "form": "short"})
    data = Data(keys.normal(keys.key("x"), (n, 24, 5)), torch.arange(n) % 3, torch.ones(n))
    return model, Local(model, data, None, keys.key(7))


def device_task(model: Any, cfg: Config, units: int = 1) -> Collect:
    state = centaur.start(model.init(3), cfg)
    return centaur.collect_task(state, cfg, model.split().classifier, 0, units, True, 1e6)


def rows_of(data: Data) -> set[tuple[float, ...]]:
    return {tuple(row.flatten().tolist()) for row in data.x[data.weight > 0]}


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
    task = device_task(model, settings(ucd_bn="train"))
    moved = centaur.collect(task, local).update.buffers
    assert moved
    assert all(name.rpartition(".")[2].startswith("running") for name in moved)
    assert any(not torch.equal(moved[name], task.encoder[name]) for name in moved)


def test_a_batch_of_one_is_no_batch_to_take_statistics_of() -> None:
    model, local = windows(9)
    for ucd_bn, trained in (("eval", 9), ("train", 8)):
        task = replace(device_task(model, settings(ucd_bn=ucd_bn, batch=4)), rule=EVERYTHING, share=1.0, epochs=1)
        assert float(centaur.collect(task, local).update.trained) == trained


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
    assert float(cached.update.trained) > 0


def test_steps_relative_to_training_on_everything() -> None:
    """Acceptance test 5: 0.4225 of UCD training's steps; 41.5 % fewer at equal data."""
    cfg = Config()
    units = [mobility.offline_units(0.5, 0, i) for i in range(30_000)]
    every = np.array([cfg.epochs + k for k in units], dtype=float)
    gathered = np.array([mobility.gathered(cfg, k) for k in units])
    keep = expected_shares(cfg.rule)[1]
    assert float((every * gathered).sum() / every.sum() * keep) == pytest.approx(0.4225, abs=0.01)
    assert 1 - keep == pytest.approx(0.415, abs=0.001)


def test_steps_as_counted_on_devices() -> None:
    """The same ratio out of real rounds of all three, with the same offline times."""
    sizes, rounds, found = (100,) * 4, 4, []
    for method, more in ((CENTAUR, {}), (UCD, {}), (UCD, {"exposure": "collected"})):
        cfg = settings(method, connected=0.5, batch=100, lr=0.01, **more)
        fleet, state = pairs(method, cfg, sizes)
        found.append(run(method, cfg, fleet, state, 2 * rounds if method is CENTAUR else rounds).tally)
    chosen, everything, equal = found
    units = [mobility.offline(cfg, f"c{i}", pair) for i in range(len(sizes)) for pair in range(rounds)]
    gathered = sum((3 + k) * mobility.gathered(cfg, k) for k in units) / sum(3 + k for k in units)
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


# -- between a device and its access point -----------------------------------------------------------------------------


def test_what_any_epoch_chose_is_handed_over() -> None:
    """A sample chosen in a later epoch is out of that epoch's training, so it must reach the access point, too."""
    model, local = windows(60)
    cfg = settings(alpha=0.0, beta=3.0, base=1.0, lr=1e-6)
    one, six = (centaur.collect(replace(device_task(model, cfg), epochs=n), local) for n in (1, 6))
    chosen = float(one.update.counts[2])
    assert float(one.handoff.weight.sum()) == chosen == float(six.update.counts[2])  # D_M of the first epoch
    assert float(six.handoff.weight.sum()) > 1.5 * chosen
    rows = [{tuple(x.flatten().tolist()) for x in done.handoff.x[done.handoff.weight > 0]} for done in (one, six)]
    assert rows[0] < rows[1]
    assert float(six.update.trained) < 6 * 60


def test_random_selection_hands_over_as_many() -> None:
    """The same shares in every epoch and over all of them, so that both give access points as much to learn from."""
    model, local = windows(400)
    handed, kept = [], []
    for selection in ("loss", "random"):
        task = device_task(model, settings(selection=selection, base=1.0, lr=1e-6, batch=100, epochs=5))
        done = centaur.collect(task, local)
        handed.append(float(done.handoff.weight.sum()) / 400)
        kept.append(float(done.update.trained) / 400 / task.epochs)
    assert handed[1] == pytest.approx(handed[0], abs=0.05)
    assert kept == pytest.approx([expected_shares(Rule())[1]] * 2, abs=0.03)


def test_samples_go_to_the_partner_and_never_to_the_server() -> None:
    cfg = settings()
    fleet, state = pairs(CENTAUR, cfg)
    after = run(CENTAUR, cfg, fleet, state, 1)
    tasks, _ = fleet.log.drain()
    sent = [task for task in tasks if task.program == "Collect"]
    assert all(task.bytes_handoff > 0 for task in sent)
    parcel = fleet.snapshot()["parcels"][len(SIZES)]
    mine = {tuple(row.tolist()) for row in torch.from_numpy(made(SIZES)[0][0])}
    real = parcel.x[parcel.weight > 0]
    assert 0 < len(real) <= SIZES[0]
    assert {tuple(row.tolist()) for row in real} <= mine
    assert not {tuple(row.tolist()) for row in parcel.x} <= {()}
    assert after.tally.handed == sum(float(p.weight.sum()) for p in fleet.snapshot()["parcels"].values())


def test_an_update_weighs_the_classifier_and_little_more() -> None:
    model, local = windows(200)
    task = device_task(model, settings(batch=64))
    update = centaur.collect(task, local).update
    assert size(update) < size(task.classifier) + 1200
    bigger = centaur.collect(task, windows(400)[1]).update
    assert size(bigger) == size(update)


def test_what_passes_through_an_access_point_is_on_its_account() -> None:
    cfg = settings()
    fleet, state = pairs(CENTAUR, cfg, equipment=[(PC, UCD_LINK)])
    run(CENTAUR, cfg, fleet, state, 1)
    tasks, _ = fleet.log.drain()
    relayed = {task.client: task for task in tasks if task.program == "relay"}
    for task in (task for task in tasks if task.program == "Collect"):
        passed = relayed[fleet.clients[task.client].partner or ""]
        assert (passed.bytes_down, passed.bytes_up) == (task.bytes_down, task.bytes_up)
        assert passed.bytes_handoff == 0  # it stays there


def test_without_an_access_point_samples_wait_and_the_oldest_give_way() -> None:
    model, local = windows(40)
    room = 6
    cfg = settings(alpha=0.0, beta=0.5)
    task = replace(device_task(model, cfg), here=torch.zeros(()), storage=room * 24 * 5 * 4.0)
    first = centaur.collect(task, local)
    assert float(first.handoff.weight.sum()) == 0
    waiting = first.mine.stamps
    assert float((waiting > 0).sum()) == room
    later = replace(task, pair=torch.tensor(2.0))
    second = centaur.collect(later, replace(local, mine=first.mine, key=keys.key(8)))
    assert float((second.mine.stamps > 0).sum()) == room
    assert set(second.mine.stamps.unique().tolist()) <= {0.0, 1.0, 2.0}
    assert (second.mine.stamps == 2.0).sum() == room  # enough new ones came
    back = replace(later, pair=torch.tensor(3.0), here=torch.ones(()), rule=EVERYTHING)
    third = centaur.collect(back, replace(local, mine=second.mine, key=keys.key(9)))
    assert float(third.handoff.weight.sum()) == room
    assert not (third.mine.stamps > 0).any()
    rows = {tuple(row.flatten().tolist()) for row in third.handoff.x[third.handoff.weight > 0]}
    kept = {tuple(row.flatten().tolist()) for row in local.data.x[second.mine.stamps > 0]}
    assert rows == kept


@pytest.mark.parametrize(("allowed", "has", "room"), [(0.05, 10**6, 3), (5120.0, 100, 6), (0.0, 15, 0)])
def test_storage_is_never_exceeded(allowed: float, has: int, room: int) -> None:
    """Neither what a device is allowed (kB) nor what it has (bytes): samples here have 16 bytes."""
    device = replace(PC, storage=has)
    for method, more in ((CENTAUR, {}), (AP, {"capped": True})):
        cfg = settings(method, storage_kb=allowed, connected=0.5, **more)
        joins = np.array([0.0, 0.0, 1e9, 0.0])  # the partner of the first is not there: what it would send waits
        fleet, state = pairs(method, cfg, (50, 50), device=device, joins=joins)
        program = method.server(fleet, state, cfg)
        for _ in range(3):
            state = next(program)
            waiting = fleet.mine(0)
            assert waiting is None or float((waiting.stamps > 0).sum()) <= room
            assert all(float(parcel.weight.sum()) <= room for parcel in fleet.snapshot()["parcels"].values())
        assert state.tally.most == room  # there was more to store than room for it
        assert 1024 * state.tally.most_kb == 16 * room <= has


def test_a_device_whose_storage_nobody_knows_must_be_told() -> None:
    unknown = Profile("toy", "wire", 3)
    assert storage_of(2.0, unknown, sample=1000) == 2048
    with pytest.raises(BadInput, match=r"method.storage_kb.*toy"):
        storage_of(0.0, unknown, sample=1000)


def test_devices_with_room_for_all_their_samples_get_one_task() -> None:
    """Unlike amounts of room to spare would split their stack, and change nothing."""
    small, large = (Profile("toy", "wire", 3, storage=room) for room in (2999, 10**9))
    assert storage_of(0.0, small, sample=1000) == 2999
    assert storage_of(0.0, replace(small, storage=3000), sample=1000) == storage_of(0.0, large, sample=1000) >= 1e9


def test_an_access_point_that_is_away_loses_nothing() -> None:
    """c1's partner comes late: until then its device keeps what it would have sent."""
    cfg = settings()
    joins = np.zeros(2 * len(SIZES))
    joins[len(SIZES) + 1] = 1e9
    fleet, state = pairs(CENTAUR, cfg, joins=joins)
    state = run(CENTAUR, cfg, fleet, state, 3)
    assert float((fleet.mine(1).stamps > 0).sum()) > 0
    assert float((fleet.mine(0).stamps > 0).sum()) == 0
    assert len(SIZES) + 1 not in fleet.snapshot()["parcels"] or not float(
        fleet.snapshot()["parcels"][len(SIZES) + 1].weight.sum()
    )


def test_samples_sent_in_vain_go_again() -> None:
    """c0's partner leaves between the halves of the first pair: what it was handed is in its next parcel."""
    cfg = settings(beta=1.0)
    fleet, state = pairs(CENTAUR, cfg)
    state = run(CENTAUR, cfg, fleet, state, 1)
    ap = len(SIZES)
    first = rows_of(fleet.snapshot()["parcels"][ap])
    gather = fleet.gather
    fleet.gather = lambda tasks: gather({name: task for name, task in tasks.items() if name != f"c{ap}"})
    state = run(CENTAUR, cfg, fleet, state, 1)
    fleet.gather = gather
    assert state.unused == {"c0": True}
    state = run(CENTAUR, replace(cfg, alpha=0.0, beta=1e9), fleet, state, 1)  # nothing new is chosen but the highest
    parcels = fleet.snapshot()["parcels"]
    assert len(first) > 1
    assert first <= rows_of(parcels[ap])
    assert all(len(rows_of(parcels[ap + other])) <= 3 for other in range(1, len(SIZES)))
    assert not state.unused.keys() & {"c0"}


def test_a_lone_sample_waits_for_company() -> None:
    """An access point cannot train a network on one sample; it is handed over again with the next ones."""
    cfg = settings(alpha=0.0)
    fleet, state = pairs(CENTAUR, cfg, (1, 20))
    state = run(CENTAUR, cfg, fleet, state, 1)
    assert state.unused == {"c0": True}
    assert set(state.waiting) == {"c1"}


@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize("method", [CENTAUR, AP, UCD], ids=lambda m: m.name)
def test_goes_on_from_any_half(method: methods.Method, cut: int) -> None:
    cfg = settings(method, cohort=2)
    fleet, state = pairs(method, cfg)
    end = run(method, cfg, fleet, state, 4)
    fleet, state = pairs(method, cfg)
    state = run(method, cfg, fleet, state, cut)
    saved = decode(encode({"state": state, "fleet": fleet.snapshot()}), registry(method.classes))
    again, _ = pairs(method, cfg)
    again.restore(saved["fleet"])
    assert same(run(method, cfg, again, saved["state"], 4 - cut).weights, end.weights)


@pytest.mark.parametrize("method", [CENTAUR, AP, UCD], ids=lambda m: m.name)
def test_stacked_pairs_equal_pairs_one_by_one(method: methods.Method) -> None:
    cfg = settings(method)
    ends = []
    for stacking in ("always", "never"):
        fleet, state = pairs(method, cfg, stacking=stacking)
        ends.append(run(method, cfg, fleet, state, 4).weights)
    for name in ends[0]:
        torch.testing.assert_close(ends[0][name], ends[1][name], atol=1e-5, rtol=1e-5)


def test_rounds_leave_nothing_behind() -> None:
    """Parcels, private states and models of earlier rounds are gone, however many rounds there were."""
    cfg = settings(cohort=3, queue=8, device_merge="scaffold", momentum=0.0)
    fleet, state = pairs(CENTAUR, cfg, (30,) * 6)
    program, held = CENTAUR.server(fleet, state, cfg), []
    for number in range(24):
        state = next(program)
        fleet.log.drain()
        if number % 2:  # after the access points: nothing is waiting to be trained on
            gc.collect()
            found = (t.untyped_storage() for t in gc.get_objects() if type(t) is torch.Tensor)
            held.append(sum({storage.data_ptr(): storage.nbytes() for storage in found}.values()))
    assert max(held[6:]) <= 1.01 * max(held[3:6])


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tier", ["device_merge", "ap_merge"])
@pytest.mark.parametrize("merge", ["fedprox", "scaffold"])
def test_other_aggregators_for_either_tier(tier: str, merge: str) -> None:
    plain_cfg, cfg = settings(momentum=0.0), settings(momentum=0.0, **{tier: merge})
    fleet, state = pairs(CENTAUR, plain_cfg)
    usual = run(CENTAUR, plain_cfg, fleet, state, 4)
    fleet, state = pairs(CENTAUR, cfg)
    other = run(CENTAUR, cfg, fleet, state, 4)
    assert all(bool(torch.isfinite(value).all()) for value in other.weights.values())
    assert not same(usual.weights, other.weights)
    control = other.control.device if tier == "device_merge" else other.control.ap
    assert bool(control) == (merge == "scaffold")


def test_a_strong_proximal_term_holds_the_devices() -> None:
    model, local = windows()
    moved = []
    for mu in (0.0, 20.0):
        task = replace(device_task(model, settings(momentum=0.0, lr=0.02, batch=5, device_merge="fedprox")), mu=mu)
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
        task = centaur.collect_task(centaur.State(weights), cfg, frozenset(weights), 0, 0, True, 1e6)
        handed = centaur.collect(task, local).handoff
        real = handed.weight > 0
        flipped.append(float((handed.y[real] != (handed.x[real, 0] > 0)).float().mean()))
    assert flipped[0] > 0.12
    assert flipped[1] < flipped[0] / 4


def test_redrawn_selection_trains_on_fewer() -> None:
    handed, redrawn = settings(), settings(ap_selection="redraw")
    steps = []
    for cfg in (handed, redrawn):
        fleet, state = pairs(CENTAUR, cfg, (60, 60))
        steps.append(run(CENTAUR, cfg, fleet, state, 4).tally.ap_steps)
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
        found[name] = run(method, cfg, fleet, state, 1).tally.collected
    assert found == {"ap": 20, "bound": 40, "capped": 8, "ucd": 40, "equal": 20}


def test_ucd_sends_the_encoder_once() -> None:
    cfg = settings(UCD)
    fleet, state = pairs(UCD, cfg)
    run(UCD, cfg, fleet, state, 3)
    tasks, _ = fleet.log.drain()
    first, second, third = ([t.bytes_down for t in tasks if t.client == "c0"][i] for i in range(3))
    assert first > second + 4 * 4 * 8
    assert second == third


# -- costs -------------------------------------------------------------------------------------------------------------


def test_a_devices_price_has_selection_and_the_expected_share_of_training() -> None:
    model, local = windows(64)
    cfg = settings(batch=16, cache=False)
    task = device_task(model, cfg, units=3)  # everything gathered
    prices = Prices(CENTAUR.programs, CENTAUR.work)
    price = prices.of(task, local, 64).macs.of(64)
    weights = model.init(3)

    def counted(task: Collect) -> float:
        return Prices(CENTAUR.programs).of(replace(task, rule=EVERYTHING), local, 64).macs.of(64)

    once, none = counted(replace(task, epochs=1)), counted(replace(task, epochs=0))
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
    task: Retrain = centaur.retrain_task(state, cfg, 3)
    prices = Prices(CENTAUR.programs, CENTAUR.work)
    parcel = local.data
    with_parcel = replace(local, parcel=parcel)
    few, many = (prices.of(task, with_parcel, n).macs.of(n) for n in (10, 20))
    assert few > 0
    assert many == pytest.approx(2 * few, rel=0.01)
    assert prices.of(replace(task, epochs=6), with_parcel, 10).macs.of(10) == pytest.approx(2 * few, rel=0.01)


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


@pytest.mark.parametrize(
    ("name", "value"),
    [("base", 0.0), ("connected", 1.5), ("mobility", [0.8, 0.2]), ("ucd_bn", "off"), ("ap_merge", "median"),
     ("alpha", -1), ("storage_kb", -1), ("ap_selection", "none")],
)  # fmt: skip
def test_what_is_not_allowed_is_refused(name: str, value: Any) -> None:
    with pytest.raises(BadInput, match=name):
        CENTAUR.configure({name: value})
