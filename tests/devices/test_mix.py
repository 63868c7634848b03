from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.devices import PRESETS, Mix, catalogue, links
from potluck.devices.mix import EXACT, quotas
from potluck.errors import BadInput

ECHO = {"jetson-nano": 4, "jetson-xavier-nx": 4, "jetson-orin-nano": 4, "raspberry-pi-4": 8}


def test_echopfl_is_exact():
    mix = Mix.parse("echopfl", seed=5)
    assert Counter(mix.all(20)) == ECHO
    assert set(mix.all_links(20)) == {"echopfl"}


def test_counts_scale_with_the_clients():
    mix = Mix.parse({"jetson-nano": 3, "raspberry-pi-4": 1})
    assert Counter(mix.all(4)) == {"jetson-nano": 3, "raspberry-pi-4": 1}
    assert Counter(mix.all(40)) == {"jetson-nano": 30, "raspberry-pi-4": 10}


@given(parts=st.lists(st.integers(1, 50), min_size=1, max_size=8), n=st.integers(1, 300))
def test_quotas_miss_a_share_by_less_than_one(parts, n):
    shares = tuple(part / sum(parts) for part in parts)
    given_out = quotas(shares, n)
    assert sum(given_out) == n
    assert all(abs(count - share * n) < 1 + 1e-6 for count, share in zip(given_out, shares, strict=True))


@pytest.mark.parametrize("n", [1, 37, EXACT, EXACT + 1, 50_000])
def test_one_by_one_equals_all(n):
    mix = Mix.parse("mixed", seed=2)
    devices, used = mix.all(n), mix.all_links(n)
    for i in {0, n // 3, n - 1}:
        assert mix.of(i, n) == devices[i]
        assert mix.link_of(i, n) == used[i]


def test_many_clients_come_close_to_the_shares_and_do_not_depend_on_n():
    mix = Mix.parse({"jetson-nano": 0.3, "raspberry-pi-4": 0.7}, seed=1)
    assert (mix.all(100_000) == "jetson-nano").mean() == pytest.approx(0.3, abs=0.01)
    assert mix.of(12_345, 10**6) == mix.of(12_345, 10**9) == mix.all(20_000)[12_345]


def test_the_seed_shuffles():
    orders = {tuple(Mix.parse("echopfl", seed=seed).all(20)) for seed in range(5)}
    assert len(orders) == 5
    assert Mix.parse("echopfl", seed=3).all(20).tolist() == Mix.parse("echopfl", seed=3).all(20).tolist()


def test_what_is_returned_twice_cannot_be_spoiled():
    codes = Mix.parse("echopfl").codes(20)
    with pytest.raises(ValueError, match="read-only"):
        codes[0] = 3


def test_links_of_a_mix():
    assert Mix.parse("jetson-nano").link_of(0, 1) == "wifi"
    assert Mix.parse("jetson-nano@lte").link_of(0, 1) == "lte"
    assert Mix.parse("jetson-nano@lte", link="uart").link_of(0, 1) == "uart"
    same = Mix.parse({"jetson-nano@lte": 0.5, "jetson-nano": 0.5})
    assert Counter(same.all_links(10)) == {"lte": 5, "wifi": 5}


def test_a_list_gives_each_client_its_device_in_order():
    listed = ["jetson-nano", "raspberry-pi-4", "jetson-nano@lte", "jetson-nano"]
    mix = Mix.parse(listed, seed=3)
    assert list(mix.all(4)) == ["jetson-nano", "raspberry-pi-4", "jetson-nano", "jetson-nano"]
    assert mix.link_of(2, 4) == "lte"
    with pytest.raises(BadInput, match=r"fleet\.devices: 4 devices are listed, there are 3 clients"):
        mix.all(3)
    with pytest.raises(BadInput, match="toaster"):
        Mix.parse(["jetson-nano", "toaster"])


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_refers_to_what_exists(name):
    mix = Mix.parse(name)
    assert set(mix.devices) <= set(catalogue())
    assert set(mix.links) <= set(links())
    assert sum(mix.shares) == pytest.approx(1)


def test_position_outside():
    with pytest.raises(IndexError, match="position 4 of 4"):
        Mix.parse("pc").of(4, 4)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({}, "fleet.devices: must be one device or more, got none"),
        ("raspbery-pi-4", "did you mean 'raspberry-pi-4'"),
        ({"raspbery-pi-4": 1}, "did you mean 'raspberry-pi-4'"),
        ({"jetson-nano@wify": 1}, "link: 'wify' is not known, did you mean 'wifi'"),
        (
            {"jetson-nano": 0.5, "raspberry-pi-4": 0.4},
            "fleet.devices: the shares must add up to 1, got 0.9. Use whole numbers only for counts",
        ),
        ({"jetson-nano": -1}, "fleet.devices.jetson-nano: must be a share or a count above 0, got -1"),
        ({"jetson-nano": True}, "fleet.devices.jetson-nano: must be a share or a count above 0, got True"),
        ({"jetson-nano": float("nan")}, "fleet.devices.jetson-nano: must be a share or a count above 0, got nan"),
        ({"jetson-nano": "half"}, "fleet.devices.jetson-nano: must be a share or a count above 0, got 'half'"),
    ],
)
def test_bad_mixes_get_one_sentence(spec, sentence):
    with pytest.raises(BadInput, match=sentence):
        Mix.parse(spec)


def test_a_million_positions():
    codes = Mix.parse("mixed", seed=1).codes(1_000_000)
    assert codes.shape == (1_000_000,)
    assert np.bincount(codes).min() > 45_000
