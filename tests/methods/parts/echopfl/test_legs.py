"""The samples of each leg."""

from __future__ import annotations

import torch

from potluck import keys
from potluck.methods.parts.echopfl.legs import portion


def test_the_portions_of_an_epoch_are_all_samples_once() -> None:
    weight = (torch.arange(12) < 9).float()
    for key in (None, keys.key("p")):
        seen: list[int] = []
        for k in range(4):
            part = portion(weight, torch.tensor(k), 4, key)
            seen += part.places[part.weight > 0].tolist()
        assert sorted(seen) == list(range(9))
        assert (seen == sorted(seen)) == (key is None)
        for counts in (weight, torch.ones(12)):  # nothing beyond them
            assert float(portion(counts, torch.tensor(4), 4, key).weight.sum()) == 0.0
