"""What passes between a device and its access point: which samples, when, and never more than there is room for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.fleets import PC, made, run
from helpers.pairs import (
    AP,
    CENTAUR,
    SIZES,
    UCD_LINK,
    counts_of,
    device_task,
    epochs_of,
    lasting,
    pairs,
    rows_of,
    settings,
    windows,
)

from potluck import keys
from potluck.errors import BadInput
from potluck.fleet import Profile
from potluck.methods import centaur
from potluck.methods.parts.centaur.pairs import storage as storage_of
from potluck.methods.parts.selection import EVERYTHING, Rule, expected_shares
from potluck.wire.codec import size


def test_what_any_epoch_chose_is_handed_over() -> None:
    """A sample chosen in a later epoch is out of that epoch's training, so it must reach the access point, too."""
    model, local = windows(60)
    cfg = settings(alpha=0.0, beta=3.0, base=1.0, lr=1e-6, hand_over="any")
    one, six = (centaur.collect(lasting(device_task(model, cfg), n), local) for n in (1, 6))
    chosen = counts_of(one).chosen
    assert float(one.handoff.weight.sum()) == chosen == counts_of(six).chosen  # D_M of the first epoch
    assert float(six.handoff.weight.sum()) > 1.5 * chosen
    rows = [{tuple(x.flatten().tolist()) for x in done.handoff.x[done.handoff.weight > 0]} for done in (one, six)]
    assert rows[0] < rows[1]
    assert counts_of(six).trained < 6 * 60


def test_the_first_choice_of_a_round_is_the_published_share() -> None:
    """D_M is drawn once: 25 % of the samples, and what is not in it stays with the device in every epoch."""
    model, local = windows(400)
    cfg = settings(alpha=0.0, beta=3.0, base=1.0, lr=1e-6, batch=100)
    one, six = (centaur.collect(lasting(device_task(model, cfg), n), local) for n in (1, 6))
    assert rows_of(one.handoff) == rows_of(six.handoff)
    sent = float(six.handoff.weight.sum())
    assert sent == counts_of(six).chosen == pytest.approx(100, abs=20)
    assert counts_of(six).trained == 6 * (400 - sent)  # nothing is lost to both sides


def test_everything_may_be_handed_over() -> None:
    model, local = windows(60)
    task = device_task(model, settings(hand_over="all", redraw=True, base=0.5), units=1)
    done = centaur.collect(task, local)
    counts = counts_of(done)
    assert counts.handed == counts.collected == 42
    assert 0 < counts.kept < 42  # the device trains on D_C all the same


def test_random_selection_hands_over_as_many() -> None:
    """The same shares in every epoch and over all of them, so that both give access points as much to learn from."""
    model, local = windows(400)
    handed, kept = [], []
    for by in ("loss", "random"):
        task = device_task(model, settings(by=by, base=1.0, lr=1e-6, batch=100, epochs=5))
        done = centaur.collect(task, local)
        handed.append(float(done.handoff.weight.sum()) / 400)
        kept.append(counts_of(done).trained / 400 / epochs_of(task))
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
    assert after.samples.handed == sum(float(p.weight.sum()) for p in fleet.snapshot()["parcels"].values())


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
    storage = room * 24 * 5 * 4.0
    task = device_task(model, cfg, storage=storage, here=False)
    first = centaur.collect(task, local)
    assert float(first.handoff.weight.sum()) == 0
    waiting = first.mine.stamps
    assert float((waiting > 0).sum()) == room
    later = device_task(model, cfg, storage=storage, here=False, pair=1)
    second = centaur.collect(later, replace(local, mine=first.mine, key=keys.key(8)))
    assert float((second.mine.stamps > 0).sum()) == room
    assert set(second.mine.stamps.unique().tolist()) <= {0.0, 1.0, 2.0}
    assert (second.mine.stamps == 2.0).sum() == room  # enough new ones came
    back = replace(device_task(model, cfg, storage=storage, pair=2), rule=EVERYTHING)
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
        assert state.samples.most == room  # there was more to store than room for it
        assert 1024 * state.samples.most_kb == 16 * room <= has


def test_an_experiment_in_which_no_storage_is_known_is_refused() -> None:
    for method, more in ((CENTAUR, {}), (AP, {"capped": True})):
        cfg = settings(method, **more)
        fleet, state = pairs(method, cfg, (5, 5), device=replace(PC, storage=None))
        with pytest.raises(BadInput, match=r"method.storage_kb: must be above 0, got 0: the storage of"):
            next(method.server(fleet, state, cfg))
        assert next(method.server(fleet, state, settings(method, storage_kb=1.0, **more)))


def test_one_device_that_does_not_say_its_storage_stores_nothing_and_ends_nothing() -> None:
    """On Flower a profile is a client's word: what it leaves out is its own loss."""
    for method, more in ((CENTAUR, {}), (AP, {"capped": True})):
        cfg = settings(method, **more)
        fleet, state = pairs(method, cfg, (50, 50))
        roster = fleet.clients
        silent = next(i for i, profile in enumerate(roster.values()) if profile.kind != "access-point")
        device, link = roster.equipment[roster.codes[silent]]
        roster.equipment = [*roster.equipment, (replace(device, storage=None), link)]
        roster.codes[silent] = len(roster.equipment) - 1
        after = next(method.server(fleet, state, cfg))
        honest, state = pairs(method, cfg, (50, 50))
        assert 0 < after.samples.handed < next(method.server(honest, state, cfg)).samples.handed
    assert storage_of(2.0, Profile("toy", "wire", 3), sample=1000) == 2048
    assert storage_of(0.0, Profile("toy", "wire", 3), sample=1000) == 0


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
    state = run(
        CENTAUR, replace(cfg, selection=Rule(alpha=0.0, beta=1e9)), fleet, state, 1
    )  # nothing new is chosen but the highest
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
