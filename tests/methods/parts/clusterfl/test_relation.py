"""The relation of clients: divergences, the indicator F and the clusters read off it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck import keys
from potluck.errors import BadInput
from potluck.fleet import Data, Local
from potluck.methods import clusterfl
from potluck.methods.parts.clusterfl import relation
from potluck.models import build


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(keys.rng("clusterfl tests", seed).normal(size=shape))


def test_block_indicator() -> None:
    """Acceptance 3: for block-constant similarities F F^T is that of the ideal indicator, and sigma_max(F) is 1."""
    sizes = (3, 2, 1)
    label = np.repeat(np.arange(3), sizes)
    block = torch.from_numpy((label[:, None] == label).astype(float)) * torch.tensor([2.0, 2, 2, 5, 5, 9]).double()
    f = relation.normalised(block)
    symmetric = (
        torch.from_numpy((label[:, None] == label).astype(float)) * torch.tensor([2.0, 3.0, 9.0])[label].double()
    )
    torch.testing.assert_close(relation.balanced(symmetric), f)
    ideal = torch.from_numpy((label[:, None] == np.arange(3)) / np.sqrt(sizes))
    torch.testing.assert_close(f @ f.T, ideal @ ideal.T)
    assert relation.spread(f) == pytest.approx(1.0)
    assert relation.components(relation.correlation(f.float())) == [0, 0, 0, 1, 1, 2]


@given(st.integers(1, 5), st.integers(1, 4), st.integers(2, 4), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_divergence_equals_the_triple_loop(count: int, inputs: int, classes: int, seed: int) -> None:
    """Acceptance 4."""
    logits = random(count, inputs, classes, seed=seed)
    found = relation.divergence(logits, 6.0)
    p = torch.softmax(logits / 6.0, -1)
    for i in range(count):
        for j in range(count):
            loop = sum(float((p[i, r] * (p[i, r] / p[j, r]).log()).sum()) for r in range(inputs)) / inputs
            assert float(found[i, j]) == pytest.approx(loop, abs=1e-12)
    assert bool((found >= 0).all())
    assert bool((found.diagonal() == 0).all())


@given(st.integers(2, 12), st.integers(1, 30), st.floats(-3, 3), st.booleans(), st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_f_is_doubly_stochastic(count: int, width: int, spread: float, alone: bool, seed: int) -> None:
    """Any clients, also with features of unlike size: sigma_max(F) is 1, and z is a mean of models."""
    size = torch.logspace(0, spread, count, dtype=torch.float64)[:, None]
    x = random(count, width, seed=seed) * size
    gram = (x @ x.T).clamp_min(0.0)
    if alone:
        gram[0] = gram[:, 0] = 0.0
    f = relation.balanced(gram)
    torch.testing.assert_close(f, f.T)
    torch.testing.assert_close((f @ f.T).sum(1), torch.ones(count).double(), atol=1e-6, rtol=0)
    assert relation.spread(f) == pytest.approx(1.0, abs=1e-6)
    assert bool((f >= 0).all())
    if alone:
        assert torch.equal(f[:, 0], torch.eye(count).double()[0])


def test_confident_models_are_pulled_to_a_mean_too() -> None:
    """Ten like models of growing confidence: with columns alone the pull is to between 0.4 and 1.5 of a mean."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 50, 6, generator=generator) + 0.5 * torch.randn(10, 50, 6, generator=generator)
    kl = relation.divergence(logits * torch.linspace(0.5, 3, 10)[:, None, None], 6.0)
    for scaling, even in (("columns", False), ("sinkhorn", True)):
        f = relation.indicator(kl, scaling)
        f = f / relation.spread(f)
        assert bool(((f @ f.T).sum(1) - 1.0).abs().max() < 1e-5) == even


@pytest.mark.parametrize("scale", [0.01, 3.0, 100.0])
def test_confidence_is_no_opinion(scale: float) -> None:
    """Two groups of opposite opinions, every second client far more confident: the groups are found by the answers."""
    opinion, noise = random(40, 5, seed=1), 0.2 * random(8, 40, 5, seed=2)
    side = torch.tensor([1.0, 1, 1, 1, -1, -1, -1, -1]).double()[:, None, None]
    confidence = torch.tensor([1.0, scale] * 4).double()[:, None, None]
    logits = confidence * (side * opinion + noise)
    f = relation.indicator(relation.divergence(relation.standardised(logits), 6.0))
    assert relation.components(relation.correlation(f)) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert torch.equal(relation.standardised(torch.ones(2, 3, 4)), torch.zeros(2, 3, 4))


def test_hard_clusters_are_those_of_equation_1() -> None:
    f = relation.hardened([0, 0, 1, 0, 2])
    ideal = torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]) / torch.tensor([3.0, 1, 1]).sqrt()
    torch.testing.assert_close(f @ f.T, ideal @ ideal.T)
    assert relation.spread(f) == pytest.approx(1.0)


def test_f_of_one_client_is_zero_and_of_equal_models_the_identity() -> None:
    assert torch.equal(relation.indicator(torch.ones(1, 3)), torch.zeros(1, 1))
    assert torch.equal(relation.indicator(torch.ones(3, 4)), torch.eye(3))


def test_a_constant_row_correlates_with_no_other() -> None:
    related = relation.correlation(torch.tensor([[0.5, 0.5, 0.5], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    torch.testing.assert_close(related, torch.tensor([[1.0, 0, 0], [0, 1.0, 1.0], [0, 1.0, 1.0]]))


def test_models_answer_as_one_stack() -> None:
    model = build("mlp", (3,), 2, {"hidden": (4,)})
    models = [model.init(seed) for seed in range(3)]
    inputs = Data(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(5), torch.ones(5))
    stacked = {name: torch.stack([one[name] for one in models]) for name in models[0]}
    found = relation.answers(model, stacked, inputs)
    for i, one in enumerate(models):
        torch.testing.assert_close(found[i], model.logits(one, inputs.x))


def test_a_probe_of_the_wrong_shape_is_refused() -> None:
    model = build("softmax", (3,), 2, {})
    wrong = Data(torch.zeros(5, 4), torch.zeros(5), torch.ones(5))
    with pytest.raises(BadInput, match=r"probe: samples must have the shape \(3,\), got \(4,\)"):
        relation.answers(model, {n: v[None] for n, v in model.init(0).items()}, wrong)
    with pytest.raises(BadInput, match=r"server: samples must have the shape \(3,\)"):
        clusterfl.check(clusterfl.Config(), Local(model, wrong, None, keys.key(0)))
