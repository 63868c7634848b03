"""LotteryFL: sub-networks that shrink, are rewound, and are averaged where they overlap."""

from __future__ import annotations

from math import ceil
from typing import Any

import torch
from helpers.fleets import fleet_of, made, run

from potluck import methods
from potluck.methods import lotteryfl
from potluck.methods.parts.starts import pretrained

METHOD = methods.load("lotteryfl")


def test_bits_and_places() -> None:
    held = torch.tensor([1.0, 0, 0, 1, 1, 0, 1, 1, 0, 1])
    bits = lotteryfl._to_bits(held)
    assert bits.tolist() == [0b11011001, 0b10]
    assert lotteryfl._from_bits(bits, 10).tolist() == held.tolist()
    assert lotteryfl._places(held, 6).tolist() == [0, 3, 4, 6, 7, 9]


def test_sub_networks_shrink_to_the_target_and_differ() -> None:
    config = METHOD.configure({"prune": 0.2, "target": 0.5, "recipe.lr": 0.2, "recipe.batch": 4})
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
        own = lotteryfl._flat(METHOD.personal(state, f"c{i}", mine))
        assert not own[mine.held == 0].any()


def test_what_is_sent_shrinks_with_the_network() -> None:
    config = METHOD.configure({"prune": 0.5, "target": 0.25, "recipe.batch": 4})
    fleet, state = fleet_of(METHOD, config, made((12, 9)))
    sent: list[Any] = []
    gather = fleet.gather
    fleet.gather = lambda tasks, until=None: sent.extend(tasks.values()) or gather(tasks, until)  # type: ignore[method-assign]
    run(METHOD, config, fleet, state, 3)
    assert [task.values.numel() for task in sent[::2]] == [12, 6, 3]


def test_a_weight_nobody_holds_stays_as_it_was() -> None:
    config = METHOD.configure({"prune": 0.5, "target": 0.1, "recipe.batch": 4})
    fleet, state = fleet_of(METHOD, config, made((12, 9)))
    first = lotteryfl._flat(state.weights)
    state = run(METHOD, config, fleet, state, 1)
    held = torch.stack([fleet.mine(i).held for i in range(2)]).sum(0)
    now = lotteryfl._flat(state.weights)
    assert torch.equal(now[held == 0], first[held == 0])
    both = torch.stack([lotteryfl._flat(fleet.mine(i).weights) for i in range(2)])
    torch.testing.assert_close(now[held == 2], both[:, held == 2].mean(0))


def test_pre_trained_weights_are_what_pruned_networks_are_rewound_to() -> None:
    config = METHOD.configure({"prune": 0.5, "target": 0.1, "recipe.batch": 4, "pretrain.epochs": 2})
    fleet, state = fleet_of(METHOD, config, made((12, 9)))
    begun = pretrained(fleet, state.weights, config.pretrain, config.recipe, config.seed)
    assert any(not torch.equal(begun[name], state.weights[name]) for name in begun)
    run(METHOD, config, fleet, state, 2)
    for i in range(2):
        first = fleet.mine(i).first
        assert all(torch.equal(first[name], begun[name]) for name in begun)
