"""FedBits against its equations: two rounds by hand, error feedback, missed rounds, loose binding, bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.fleets import fleet_of, made, run

from potluck import keys, methods
from potluck.errors import BadInput
from potluck.fleet import Data, Local, Params
from potluck.methods import fedbits, fedper
from potluck.methods.parts.few_bits import Packed, packed, unpacked
from potluck.models import Model, build
from potluck.tensors import each
from potluck.wire.codec import size

METHOD = methods.load("fedbits")
SIZES = (12, 9, 15)
MODEL = build("mlp", (4,), 3, {"hidden": (5,)})


def settings(**more: Any) -> Any:
    given = {"recipe.batch": 4, "recipe.lr": 0.2, "recipe.epochs": 1, **more}
    return METHOD.configure({name.replace("__", "."): value for name, value in given.items()})


def body_of(model: Model) -> list[str]:
    return [name for name in model.init(0) if name not in model.last_layers(1)]


def part(weights: Params) -> Params:
    return {name: weights[name] for name in body_of(MODEL)}


def apart(one: Params, other: Params) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def test_two_rounds_by_hand() -> None:
    """With 3 bits: what each client told, what was left, what the server told and what was left there."""
    config = settings(bits=3)
    clients = made(SIZES)
    fleet, state = fleet_of(METHOD, config, clients, model=MODEL)
    common, left, e = part(state.weights), [each(torch.zeros_like, part(state.weights))] * 3, None
    heard: list[Any] = []
    gather = fleet.gather
    fleet.gather = lambda tasks, until=None: heard.extend(gather(tasks, until)) or heard  # type: ignore[method-assign]
    for number in range(2):
        heard.clear()
        state = run(METHOD, config, fleet, state, 1)
        total = each(torch.zeros_like, common)
        for i, arrival in enumerate(heard):
            mine: fedbits.Mine = fleet.mine(i)
            change = each(torch.sub, part(mine.weights), common)
            wanted = each(torch.add, change, left[i])
            told = unpacked(packed(wanted, 3), wanted, 3)
            sent = unpacked(Packed(arrival.update.numbers, arrival.update.scales), common, 3)
            assert apart(told, sent) < 1e-6
            left[i] = each(torch.sub, wanted, told)
            assert apart(left[i], mine.left) < 1e-6
            share = SIZES[i] / sum(SIZES)
            total = each(torch.add, total, {name: share * value for name, value in told.items()})
        s = total if e is None else each(torch.add, total, e)
        q = unpacked(packed(s, 3), s, 3)
        e, common = each(torch.sub, s, q), each(torch.add, common, q)
        assert apart(common, part(state.weights)) < 1e-6, number
        assert apart(e, state.left) < 1e-6


def test_without_rounding_it_is_fedper() -> None:
    config = settings(bits=32)
    fleet, state = fleet_of(METHOD, config, made(SIZES), model=MODEL)
    state = run(METHOD, config, fleet, state, 3)
    other = methods.load("fedper")
    theirs = other.configure({"recipe.batch": 4, "recipe.lr": 0.2, "recipe.epochs": 1, "recipe.clip": 5.0})
    peer, known = fleet_of(other, theirs, made(SIZES), model=MODEL)
    known = run(other, theirs, peer, known, 3)
    for i in range(3):
        ours = fedbits.personal(state, f"c{i}", fleet.mine(i))
        assert apart(fedper.personal(known, f"c{i}", peer.mine(i)), ours) < 1e-5


def test_error_feedback_catches_up_with_what_one_bit_leaves_out() -> None:
    """A constant change: the sum of what was told follows the sum of the changes, and does not without feedback."""
    change = {"w": torch.tensor([1.0, 0.1, -0.1, 0.01])}
    for feedback in (True, False):
        config = settings(bits=1, feedback=feedback)
        left, total = each(torch.zeros_like, change), torch.zeros(4)
        for _ in range(200):
            _, told, left = fedbits._told(change, left, config, keys.key(0))
            total = total + told["w"]
        mean = total / 200
        assert bool((mean - change["w"]).abs().max() < 0.02) == feedback


def test_a_client_that_missed_rounds_gets_what_it_lacks_and_has_what_others_have() -> None:
    config = settings(bits=4, cohort=1)
    fleet, state = fleet_of(METHOD, config, made(SIZES), model=MODEL)
    sent: list[fedbits.Train] = []
    gather = fleet.gather
    fleet.gather = lambda tasks, until=None: sent.extend(tasks.values()) or gather(tasks, until)  # type: ignore[method-assign]
    for _ in range(16):
        state = run(METHOD, config, fleet, state, 1)
        client = max(state.at, key=lambda name: state.at[name])
        mine: fedbits.Mine = fleet.mine(int(client[1:]))
        before = state.version - 1
        assert state.at[client] == before
        told = unpacked(state.past[-1], part(state.weights), 4)
        assert apart(each(torch.add, mine.common, told), part(state.weights)) < 1e-5
    lacking = [task.numbers.shape[0] for task in sent]
    assert max(lacking) > 1
    assert max(lacking) <= 8  # as many changes of 4 bits are as long as the weights
    assert any(task.whole for task in sent) == any(n == 0 for n in lacking[1:])


def test_a_loosely_bound_client_replaces_a_share_of_its_change() -> None:
    config = settings(bits=32, strength=0.25)
    fleet, state = fleet_of(METHOD, config, made(SIZES), model=MODEL)
    first = part(state.weights)
    state = run(METHOD, config, fleet, state, 1)
    mean = each(torch.sub, part(state.weights), first)
    for i in range(3):
        mine: fedbits.Mine = fleet.mine(i)
        own = each(torch.sub, part(mine.weights), first)
        wanted = {name: first[name] + 0.75 * own[name] + 0.25 * mean[name] for name in first}
        assert apart(wanted, part(fedbits.personal(state, f"c{i}", mine))) < 1e-6
    one, two = (part(fedbits.personal(state, f"c{i}", fleet.mine(i))) for i in range(2))
    assert apart(one, two) > 1e-3


def test_only_the_named_modules_travel_and_the_read_out_stays() -> None:
    model = build("cfc", (6, 2), 3, {"hidden": 4, "backbone": 6, "head": 4})
    weights = model.init(0)
    config = settings(bits=5, bind="f,backbone")
    data = Data(torch.randn(6, 6, 2, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3, torch.ones(6))
    state = replace(fedbits.start(weights, config), bound=tuple(n for n in weights if n[0] in "fb" and n[:2] != "fc"))
    task = fedbits.task_of(state, config, 0)
    done = fedbits.train(task, Local(model, data, fedbits.private(weights, config), keys.key(1)))
    count = sum(weights[name].numel() for name in state.bound)
    assert done.update.numbers.shape == (-(-5 * count // 8),)
    assert set(done.mine.common) == set(state.bound)
    assert not torch.equal(done.mine.weights["g.1.weight"], weights["g.1.weight"])


def test_a_round_costs_at_most_2_7_kb_each_way() -> None:
    """Everything but the read-out of the network of FedCFC's figures, at FedCFC's price, names and shapes included."""
    model = build("cfc", (25, 9), 6, {"hidden": 16, "backbone": 24, "head": 16})
    config, weights = settings(), model.init(0)
    names = body_of(model)
    state = fedbits.State(weights, tuple(names), each(torch.zeros_like, {n: weights[n] for n in names}))
    data = Data(torch.zeros(4, 25, 9), torch.arange(4), torch.ones(4))
    done = fedbits.train(
        fedbits.task_of(state, config, 0), Local(model, data, fedbits.private(weights, config), keys.key(0))
    )
    sent = Packed(done.update.numbers, done.update.scales)
    later = fedbits.task_of(replace(state, past=(sent,), version=1), config, 0)
    assert sum(weights[name].numel() for name in names) == 2640
    assert max(size(done.update), size(later)) <= 2700


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bits": 9}, "bits: must be 1 to 8, or 32, got 9"),
        ({"bits": 1, "rounding": "random"}, "rounding: must be nearest with bits = 1"),
        ({"strength": 0.0}, "strength: must be above 0"),
    ],
)
def test_settings_out_of_range(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        settings(**given)


def test_unknown_modules_are_named() -> None:
    local = Local(MODEL, None, None, keys.key(0))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"bind: must be body, all, or some of .*, got f\."):
        fedbits.check(settings(bind="f"), local)
