"""The battery: what every method, present and future, must pass. A method enters by its line in `METHODS`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from helpers.fleets import LINK, PC, fleet_of, made, run

from potluck import methods
from potluck.engines.local import Faults
from potluck.fleet import Arrival, Lost
from potluck.wire.codec import decode, encode, flatten, size

QUICK = (
    "fedavg",
    "scaffold",
    "fedasync",
)  # in `make quick`: a plain method, one with private state, an asynchronous one
METHODS = [methods.load(name) for name in methods.names()]
EVERY = pytest.mark.parametrize(
    "method",
    [pytest.param(m, id=m.name, marks=[pytest.mark.quick] if m.name in QUICK else []) for m in METHODS],
)
SIZES = (12, 7, 20, 15, 9)
ROUNDS = 4
# A loss is noticed before a refusal could be: here the client's next task, and all after it, begin at other moments.
UNEVEN = ("echopfl", "fedasync", "fedbuff", "fedsea", "oort")


def config_of(method: methods.Method, **settings: Any) -> Any:
    short = {"e_p": 1, "e_c": 1, "e_t": 1, "e_a": 1, "public_epochs": 1}  # tuning on the server, where there is any
    short["connected"] = 1.0  # pairs always in reach: all devices then have the same task, which is counted once
    # Through steps of time gradients are large: at 0.1 the rounding of a stack is magnified to 4e-5 within four rounds.
    lr = 0.02 if method.name == "fedcfc" else 0.1
    wanted = {"recipe.epochs": 2, "recipe.batch": 5, "recipe.lr": lr, "rounds": ROUNDS, **short, **settings}
    return method.configure(method.suited(wanted)[0])


def models(method: methods.Method, fleet: Any, state: Any) -> dict[str, Any]:
    """Everybody's personal model; access points have none of their own."""
    return {
        name: method.personal(state, name, fleet.mine(place))
        for place, name in enumerate(fleet.clients)
        if fleet.clients[name].kind != "access-point"
    }


def ended(method: methods.Method, rounds: int = ROUNDS, **options: Any) -> dict[str, Any]:
    config = config_of(method)
    fleet, state = fleet_of(method, config, made(SIZES), pairs=method.pairs, **options)
    state = run(method, config, fleet, state, rounds)
    return models(method, fleet, state)


def assert_same(a: dict[str, Any], b: dict[str, Any], tolerance: float = 0.0) -> None:
    assert a.keys() == b.keys()
    for client in a:
        for name in a[client]:
            if tolerance:
                torch.testing.assert_close(a[client][name], b[client][name], atol=tolerance, rtol=tolerance)
            else:
                assert torch.equal(a[client][name], b[client][name]), (client, name)


@EVERY
def test_same_seed_same_bits(method: methods.Method) -> None:
    assert_same(ended(method), ended(method))


@EVERY
def test_another_seed_another_model(method: methods.Method) -> None:
    a, b = ended(method), ended(method, seed=1)
    assert any(not torch.equal(a[c][n], b[c][n]) for c in a for n in a[c])


@EVERY
def test_everybody_has_a_personal_model_that_learned(method: methods.Method) -> None:
    config = config_of(method)
    fleet, state = fleet_of(method, config, made(SIZES), pairs=method.pairs)
    before = models(method, fleet, state)
    state = run(method, config, fleet, state, ROUNDS)
    after = models(method, fleet, state)
    assert set(after) == {"c0", "c1", "c2", "c3", "c4"}
    for client in after:
        assert after[client].keys() == before[client].keys()
        assert any(not torch.equal(after[client][n], before[client][n]) for n in after[client])


@EVERY
def test_stacked_equals_one_by_one(method: methods.Method) -> None:
    assert_same(ended(method), ended(method, stacking="never"), tolerance=1e-5)


@EVERY
def test_workers_do_not_change_the_bits(method: methods.Method) -> None:
    assert_same(ended(method), ended(method, workers=3))


@EVERY
@pytest.mark.parametrize("cut", range(1, ROUNDS))
def test_goes_on_from_any_state_it_yielded(method: methods.Method, cut: int) -> None:
    config = config_of(method)
    fleet, state = fleet_of(method, config, made(SIZES), pairs=method.pairs)
    state = run(method, config, fleet, state, cut)
    saved = encode({"state": state, "fleet": fleet.snapshot()})

    again, _ = fleet_of(method, config, made(SIZES), pairs=method.pairs)
    found = decode(saved, method.classes)
    again.restore(found["fleet"])
    state = run(method, config, again, found["state"], ROUNDS - cut)
    assert_same(models(method, again, state), ended(method))
    assert again.now > 0


@EVERY
def test_survives_lost_clients(method: methods.Method) -> None:
    options = {"faults": Faults(dropout=0.4)}
    assert_same(ended(method, rounds=6, **options), ended(method, rounds=6, **options))


@EVERY
def test_survives_when_everyone_is_lost_for_a_while(method: methods.Method) -> None:
    config = config_of(method)
    fleet, state = fleet_of(method, config, made(SIZES), pairs=method.pairs, faults=Faults(dropout=0.95))
    program = method.server(fleet, state, config)
    for _ in range(3):
        state = next(program)
    assert fleet.now > 0


@EVERY
def test_sees_a_late_joiner(method: methods.Method) -> None:
    config = config_of(method)
    joins = np.zeros(len(SIZES))
    fleet, state = fleet_of(method, config, made(SIZES), pairs=method.pairs, joins=joins)
    run(method, config, fleet, state, 2)
    joins[3] = fleet.now / 2  # comes in the middle of what took that long

    fleet, state = fleet_of(method, config, made(SIZES), pairs=method.pairs, joins=joins)
    assert "c3" not in fleet.idle
    state = run(method, config, fleet, state, ROUNDS)
    tasks, _ = fleet.log.drain()
    first = [task.sent for task in tasks if task.client == "c3"]
    if method.name != "centralised":  # it collects once, at the start
        assert first
        assert min(first) >= joins[3]
    assert "c3" in models(method, fleet, state)


@EVERY
@pytest.mark.parametrize("fault", ["nan", "corrupt", "oversize"])
def test_a_refused_update_leaves_no_trace(method: methods.Method, fault: str) -> None:
    """The model after a refusal has the same bits as when that client never answered.

    One by one: a stack of another size may round otherwise, and a lost client is not in it.
    """
    config = config_of(method)
    probability = 0.3

    def with_fault(faults: Faults) -> tuple[dict[str, Any], list[str]]:
        fleet, state = fleet_of(
            method, config, made(SIZES), pairs=method.pairs, faults=faults, limit=10_000, stacking="never"
        )
        state = run(method, config, fleet, state, ROUNDS)
        tasks, _ = fleet.log.drain()
        shared = method.shared(state)
        return {"shared": shared or {}}, [task.outcome for task in tasks]

    spoiled, outcomes = with_fault(Faults(**{fault: probability}))
    silent, missing = with_fault(Faults(dropout=probability))
    assert "refused" in outcomes
    assert "lost" in missing
    if method.name in UNEVEN:
        assert all(torch.isfinite(value).all() for value in spoiled["shared"].values())
    else:
        assert_same(spoiled, silent)


@EVERY
def test_a_repeated_update_is_counted_once(method: methods.Method) -> None:
    config = config_of(method)
    fleet, state = fleet_of(method, config, made(SIZES), pairs=method.pairs, faults=Faults(duplicate=0.5))
    state = run(method, config, fleet, state, ROUNDS)
    tasks, _ = fleet.log.drain()
    accepted = [task.number for task in tasks if task.outcome == "accepted"]
    assert len(accepted) == len(set(accepted))
    assert_same(models(method, fleet, state), ended(method))


@EVERY
def test_messages_survive_the_wire(method: methods.Method) -> None:
    """Every task and update that is really sent is the same after the codec and weighs what was counted."""
    config = config_of(method)
    fleet, state = fleet_of(method, config, made(SIZES), pairs=method.pairs)
    seen: list[Any] = []
    send, resolve = fleet.send, fleet._resolve

    def spy_send(task: Any, to: str, legs: int = 1) -> None:
        seen.append(task)
        send(task, to, legs)

    def spy_resolve(number: int) -> Arrival | Lost | None:
        answer = resolve(number)
        if isinstance(answer, Arrival):
            seen.append(answer.update)
        return answer

    fleet.send = spy_send  # type: ignore[method-assign]
    fleet._resolve = spy_resolve  # type: ignore[method-assign]
    run(method, config, fleet, state, ROUNDS)
    assert seen
    for message in seen:
        data = encode(message)
        back = decode(data, method.classes)
        assert len(data) == size(message)
        (skeleton, tensors), (skeleton_back, tensors_back) = flatten(message), flatten(back)
        assert skeleton == skeleton_back
        assert all(torch.equal(a, b) for a, b in zip(tensors, tensors_back, strict=True))


@EVERY
def test_nobody_sees_the_future(method: methods.Method) -> None:
    """What the server is handed at a moment had arrived by then, in order, and was sent before."""
    slow = dataclasses.replace(PC, macs_per_second=PC.macs_per_second / 1000)
    config = config_of(method)
    fleet, state = fleet_of(method, config, made(SIZES), pairs=method.pairs, equipment=[(PC, LINK), (slow, LINK)])
    handed: list[tuple[float, Arrival | Lost]] = []
    resolve = fleet._resolve

    def spy(number: int) -> Arrival | Lost | None:
        answer = resolve(number)
        if answer is not None:
            handed.append((fleet.now, answer))
        return answer

    fleet._resolve = spy  # type: ignore[method-assign]
    run(method, config, fleet, state, ROUNDS)
    moments = [moment for moment, _ in handed]
    assert moments == sorted(moments)
    for moment, answer in handed:
        assert answer.at <= moment
        if isinstance(answer, Arrival):
            assert answer.sent < answer.at
