"""Faults: as often as asked for, each with the outcome it stands for, and none that reaches a method."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.fleets import fleet_of, made
from helpers.toys import DEVICE, PLAIN, TOY, Config, Work, ask, telling
from hypothesis import given
from hypothesis import strategies as st

from potluck import keys
from potluck.engines.local import Faults
from potluck.engines.local.faults import SPOILING, spoil
from potluck.fleet import Arrival, Lost
from potluck.wire.gate import expected_of, inspect, refusal

SHARES = st.lists(st.floats(0.0, 0.16), min_size=6, max_size=6)


@given(shares=SHARES)
def test_each_fault_has_its_share_of_the_draws(shares: list[float]) -> None:
    faults = Faults(**dict(zip(Faults.KINDS, shares, strict=True)))
    draws = Counter(faults.draw(i / 4000) for i in range(4000))
    for kind, share in zip(Faults.KINDS, shares, strict=True):
        assert abs(draws[kind] / 4000 - share) <= 1 / 2000
    assert abs(draws[None] / 4000 - (1 - sum(shares))) <= 1 / 500


def test_no_faults_is_the_rule() -> None:
    assert {Faults().draw(u) for u in (0.0, 0.5, math.nextafter(1, 0))} == {None}
    assert Faults(nan=1.0).draw(math.nextafter(1, 0)) == "nan"


UPDATES: dict[str, Any] = {
    "matrix": {"w": torch.ones(4, 3)},
    "vector": torch.ones(5),
    "one number": torch.ones(1),
    "scalar": torch.tensor(2.0),
    "row": torch.ones(1, 6),
    "whole numbers": torch.ones(4, dtype=torch.int64),
}


@pytest.mark.parametrize(
    ("name", "fault"),
    [(name, fault) for name in UPDATES for fault in SPOILING if (name, fault) != ("whole numbers", "nan")],
)
def test_a_spoiled_update_does_not_pass_the_gate(name: str, fault: str) -> None:
    update, limit = UPDATES[name], 10_000
    spoiled = spoil(update, fault, limit)
    assert refusal(spoiled, inspect(spoiled), expected_of(update), 10, limit) is not None
    assert refusal(update, inspect(update), expected_of(update), 10, limit) is None  # the client's own copy is whole


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_corrupt_raw_data_does_not_pass_either(n: int) -> None:
    def handed(rows: int) -> list[torch.Tensor]:
        return [torch.ones(rows, 2), torch.ones(rows)]

    for part in (0, 1):
        update = handed(n)[part]
        spoiled = spoil(update, "corrupt", 1000)
        assert refusal(spoiled, inspect(spoiled), expected_of(handed(4)[part], handed(8)[part]), 10, 1000) is not None


def test_an_oversized_update_takes_no_memory() -> None:
    swollen = spoil(torch.ones(3), "oversize", 1 << 40)
    assert swollen.numel() * swollen.element_size() > 1 << 40
    assert swollen.untyped_storage().nbytes() < 100
    assert spoil(torch.ones(0, 3), "oversize", 1000).numel() > 250


def test_other_faults_leave_the_update_alone() -> None:
    update = torch.ones(3)
    for fault in (None, "late", "duplicate", "dropout"):
        assert spoil(update, fault, 1000) is update


OUTCOMES = {
    "dropout": (["lost"], "went away while it worked"),
    "late": (["accepted"], ""),
    "duplicate": (["accepted", "repeat"], "answered before"),
    "corrupt": (["refused"], "has shape"),
    "nan": (["refused"], "numbers that are not finite"),
    "oversize": (["refused"], "bytes, the limit is 2000"),
}


@pytest.mark.parametrize("fault", Faults.KINDS)
def test_each_fault_has_its_outcome(fault: str) -> None:
    fleet = telling((4, 4), faults=Faults(**{fault: 1.0}), limit=2000)
    fleet.send(ask(), to="c0")
    answer = fleet.receive()
    fleet.receive(until=1e9)  # a second copy may be on its way
    tasks, events = fleet.log.drain()
    outcomes, reason = OUTCOMES[fault]
    assert [task.outcome for task in tasks] == outcomes
    assert reason in tasks[-1].reason
    assert list(fleet.idle) == ["c0", "c1"]
    if "accepted" in outcomes:
        assert isinstance(answer, Arrival)
        assert float(fleet.mine(0).tasks) == 1.0
    else:
        assert isinstance(answer, Lost)
        assert answer.reason == (tasks[0].reason if fault == "dropout" else f"refused: {tasks[0].reason}")
        assert float(fleet.mine(0).tasks) == 0.0
    kinds = {"lost": "lost", "refused": "refused", "repeat": "refused"}
    assert [event.kind for event in events] == [kinds[outcome] for outcome in outcomes if outcome in kinds]


def times(**faults: float) -> Any:
    fleet = telling((50,), faults=Faults(**faults))
    fleet.send(ask(), to="c0")
    while fleet.at_work:
        fleet.receive()
    return fleet.log.drain()[0][0]


def test_a_late_task_trains_and_sends_that_much_longer() -> None:
    prompt, late = times(), times(late=1.0, late_factor=3.0)
    assert late.started == prompt.started
    assert late.trained - late.started == pytest.approx(3 * (prompt.trained - prompt.started))
    assert late.arrived - late.trained == pytest.approx(3 * (prompt.arrived - prompt.trained))
    assert late.macs == prompt.macs
    assert late.joules > prompt.joules


def test_one_that_went_away_pays_for_what_it_did() -> None:
    stayed, gone = times(), times(dropout=1.0)
    assert gone.arrived < stayed.arrived
    assert gone.bytes_up == 0
    assert 0 <= gone.macs <= stayed.macs
    assert 0 < gone.joules < stayed.joules
    assert gone.sent <= gone.started <= gone.trained <= gone.arrived


def test_a_repeat_costs_the_upload_again_and_nothing_else() -> None:
    fleet = telling((4,), faults=Faults(duplicate=1.0))
    fleet.gather({"c0": ask()})
    fleet.send(ask(), to="c0")  # free again at once
    fleet.receive(until=1e9)
    fleet.receive(until=1e9)
    first, repeat = [task for task in fleet.log.drain()[0] if task.number == 0]
    assert (repeat.bytes_up, repeat.bytes_down, repeat.macs, repeat.joules) == (first.bytes_up, 0, 0.0, 0.0)


def test_a_link_may_lose_tasks_too() -> None:
    fleet = telling((4,), gear=[(DEVICE, replace(PLAIN, name="bad", dropout=1.0))])
    fleet.send(ask(), to="c0")
    answer = fleet.receive()
    assert isinstance(answer, Lost)
    assert answer.reason == "went away while it worked"


def test_over_many_tasks_the_outcomes_have_the_shares_asked_for() -> None:
    shares = {"dropout": 0.1, "late": 0.05, "duplicate": 0.1, "corrupt": 0.05, "nan": 0.1, "oversize": 0.05}
    fleet = telling((2,) * 60, faults=Faults(**shares), limit=2000)
    for _ in range(10):
        fleet.gather({client: ask() for client in fleet.idle})
    fleet.receive(until=1e9)
    counts = Counter(task.outcome for task in fleet.log.drain()[0])
    for outcome, share in (("lost", 0.1), ("refused", 0.2), ("repeat", 0.1), ("accepted", 0.7)):
        assert abs(counts[outcome] / 600 - share) < 4 * math.sqrt(share * (1 - share) / 600)


def test_faults_do_not_depend_on_the_order_of_asking() -> None:
    """The same client's third task meets the same fault, whatever the others do."""

    def fates(order: list[str]) -> dict[tuple[str, int], str]:
        fleet = telling((4, 4, 4), faults=Faults(dropout=0.3, nan=0.3))
        for client in order:
            fleet.gather({client: ask()})
        counts: Counter[str] = Counter()
        found = {}
        for task in fleet.log.drain()[0]:
            found[task.client, counts[task.client]] = task.outcome
            counts[task.client] += 1
        return found

    names = ["c0", "c1", "c2"]
    assert fates(names * 4) == fates([name for name in names for _ in range(4)])


def test_a_fault_of_one_client_leaves_the_others_bits_alone() -> None:
    """The update of everybody else is the same, whether a stack mate was spoiled or not."""
    seed = next(
        seed
        for seed in range(100)
        if [Faults(nan=0.3).draw(keys.shares(keys.number(seed, f"c{i}", 0, "task"), 1)[0]) for i in range(3)]
        == [None, "nan", None]
    )

    def updates(faults: Faults) -> dict[str, Any]:
        fleet, state = fleet_of(TOY, Config(), made((6, 6, 6)), faults=faults, seed=seed)
        task = Work(state.weights, 2, 4, 0.1)
        return {answer.client: answer.update.weights for answer in fleet.gather(dict.fromkeys(fleet.idle, task))}

    healthy, spoiled = updates(Faults()), updates(Faults(nan=0.3))
    assert list(spoiled) == ["c0", "c2"]
    for client, weights in spoiled.items():
        assert all(torch.equal(weights[name], healthy[client][name]) for name in weights)
