"""The real thing, small: two throttled clients behind proxies, Flower with TLS. Minutes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from potluck.calibrate import plan
from potluck.calibrate.carry import Calibration
from potluck.runs.certificate import read_certificate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_two_clients_on_two_networks_are_measured_fitted_and_judged(tmp_path: Path) -> None:
    clients = [replace(one, rows=300, share=0.3) for one in plan.CLIENTS[:2]]
    work = Calibration(
        tmp_path / "cal", clients=clients, fit=(plan.FIT[0], plan.FIT[2]), judge=plan.JUDGE[:1], fit_rounds=1, rounds=1
    )
    assert not work.measure(most=1.0)  # one run, and no further one begins
    assert len(work.left()) == 3
    assert work.measure()  # goes on with what is left
    saved = json.loads(work.kept.read_text(encoding="utf-8"))
    assert len(saved["machines"]) == 2
    assert [(one["method"], len(one["tasks"])) for one in saved["runs"]] == [
        ("fedavg", 2), ("fedavg", 2), ("fedavg", 2), ("echopfl", 2),
    ]  # fmt: skip
    for one in saved["runs"]:
        assert one["wire"] > sum(task["bytes_up"] + task["bytes_down"] for task in one["tasks"])  # TLS and headers
        assert all(peak > 50_000_000 for peak in one["peaks"].values())  # Python and PyTorch
    certificate = work.certify()
    assert certificate.worst("nbytes") < 0.01
    assert certificate.worst("task_time") < 1.0  # times are those of a machine that may be busy
    assert read_certificate(work.folder / "certificate.json").machine["limited_by"] in (
        "control group",
        "stopped in turn",
    )
