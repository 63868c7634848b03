from dataclasses import replace

import pytest

from potluck.calibrate.fit import Memory, Timed
from potluck.calibrate.judge import Course, judged, over_runs

TASK = Timed("gru", "echopfl", "s00", 0, 1e9, 2000, 300, 4e8, 10_000, 600, 400, 8.0, 10.0, 10.0)
PROCESS = {"s00": Memory(40_000, 1.0), "s01": Memory(40_000, 1.0)}
REAL = [
    TASK,
    replace(TASK, client="s01", arrived=12.0, seconds=12.0),
    replace(TASK, order=1, arrived=20.0),
    replace(TASK, client="s01", order=1, arrived=24.0, seconds=12.0),
]


def test_a_perfect_prediction_has_no_error():
    real = Course(REAL, 0.0, 4000)
    found = judged(real, [real], {"s00": 50_000, "s01": 50_000}, PROCESS)
    assert (found.task_time, found.makespan, found.nbytes, found.memory, found.memory_above) == (0, 0, 0, 0, 0)
    assert (found.tau, found.tasks, found.unmatched, found.real_makespan) == (1, 4, 0, 24)


def test_the_parts_of_a_makespan_add_up_along_its_longest_chain():
    late = [replace(task, arrived=task.arrived + 3.0) if task.order else task for task in REAL]  # the server took 3 s
    real = Course(late, -1.0, 4000)
    assert real.parts == pytest.approx({"work": 16.0, "way": 8.0, "server": 4.0})  # s01 twice, 3 s between, 1 s before
    assert sum(real.parts.values()) == pytest.approx(real.makespan)
    slow = [replace(task, worked=task.worked + 1.0) for task in late]
    found = judged(real, [Course(slow, -1.0, 4000)], {}, {})
    assert found.parts == pytest.approx({"work": 2.0, "way": -2.0, "server": 0.0})
    assert found.work == pytest.approx(1 / 8)


def test_each_error_by_hand():
    off = [
        replace(REAL[0], seconds=11.0, arrived=26.0, bytes_up=500, memory=30_000),
        replace(REAL[1], seconds=12.0, arrived=13.0),
        replace(REAL[2], seconds=13.0, arrived=19.0),
    ]
    real, predicted = Course(REAL, 4.0, 4000), Course(off, 1.0, 3100)
    found = judged(real, [predicted], {"s00": 50_000, "s01": 50_000}, PROCESS)
    assert found.task_time == pytest.approx(0.1)  # of 0.1, 0.0 and 0.3
    assert found.makespan == pytest.approx(abs(25 / 20 - 1))
    assert found.nbytes == pytest.approx(1 - 3100 / 4000)
    assert found.memory == pytest.approx((abs(70 / 50 - 1) + 0) / 2)
    assert found.memory_above == pytest.approx((2.0 + 0) / 2)
    assert (found.tasks, found.unmatched) == (3, 1)
    assert found.tau == pytest.approx(-1 / 3)  # s00 comes last instead of first


def test_several_simulated_runs_predict_by_their_medians():
    runs = [
        Course(
            [replace(task, seconds=task.seconds * f, arrived=task.arrived * f + 5) for task in REAL], 5.0, int(4000 * f)
        )
        for f in (0.5, 1.1, 3.0)
    ]
    runs[2] = Course([*runs[2].tasks, replace(TASK, order=7)], 5.0, runs[2].nbytes)  # a task that most do not have
    found = judged(Course(REAL, 0.0, 4000), runs, {}, {})
    assert (found.task_time, found.makespan, found.nbytes) == pytest.approx((0.1, 0.1, 0.1))
    assert found.nbytes_apart == pytest.approx(2.5)
    assert (found.tasks, found.unmatched, found.tau) == (4, 0, 1)


def test_several_real_runs_are_told_together():
    real = [Course(REAL, 0.0, nbytes) for nbytes in (3900, 4100)]
    simulated = [Course(REAL, 0.0, nbytes) for nbytes in (4000, 4080)]
    found = [judged(one, simulated, {"s00": 50_000}, PROCESS, k).plain() for k, one in enumerate(real)]
    assert [one["repetition"] for one in found] == [0, 1]
    (line,) = over_runs(found)
    assert line.startswith("echopfl on gru, 2 real runs: task time 0 ± 0 %")
    assert "means: +1 %" in line
    assert over_runs(found[:1]) == []  # one run has nothing to be compared with
