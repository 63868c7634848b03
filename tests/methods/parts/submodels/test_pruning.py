"""Channels that clients found by pruning."""

from __future__ import annotations

import torch

from potluck.fleet import Arrival, Data, Local
from potluck.methods.parts.submodels.pruning import Found, found, held, searched
from potluck.methods.parts.submodels.train import Trained
from potluck.methods.parts.submodels.widths import plan_of
from potluck.models import build


def test_the_channels_with_the_highest_scores_are_kept() -> None:
    model = build("mlp", (2,), 2, {"hidden": [4]})
    plan, weights = plan_of(model), model.init(0)
    local = Local(
        model, Data(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64), torch.ones(3)), None, torch.zeros(2)
    )
    done = found(weights, {"fc1": torch.tensor([0.1, 3.0, 0.2, 2.0])}, plan, 0.5, local)
    assert done.update.kept["fc1"].tolist() == [1, 3]
    assert torch.equal(done.update.weights["fc1.weight"], weights["fc1.weight"][[1, 3]])
    assert float(done.update.examples) == 3.0
    assert done.mine.weights == done.update.weights


def test_numbers_of_channels_out_of_range_are_clamped() -> None:
    """The gate checks shapes, not what numbers mean: a client could name a channel that does not exist."""
    plan = plan_of(build("mlp", (2,), 2, {"hidden": [4]}))
    wrong = Arrival("a", Found({}, {"fc1": torch.tensor([-1, 9])}, torch.tensor(1.0)), 0, 0.0, 0.0)
    trained = Arrival("b", Trained({}, torch.tensor(2.0)), 0, 0.0, 0.0)
    kept = searched([wrong, trained], plan)
    assert list(kept) == ["a"]
    assert kept["a"]["fc1"].tolist() == [0, 3]
    (part,) = held([wrong], kept)
    assert part[1] is kept["a"]
    assert float(part[2]) == 1.0
