"""BalanceFL: classes weigh alike, and what the teacher says of absent classes is kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.fleets import fleet_of, run

from potluck import keys, methods
from potluck.errors import BadInput
from potluck.fleet import Data, Local
from potluck.methods import balancefl
from potluck.methods.balancefl import absent_divergence
from potluck.methods.parts.starts import pretrained
from potluck.models import build

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


def test_draws_have_each_class_equally_often() -> None:
    y = torch.tensor([0] * 16 + [1] * 3 + [2])
    data = Data(torch.zeros(24, 2), torch.cat([y, torch.zeros(4, dtype=torch.int64)]), (torch.arange(24) < 20).float())
    share = 20.0 / (3.0 * torch.tensor([16.0, 3.0, 1.0]))
    rows = balancefl.balanced(data, share, 200, keys.key("draws"))
    assert float(rows.weight.sum()) == 200 * 20
    drawn = rows.places[rows.weight > 0]
    assert int(drawn.max()) < 20  # no padding
    assert torch.bincount(data.y[drawn]).float() / len(drawn) == pytest.approx([1 / 3] * 3, abs=0.03)


def test_noise_has_the_covariance_within_classes() -> None:
    draw = keys.key("features")
    y = torch.arange(600) % 3
    features = 10.0 * y.unsqueeze(1) + keys.normal(draw, (600, 4)) * torch.tensor([1.0, 2.0, 0.5, 0.0])
    weight = torch.ones(600).scatter(0, torch.tensor([5]), 0.0)
    rows = torch.nn.functional.one_hot(y, 3).float() * weight.unsqueeze(1)
    root = balancefl.within(features, rows)
    assert torch.diag(root.T @ root).sqrt() == pytest.approx([1.0, 2.0, 0.5, 0.0], rel=0.1, abs=1e-3)
    assert not root[5].any()


@pytest.mark.parametrize("given", [{"augment": True}, {"sampling": "weights"}, {"sampling": "draws"}])
def test_every_way_to_balance_learns_rare_classes(given: dict[str, object]) -> None:
    draw = keys.rng("rare")
    y = np.array([0] * 30 + [1] * 3)
    x = (np.array([[2.0, 0.0], [0.0, 2.0]])[y] + 0.3 * draw.normal(size=(33, 2))).astype(np.float32)
    model = build("mlp", (2,), 2, {"hidden": (6,)})
    config = METHOD.configure({**given, "recipe.lr": 0.05, "recipe.epochs": 2, "recipe.batch": 8})
    fleet, state = fleet_of(METHOD, config, [(x, y), (x, y)], model=model)
    state = run(METHOD, config, fleet, state, 12)
    said = model.logits(state.weights, torch.from_numpy(x)).argmax(-1).numpy()
    assert (said == y)[y == 1].mean() == 1.0


def test_a_model_that_cannot_be_cut_is_refused() -> None:
    model = build("cfc", (5, 2), 3, {"hidden": 3, "backbone": 4, "head": 3})
    data = Data(torch.zeros(2, 5, 2), torch.zeros(2, dtype=torch.int64), torch.ones(2))
    with pytest.raises(BadInput, match="model"):
        balancefl.check(METHOD.configure({"augment": True}), Local(model, data, None, keys.key(0)))
