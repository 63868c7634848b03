from dataclasses import replace

import numpy as np
import pytest

from potluck.calibrate.fit import NO_LIMIT, Timed, fit_memory, fit_speed, fit_way

TASK = Timed("a", "fedavg", "s00", 0, 1e9, 2000, 300, 4e8, 10_000, 50_000, 40_000, 1.0, 3.0, 3.0)
# macs, operations, recorded ones, bytes, bytes of large new results
COSTS = {
    "a": (1e9, 2000, 300, 4e8, 0.0),
    "b": (5e8, 9000, 0, 1e8, 0.0),
    "c": (4e9, 1000, 100, 9e8, 4e7),
    "d": (1e8, 500, 50, 2e9, 1e8),
    "e": (1e8, 700, 900, 1e8, 2e7),
    "f": (3e8, 900, 100, 3e8, 3e8),
}
PER_FRESH = 2e-9


def tasks(per_mac, per_op, per_byte, per_recorded=1e-3, noise=0.0, each=3):
    """Tasks of six networks whose work costs what is given, and a noise on it."""
    rng = np.random.default_rng(1)
    found = []
    for network, (macs, ops, recorded, moved, fresh) in COSTS.items():
        for order in range(each):
            seconds = macs * per_mac + ops * per_op + recorded * per_recorded + moved * per_byte
            seconds += fresh * PER_FRESH
            seconds *= np.exp(noise * rng.standard_normal())
            found.append(
                replace(
                    TASK,
                    network=network,
                    order=order,
                    macs=macs,
                    ops=ops,
                    recorded=recorded,
                    moved=moved,
                    fresh=fresh,
                    worked=seconds,
                )
            )
    return found


def test_the_fit_finds_what_made_the_times():
    speed = fit_speed(tasks(2e-10, 1e-4, 3e-9))
    assert speed.macs_per_second == pytest.approx(5e9, rel=1e-6)
    assert speed.op_seconds == pytest.approx(1e-4, rel=1e-6)
    assert speed.recorded_op_seconds == pytest.approx(1e-3, rel=1e-6)
    assert speed.moves_per_second == pytest.approx(1 / 3e-9, rel=1e-6)
    assert speed.fresh_per_second == pytest.approx(1 / PER_FRESH, rel=1e-6)
    assert speed.jitter == pytest.approx(0.0, abs=1e-9)
    assert speed.error == pytest.approx(0.0, abs=1e-6)


def test_noise_becomes_jitter_and_no_cost_is_negative():
    speed = fit_speed(tasks(2e-10, 1e-4, 3e-9, noise=0.1, each=40))
    assert speed.jitter == pytest.approx(0.1, rel=0.2)
    assert speed.op_seconds == pytest.approx(1e-4, rel=0.2)
    assert 0.02 < speed.error < 0.2
    free = fit_speed(tasks(0.0, 1e-4, 3e-9))
    assert free.macs_per_second > 1e15
    assert free.macs_per_second <= NO_LIMIT


def test_a_network_that_the_fit_misses_is_no_jitter():
    missed = [replace(t, worked=t.worked * (1.5 if t.network == "a" else 1.0)) for t in tasks(2e-10, 1e-4, 3e-9)]
    assert fit_speed(missed).jitter == pytest.approx(0.0, abs=1e-9)
    assert fit_speed(missed).error > 0.01
    assert fit_speed([task for task in missed if not task.order]).jitter > 0.05  # one task each: nothing tells


def test_one_network_says_nothing_about_others():
    assert fit_speed([task for task in tasks(2e-10, 1e-4, 3e-9) if task.network == "a"]).error is None


def test_the_way_is_what_work_and_bytes_leave_over():
    sent = 8 * (50_000 / 1e6 + 40_000 / 5e5)
    some = [replace(TASK, order=k, worked=1.0, seconds=1.0 + sent + 0.6) for k in range(4)]
    way = fit_way(some, up=5e5, down=1e6)
    assert way.latency == pytest.approx(0.3)
    assert (way.jitter, way.byte_seconds) == pytest.approx((0.0, 0.0), abs=1e-9)
    large = [replace(one, bytes_up=2_040_000, seconds=one.seconds + 8 * 2e6 / 5e5 + 4.0) for one in some]
    both = fit_way([*some, *large], up=5e5, down=1e6)  # two million bytes more took four seconds more than the link
    assert both.byte_seconds == pytest.approx(2e-6, rel=0.05)
    assert both.latency == pytest.approx(0.3, rel=0.4)
    assert both.rate(5e5) == pytest.approx(8 / (8 / 5e5 + both.byte_seconds))
    assert fit_way([replace(TASK, seconds=1.0)], up=5e5, down=1e6).latency == 0.0  # never below zero


def test_memory_is_that_of_the_process_and_so_many_times_the_task_s():
    found = fit_memory([(310_000, 10_000), (335_000, 20_000), (435_000, 60_000)])
    assert (found.process, found.factor) == (285_000, pytest.approx(2.5))
    assert found.peak(40_000) == pytest.approx(385_000)


def test_a_network_that_the_form_misses_does_not_draw_the_others_away():
    missed = [
        replace(t, worked=t.worked * (1.5 if t.network == "b" else 1.0)) for t in tasks(2e-10, 1e-4, 3e-9, each=9)
    ]
    speed = fit_speed(missed)
    others = [abs(speed.seconds(t) / t.worked - 1) for t in missed if t.network != "b"]
    assert np.median(others) < 0.01
