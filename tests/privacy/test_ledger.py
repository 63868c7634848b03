"""The ledger against dp-accounting itself, over random schedules, kills and resumes."""

from __future__ import annotations

import math
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
import torch
from dp_accounting import pld, rdp
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck import keys
from potluck.privacy import account, tree
from potluck.privacy.account import Charge
from potluck.privacy.ledger import Ledger
from potluck.wire.codec import decode, encode

RELATION = dp.NeighboringRelation.REPLACE_SPECIAL
KINDS = (Charge(1.0, 0.1), Charge(2.0, 0.25), Charge(4.0), Charge(6.5))
SCHEDULE = st.lists(st.tuples(st.sampled_from(("a", "b")), st.sampled_from(KINDS)), min_size=1, max_size=30)


def oracle(schedule: list[Charge], accountant: Any, delta: float) -> float:
    """One event after another, in the order in which they happened."""
    for charge in schedule:
        event = dp.GaussianDpEvent(charge.noise)
        accountant.compose(event if charge.rate == 1.0 else dp.PoissonSampledDpEvent(charge.rate, event))
    return float(accountant.get_epsilon(delta))


@settings(max_examples=40, deadline=None)
@given(SCHEDULE, st.sets(st.integers(0, 29), max_size=4))
def test_random_schedules_cost_what_dp_accounting_says_also_across_kills(
    schedule: list[tuple[str, Charge]], kills: set[int]
) -> None:
    ledger = Ledger(1e-5, accountant="rdp")
    for step, (client, charge) in enumerate(schedule):
        if step in kills:  # a checkpoint is written, work after it is lost and done again
            saved = encode(ledger.snapshot())
            ledger.charge([client], charge)
            ledger = Ledger(1e-5, accountant="rdp")
            ledger.restore(decode(saved, {}))
        ledger.charge([client], charge)
    for client in ("a", "b"):
        own = [charge for name, charge in schedule if name == client]
        wanted = oracle(own, rdp.RdpAccountant(neighboring_relation=RELATION), 1e-5) if own else 0.0
        assert ledger.epsilon(client) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_privacy_loss_distributions_give_the_same_to_a_billionth(seed: int) -> None:
    """dp-accounting discretises each composition, so its own answer depends a little on how events are grouped."""
    draw = np.random.default_rng(seed)
    counts = {kind: int(draw.integers(1, 12)) for kind in KINDS}
    ledger = Ledger(1e-6)
    events = [kind for kind, count in counts.items() for _ in range(count)]
    draw.shuffle(events)  # type: ignore[arg-type]
    for event in events:
        ledger.charge(["a"], event)
    grouped = pld.PLDAccountant(RELATION)
    for kind in sorted(counts):
        grouped.compose(account.event_of(kind), counts[kind])
    assert ledger.epsilon("a") == pytest.approx(grouped.get_epsilon(1e-6), abs=1e-9)
    assert ledger.epsilon("a") == pytest.approx(oracle(events, pld.PLDAccountant(RELATION), 1e-6), abs=1e-5)


def test_a_device_affords_exactly_what_its_budget_allows() -> None:
    ledger, charge = Ledger(1e-5, budget=3.0), Charge(2.0, 0.1)
    count = account.most(charge, 3.0, 1e-5)
    assert account.epsilon([(charge, count)], 1e-5) <= 3.0 < account.epsilon([(charge, count + 1)], 1e-5)
    ledger.charge(["a"], charge, count - 1)
    assert ledger.affords("a", charge)
    ledger.charge(["a"], charge)
    assert not ledger.affords("a", charge)
    assert ledger.affords("b", charge)
    ledger.charge(["c"], Charge(50.0))
    assert ledger.affords("c", charge)  # two kinds of charges


def test_noise_for_an_epsilon_is_enough_and_hardly_more() -> None:
    noise = account.noise_for(4.0, 0.1, 50, 1e-5, "rdp")
    assert account.epsilon([(Charge(noise, 0.1), 50)], 1e-5, "rdp") <= 4.0
    assert account.epsilon([(Charge(0.995 * noise, 0.1), 50)], 1e-5, "rdp") > 4.0


def test_no_noise_is_no_privacy_and_no_release_costs_nothing() -> None:
    assert account.epsilon([], 1e-5) == 0.0
    assert account.epsilon([(Charge(0.0), 1)], 1e-5) == math.inf


def test_the_tree_costs_one_gaussian_release_per_node_above_a_leaf() -> None:
    assert tree.sensitivities([0], 3) == [4]  # a leaf and three nodes above it
    assert tree.sensitivities([0, 1], 3) == [1 + 1 + 4 + 4 + 4]
    assert tree.sensitivities([0, 8], 3) == [4, 4]  # two trees
    single = dp.SingleEpochTreeAggregationDpEvent(3.0, [8])
    by_hand = rdp.RdpAccountant(neighboring_relation=RELATION).compose(single).get_epsilon(1e-5)
    ledger = Ledger(1e-5, accountant="rdp", height=3, noise=3.0)
    ledger.took_part("a", 5)
    assert ledger.epsilon("a") == pytest.approx(by_hand, rel=1e-9)


def test_tree_noise_of_all_sums_stays_small_and_comes_from_the_key() -> None:
    height, size = 6, 4000
    key = keys.key(1)
    total = torch.zeros(size)
    for release in range(48):
        total = total + tree.noise(key, release, height, size)
        nodes = (release + 1).bit_count()
        assert float(total.std()) == pytest.approx(nodes**0.5, rel=0.08)
    assert torch.equal(tree.noise(key, 7, height, 5), tree.noise(key, 7, height, 5))
