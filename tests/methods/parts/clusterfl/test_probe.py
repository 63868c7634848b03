"""Probe inputs that clients contribute."""

from __future__ import annotations

import torch

from potluck import keys
from potluck.fleet import Data, Local
from potluck.methods.parts.clusterfl import probe
from potluck.models import build


def test_no_label_is_offered() -> None:
    model = build("softmax", (2,), 2, {})
    data = Data(torch.arange(6.0).reshape(3, 2), torch.tensor([1, 1, 1]), torch.tensor([1.0, 1.0, 0.0]))
    given_x = probe.offer(probe.Offer(4), Local(model, data, None, keys.key(0))).update
    assert given_x.weight.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert {tuple(row) for row in given_x.x[:2].tolist()} == {(0.0, 1.0), (2.0, 3.0)}
    assert not hasattr(given_x, "y")
