import numpy as np
import torch

from potluck import keys
from potluck.devices.draws import log_normal, uniform


def test_the_bits_are_those_of_keys():
    numbers, cells = np.array([-5, 0, 2**62]), np.array([-1, 3, 9])
    folded = keys.fold(torch.from_numpy(numbers), torch.from_numpy(cells), "length").numpy()
    expected = (folded.view(np.uint64) >> np.uint64(11)) * 2.0**-53
    assert uniform(numbers, cells, "length").tolist() == expected.tolist()


def test_uniform_is_uniform_and_parts_matter():
    draws = uniform(np.arange(10_000), "a")
    assert 0 <= draws.min() < draws.max() < 1
    assert np.histogram(draws, bins=10, range=(0, 1))[0].min() > 900
    assert abs(np.corrcoef(draws, uniform(np.arange(10_000), "b"))[0, 1]) < 0.05


def test_log_normal_at_known_points():
    assert log_normal(0.5, 0.0) == 1.0
    assert log_normal(0.5, 0.2) == np.exp(-0.02)  # the median lies below the mean of 1
    assert np.isclose(log_normal(0.8413447460685429, 0.2), np.exp(0.2 - 0.02))
