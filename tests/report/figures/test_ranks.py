"""Average ranks, Friedman's test and Nemenyi's critical difference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from potluck.report.figures.ranks import cliques, critical_difference, over_datasets, ranks, studentised


def test_the_critical_difference_of_the_textbook() -> None:
    """Demšar (2006): four methods at 5 % have q = 2.569; on 14 datasets the critical difference is 1.25."""
    assert studentised(4) == 2.569
    assert critical_difference(4, 30) == pytest.approx(2.569 * (20 / 180) ** 0.5)
    assert critical_difference(4, 30) == pytest.approx(0.856, abs=1e-3)
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=5e-3)


@pytest.mark.parametrize("methods", [2, 3, 7, 12, 13])
def test_q_is_that_of_the_studentised_range(methods: int) -> None:
    expected = stats.studentized_range.ppf(0.95, methods, np.inf) / 2**0.5
    assert studentised(methods) == pytest.approx(expected, abs=6e-4)


@given(st.lists(st.lists(st.integers(0, 6), min_size=4, max_size=4), min_size=2, max_size=9))
def test_ranks_add_up_and_friedman_is_that_of_scipy(table: list[list[int]]) -> None:
    values = {name: {row: float(line[i]) for row, line in enumerate(table)} for i, name in enumerate("abcd")}
    found = ranks(values)
    assert found is not None
    assert sum(found.average.values()) == pytest.approx(10)  # 1 + 2 + 3 + 4
    assert list(found.average.values()) == sorted(found.average.values())
    if any(len(set(line)) > 1 for line in table):
        expected = stats.friedmanchisquare(*np.array(table).T)
        assert found.friedman == pytest.approx(expected.statistic, abs=1e-9)
        assert found.p == pytest.approx(expected.pvalue)
    else:
        assert (found.friedman, found.p) == (0.0, 1.0)


def test_the_best_has_rank_one_and_incomplete_blocks_are_left_out() -> None:
    found = ranks({"a": {0: 0.9, 1: 0.8, 2: 0.7}, "b": {0: 0.5, 1: 0.8}, "none": {}})
    assert found is not None
    assert found.average == {"a": 1.25, "b": 1.75}
    assert (found.blocks, found.left_out) == (["0", "1"], ["2"])
    assert (found.friedman, found.p) == (None, None)  # two methods: the paired difference says more
    assert found.critical_difference is None
    assert found.caution == "2 seeds are too few for a critical difference: 5 or more are needed."


def test_nothing_to_rank() -> None:
    assert ranks({"a": {0: 0.9}}) is None
    assert ranks({"a": {0: 0.9}, "b": {1: 0.8}}) is None


def test_how_many_blocks_mean_something() -> None:
    def caution(methods: int, blocks: int) -> str:
        found = ranks({str(i): {b: i + b for b in range(blocks)} for i in range(methods)}, "dataset")
        assert found is not None
        return found.caution

    assert caution(4, 12) == ""
    assert "rough" in caution(4, 6)
    assert "too few" in caution(4, 4)


def test_groups_are_as_large_as_they_get() -> None:
    average = {"a": 1.0, "b": 1.5, "c": 2.4, "d": 4.0, "e": 6.0}
    assert cliques(average, 1.0) == [["a", "b"], ["b", "c"]]
    assert cliques(average, 1.6) == [["a", "b", "c"], ["c", "d"]]
    assert cliques(average, 9.0) == [["a", "b", "c", "d", "e"]]
    assert cliques(average, 0.1) == []


def test_ranks_over_datasets() -> None:
    found = ranks(
        over_datasets({"har": {"a": 0.9, "b": 0.8}, "watch": {"a": 0.7, "b": 0.9}, "x": {"a": 1.0}}), "dataset"
    )
    assert found is not None
    assert (found.over, found.blocks, found.left_out) == ("dataset", ["har", "watch"], ["x"])
    assert found.average == {"a": 1.5, "b": 1.5}
