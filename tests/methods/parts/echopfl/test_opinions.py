"""What models answer: correlation of standardised logits, and the two groups of a cluster."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck import compiled
from potluck.fleet import Data
from potluck.methods.parts.echopfl.answers import answers, two_groups, unlike
from potluck.models import build
from potluck.rows import copied

NET = build("softmax", (2,), 3, {})
PROBE = Data(torch.randn(40, 2, generator=torch.Generator().manual_seed(0)), torch.zeros(40), torch.ones(40))


def test_confidence_is_no_opinion_and_other_names_are_one() -> None:
    say = answers(NET, PROBE)
    first = NET.init(0)
    surer = {name: 3.0 * value for name, value in first.items()}
    renamed = {name: value.roll(1, 0) for name, value in first.items()}  # class k is called k + 1
    assert unlike(say, first, first) == pytest.approx(0.0, abs=1e-5)
    assert unlike(say, first, surer) == pytest.approx(0.0, abs=1e-5)
    assert unlike(say, first, renamed) > 0.5


@given(st.lists(st.booleans(), min_size=4, max_size=20), st.integers(0, 5))
def test_two_opinions_are_told_apart_whoever_comes_first(sides: list[bool], seed: int) -> None:
    sides[0] = True
    noise = 0.05 * torch.randn(len(sides), 6, generator=torch.Generator().manual_seed(seed))
    one, two = torch.zeros(6), torch.zeros(6)
    one[0], two[1] = 1.0, 1.0
    rows = torch.nn.functional.normalize(torch.stack([one if side else two for side in sides]) + noise, dim=1)
    wrong = [i for i, side in enumerate(sides) if side][:2]
    for begun in ((), wrong):
        group, agree = two_groups(rows, begun)
        if not all(sides):
            assert group.tolist() == sides
            assert agree < 0.3
        else:
            assert agree > 0.8


def test_the_misfits_begin_the_search() -> None:
    """Rows 0 and 1 share an opinion; row 2 is an outlier of its own, farther from row 0 than the rest is."""
    rows = torch.nn.functional.normalize(
        torch.tensor([[1.0, 0.1, 0.0], [1.0, 0.2, 0.0], [-1.0, -1.0, 0.1], [0.1, 1.0, 0.0], [0.0, 1.0, 0.1]]), dim=1
    )
    assert two_groups(rows)[0].tolist() == [True, True, False, True, True]
    assert two_groups(rows, (0, 1))[0].tolist()[:2] == [True, True]
    assert two_groups(rows, (0, 1))[0].tolist()[3:] == [False, False]


def test_a_kernel_hears_what_pytorch_hears_and_each_model_by_itself() -> None:
    net = build("mlp", (7,), 3, {"hidden": [9]})
    probe = Data(torch.randn(70, 7, generator=torch.Generator().manual_seed(1)), torch.zeros(70), torch.ones(70))
    say, models = answers(net, probe), [net.init(seed) for seed in range(3)]
    models.append({name: torch.zeros_like(value) for name, value in models[0].items()})  # has no opinion
    rows = say(models)
    with compiled.off():
        torch.testing.assert_close(rows, say(models), rtol=1e-5, atol=1e-6)
    for place, one in enumerate(models):
        alone = say([one])[0]
        assert torch.equal(alone, rows[place]) or not compiled.ready()
        assert torch.equal(alone, say([copied(one)])[0])
