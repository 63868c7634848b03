"""A calibration whose real processes are played by the local engine, with figures that nobody tells the fit."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from potluck import write_report
from potluck.calibrate import plan
from potluck.calibrate.carry import Calibration, machine
from potluck.calibrate.memory import process_bytes
from potluck.calibrate.plan import Network, experiment_of
from potluck.calibrate.tasks import first_sent, moved, timed
from potluck.devices import read_devices
from potluck.runs import drive
from potluck.runs.certificate import read_certificate

FIT = (
    Network("mlp-8", {"name": "mlp", "hidden": [8]}, 2),
    Network("mlp-128", {"name": "mlp", "hidden": [128]}, 16),
    Network("cnn1d", {"name": "cnn1d", "channels": [2, 2]}, 8),
    Network("cnn1d-wide", {"name": "cnn1d", "channels": [8, 8]}, 2),
)
JUDGE = (Network("softmax", {"name": "softmax"}, 8),)
HIDDEN = """
[devices.d{place}]
like = "laptop-i7-11800h"
macs_per_second = {macs}
moves_per_second = 2e7
op_seconds = 2e-3
recorded_op_seconds = 3e-3
speed_jitter = 0.02
link = "l{place}"
[links.l{place}]
like = "wifi"
up = {up}
down = {down}
latency = 0.15
jitter = 0.02
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """What the site would have measured, from a run with hidden figures."""
    folder = tmp_path_factory.mktemp("calibration")
    clients = [replace(one, rows=60 + 20 * k) for k, one in enumerate(plan.CLIENTS[:3])]
    work = Calibration(folder, clients=clients, fit=FIT, judge=JUDGE, methods=("fedavg",), fit_rounds=2, rounds=2)
    plan.write_windows(work.data, clients)
    hidden = folder / "hidden.toml"
    hidden.write_text(
        "".join(
            HIDDEN.format(place=k, macs=1e7 * (k + 1), up=one.up.rate, down=one.down.rate)
            for k, one in enumerate(clients)
        )
    )
    runs = []
    for network, rounds in (*((one, 2) for one in FIT), (JUDGE[0], 2)):
        fleet = {"devices": [f"d{k}" for k in range(3)], "file": str(hidden)}
        run = drive.start(experiment_of(network, "fedavg", work.data, rounds, folder / "real", **fleet))
        tasks = [
            replace(task, macs=0.0, ops=0.0, recorded=0.0, moved=0.0) for task in timed(run, network.name, "fedavg")
        ]
        needed = process_bytes(network, "fedavg", clients, folder)
        peaks = {task.client: 300_000_000 + needed for task in tasks}
        tasks = [asdict(replace(task, memory=0)) for task in tasks]
        runs.append(
            {
                "network": network.name,
                "method": "fedavg",
                "tasks": tasks,
                "peaks": peaks,
                "began": first_sent(run),
                "nbytes": moved(run),
                "wire": 1,
            }
        )
    saved = {
        "machines": [machine("nothing", 1.0)],
        "clients": [asdict(one) for one in clients],
        "rounds": 2,
        "runs": runs,
    }
    (folder / "measured.json").write_text(json.dumps(saved))
    return work


def test_hidden_figures_are_found_and_the_prediction_holds(work):
    certificate = work.certify()
    (run,) = certificate.runs
    assert run["network"] == "softmax"
    assert (run["tasks"], run["unmatched"]) == (6, 0)
    assert run["task_time"] < 0.03
    assert run["makespan"] < 0.03
    assert run["nbytes"] == 0
    assert run["memory"] < 0.001
    assert run["tau"] > 0.5
    assert read_certificate(work.folder / "certificate.json").sentence == certificate.sentence


def test_the_devices_file_can_be_used_and_says_where_its_figures_come_from(work):
    if not work.file.exists():
        work.certify()
    devices, links = read_devices(work.file)
    one = devices["calibrated-s00"]
    assert one.macs_per_second == pytest.approx(1e7, rel=0.1)
    assert one.moves_per_second == pytest.approx(2e7, rel=0.1)
    assert one.op_seconds == pytest.approx(2e-3, rel=0.1)
    assert links["calibrated-s00"].latency == pytest.approx(0.15, rel=0.1)
    assert len(devices) == len(links) == 3
    assert "left out of the fit" in one.sources["macs_per_second"]
    assert one.sources["active_watts"].startswith("as laptop-i7-11800h")


def test_a_run_carries_the_certificate(work):
    path = work.folder / "certificate.json"
    if not path.exists():
        work.certify()
    experiment = experiment_of(
        JUDGE[0], "fedavg", work.data, 1, work.folder / "runs", devices="raspberry-pi-4", certificate=str(path)
    )
    run = drive.start(experiment)
    assert any("no device was measured" in note for note in run.summary["notes"])
    assert "no device was measured" in write_report(run).read_text(encoding="utf-8")
