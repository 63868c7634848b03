import sqlite3

import numpy as np
import pytest

import potluck
from potluck.devices import device, hours_of, link, rest_watts
from potluck.engines.local import Roster
from potluck.runs.energy import energy_of

HOUR = 3600.0


def fleet(*names, joins=None, leaves=None):
    """One client per device."""
    gear = [(device(name), link("wifi")) for name in names]
    clients = [f"c{i}" for i in range(len(names))]
    return Roster(clients, np.full(len(names), 10), gear, np.arange(len(names)), joins=joins, leaves=leaves)


def rows(tasks):
    """Answers both queries from (client, sent, arrived, joules, training, radio)."""

    def ask(sql):
        if "GROUP BY" not in sql:
            return [task[:4] for task in tasks]
        names = dict.fromkeys(task[0] for task in tasks)
        mine = {name: [task for task in tasks if task[0] == name] for name in names}
        return [
            (name, sum(t[2] - t[1] for t in of), *(sum(t[k] for t in of) for k in (3, 4, 5)))
            for name, of in mine.items()
        ]

    return ask


TASKS = rows([("c0", 0.0, 10.0, 20.0, 15.0, 2.0), ("c0", 20.0, 30.0, 20.0, 15.0, 2.0)])


def test_causes_add_up_and_a_client_without_a_task_waits_too():
    found = energy_of(TASKS, fleet("pixel-4a", "raspberry-pi-4"), 100.0, "awake", None, "always", 0)
    waiting = 80 * 0.3 + 100 * 2.88
    assert found["training"] == 30
    assert found["radio"] == 4
    assert found["idle"] == pytest.approx(40 - 34 + waiting)
    assert found["waiting"] == pytest.approx(waiting)
    assert found["total"] == pytest.approx(40 + waiting)
    assert found["sleep"] == 0
    assert found["idle_share"] == pytest.approx((6 + waiting) / (40 + waiting))
    assert found["from_batteries"] == pytest.approx(40 + 80 * 0.3)  # the Pi has none
    assert found["by_device"]["raspberry-pi-4"] == {
        "clients": 1, "training": 0.0, "radio": 0.0, "idle": 0.0, "waiting": pytest.approx(288.0),
        "total": pytest.approx(288.0),
    }  # fmt: skip


def test_sleep_replaces_waiting_awake():
    found = energy_of(TASKS, fleet("pixel-4a"), 100.0, "sleep", None, "always", 0)
    assert found["sleep"] == pytest.approx(80 * 0.06)
    assert found["waiting"] == 0
    assert found["idle"] == pytest.approx(6)
    assert found["total"] == pytest.approx(44.8)


def test_a_client_waits_only_while_it_is_registered():
    roster = fleet("pixel-4a", joins=np.array([40.0]), leaves=np.array([90.0]))
    found = energy_of(rows([]), roster, 100.0, "awake", None, "always", 0)
    assert found["total"] == pytest.approx(50 * 0.3)


def test_the_charger_pays_for_what_happens_in_its_hours():
    windows = hours_of("charging", (23.0, 6.0), begins=20.0)
    tasks = rows([("c0", 5 * HOUR, 6 * HOUR, 9000.0, 9000.0, 0.0)])  # at one o'clock: always on the charger
    found = energy_of(tasks, fleet("pixel-4a"), 24 * HOUR, "awake", windows, "charging", 1)
    by_hour = found["from_batteries"] / 0.3 / HOUR  # hours awake on the battery
    assert 24 - 7 - 1.5 <= by_hour <= 24 - 7 + 1.5
    at_once = energy_of(tasks, fleet("pixel-4a"), 24 * HOUR, "awake", None, "always", 1)
    assert at_once["from_batteries"] == at_once["total"] == found["total"]


def test_an_unknown_battery_is_not_guessed(tmp_path):
    from potluck.devices import read_devices

    path = tmp_path / "own.toml"
    path.write_text(
        "[devices.own]\nkind = 'board'\nlink = 'wifi'\nmacs_per_second = 1e9\nmemory = 1000000\nstorage = 1000000\n"
        "active_watts = 5\nidle_watts = 2\n"
    )
    roster = Roster(["c0"], np.array([1]), [(read_devices(path).devices["own"], link("wifi"))], np.zeros(1, dtype=int))
    found = energy_of(rows([]), roster, 10.0, "awake", None, "always", 0)
    assert found["from_batteries"] is None
    assert found["total"] == 20


@pytest.mark.parametrize("epochs", [1, 4])
def test_a_client_that_waits_for_its_rows_with_a_task_in_hand_is_idle(tmp_path, epochs):
    """One task of four passes, or four of one: the same rows arrive at the same pace, so the fleet waits as long."""
    run = potluck.run(
        {
            "data": {"source": "made"}, "method": {"name": "fedavg", "recipe": {"epochs": epochs}},
            "model": {"name": "softmax"}, "stop": {"rounds": 4 // epochs}, "run": {"out": str(tmp_path)},
            "fleet": {"devices": "pc-i7-9700", "link": "ethernet", "rows_per_hour": 3600, "passes": 4},
            "partition": {"clients": 2},
        }
    )  # fmt: skip
    now, energy = run.summary["virtual_seconds"], run.summary["energy"]
    assert now > 20  # as many rows, one a second
    watts = rest_watts(device("pc-i7-9700"), "awake")
    assert energy["waiting"] == pytest.approx(2 * watts * now, rel=0.01)
    tasks = sqlite3.connect(run.folder / "run.db").execute(
        "SELECT started, waited FROM tasks WHERE outcome = 'accepted'"
    )
    assert all(waited <= started for started, waited in tasks)
