"""Algorithm 1: how the models of two clusters are merged."""

from __future__ import annotations

import contextlib

import pytest
import torch
from helpers.clusters import model

from potluck import compiled, keys
from potluck.methods.parts.echopfl import merging
from potluck.models import build
from potluck.rows import copied


def test_algorithm_1_attention_lies_between_0_and_1() -> None:
    main, auxiliary, upload = (keys.normal(keys.key("merge", i), (40,)) for i in range(3))
    kappa = merging.attention({"w": auxiliary - main}, {"w": upload - main})["w"]
    assert float(kappa.min()) >= 0.0
    assert float(kappa.max()) == 1.0
    merged = merging.merged({"w": main}, {"w": auxiliary}, {"w": upload})["w"]
    low, high = torch.minimum(main, auxiliary), torch.maximum(main, auxiliary)
    assert bool(((merged >= low - 1e-6) & (merged <= high + 1e-6)).all())


def test_algorithm_1_without_agreement_is_the_main_model() -> None:
    main, auxiliary = model(0.0, 0.0, 0.0), model(1.0, 2.0, 3.0)
    against = model(-1.0, -1.0, -1.0)
    assert all(torch.equal(v, main[n]) for n, v in merging.merged(main, auxiliary, against).items())
    assert all(torch.equal(v, main[n]) for n, v in merging.merged(main, main, against).items())


def test_algorithm_1_by_hand() -> None:
    merged = merging.merged(
        {"w": torch.tensor([0.0, 0.0, 0.0])},
        {"w": torch.tensor([2.0, 2.0, 2.0])},
        {"w": torch.tensor([4.0, 1.0, -3.0])},
    )
    torch.testing.assert_close(merged["w"], torch.tensor([2.0, 0.5, 0.0]))  # kappa = 1, 1/4, 0


def test_a_kernels_distance_is_that_of_the_tensors() -> None:
    a, b = (
        {"w": keys.normal(keys.key("l1", n, "w"), (70, 41)), "b": keys.normal(keys.key("l1", n, "b"), (3,))}
        for n in (0, 1)
    )
    by_hand = sum(float((a[name].double() - b[name].double()).abs().sum()) for name in a)
    part = {"w": a["w"][:9, :7].contiguous()}  # of a model, where the other is whole
    cut = float((part["w"].double() - b["w"][:9, :7].double()).abs().sum())
    for given in (contextlib.nullcontext(), compiled.off()):
        with given:
            assert merging.l1(["w", "b"])(a, b) == pytest.approx(by_hand, rel=1e-6)
            assert merging.l1(["w", "b"])(part, b) == pytest.approx(cut, rel=1e-6)


@pytest.mark.parametrize("buffers", [False, True])
def test_a_kernel_exchanges_models_as_tensors_do(buffers: bool) -> None:
    net = build("mlp", (11,), 3, {"hidden": [17]})
    models = [net.init(seed) | ({"seen": torch.tensor(seed)} if buffers else {}) for seed in range(3)]
    centre, old, new = models
    for out, into in (((old, 3.0), (new, 5.0)), (None, (new, 5.0)), ((old, 3.0), None)):
        found, total = merging.exchanged(centre, 40.0, out, into)
        kept = [None if one is None else (copied(one[0]), one[1]) for one in (out, into)]
        again, _ = merging.exchanged(copied(centre), 40.0, *kept)  # wherever the tensors are: a resumed run
        with compiled.off():
            plain, count = merging.exchanged(centre, 40.0, out, into)
        assert total == count
        for name, value in plain.items():
            torch.testing.assert_close(found[name], value)
            assert torch.equal(found[name], again[name])
        far = merging.l1(net.trainable)
        assert far(found, centre) == far(dict(again), copied(centre))


def test_an_exchange_is_the_mean_of_those_that_are_left() -> None:
    net = build("mlp", (11,), 3, {"hidden": [17]})
    old, other, new = (net.init(seed) for seed in range(3))
    centre, total, _ = merging.changed(old, 2.0, None, None, (other, 6.0))
    centre, total, _ = merging.changed(centre, total, None, (old, 2.0), (new, 3.0))
    assert total == 9.0
    for name, value in centre.items():
        torch.testing.assert_close(value, (6.0 * other[name] + 3.0 * new[name]) / 9.0)
