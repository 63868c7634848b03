"""Randomness from keys: uniform, independent, the same alone or in a stack, another for every part."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch.func import vmap

from potluck import compiled, keys

pytestmark = pytest.mark.quick

MANY = 20_000
PARTS = st.lists(st.one_of(st.integers(-(2**70), 2**70), st.text(max_size=5)), max_size=4).map(tuple)


def test_the_draws_are_uniform() -> None:
    draws = keys.uniform(keys.key("uniform"), (MANY,)).numpy()
    assert draws.dtype == np.float32
    assert draws.min() >= 0.0
    assert draws.max() < 1.0
    counts, _ = np.histogram(draws, bins=50, range=(0, 1))
    assert stats.chisquare(counts).pvalue > 1e-4


def test_neighbouring_draws_are_independent() -> None:
    draws = keys.uniform(keys.key("pairs"), (MANY,)).numpy()
    cells, _, _ = np.histogram2d(draws[:-1:2], draws[1::2], bins=10, range=[[0, 1], [0, 1]])
    assert stats.chisquare(cells.ravel()).pvalue > 1e-4


@pytest.mark.parametrize("way", ["number", "fold", "tensor"])
def test_neighbouring_keys_are_independent(way: str) -> None:
    """Clients 1, 2, 3 … draw unlike numbers, and so do steps 1, 2, 3 … of one client."""
    base = keys.key("base")
    make = {
        "number": lambda i: keys.key(0, i, "task"),
        "fold": lambda i: keys.fold(base, i),
        "tensor": lambda i: keys.fold(base, torch.tensor(i)),
    }[way]
    first = np.array([float(keys.uniform(make(i))) for i in range(1000)])
    assert stats.kstest(first, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.13


def test_the_normal_draws_have_the_moments_of_the_normal() -> None:
    draws = keys.normal(keys.key("normal"), (MANY,)).numpy()
    assert draws.dtype == np.float32
    assert np.isfinite(draws).all()
    assert abs(draws.mean()) < 0.03
    assert abs(draws.var() - 1) < 0.04
    assert abs(stats.kurtosis(draws)) < 0.15
    assert stats.kstest(draws, "norm").pvalue > 1e-4


def test_bernoulli_has_the_probabilities_given() -> None:
    probability = torch.tensor([0.0, 0.1, 0.5, 1.0]).repeat_interleave(MANY // 4)
    drawn = keys.bernoulli(keys.key("coin"), probability).reshape(4, -1)
    assert drawn.unique().tolist() == [0.0, 1.0]
    assert drawn[0].sum() == 0
    assert drawn[3].min() == 1
    assert abs(float(drawn[1].mean()) - 0.1) < 0.02
    assert abs(float(drawn[2].mean()) - 0.5) < 0.03


@given(parts=PARTS, shape=st.lists(st.integers(0, 4), max_size=3))
def test_shapes_are_as_asked_and_draws_repeat(parts: tuple[int | str, ...], shape: list[int]) -> None:
    key = keys.key(*parts)
    assert key.dtype == torch.int64
    assert key.shape == ()
    for draw in (keys.uniform, keys.normal):
        assert draw(key, shape).shape == tuple(shape)
        assert torch.equal(draw(key, shape), draw(keys.key(*parts), shape))


@given(n=st.integers(0, 60), seed=st.integers())
def test_a_permutation_is_one(n: int, seed: int) -> None:
    assert sorted(keys.permutation(keys.key(seed), n).tolist()) == list(range(n))


@given(weight=st.lists(st.sampled_from([0.0, 1.0]), max_size=40), seed=st.integers())
def test_padding_comes_last(weight: list[float], seed: int) -> None:
    order = keys.permutation(keys.key(seed), len(weight), torch.tensor(weight)).tolist()
    assert sorted(order) == list(range(len(weight)))
    ordered = [weight[i] for i in order]
    assert ordered == sorted(weight, reverse=True)


def test_every_order_is_as_likely() -> None:
    orders = list(itertools.permutations(range(3)))
    for weight in (None, torch.ones(3)):
        drawn = [tuple(keys.permutation(keys.key("orders", i), 3, weight).tolist()) for i in range(600)]
        assert stats.chisquare([drawn.count(order) for order in orders]).pvalue > 1e-4


def test_padding_does_not_change_the_order_of_the_samples_that_count_in_distribution() -> None:
    weight = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0])
    drawn = [tuple(keys.permutation(keys.key("padded", i), 5, weight).tolist()[:3]) for i in range(600)]
    orders = list(itertools.permutations([0, 2, 4]))
    assert stats.chisquare([drawn.count(order) for order in orders]).pvalue > 1e-4


def test_a_stack_draws_what_each_would_draw_alone() -> None:
    stack = torch.stack([keys.key("client", i) for i in range(5)])
    weight = (keys.uniform(keys.key("weights"), (5, 9)) < 0.6).float()
    draws = {
        "uniform": lambda key, w: keys.uniform(key, (4, 3)),
        "normal": lambda key, w: keys.normal(key, (4, 3)),
        "bernoulli": keys.bernoulli,
        "permutation": lambda key, w: keys.permutation(key, 9, w),
        "fold": lambda key, w: keys.fold(key, "step", 3, torch.tensor(7)),
        "fold of a draw": lambda key, w: keys.fold(key, keys.permutation(key, 9, w)[0]),
    }
    for name, draw in draws.items():
        together = vmap(draw)(stack, weight)
        for i in range(5):
            assert torch.equal(together[i], draw(stack[i], weight[i])), name


@given(a=PARTS, b=PARTS)
def test_other_parts_give_another_number(a: tuple[int | str, ...], b: tuple[int | str, ...]) -> None:
    assert (keys.number(*a) == keys.number(*b)) == (a == b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((1,), ("1",)),
        ((1, 2), (2, 1)),
        ((1, 2), (12,)),
        (("a", "b"), ("ab",)),
        (("a",), ("a", "")),
        ((), ("",)),
        (("a\x1fstr:b",), ("a", "b")),
        (("a\x1f", "b"), ("a", "\x1fb")),
        ((-1,), (1,)),
    ],
)
def test_parts_that_look_alike_are_told_apart(a: tuple[int | str, ...], b: tuple[int | str, ...]) -> None:
    assert keys.number(*a) != keys.number(*b)


def test_a_number_is_the_same_whatever_library_it_comes_from() -> None:
    assert keys.number(np.int64(3), np.str_("x")) == keys.number(3, "x")


def test_a_number_never_changes() -> None:
    """Checkpoints and published figures stand on these bits."""
    assert keys.number(0, "c3", 7, "task") == -4963503357451571559
    assert -(2**63) <= keys.number("x") < 2**63


def test_a_fraction_is_no_part() -> None:
    with pytest.raises(TypeError):
        keys.number(0.5)  # type: ignore[arg-type]


@given(base=st.integers(-(2**63), 2**63 - 1), count=st.integers(0, 8))
def test_shares_lie_between_0_and_1(base: int, count: int) -> None:
    drawn = keys.shares(base, count)
    assert len(drawn) == count
    assert all(0.0 <= share < 1.0 for share in drawn)
    assert drawn == keys.shares(base, 8)[:count]


def test_shares_are_uniform_and_independent() -> None:
    drawn = np.array([keys.shares(keys.number(0, f"c{i}", 0, "task"), 6) for i in range(3000)])
    for column in drawn.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-4
    assert np.abs(np.corrcoef(drawn.T) - np.eye(6)).max() < 0.08


def test_shares_are_the_bits_of_the_tensors() -> None:
    """One generator, two speeds: plain Python for the engine's queue, tensors inside programs."""
    base = keys.number("both")
    slow = keys.uniform(torch.tensor(base), (4,)).tolist()
    assert [math.floor(share * 2**24) / 2**24 for share in keys.shares(base, 4)] == slow


def test_generators_repeat_and_differ() -> None:
    assert keys.rng("a", 1).integers(0, 1 << 40, 4).tolist() == keys.rng("a", 1).integers(0, 1 << 40, 4).tolist()
    assert keys.rng("a", 1).integers(0, 1 << 40) != keys.rng("a", 2).integers(0, 1 << 40)


def test_nothing_touches_the_global_generators() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    keys.normal(keys.key(1), (5,))
    keys.permutation(keys.key(1), 5)
    keys.rng(1).normal(size=3)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()  # noqa: NPY002


@given(
    st.integers(-5, 2**40),
    st.lists(st.text(st.characters(codec="utf-8"), max_size=60), min_size=1, max_size=8),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5),
    st.lists(st.one_of(st.integers(0, 3), st.sampled_from(["task", "a\x1fb", "long" * 30])), min_size=1, max_size=3),
)
def test_many_numbers_are_those_drawn_one_by_one(first: int, names: list[str], third: list[int], last: list) -> None:
    """In a kernel or not: names of any kind and length, separators within them, and negative numbers."""
    some = list(itertools.islice(zip(itertools.cycle(names), itertools.cycle(third)), keys.MANY + 5))
    many, counts = [name for name, _ in some], [count for _, count in some]
    expected = [[keys.number(first, name, n, part) for name, n in some] for part in last]
    assert keys.numbers(first, many, counts, *last).tolist() == expected
    with compiled.off():
        assert keys.numbers(first, many, counts, *last).tolist() == expected
