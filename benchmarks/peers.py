"""Round times of other simulators on the same workloads, by a driver of each and the Python that has it installed.

The folder of drivers has one `peer_<name>.py` (or `<name>.py`) each. A driver takes `--workload`, `--rounds` and
`--threads`, and prints one line of JSON with `round_s_min` and `own_cpu_round_min`. A JSON file names each Python:

    {"pfl": "/venvs/pfl/bin/python", "fluke": "/venvs/fluke/bin/python"}
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

ROUNDS = 3  # of a peer in one turn, after two that warm up


class Peers:
    """The peers of a workload take turns with us, each in a process of its own; the best round of each counts."""

    def __init__(self, folder: Path | None, pythons: Path | None, workload: str, clock: str, turns: int) -> None:
        self.best: dict[str, float] = {}
        self._turns = turns
        self._workload, self._key = workload, {"seconds": "round_s_min", "cpu": "own_cpu_round_min"}[clock]
        known = {} if folder is None or pythons is None else json.loads(pythons.read_text())
        self._commands: dict[str, list[str]] = {}
        for name, python in known.items():
            drivers = [folder / f"{start}{name}.py" for start in ("peer_", "")]
            driver = next((one.resolve() for one in drivers if one.exists()), None)
            if driver is not None and Path(python).exists():
                self._commands[name] = [python, str(driver)]

    def turn(self) -> None:
        """Run every peer once, if it has a turn left. One that cannot run this workload is left out from then on."""
        if not self._turns:
            return
        self._turns -= 1
        for name, command in list(self._commands.items()):
            given = ["--workload", self._workload, "--rounds", str(ROUNDS), "--threads", "1"]
            done = subprocess.run([*command, *given], cwd=Path(command[1]).parent, capture_output=True, text=True)
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
            if done.returncode or not lines:
                del self._commands[name]
                continue
            seconds = float(json.loads(lines[-1])[self._key])
            self.best[name] = min(seconds, self.best.get(name, float("inf")))
