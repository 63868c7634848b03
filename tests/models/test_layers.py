"""Norms and dropout: PyTorch's numbers where PyTorch has them, padding, slices, keys."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import vmap

from potluck import keys
from potluck.errors import BadInput
from potluck.models.layers import BatchNorm, Dropout, GroupNorm, LayerNorm, Pass, norm, running


def images(*shape: int) -> torch.Tensor:
    return keys.normal(keys.key("images"), shape) * 2.0 + 1.0


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (4, 3, 5, 2)])
def test_batch_norm_is_torchs(shape: tuple[int, ...]) -> None:
    x = images(*shape)
    ours = BatchNorm(3)
    theirs = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)](3)
    for weight in (None, torch.ones(shape[0])):
        now = Pass(weight, None)
        theirs.reset_running_stats()
        with running(now):
            torch.testing.assert_close(ours(x), theirs(x))
        torch.testing.assert_close(now.changed[".running_mean"], theirs.running_mean)
        torch.testing.assert_close(now.changed[".running_var"], theirs.running_var)
        assert torch.equal(ours.running_mean, torch.zeros(3))
    ours.running_mean, ours.running_var = now.changed[".running_mean"], now.changed[".running_var"]
    torch.testing.assert_close(ours(x), theirs.eval()(x))


def test_padding_stays_out_of_batch_statistics() -> None:
    layer = BatchNorm(2)
    x = torch.cat([images(3, 2, 4, 4), torch.full((2, 2, 4, 4), 1e3)])
    padded, alone = Pass(torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0]), None), Pass(None, None)
    with running(padded):
        out = layer(x)
    with running(alone):
        torch.testing.assert_close(out[:3], layer(x[:3]))
    torch.testing.assert_close(padded.changed, alone.changed)


def test_a_batch_of_padding_moves_no_statistics_and_stays_finite() -> None:
    layer = BatchNorm(2)
    nothing = Pass(torch.zeros(3), None)
    with running(nothing):
        assert torch.all(torch.isfinite(layer(images(3, 2))))
    assert torch.equal(nothing.changed[".running_mean"], layer.running_mean)
    assert torch.equal(nothing.changed[".running_var"], layer.running_var)


def test_a_batch_of_one_sample_has_the_gradient_it_has_in_a_stack() -> None:
    """The last batch of an epoch may hold one sample: its norm is the bias, whatever the weight is."""
    layer, x = BatchNorm(3), images(1, 3)
    with running(Pass(torch.ones(1), None)):
        layer(x).sum().backward()
    assert torch.equal(layer.weight.grad, torch.zeros(3))
    assert torch.equal(layer.bias.grad, torch.ones(3))


def test_frozen_batch_norm_never_changes() -> None:
    layer = BatchNorm(2, frozen=True)
    x = images(3, 2, 4, 4)
    now = Pass(None, None)
    with running(now):
        torch.testing.assert_close(layer(x), x / (1 + 1e-5) ** 0.5)
    assert now.changed == {}


@pytest.mark.parametrize(("channels", "groups"), [(16, 8), (12, 6), (9, 3), (8, 4), (5, 1), (1, 1)])
def test_groups_divide_whatever_channels_there_are(channels: int, groups: int) -> None:
    x = images(2, channels, 3, 3)
    torch.testing.assert_close(GroupNorm(channels, 8)(x), nn.GroupNorm(groups, channels)(x))


def test_layer_norm_normalises_a_whole_sample() -> None:
    out = LayerNorm(4)(images(2, 4, 3, 3))
    torch.testing.assert_close(out.mean((1, 2, 3)), torch.zeros(2), atol=1e-6, rtol=0)
    torch.testing.assert_close(out.var((1, 2, 3), correction=0), torch.ones(2), atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["group", "layer", "batch", "frozen", "none"])
def test_every_norm_keeps_channels_last(kind: str) -> None:
    x = images(2, 8, 4, 4).to(memory_format=torch.channels_last)
    with running(Pass(torch.ones(2), None)):
        out = norm(kind, 8, 4)(x)  # type: ignore[arg-type]
    assert out.is_contiguous(memory_format=torch.channels_last)


def test_dropout_depends_on_key_and_name_only() -> None:
    first, second = Dropout(0.25), Dropout(0.25)
    first.path, second.path = "drop1", "drop2"
    x = torch.ones(200, 50)

    def drawn(layer: Dropout, seed: int) -> torch.Tensor:
        with running(Pass(None, keys.key(seed))):
            return layer(x)

    out = drawn(first, 1)
    assert torch.equal(out, drawn(first, 1))
    assert not torch.equal(out, drawn(first, 2))
    assert not torch.equal(out, drawn(second, 1))
    assert out.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert out.mean().item() == pytest.approx(1.0, abs=0.02)
    assert torch.equal(first(x), x)


def test_dropout_differs_between_the_clients_of_a_stack() -> None:
    layer = Dropout(0.5)

    def of(key: torch.Tensor) -> torch.Tensor:
        with running(Pass(None, key)):
            return layer(torch.ones(64))

    stack = vmap(of)(torch.stack([keys.key(1), keys.key(2)]))
    assert torch.equal(stack[0], of(keys.key(1)))
    assert not torch.equal(stack[0], stack[1])


def test_dropout_without_a_key_is_refused() -> None:
    with running(Pass(None, None)), pytest.raises(BadInput, match="key: none was given"):
        Dropout(0.5)(torch.ones(2, 2))
