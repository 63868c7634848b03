"""BalanceFL: classes weigh alike, and what the teacher says of absent classes is kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.fleets import fleet_of, run

from potluck import methods
from potluck.methods.balancefl import absent_divergence
from potluck.methods.parts.starts import pretrained

METHOD = methods.load("balancefl")


def test_absent_classes_only() -> None:
    teacher, student = torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([[5.0, 2.0, 0.0]])
    assert float(absent_divergence(teacher, student, torch.tensor([0.0, 1.0, 1.0]), 1.0)) == pytest.approx(
        0.0, abs=1e-6
    )
    assert float(absent_divergence(teacher, student, torch.tensor([1.0, 1.0, 0.0]), 1.0)) > 0.1
    assert float(absent_divergence(teacher, student, torch.zeros(3), 1.0)) == 0.0


def test_by_hand_two_absent_classes() -> None:
    teacher, student = torch.tensor([[9.0, 0.0, 0.0]]), torch.tensor([[0.0, 1.0, 0.0]])
    p = torch.softmax(torch.tensor([1.0, 0.0]), 0)
    expected = (0.5 * torch.log(0.5 / p)).sum()
    assert float(absent_divergence(teacher, student, torch.tensor([0.0, 1.0, 1.0]), 1.0)) == pytest.approx(
        float(expected)
    )


def test_distillation_keeps_what_a_client_never_sees() -> None:
    """One client with class 0 only: without a teacher it forgets how 1 and 2 differ, with one it does so less."""
    x = np.array([[1.0, 0.5], [0.8, 0.4], [1.2, 0.6]], dtype=np.float32)
    clients = [(x, np.array([0, 0, 0])), (x, np.array([0, 0, 2]))]

    def moved(distil: float) -> float:
        config = METHOD.configure({"distil": distil, "recipe.lr": 0.1, "recipe.epochs": 5, "recipe.batch": 3})
        fleet, state = fleet_of(METHOD, config, clients)
        before = state.weights["fc.weight"]
        state = run(METHOD, config, fleet, state, 3)
        gap = (state.weights["fc.weight"][1] - state.weights["fc.weight"][2]) - (before[1] - before[2])
        return float(gap.norm())

    assert moved(1.0) < moved(0.0)


def test_pre_training_comes_before_the_first_round() -> None:
    x = np.array([[1.0, 0.5], [0.8, 0.4], [1.2, 0.6]], dtype=np.float32)
    clients = [(x, np.array([0, 1, 2])), (x, np.array([2, 0, 1]))]

    def after(pretrain: int) -> torch.Tensor:
        config = METHOD.configure(
            {"recipe.lr": 1e-9, "recipe.batch": 3, "pretrain.epochs": pretrain, "pretrain.lr": 0.5}
        )
        fleet, state = fleet_of(METHOD, config, clients)
        begun = state.weights
        if pretrain:
            begun = pretrained(fleet, begun, config.pretrain, config.recipe, config.seed)
        state = run(METHOD, config, fleet, state, 1)
        torch.testing.assert_close(state.weights["fc.weight"], begun["fc.weight"])
        return state.weights["fc.weight"]

    assert float((after(3) - after(0)).abs().max()) > 0.01
