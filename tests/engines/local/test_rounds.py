"""Rounds that are done at once: the same bits as the same tasks one by one, and only where nothing can disturb them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.fleets import fleet_of, made
from helpers.toys import DEVICE, PLAIN, Note, ask, moments, telling

from potluck import keys
from potluck._merging import Rows
from potluck.devices.draws import log_normal
from potluck.engines.local import Faults, LocalFleet
from potluck.engines.local.answers import Answers
from potluck.engines.local.rounds import Rounds
from potluck.fleet import Arrival, column
from potluck.learn import Recipe
from potluck.methods import fedavg, load
from potluck.tensors import mean
from potluck.wire.codec import encode

SIZES = (4, 9, 4, 6) * 6
GEAR = [
    (DEVICE, replace(PLAIN, name="lossy", jitter=0.2, dropout=0.3)),
    (replace(DEVICE, name="quick", macs_per_second=5e6, speed_jitter=0.3), PLAIN),
]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tasks each round had that was done at once."""
    seen: list[int] = []
    answers = Rounds.answers

    def counted(self: Rounds, sent: Any, now: float) -> Any:
        seen.append(len(sent))
        return answers(self, sent, now)

    monkeypatch.setattr(Rounds, "answers", counted)
    return seen


def three_rounds(fleet: LocalFleet) -> tuple[Any, ...]:
    """All that can be seen of three rounds, the last with other tasks and half of the clients."""
    came = []
    for number in (1.0, 2.0):
        came += fleet.gather(dict.fromkeys(fleet.clients, ask(number)))
    came += fleet.gather({name: ask(3.0 + i % 2) for i, name in enumerate(fleet.clients) if i % 4 < 3})
    arrivals = [(one.client, one.task, one.sent, one.at, encode(one.update)) for one in came]
    return arrivals, *fleet.log.drain(), encode(fleet.snapshot()), fleet.now


@pytest.mark.parametrize("lossy", [True, False])
@pytest.mark.parametrize("limit", [1 << 30, 30])  # with 30 bytes every update is refused
def test_a_round_at_once_is_the_same_as_its_tasks_one_by_one(
    limit: int, lossy: bool, at_once: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    gear = GEAR if lossy else GEAR[1:]
    together = three_rounds(telling(SIZES, gear=gear, limit=limit))
    assert at_once == [24, 24, 18]
    monkeypatch.setattr(Rounds, "calm", lambda self, count: False)
    assert three_rounds(telling(SIZES, gear=gear, limit=limit)) == together
    assert at_once == [24, 24, 18]
    outcomes = {task.outcome for task in together[1]}
    assert outcomes == {*(["lost"] if lossy else []), "accepted" if limit > 30 else "refused"}


@pytest.mark.parametrize("lossy", [True, False])
@pytest.mark.parametrize("bound", [0.0, 1.5])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", ["fedavg", "ditto"])
def test_methods_train_the_same_models_either_way(
    name: str, workers: int, bound: float, lossy: bool, at_once: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for _ in range(2):
        method = load(name)
        config = method.config()
        gear = GEAR if lossy else GEAR[1:]
        fleet, state = fleet_of(method, config, made(SIZES), equipment=gear, workers=workers, bound=bound)
        program = method.server(fleet, state, config)
        states = [next(program) for _ in range(3)]
        found.append(encode(states[-1]) + encode(fleet.snapshot()))
        monkeypatch.setattr(Rounds, "calm", lambda self, count: False)
    assert at_once == [24] * 3
    assert found[0] == found[1]


def together(**options: Any) -> Sequence[Arrival]:
    method = load("fedavg")
    fleet, state = fleet_of(method, method.config(), made(SIZES), equipment=GEAR[1:], **options)
    return fleet.gather(dict.fromkeys(fleet.clients, fedavg.Train(state.weights, Recipe(lr=0.1))))


def test_answers_that_were_computed_as_stacks_are_not_taken_apart_for_a_mean() -> None:
    answers = together()
    assert isinstance(answers, Answers)
    models, counts = column(answers, "weights"), column(answers, "examples")
    assert isinstance(models, Rows)
    assert counts.tolist() == list(SIZES)  # in the order of the tasks, whatever the stacks are sorted by
    merged = mean(models, counts)
    assert answers._found is None
    apart = list(answers)
    assert [one.client for one in apart] == [f"c{i}" for i in range(24)]
    again = mean([one.update.weights for one in apart], [one.update.examples for one in apart])
    assert all(torch.equal(merged[name], again[name]) for name in merged)
    assert encode([models[i] for i in range(24)]) == encode([one.update.weights for one in answers[:]])
    assert answers[-1] is apart[-1]


def test_one_update_that_must_be_refused_or_scaled_down_makes_the_round_be_taken_apart() -> None:
    assert not isinstance(together(limit=30), Answers)
    assert isinstance(together(bound=1000.0), Answers)
    assert not isinstance(together(bound=1e-3), Answers)


@pytest.mark.parametrize(
    "options",
    [
        {"faults": Faults(late=0.5)},
        {"noise": 0.1},
        {"floor": 1.0},
        {"joins": moments(*[0.0] * 23, 9.0)},
        {"leaves": np.full(24, 1e9)},
        {"pairs": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_can_disturb_a_round_is_done_one_by_one(options: dict[str, Any], at_once: list[int]) -> None:
    fleet = telling(SIZES, gear=GEAR, **options)
    assert fleet.gather(dict.fromkeys(list(fleet.idle), ask()))
    assert not at_once


def test_a_task_in_flight_a_note_and_a_time_limit_make_a_round_go_one_by_one(at_once: list[int]) -> None:
    fleet = telling(SIZES, gear=GEAR[1:])
    first, *others = fleet.clients
    fleet.send(ask(), to=first)
    assert len(fleet.gather(dict.fromkeys(others, ask()))) == 23
    assert fleet.receive() is not None
    assert len(fleet.gather(dict.fromkeys(others, ask()), until=fleet.now + 1e6)) == 23
    fleet.post(Note(torch.tensor(1.0)), [first])
    assert len(fleet.gather(dict.fromkeys(fleet.clients, ask()))) == 24
    assert not at_once


def test_few_clients_of_each_kind_go_one_by_one(at_once: list[int]) -> None:
    fleet = telling(SIZES[:12], gear=GEAR)
    fleet.gather(dict.fromkeys(fleet.clients, ask()))
    assert not at_once


def test_a_device_that_is_too_small_loses_its_task(at_once: list[int]) -> None:
    fleet = telling(SIZES, gear=[GEAR[1], (replace(DEVICE, name="tiny", memory=10), PLAIN)])
    assert len(fleet.gather(dict.fromkeys(fleet.clients, ask()))) == 12
    assert len(fleet.unfit) == 12
    assert not at_once


def test_draws_for_many_are_those_for_one() -> None:
    names, earlier = ["a", "b\x1fc", "c0007"], [0, 3, 12]
    many = keys.numbers(5, names, earlier, "task")[0]
    alone = [keys.number(5, name, n, "task") for name, n in zip(names, earlier, strict=True)]
    assert many.tolist() == alone
    draws = keys.shares_of(many, 6)
    assert draws.T.tolist() == [keys.shares(number, 6) for number in alone]
    assert log_normal(draws[0], 0.3).tolist() == [log_normal(u, 0.3) for u in draws[0].tolist()]
