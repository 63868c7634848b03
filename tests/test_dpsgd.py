"""DP-SGD against opacus, and against its own definition: sampling, clipping, noise, stacks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from helpers.fleets import made
from torch import nn
from torch.func import vmap

from potluck import keys, learn
from potluck._dpsgd import StepNoise, noised, poisson, private_slope
from potluck.fleet import Data
from potluck.models import build

MODEL = build("mlp", (4,), 3, {"hidden": [5]})


def data_of(samples: int, capacity: int | None = None) -> Data:
    x, y = made((samples,))[0]
    capacity = capacity or samples
    weight = torch.zeros(capacity)
    weight[:samples] = 1.0
    pad = capacity - samples
    return Data(torch.from_numpy(np.pad(x, ((0, pad), (0, 0)))), torch.from_numpy(np.pad(y, (0, pad))).long(), weight)


def weights() -> dict[str, torch.Tensor]:
    return MODEL.init(keys.key(3))


def slope(data: Data, clip: float, noise: float, key: int = 0) -> list[torch.Tensor]:
    first = weights()
    moving = list(first)
    with noised(StepNoise(clip, noise)):
        return private_slope(
            lambda w, d, k: learn.mean_loss(MODEL, w, d, k),
            moving,
            [first[name] for name in moving],
            {},
            data,
            keys.key(key),
            torch.tensor(float(len(data.weight))),
        )


@pytest.mark.parametrize("clip", [0.05, 0.5, 50.0])
def test_a_step_is_that_of_opacus(clip: float) -> None:
    opacus: Any = pytest.importorskip("opacus")
    data = data_of(16)
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    first = weights()
    module.load_state_dict(dict(zip(module.state_dict(), first.values(), strict=True)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = opacus.GradSampleModule(module)
        optimiser = opacus.optimizers.DPOptimizer(
            torch.optim.SGD(wrapped.parameters(), lr=1.0),
            noise_multiplier=0.0,
            max_grad_norm=clip,
            expected_batch_size=16,
        )
        nn.functional.cross_entropy(wrapped(data.x), data.y).backward()
        optimiser.step()
    theirs = [value - new for value, new in zip(first.values(), module.parameters(), strict=True)]
    for ours, other in zip(slope(data, clip, 0.0), theirs, strict=True):
        torch.testing.assert_close(ours, other.detach(), atol=1e-6, rtol=1e-4)


def test_a_sum_of_clipped_gradients_is_that_of_autograd_sample_by_sample() -> None:
    data, clip = data_of(9), 0.2
    first = weights()
    total = [torch.zeros_like(value) for value in first.values()]
    for row in range(9):
        free = {name: value.clone().requires_grad_() for name, value in first.items()}
        one = Data(data.x[row : row + 1], data.y[row : row + 1], torch.ones(1))
        learn.mean_loss(MODEL, free, one, keys.key(0))[0].backward()
        own = [value.grad for value in free.values()]
        norm = torch.sqrt(sum(value.square().sum() for value in own))  # type: ignore[union-attr, arg-type]
        total = [a + b * min(1.0, clip / float(norm)) for a, b in zip(total, own, strict=True)]  # type: ignore[operator]
    for ours, theirs in zip(slope(data, clip, 0.0), total, strict=True):
        torch.testing.assert_close(ours, theirs / 9, atol=1e-6, rtol=1e-4)


def test_noise_has_its_width_and_other_draws_for_other_keys() -> None:
    data = data_of(8)
    quiet = torch.cat([value.reshape(-1) for value in slope(data, 0.5, 0.0)])
    draws = [torch.cat([v.reshape(-1) for v in slope(data, 0.5, 3.0, key)]) - quiet for key in range(200)]
    assert float(torch.stack(draws).std()) == pytest.approx(3.0 * 0.5 / 8, rel=0.03)
    assert not torch.equal(draws[0], draws[1])


def test_each_sample_is_drawn_with_the_rate_that_is_charged() -> None:
    rows, counts = poisson(data_of(50, 64), 10, 400, keys.key(1))
    live = counts[counts[:, 0] >= 0]
    assert len(live) == 400 * 5  # epochs · ceil(50 / 10); a stack's further steps are empty
    drawn = torch.zeros(64)
    drawn.index_add_(0, rows[counts[:, 0] >= 0].reshape(-1), live.reshape(-1))
    share = drawn / len(live)
    assert float(share[50:].sum()) == 0.0
    assert float(share[:50].mean()) == pytest.approx(0.2, rel=0.02)
    assert float((share[:50] - 0.2).abs().max()) < 0.05


def test_a_stack_of_clients_trains_as_each_alone() -> None:
    stack = [data_of(n, 20) for n in (20, 13, 7)]
    first = weights()

    def train(data: Data, key: torch.Tensor) -> dict[str, torch.Tensor]:
        with noised(StepNoise(0.5, 1.0)):
            return learn.sgd(MODEL, first, data, key=key, lr=0.1, epochs=2, batch=5)

    own = [keys.key(9, i) for i in range(3)]
    parts = [torch.stack([getattr(data, name) for data in stack]) for name in ("x", "y", "weight")]
    together = vmap(lambda x, y, weight, key: train(Data(x, y, weight), key), randomness="different")(
        *parts, torch.stack(own)
    )
    for place, data in enumerate(stack):
        alone = train(data, own[place])
        for name, value in alone.items():
            torch.testing.assert_close(together[name][place], value, atol=1e-5, rtol=1e-4)


def test_without_noise_and_bounds_it_learns() -> None:
    data = data_of(60)
    with noised(StepNoise(10.0, 0.01)):
        after = learn.sgd(MODEL, weights(), data, key=keys.key(0), lr=0.5, epochs=20, batch=10)
    before = float(learn.mean_loss(MODEL, weights(), data, keys.key(0))[0])
    assert float(learn.mean_loss(MODEL, after, data, keys.key(0))[0]) < 0.5 * before
