"""Round times of other simulators on the same workloads, by a driver of each and the Python that has it installed.

The folder of drivers has one `peer_<name>.py` each. A driver takes `--workload`, `--rounds` and `--threads`, and prints
one line of JSON with `round_s_min` and `own_cpu_round_min`. A JSON file names each peer's Python:

    {"pfl": "/venvs/pfl/bin/python", "fluke": "/venvs/fluke/bin/python"}
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path


def round_times(folder: Path, pythons: Path, workload: str, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds and processor seconds of each peer's best round; a peer that cannot run the workload is left out."""
    found = {}
    for name, python in json.loads(pythons.read_text()).items():
        driver = folder / f"peer_{name}.py"
        if not driver.exists() or not Path(python).exists():
            continue
        command = [python, str(driver), "--workload", workload, "--rounds", str(rounds), "--threads", "1"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or not lines:
            continue
        row = json.loads(lines[-1])
        found[name] = {"seconds": row["round_s_min"], "cpu": row["own_cpu_round_min"]}
    return found
