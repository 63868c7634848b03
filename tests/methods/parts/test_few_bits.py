"""Changes in a few bits: sizes, the error of rounding, its mean, and the same inside a stack."""

from __future__ import annotations

import pytest
import torch
from torch.func import vmap

from potluck import keys
from potluck.fleet import Params
from potluck.methods.parts.few_bits import length, names_of, packed, unpacked
from potluck.models import build


def change(seed: int = 0) -> Params:
    draw = keys.key("change", seed)
    return {"a": keys.normal(draw, (13, 7)), "b": 1e-3 * keys.normal(keys.fold(draw, 1), (5,)), "c": torch.zeros(3)}


@pytest.mark.parametrize("bits", range(1, 9))
def test_numbers_take_so_many_bits_and_come_back(bits: int) -> None:
    given = change()
    sent = packed(given, bits)
    assert sent.numbers.dtype == torch.uint8
    assert sent.numbers.shape == (length(given, bits),) == (-(-99 * bits // 8),)
    back = unpacked(sent, given, bits)
    assert {name: value.shape for name, value in back.items()} == {name: value.shape for name, value in given.items()}
    again = unpacked(packed(back, bits), back, bits)
    if bits >= 6:  # the scale fits the largest number, so that what was rounded is not rounded again
        for name, value in back.items():
            assert torch.allclose(again[name], value, atol=1e-6)
            largest = given[name].abs().max()
            assert (value - given[name]).abs().max() <= largest / (2 ** (bits - 1) - 1) / 2 + 1e-7
    assert not back["c"].any()


def test_more_bits_are_nearer() -> None:
    given = {"w": keys.normal(keys.key("w"), (4000,))}
    left = [
        float((unpacked(packed(given, bits), given, bits)["w"] - given["w"]).square().mean()) for bits in range(1, 9)
    ]
    assert left == sorted(left, reverse=True)
    # of a normal distribution, by the best uniform quantiser of 2, 3, 7 and 15 levels (Max, 1960)
    assert left[:4] == pytest.approx([0.363, 0.190, 0.0469, 0.0129], rel=0.1)


def test_rounding_at_random_has_the_right_mean() -> None:
    given = change()
    backs = [unpacked(packed(given, 6, keys.key("draw", k)), given, 6)["a"] for k in range(400)]
    assert float((torch.stack(backs).mean(0) - given["a"]).abs().max()) < 0.02
    assert float(torch.stack(backs).std(0).mean()) > 0.01


def test_a_stack_gives_what_each_gives_alone() -> None:
    rows = [change(k) for k in range(4)]
    stack = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    together = vmap(lambda w: packed(w, 3).numbers)(stack)
    for row, numbers in zip(rows, together, strict=True):
        assert torch.equal(packed(row, 3).numbers, numbers)


def test_names_of_layers_and_modules() -> None:
    model = build("cfc", (5, 2), 3, {"hidden": 3, "backbone": 4, "head": 3})
    given = (model.init(0), model.trainable, model.last_layers(1))
    assert names_of("all", *given) == list(model.init(0))
    assert names_of("body", *given) == [name for name in model.init(0) if not name.startswith("fc.")]
    assert names_of("backbone, f", *given) == [n for n in model.init(0) if n[0] in "bf" and not n.startswith("fc")]
    assert names_of("f.1", *given) == ["f.1.weight", "f.1.bias"]
    assert names_of("f,nothing", *given) == []
