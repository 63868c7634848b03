"""Channels that clients found by pruning."""

from __future__ import annotations

from dataclasses import replace

import torch

from potluck.fleet import Arrival, Data, Local
from potluck.learn import Recipe
from potluck.methods.hermes import State
from potluck.methods.parts.submodels.pruning import Found, Search, Steps, found, held, rights, searched, task_for
from potluck.methods.parts.submodels.train import Train, Trained
from potluck.methods.parts.submodels.widths import cut, plan_of
from potluck.methods.tailorfl import scaled
from potluck.models import build


def test_the_channels_with_the_highest_scores_are_kept() -> None:
    model = build("mlp", (2,), 2, {"hidden": [4]})
    plan, weights = plan_of(model), model.init(0)
    local = Local(
        model, Data(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64), torch.ones(3)), None, torch.zeros(2)
    )
    task = Search(weights, 0.5, 0.0, Recipe())
    done = found(weights, {"fc1": torch.tensor([0.1, 3.0, 0.2, 2.0])}, plan, task, local)
    assert done.update.kept["fc1"].tolist() == [1, 3]
    assert torch.equal(done.update.weights["fc1.weight"], weights["fc1.weight"][[1, 3]])
    assert float(done.update.examples) == 3.0
    assert done.mine.weights == done.update.weights


def test_numbers_of_channels_out_of_range_are_clamped() -> None:
    """The gate checks shapes, not what numbers mean: a client could name a channel that does not exist."""
    plan = plan_of(build("mlp", (2,), 2, {"hidden": [4]}))
    wrong = Arrival("a", Found({}, {"fc1": torch.tensor([-1, 9])}, torch.tensor(0.5), torch.tensor(1.0)), 0, 0.0, 0.0)
    trained = Arrival("b", Trained({}, torch.tensor(2.0)), 0, 0.0, 0.0)
    kept = searched([wrong, trained], plan, {})
    assert list(kept) == ["a"]
    assert kept["a"]["fc1"].tolist() == [0, 3]
    (part,) = held([wrong], kept)
    assert part[1] is kept["a"]
    assert float(part[2]) == 1.0


def test_a_client_prunes_by_steps_once_it_is_accurate_enough() -> None:
    model = build("mlp", (2,), 2, {"hidden": [10]})
    plan, state, steps = plan_of(model), State(model.init(0)), Steps(share=0.2, accuracy=0.6)
    sizes = []
    for right in (0.3, 0.7, 0.7, 0.7, 0.7, 0.7):
        task = task_for(state, "a", plan, 0.5, steps, 0.0, Recipe())
        if not isinstance(task, Search):
            break
        count = len(task.weights["fc1.bias"])
        scores = {"fc1": torch.arange(float(count)).flip(0)}  # the last channel that it has matters least
        data = Data(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64), torch.ones(4))
        update = replace(found(task.weights, scores, plan, task, Local(model, data, None, torch.zeros(2))).update)
        arrival = Arrival("a", replace(update, right=torch.tensor(right)), 0, 0.0, 0.0)
        kept = searched([arrival], plan, state.kept)
        state = replace(state, kept=kept, right=rights([arrival]), round=state.round + 1)
        sizes.append(len(kept["a"]["fc1"]))
    assert sizes == [10, 10, 8, 7, 6, 5]
    assert state.kept["a"]["fc1"].tolist() == [0, 1, 2, 3, 4]
    assert isinstance(task_for(state, "a", plan, 0.5, steps, 0.0, Recipe()), Train)


def test_what_tailorfl_sends_scaled_comes_back_as_it_was() -> None:
    model = build("mlp", (2,), 2, {"hidden": [4]})
    plan, weights = plan_of(model), model.init(0)
    channels = {"fc1": torch.tensor([0, 3])}
    sent = scaled(cut(weights, plan, channels), channels, plan=plan, power=-1.0)
    torch.testing.assert_close(sent["fc2.weight"], 2.0 * weights["fc2.weight"][:, [0, 3]])  # half of its inputs
    assert torch.equal(sent["fc1.weight"], weights["fc1.weight"][[0, 3]])
    back = scaled(sent, channels, plan=plan, power=1.0)
    torch.testing.assert_close(back["fc2.weight"], weights["fc2.weight"][:, [0, 3]])
