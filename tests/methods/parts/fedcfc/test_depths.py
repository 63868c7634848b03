"""Heads of one and of two layers in one fleet."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch

from potluck import keys, methods
from potluck.errors import BadInput
from potluck.methods.parts.fedcfc import depths
from potluck.models import build
from potluck.models.cfc import f_outputs, has_hidden, logits_and_activity, states_and_read
from potluck.models.memory import need

SQUARE: dict[str, Any] = {"hidden": 3, "backbone": 5, "head": 5}


@pytest.mark.parametrize("depth", get_args(depths.Depth))
@pytest.mark.parametrize("activation", ["lecun_tanh", "silu"])
def test_without_its_hidden_layer_a_head_is_one_of_one_layer(depth: str, activation: str) -> None:
    settings = {**SQUARE, "activation": activation}
    model = build("cfc", (6, 2), 4, settings)
    weights = depths.shallower(model.init(0), depth)
    assert depths.of(weights) == depth
    shallow = build("cfc", (6, 2), 4, {**settings, "layers": depths.layers(depth)})
    renamed = {
        name: weights[name if has_hidden(weights, name[0]) or name[0] not in "fgh" else name.replace(".1.", ".2.")]
        for name in shallow.init(0)
    }
    x, t = keys.normal(keys.key("x"), (2, 6, 2)), torch.arange(6.0).expand(2, 6) * 1.5
    torch.testing.assert_close(model.logits(weights, x, t=t), shallow.logits(renamed, x, t=t))
    weigh = torch.ones(2)
    mine, theirs = (logits_and_activity(m, w, x, weight=weigh) for m, w in ((model, weights), (shallow, renamed)))
    torch.testing.assert_close(mine[1], theirs[1])
    _, read = states_and_read(weights, model.settings, x)
    assert len(f_outputs(weights, model.settings, x, read)) == depths.layers(depth)[0]
    assert need(model, layers=depths.layers(depth)).weights == 4 * sum(w.numel() for w in weights.values())


def test_what_cannot_be_left_out_is_refused() -> None:
    narrow = build("cfc", (6, 2), 4, {**SQUARE, "head": 4}).init(0)
    with pytest.raises(BadInput, match=r"method\.depths: 1-2-2 .* f, .* reads 4 units, but the backbone has 5"):
        depths.shallower(narrow, "1-2-2")
    flat = build("cfc", (6, 2), 4, {**SQUARE, "layers": (1, 1, 1)}).init(0)
    with pytest.raises(BadInput, match=r"method\.depths: 2-1-1 needs a model whose f has two layers"):
        depths.shallower(flat, "2-1-1")
    with pytest.raises(BadInput, match=r"method\.depths.*3-1-1.*1-1-1"):
        methods.load("fedcfc").configure({"depths": ["3-1-1"]})
