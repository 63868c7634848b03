from dataclasses import replace

import numpy as np
import pytest

from potluck.devices import Effort, compute_seconds, device, energy, link, needs_effort, rest_watts, spent, too_small
from potluck.devices.profile import Device
from potluck.errors import BadInput


def test_centaur_latency_and_energy_as_the_paper_computes_them():
    # Sec. 6.1: latency = 2 MACs / 100 MHz; energy = time x 0.05 mW/MHz x 100 MHz.
    wearable = device("centaur-ucd")
    seconds = compute_seconds(wearable, macs=1e9, u=0.5, sigma=0.0)
    assert seconds == pytest.approx(2 * 1e9 / 100e6)
    assert energy(wearable, link("centaur-ucd"), seconds, 0.0, 0.0) == pytest.approx(20.0 * 0.005)


def test_energy_by_hand():
    pi, wifi = device("raspberry-pi-4"), link("wifi")
    assert energy(pi, wifi, 10.0, 2.0, 3.0) == pytest.approx(10 * 6.4 + 2 * (2.88 + 0.9) + 3 * (2.88 + 0.35))


def test_each_cause_has_its_own_joules():
    pixel, wifi = device("pixel-4a"), link("wifi")
    task = spent(pixel, wifi, compute_seconds=10.0, up_seconds=2.0, down_seconds=3.0)
    assert task == pytest.approx((10 * 2.5, 2 * 0.9 + 3 * 0.35, 5 * 0.3, 0.0))
    assert task.total == energy(pixel, wifi, 10.0, 2.0, 3.0)
    asleep = spent(pixel, wifi, 10.0, 2.0, 3.0, rest_seconds=100.0, rest="sleep")
    assert asleep == pytest.approx((25.0, 2.85, 1.5, 6.0))
    assert spent(pixel, wifi, 0.0, 0.0, 0.0, rest_seconds=100.0) == pytest.approx((0.0, 0.0, 30.0, 0.0))


def test_an_unknown_power_of_sleep_is_not_zero():
    own = Device("own", "own", "board", "wifi", 1e9, 10**9, 10**9, 5.0, 2.0, {})
    assert rest_watts(own, "awake") == 2.0
    with pytest.raises(BadInput, match=r"own\.sleep_watts: must be watts above 0, got nothing"):
        rest_watts(own, "sleep")


def test_speed_jitter_has_mean_one():
    pi = device("raspberry-pi-4")
    times = [compute_seconds(pi, 3.45e9, u) for u in (np.arange(4000) + 0.5) / 4000]
    assert np.mean(times) == pytest.approx(1.0, rel=1e-3)
    assert np.std(np.log(times)) == pytest.approx(0.1, rel=1e-2)
    assert compute_seconds(pi, 3.45e9, 0.3) == compute_seconds(pi, 3.45e9, 0.3)


def test_a_measured_device_also_takes_time_for_operations_and_memory():
    pi = replace(
        device("raspberry-pi-4"),
        op_seconds=1e-3,
        recorded_op_seconds=0.01,
        moves_per_second=1e9,
        fresh_per_second=5e8,
        speed_jitter=0.0,
    )
    assert compute_seconds(pi, 3.45e9, u=0.9, effort=Effort(500, 40, 2e9, 1e8)) == pytest.approx(
        1.0 + 0.5 + 0.4 + 2.0 + 0.2
    )
    plain = device("raspberry-pi-4")
    assert compute_seconds(plain, 3.45e9, 0.5, 0.0, Effort(500, 40, 2e9)) == pytest.approx(1.0)
    assert (needs_effort(pi), needs_effort(plain)) == (True, False)


def test_too_small_says_both_numbers():
    part = device("nrf52832")
    assert too_small(part, 53_248) is None
    assert too_small(part, 2_000_000) == "nrf52832: training needs 2 MB, the device has 53.2 kB for it."
