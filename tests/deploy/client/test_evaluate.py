from __future__ import annotations

import pytest
import torch

from potluck import models
from potluck._batches import PART
from potluck.deploy.client import evaluate
from potluck.fleet import Data
from potluck.learn import parts


@pytest.mark.parametrize("rows", [1, PART, 2 * PART + 3])
def test_rows_in_parts_give_the_figures_of_all_at_once(rows: int) -> None:
    model = models.build("cnn1d", (32, 3), 4, {"channels": [4, 4]})
    weights = model.init(0)
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(rows, 32, 3, generator=draw), torch.randint(4, (rows,), generator=draw)
    right, loss = evaluate._measure(model, weights, Data(x, y, torch.ones(rows)))
    logits = model.logits(weights, x)
    assert right == float((logits.argmax(-1) == y).sum())
    assert loss == pytest.approx(float(model.losses(logits, y).sum()), rel=1e-5)


def test_no_part_is_larger_than_a_device_is_promised() -> None:
    rows = 600
    data = Data(torch.zeros(rows, 8, 2), torch.zeros(rows, dtype=torch.long), torch.ones(rows))
    sizes = [len(part.y) for part in parts(data)]
    assert sizes == [256, 256, 88]
    assert [part.x.shape[0] for part in parts(data)] == sizes
