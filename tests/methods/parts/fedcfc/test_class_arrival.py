"""Classes that arrive one after another."""

from __future__ import annotations

import torch

from potluck import keys
from potluck.fleet import Data
from potluck.methods.parts.fedcfc.classes import Classes, present, so_far


def test_classes_arrive_one_after_another() -> None:
    schedule = Classes(first=2, every=3)
    assert [so_far(schedule, False, 4, done) for done in range(8)] == [2, 2, 2, 3, 3, 3, 4, 4]
    assert [so_far(schedule, True, 4, done) for done in range(8)] == [
        3,
        3,
        3,
        4,
        4,
        4,
        4,
        4,
    ]  # the first are pre-trained
    assert so_far(Classes(every=3), True, 4, 5) == 0
    data = Data(torch.zeros(6, 1, 1), torch.tensor([0, 1, 2, 3, 2, 0]), torch.tensor([1.0, 1, 1, 1, 1, 0]))
    for classes, weights in ((2, [1, 1, 0, 0, 0, 0]), (3, [0, 0, 1, 0, 1, 0]), (0, [1, 1, 1, 1, 1, 0])):
        assert present(data, classes, Classes(first=2, replay=0.0), keys.key(0)).weight.tolist() == weights
    assert present(data, 4, Classes(first=2, replay=1.0), keys.key(0)).weight.tolist() == data.weight.tolist()
