"""Arithmetic on models: the mean is the hand-weighted mean, whatever memory the tensors live in."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from potluck import compiled, keys, tensors
from potluck._merging import Rows
from potluck.fleet import Params
from potluck.tensors import distance, each, flat, mean, mix, zeros_like

pytestmark = pytest.mark.quick

WIDE = tensors.WIDE + 5  # elements of a tensor that takes the other way of summing


def rows_of(count: int, shape: tuple[int, ...], part: str = "") -> list[Tensor]:
    return list(keys.normal(keys.key("tensors", count, part), (count, *shape)).unbind(0))


def by_hand(values: list[Tensor], weights: list[float]) -> np.ndarray:
    share = np.array(weights) / np.sum(weights)
    return sum(w * value.double().numpy() for w, value in zip(share, values, strict=True))


def same(a: Params, b: Params) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@given(count=st.integers(1, 9), data=st.data())
def test_the_mean_has_the_weights_given(count: int, data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.floats(0.1, 100.0), min_size=count, max_size=count))
    values = rows_of(count, (3, 2))
    found = mean([{"w": value} for value in values], weights)["w"]
    np.testing.assert_allclose(found.numpy(), by_hand(values, weights), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1, 7, WIDE])
def test_narrow_and_wide_tensors_alike(size: int) -> None:
    values, weights = rows_of(5, (size,)), [1.0, 2.0, 0.0, 4.0, 0.5]
    found = mean([{"w": value} for value in values], weights)["w"]
    np.testing.assert_allclose(found.numpy(), by_hand(values, weights), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kernels", [True, False])
@given(count=st.integers(1, 9), seed=st.integers(0, 99))
def test_rows_of_stacks_and_separate_models_have_the_same_mean(kernels: bool, count: int, seed: int) -> None:
    """To the bit: a resumed run has copies where the run that was never killed had rows."""
    draw = keys.rng("rows", count, seed)
    sizes = draw.multinomial(count, [0.5, 0.5])
    stacks = [
        {
            "w": keys.normal(keys.key("w", seed, k), (size, 3, 5)),
            "wide": keys.normal(keys.key("v", seed, k), (size, WIDE)),
            "b": keys.normal(keys.key("b", seed, k), (size,)),
            "steps": torch.arange(size),
        }
        for k, size in enumerate(sizes.tolist())
    ]
    places = draw.permutation(np.array([(k, i) for k, size in enumerate(sizes) for i in range(size)]))
    rows, weights = Rows(stacks, places), keys.uniform(keys.key("share", seed), (count,)) + 0.1
    copies = [each(torch.clone, row) for row in rows]
    with nullcontext() if kernels else compiled.off():
        found = mean(rows, weights)
        assert same(found, mean(copies, list(weights)))
    for name in ("w", "wide", "b"):
        expected = by_hand([copy[name] for copy in copies], weights.tolist())
        np.testing.assert_allclose(found[name].numpy(), expected, rtol=1e-4, atol=1e-6)
    assert torch.equal(found["steps"], copies[0]["steps"])


def test_tensors_that_kernels_cannot_add_are_added_all_the_same() -> None:
    double = [{"w": value.double(), "v": value} for value in rows_of(3, (4, 2))]
    turned = [{"w": value.T, "v": value} for value in rows_of(3, (4, 2))]
    for models in (double, turned):
        found = mean(models, [1.0, 2.0, 3.0])
        for name in ("w", "v"):
            assert found[name].dtype == models[0][name].dtype
            expected = by_hand([model[name] for model in models], [1.0, 2.0, 3.0])
            np.testing.assert_allclose(found[name].numpy(), expected, rtol=1e-5, atol=1e-6)


def test_no_weights_are_equal_weights() -> None:
    found = mean([{"w": torch.tensor([1.0, 5.0])}, {"w": torch.tensor([3.0, 7.0])}])
    assert found["w"].tolist() == [2.0, 6.0]


def test_weights_may_be_tensors_and_whole_numbers() -> None:
    models = [{"w": torch.tensor([0.0])}, {"w": torch.tensor([4.0])}]
    assert mean(models, [torch.tensor(3.0), torch.tensor(1.0)])["w"].tolist() == [1.0]
    assert mean(models, [torch.tensor(3), 1])["w"].tolist() == [1.0]


@pytest.mark.parametrize("size", [6, WIDE])
@given(order=st.permutations(range(5)), take=st.integers(1, 5))
def test_the_bits_do_not_depend_on_where_the_tensors_live(size: int, order: list[int], take: int) -> None:
    """Rows of a stack (updates trained together), a part of it, or copies (updates out of a checkpoint): same bits."""
    rows = rows_of(5, (size,))
    chosen, weights = [rows[i] for i in order[:take]], [float(i + 1) for i in order[:take]]
    together = mean([{"w": row} for row in chosen], weights)
    apart = mean([{"w": row.clone()} for row in chosen], weights)
    mixed = mean([{"w": row if i % 2 else row.clone()} for i, row in enumerate(chosen)], weights)
    assert same(together, apart)
    assert same(together, mixed)


def test_one_model_may_stand_several_times() -> None:
    a, b = rows_of(2, (3,))
    found = mean([{"w": a}, {"w": a}, {"w": b}], [1.0, 1.0, 2.0])["w"]
    np.testing.assert_allclose(found.numpy(), by_hand([a, a, b], [1, 1, 2]), rtol=1e-6)


def test_slices_of_a_stack_are_only_slices() -> None:
    stack = keys.normal(keys.key("slices"), (2, 5))
    found = mean([{"w": stack[0, :3]}, {"w": stack[1, 2:]}])["w"]
    torch.testing.assert_close(found, (stack[0, :3] + stack[1, 2:]) / 2)
    columns = keys.normal(keys.key("columns"), (1, 4, 3))
    found = mean([{"w": columns[:, 1]}, {"w": columns[:, 3]}])["w"]
    torch.testing.assert_close(found, (columns[:, 1] + columns[:, 3]) / 2)


def test_the_models_given_are_left_as_they_were() -> None:
    values = rows_of(3, (WIDE,))
    before = [value.clone() for value in values]
    mean([{"w": value} for value in values])
    assert all(torch.equal(a, b) for a, b in zip(values, before, strict=True))


def test_counters_are_kept_from_the_first() -> None:
    models = [{"n": torch.tensor(3), "w": torch.tensor(1.0)}, {"n": torch.tensor(9), "w": torch.tensor(2.0)}]
    found = mean(models)
    assert found["n"].dtype == torch.int64
    assert int(found["n"]) == 3
    assert float(found["w"]) == 1.5


@pytest.mark.parametrize("weights", [[0.0, 0.0], [float("nan"), 1.0], [-1.0, 0.5]])
def test_weights_without_a_total_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="positive in total"):
        mean([{"w": torch.ones(1)}] * 2, weights)


def test_a_mean_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no models"):
        mean([])


@pytest.mark.parametrize("weights", [[1.0], [1.0, 1.0, 1.0]])
def test_another_number_of_weights_than_models_is_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match=f"{len(weights)} weights for 2 models"):
        mean([{"w": torch.ones(1)}] * 2, weights)


def test_mix_moves_by_the_share() -> None:
    a, b = {"w": torch.tensor([0.0, 2.0]), "n": torch.tensor(1)}, {"w": torch.tensor([4.0, 2.0]), "n": torch.tensor(5)}
    assert mix(a, b, 0.25)["w"].tolist() == [1.0, 2.0]
    assert mix(a, b, torch.tensor(1.0))["w"].tolist() == [4.0, 2.0]
    assert int(mix(a, b, 0.5)["n"]) == 1


def test_distance_is_over_all_numbers_but_counters() -> None:
    a = {"w": torch.tensor([[3.0], [0.0]]), "b": torch.tensor([0.0]), "n": torch.tensor(1)}
    b = {"w": torch.tensor([[0.0], [0.0]]), "b": torch.tensor([4.0]), "n": torch.tensor(7)}
    assert float(distance(a, b)) == 5.0
    assert flat(a).tolist() == [3.0, 0.0, 0.0]


def test_each_goes_name_by_name() -> None:
    a, b = {"x": torch.tensor(1.0), "y": torch.tensor(2.0)}, {"y": torch.tensor(20.0), "x": torch.tensor(10.0)}
    assert {name: float(value) for name, value in each(torch.add, a, b).items()} == {"x": 11.0, "y": 22.0}
    assert {name: float(value) for name, value in zeros_like(a).items()} == {"x": 0.0, "y": 0.0}
