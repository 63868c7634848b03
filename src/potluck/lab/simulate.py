"""A scenario on the local engine: the process that runs it dies, the power fails, the disk is full, the clock jumps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from potluck.errors import BadInput, Code
from potluck.lab.disk import Crash, Disk, Killed, watched
from potluck.lab.holds import Violation
from potluck.lab.scenario import CRASHES, Fault, Scenario
from potluck.runs import drive
from potluck.runs.results import Run


class JumpingClock:
    """The clock that the driver reads; it jumps after so many readings."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._jumps = [(one.at, one.detail) for one in faults if one.kind == "clock"]
        self._readings = 0

    def monotonic(self) -> float:
        self._readings += 1
        return time.monotonic() + sum(seconds for at, seconds in self._jumps if self._readings > at)


def lives(scenario: Scenario) -> list[Crash | None]:
    """What ends each life of the server's process; None: nothing does."""
    crashes = [Crash(one.kind, one.at, one.detail, one.detail) for one in scenario.faults if one.kind in CRASHES]
    return [*crashes, None]


def simulate(scenario: Scenario, folder: Path) -> Run:
    """Carry the scenario out, and start again after each crash, as `potluck resume` does."""
    root = folder / "runs"
    root.mkdir()
    disk = Disk(root)
    experiment = scenario.experiment(str(root))
    with mock.patch.object(drive, "time", JumpingClock(scenario.faults)), watched([disk]):
        for crash in lives(scenario):
            disk.expect(crash)
            there = sorted(path.parent for path in root.glob("*/experiment.toml"))
            try:
                return drive.resume(there[0]) if there else drive.start(experiment)
            except Killed:
                disk.settle()
            except BadInput as error:
                if crash is None or crash.kind != "full" or error.code is not Code.OUTPUT_PLACE:
                    raise Violation(f"the run goes on: {error.told}") from error
                disk.settle()
            except Exception as error:
                raise Violation(f"the run goes on: {type(error).__name__}: {error}") from error
    raise AssertionError("the last life has no crash")
