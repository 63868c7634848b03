"""Every pair of methods seed by seed: against SciPy, and on what must hold for any numbers."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from potluck.report.figures.holm import adjusted
from potluck.report.figures.pairs import RESAMPLES, STEADY, Interval, Pair, all_pairs, bootstrap, pair
from potluck.report.figures.power import APART, EQUAL, MORE, UNKNOWN, least_seeds, power, seeds_needed

SHARES = st.floats(0, 1).map(lambda value: round(value, 4))
MINE = {0: 0.71, 1: 0.74, 2: 0.69, 3: 0.75, 4: 0.72}
THEIRS = {0: 0.69, 1: 0.70, 2: 0.70, 3: 0.70, 4: 0.69}


def test_the_t_interval_and_p_value_are_those_of_scipy() -> None:
    found = pair("a", "b", MINE, THEIRS)
    expected = stats.ttest_rel(list(MINE.values()), list(THEIRS.values()))
    assert found.mean == pytest.approx(0.026)
    assert found.p == pytest.approx(expected.pvalue)
    limits = expected.confidence_interval(0.95)
    assert found.t is not None
    assert (found.t.low, found.t.high) == (pytest.approx(limits.low), pytest.approx(limits.high))


@pytest.mark.parametrize("seeds", [5, 20])
def test_the_bootstrap_interval_is_the_percentile_one_of_scipy(seeds: int) -> None:
    """Both draw 10,000 samples, so they agree up to the error of the draws."""
    gaps = np.random.Generator(np.random.Philox(3)).normal(0.02, 0.01, seeds)
    found = bootstrap(gaps)
    expected = stats.bootstrap(
        (gaps,), np.mean, n_resamples=RESAMPLES, method="percentile", rng=np.random.Generator(np.random.Philox(7))
    ).confidence_interval
    error = 0.05 * (expected.high - expected.low)
    assert (found.low, found.high) == (
        pytest.approx(expected.low, abs=error),
        pytest.approx(expected.high, abs=error),
    )
    assert bootstrap(gaps) == found  # the same draws every time


def test_the_bootstrap_is_optimistic_with_few_seeds() -> None:
    """What the documentation says: with three seeds it is less than half as wide as the t interval."""
    gaps = np.array([0.01, 0.02, 0.04])
    found, t = bootstrap(gaps), pair("a", "b", dict(enumerate(gaps)), dict.fromkeys(range(3), 0.0)).t
    assert t is not None
    assert (found.high - found.low) / (t.high - t.low) < 0.5


@given(st.lists(st.tuples(SHARES, SHARES), min_size=1, max_size=7))
def test_a_minus_b_mirrors_b_minus_a(values: list[tuple[float, float]]) -> None:
    mine, theirs = (dict(enumerate(column)) for column in zip(*values, strict=True))
    one, other = pair("a", "b", mine, theirs), pair("b", "a", theirs, mine)
    assert one.mean == pytest.approx(-(other.mean or 0.0))
    assert one.p == pytest.approx(other.p, abs=1e-9)
    for mine_, theirs_ in ((one.t, other.t), (one.bootstrap, other.bootstrap)):
        if mine_ is None or theirs_ is None:
            assert mine_ == theirs_
        else:
            assert mine_.low == pytest.approx(-theirs_.high, abs=1e-9)
            assert mine_.high == pytest.approx(-theirs_.low, abs=1e-9)


@given(st.dictionaries(st.integers(0, 9), st.floats(0, 1), max_size=8))
def test_holm_keeps_the_order_and_never_lowers_a_p_value(chances: dict[int, float]) -> None:
    found = adjusted(chances)
    assert list(found) == list(chances)
    for name, value in found.items():
        assert chances[name] <= value <= 1
        assert value <= min(1.0, len(chances) * chances[name]) + 1e-12  # never stricter than Bonferroni
    for a, b in combinations(chances, 2):
        if chances[a] < chances[b]:
            assert found[a] <= found[b]


def test_holm_by_hand() -> None:
    """Four p-values: times 4, 3, 2 and 1, and never below the one before."""
    found = adjusted({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert found == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})


def test_each_pair_once_and_corrected_twice() -> None:
    means = {"a": MINE, "b": THEIRS, "c": {seed: value - 0.1 for seed, value in THEIRS.items()}, "empty": {}}
    means["c"] = {seed: value + 0.001 * seed for seed, value in means["c"].items()}
    found = all_pairs(means, ["a", "b", "c", "empty"], best="a")
    assert [(one.method, one.other) for one in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    raw = [one.p for one in found]
    assert all(one.p is not None and one.p_all is not None and one.p_all >= one.p for one in found)
    assert [one.p_best is None for one in found] == [False, False, True]
    assert raw == [pair(one.method, one.other, means[one.method], means[one.other]).p for one in found]


def test_missing_seeds_are_left_out() -> None:
    found = pair("a", "b", MINE, {seed: THEIRS[seed] for seed in (1, 3, 4)} | {9: 0.1})
    assert found.seeds == [1, 3, 4]
    assert found.by_seed == pytest.approx([0.04, 0.05, 0.03])


@pytest.mark.parametrize("seeds", [0, 1, 2])
def test_too_few_seeds_for_an_interval(seeds: int) -> None:
    found = pair("a", "b", {seed: 0.5 + 0.1 * seed for seed in range(seeds)}, dict.fromkeys(range(seeds), 0.4))
    assert found.mean == (pytest.approx(0.1 + 0.05 * (seeds - 1)) if seeds else None)
    assert (found.t, found.bootstrap, found.p) == (None, None, None)
    needed = seeds_needed(found)
    assert (needed.more, needed.verdict) == (None, UNKNOWN)


def test_equal_methods_are_equal() -> None:
    found = pair("a", "b", MINE, MINE)
    assert (found.mean, found.std, found.p, found.caution) == (0.0, 0.0, 1.0, "")
    assert found.t == found.bootstrap == Interval(0.0, 0.0)
    assert seeds_needed(found).verdict == EQUAL


def test_a_difference_without_spread_is_said_to_be_odd() -> None:
    found = pair("a", "b", {0: 0.7, 1: 0.8, 2: 0.9}, {0: 0.6, 1: 0.7, 2: 0.8})
    assert (found.std, found.p, found.caution) == (0.0, 0.0, STEADY)


def test_power_of_the_textbook() -> None:
    """Cohen's table for the paired t-test, two-sided at 5 %: effects of 0.5, 0.8 and 1 need 34, 15 and 10 pairs."""
    assert [least_seeds(effect, 1.0) for effect in (0.5, 0.8, 1.0)] == [34, 15, 10]
    assert power(34, 0.5) == pytest.approx(0.808, abs=1e-3)
    assert least_seeds(0.1, 1.0) is None  # 787
    assert least_seeds(50.0, 1.0) == 3


def test_power_is_what_simulation_finds() -> None:
    draw = np.random.Generator(np.random.Philox(1)).normal(0.8, 1.0, (4000, 15))
    found = (stats.ttest_1samp(draw, 0.0, axis=1).pvalue < 0.05).mean()
    assert power(15, 0.8) == pytest.approx(found, abs=0.02)


def with_p(p: float, mean: float, p_best: float | None = None) -> Pair:
    return Pair("a", "b", [0, 1, 2, 3, 4], [], mean, 0.02, None, None, p, p_best, p)


def test_seeds_needed_in_words() -> None:
    enough = seeds_needed(with_p(0.01, 0.05, 0.02))
    assert (enough.more, enough.verdict) == (0, APART)
    more = seeds_needed(with_p(0.1, 0.02, 0.2))
    assert (more.more, more.verdict, more.text) == (5, MORE, "about 5 more seeds")  # ten in all for an effect of 1
    equal = seeds_needed(with_p(0.9, 0.0005, 0.9))
    assert (equal.more, equal.verdict) == (None, EQUAL)
    # Significant alone, not among several: at least one more.
    assert seeds_needed(with_p(0.04, 0.05, 0.08)).text == "about 1 more seed"
