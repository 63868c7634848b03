"""What a client's training takes of its memory beyond FedAvg's: the tensors that the algorithm names, and no copies."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from potluck import keys, methods
from potluck.engines.price import count, nbytes_of
from potluck.fleet import Data, Local
from potluck.learn import Recipe
from potluck.methods import clusterfl, fedasync, fedavg, fedprox, scaffold
from potluck.models import build
from potluck.tensors import zeros_like

MODEL = build("mlp", (180,), 6, {"hidden": (64,)})
WEIGHTS = MODEL.init(0)
ONE = nbytes_of(WEIGHTS)


def memory(method: str, task: Any, mine: Any = None) -> int:
    data = Data(torch.zeros(16, 180), torch.zeros(16, dtype=torch.int64), torch.ones(16))
    return count(methods.load(method).programs[type(task)], task, Local(MODEL, data, mine, keys.key(0))).memory


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_pull_takes_no_copy_of_the_model(momentum: float) -> None:
    recipe, flat = Recipe(batch=16, momentum=momentum), torch.zeros(ONE // 4)
    plain = memory("fedavg", fedavg.Train(WEIGHTS, recipe))
    assert memory("fedprox", fedprox.Train(WEIGHTS, 0.1, recipe)) == plain
    assert memory("fedasync", fedasync.Train(WEIGHTS, torch.zeros(()), recipe, 0.1)) - plain < 100
    mine = clusterfl.Mine(WEIGHTS, torch.zeros(()))
    coupled = memory("clusterfl", clusterfl.Train({}, flat, torch.zeros(()), 0.5, 0.5, recipe, 0.999), mine)
    assert 0 <= coupled - plain - ONE < 100  # z is as large as the model
    assert plain < (3.8 + (momentum > 0)) * ONE  # weights, their copy, gradient, momentum; and a batch


def test_scaffold_holds_the_seven_models_that_it_names() -> None:
    """x, y, c, c_i, c_i+ and the two changes that it sends; the batch and its gradient are gone by then."""
    task = scaffold.Train(WEIGHTS, zeros_like(WEIGHTS), Recipe(batch=16))
    rows = 16 * (180 * 4 + 8 + 4)
    assert memory("scaffold", task, scaffold.Mine(zeros_like(WEIGHTS))) <= 7 * ONE + rows
