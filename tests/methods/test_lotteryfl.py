"""LotteryFL: sub-networks that shrink, are rewound, and are averaged where they overlap."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import torch
from helpers.fleets import fleet_of, made, run

from potluck import keys, methods
from potluck.fleet import Data, Local, Params
from potluck.learn import Recipe
from potluck.methods import lotteryfl
from potluck.methods.parts.starts import pretrained
from potluck.models import build

METHOD = methods.load("lotteryfl")


def flat(weights: Params) -> torch.Tensor:
    """The weights that may be pruned: those of the only layer, without its bias."""
    return weights["fc.weight"].flatten()


def test_a_client_sends_the_weights_it_holds_and_a_bit_for_each() -> None:
    """Ten weights, two bytes of bits, the first weight in the lowest bit."""
    model = build("softmax", (5,), 2, {})
    first = {"fc.weight": torch.arange(1.0, 11.0).reshape(2, 5), "fc.bias": torch.zeros(2)}
    held = torch.tensor([1.0, 0, 0, 1, 1, 0, 1, 1, 0, 1])
    data = Data(torch.randn(4, 5, generator=torch.Generator().manual_seed(0)), torch.arange(4) % 2, torch.ones(4))
    local = Local(model, data, lotteryfl.Mine(first, first, held), keys.key(0))
    task = lotteryfl.Train(flat(first)[held > 0], {"fc.bias": first["fc.bias"]}, False, 6, Recipe(lr=0.1, batch=4))
    done = lotteryfl.train(task, local)
    assert done.update.bits.tolist() == [0b11011001, 0b10]
    assert done.mine.held.tolist() == held.tolist()
    assert torch.equal(done.update.values, flat(done.mine.weights)[held > 0])
    assert not flat(done.mine.weights)[held == 0].any()
    assert not torch.equal(done.update.values, task.values)


def test_a_client_gets_the_weights_whose_bits_it_sent() -> None:
    config = METHOD.configure({"prune": 0.5, "target": 0.1, "threshold": 0.0, "recipe.batch": 4})
    fleet, state = fleet_of(METHOD, config, made((12, 9)))
    state = run(METHOD, config, fleet, state, 1)
    held = [fleet.mine(i).held for i in range(2)]
    sent: dict[str, Any] = {}
    gather = fleet.gather
    fleet.gather = lambda tasks, until=None: sent.update(tasks) or gather(tasks, until)  # type: ignore[method-assign]
    run(METHOD, config, fleet, state, 1)
    for i in range(2):
        assert held[i].sum() == 6
        assert torch.equal(sent[f"c{i}"].values, flat(state.weights)[held[i] > 0])


def test_sub_networks_shrink_to_the_target_and_differ() -> None:
    config = METHOD.configure({"prune": 0.2, "target": 0.5, "recipe.lr": 0.2, "threshold": 0.0, "recipe.batch": 4})
    fleet, state = fleet_of(METHOD, config, made((12, 9, 15)))
    size = 4 * 3
    sizes: list[list[int]] = []
    program = METHOD.server(fleet, state, config)
    for _ in range(6):
        state = next(program)
        sizes.append([int(fleet.mine(i).held.sum()) for i in range(3)])
    left = size
    for row in sizes:
        left = max(ceil(0.5 * size), ceil(0.8 * left))
        assert row == [left] * 3
    assert left == 6
    for i in range(3):
        mine = fleet.mine(i)
        own = flat(METHOD.personal(state, f"c{i}", mine))
        assert not own[mine.held == 0].any()


def test_it_prunes_only_once_it_is_right_often_enough_and_learning_accumulates() -> None:
    """Until then nothing is dropped or rewound: it is FedAvg of the weights, each client counting once."""
    config = METHOD.configure({"threshold": 0.9, "prune": 0.5, "target": 0.25, "recipe.lr": 0.02, "recipe.batch": 4})
    fleet, state = fleet_of(METHOD, config, made((12, 9, 15)))
    begun, pruned = flat(state.weights), 0
    for _ in range(40):
        before = dict(state.right)
        held = [float(fleet.mine(i).held.sum()) for i in range(3)] if before else [12.0] * 3
        state = run(METHOD, config, fleet, state, 1)
        for i in range(3):
            now = float(fleet.mine(i).held.sum())
            ripe = before.get(f"c{i}", 0.0) > 0.9
            assert now == (max(3.0, -(-held[i] // 2)) if ripe else held[i])
            pruned += now < held[i]
        if not pruned:
            assert not torch.equal(flat(state.weights), begun)
    assert pruned >= 3
    assert min(state.right.values()) > 0.5


def test_right_is_what_the_received_part_gets_on_validation_rows() -> None:
    model = build("softmax", (2,), 2, {})
    weights = {"fc.weight": torch.tensor([[1.0, 0.0], [0.0, 1.0]]), "fc.bias": torch.zeros(2)}
    train = Data(torch.eye(2), torch.tensor([1, 0]), torch.ones(2))
    valid = Data(torch.eye(2), torch.tensor([0, 0]), torch.ones(2))
    for rows, wanted in ((None, 0.0), (valid, 0.5)):
        assert float(lotteryfl.accuracy(Local(model, train, None, keys.key(0), valid=rows), weights)) == wanted


def test_what_is_sent_shrinks_with_the_network() -> None:
    config = METHOD.configure({"prune": 0.5, "target": 0.25, "threshold": 0.0, "recipe.batch": 4})
    fleet, state = fleet_of(METHOD, config, made((12, 9)))
    sent: list[Any] = []
    gather = fleet.gather
    fleet.gather = lambda tasks, until=None: sent.extend(tasks.values()) or gather(tasks, until)  # type: ignore[method-assign]
    run(METHOD, config, fleet, state, 3)
    assert [task.values.numel() for task in sent[::2]] == [12, 6, 3]


def test_a_weight_nobody_holds_stays_as_it_was() -> None:
    config = METHOD.configure({"prune": 0.5, "target": 0.1, "threshold": 0.0, "recipe.batch": 4})
    fleet, state = fleet_of(METHOD, config, made((12, 9)))
    first = flat(state.weights)
    state = run(METHOD, config, fleet, state, 1)
    held = torch.stack([fleet.mine(i).held for i in range(2)]).sum(0)
    now = flat(state.weights)
    assert torch.equal(now[held == 0], first[held == 0])
    both = torch.stack([flat(fleet.mine(i).weights) for i in range(2)])
    torch.testing.assert_close(now[held == 2], both[:, held == 2].mean(0))


def test_pre_trained_weights_are_what_pruned_networks_are_rewound_to() -> None:
    config = METHOD.configure({"prune": 0.5, "target": 0.1, "threshold": 0.0, "recipe.batch": 4, "pretrain.epochs": 2})
    fleet, state = fleet_of(METHOD, config, made((12, 9)))
    begun = pretrained(fleet, state.weights, config.pretrain, config.recipe, config.seed)
    assert any(not torch.equal(begun[name], state.weights[name]) for name in begun)
    run(METHOD, config, fleet, state, 2)
    for i in range(2):
        first = fleet.mine(i).first
        assert all(torch.equal(first[name], begun[name]) for name in begun)


def test_an_update_that_names_other_weights_than_it_sends_counts_for_nothing() -> None:
    """A lying client must not end the run: the model is as if it had not answered."""
    config = METHOD.configure({"prune": 0.5, "target": 0.1, "threshold": 0.0, "recipe.batch": 4})
    after: list[Params] = []
    for lies in (True, False):
        fleet, state = fleet_of(METHOD, config, made((12, 9)))
        gather = fleet.gather

        def answered(tasks: Any, until: Any = None, gather: Any = gather, lies: bool = lies) -> list[Any]:
            first, *others = sorted(gather(tasks, until), key=lambda arrival: arrival.client)
            lie = replace(first, update=replace(first.update, bits=torch.zeros_like(first.update.bits)))
            return [lie, *others] if lies else others

        fleet.gather = answered  # type: ignore[method-assign]
        ended = run(METHOD, config, fleet, state, 1)
        assert set(ended.held) == {"c1"}
        after.append(ended.weights)
    assert all(torch.equal(value, after[1][name]) for name, value in after[0].items())
