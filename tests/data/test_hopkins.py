"""The Hopkins statistic: even rows, groups, and the line on the data card."""

from __future__ import annotations

import numpy as np
import pytest

from potluck import keys
from potluck.data import Dataset, PartitionSpec, federate, hopkins


def test_even_rows_give_a_half_and_groups_nearly_one() -> None:
    draw = keys.rng("hopkins test")
    even = [hopkins.statistic(draw.uniform(size=(300, 2)), draw) for _ in range(60)]
    assert np.mean(even) == pytest.approx(0.5, abs=0.02)
    groups = np.repeat(draw.uniform(size=(4, 2)), 75, 0) + 0.005 * draw.normal(size=(300, 2))
    assert hopkins.statistic(groups, draw) > 0.9
    assert hopkins.statistic(np.ones((30, 2)), draw) == 0.5  # all rows equal: nothing to say


def test_it_is_a_mean_over_the_classes_that_have_rows() -> None:
    x = np.concatenate([np.random.default_rng(0).normal(size=(80, 3)), np.zeros((5, 3))]).astype(np.float32)
    data = Dataset("made", x, np.array([0] * 80 + [1] * 5), 2, ("a", "b"))
    found = hopkins.of_federation(federate(data, PartitionSpec(kind="iid", clients=2)))
    assert found is not None
    assert 0.4 < found < 1.0
    few = Dataset("few", x[:10], np.zeros(10, dtype=np.int64), 2, ("a", "b"))
    assert hopkins.of_federation(federate(few, PartitionSpec(kind="iid", clients=2))) is None
