"""The certificate: how far virtual time was from a clock, on which machine, with which limits; a JSON file.

It speaks of processes on one machine whose processor share and links were limited. No device was measured, so it never
says that figures of hardware are validated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from potluck.errors import BadInput, Code, no_file

FORMAT = 1
LIMITS = {"task_time": 0.15, "makespan": 0.10, "nbytes": 0.01, "memory": 0.15}  # what a good certificate keeps
WORDS = {"task_time": "task time", "makespan": "makespan", "nbytes": "bytes", "memory": "peak memory"}
NOT_HARDWARE = "Processes with limited processor share on one machine; no device was measured."


@dataclass(frozen=True)
class Certificate:
    machine: Mapping[str, Any]  # processor, cores, versions, load, how the share was limited
    clients: Sequence[Mapping[str, Any]]  # limits and fitted figures
    fitted_on: Sequence[str]  # networks
    runs: Sequence[Mapping[str, Any]]  # one `Judged` each, on networks that the fit has not seen

    def worst(self, figure: str) -> float:
        """The largest error of the judged runs."""
        return max(float(run[figure]) for run in self.runs)

    @property
    def kept(self) -> bool:
        """Whether every run kept every limit."""
        return all(self.worst(figure) <= limit for figure, limit in LIMITS.items())

    @property
    def sentence(self) -> str:
        """One sentence for a report."""
        found = ", ".join(f"{WORDS[one]} {100 * self.worst(one):.2g} %" for one in LIMITS)
        networks = ", ".join(sorted({str(run["network"]) for run in self.runs}))
        methods = ", ".join(sorted({str(run["method"]) for run in self.runs}))
        return (
            f"Virtual time was compared with {len(self.clients)} real processes over TLS ({methods}; {networks}, which "
            f"the fit had not seen). Largest errors: {found}. {NOT_HARDWARE}"
        )

    def write(self, path: Path) -> None:
        values = {
            "format": FORMAT,
            "what": NOT_HARDWARE,
            "machine": dict(self.machine),
            "clients": [dict(one) for one in self.clients],
            "fitted_on": list(self.fitted_on),
            "runs": [dict(one) for one in self.runs],
        }
        path.write_text(json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def read_certificate(path: Path) -> Certificate:
    """Read a certificate; a file that is none raises BadInput."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise no_file(Code.DEVICE_FILE, "fleet.certificate", path) from None
    except (OSError, ValueError) as error:
        raise BadInput(Code.DEVICE_FILE, f"certificate: {path} cannot be read as JSON ({error}).") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        wanted = f"a file of `potluck calibrate` in format {FORMAT}"
        raise BadInput(Code.DEVICE_FILE, f"certificate: {path} must be {wanted}.")
    runs = found.get("runs")
    if not isinstance(runs, list) or not runs or not all(_is_run(run) for run in runs):
        raise BadInput(Code.DEVICE_FILE, f"certificate: {path}: runs must be a list with the errors of each run.")
    lists = [found.get(name) for name in ("clients", "fitted_on")]
    if not all(isinstance(one, list) for one in lists) or not isinstance(found.get("machine"), dict):
        raise BadInput(Code.DEVICE_FILE, f"certificate: {path} must have machine, clients and fitted_on.")
    return Certificate(found["machine"], lists[0], lists[1], runs)  # type: ignore[arg-type]


def _is_run(run: Any) -> bool:
    if not isinstance(run, dict) or not {"network", "method"} <= run.keys():
        return False
    values = [run.get(figure) for figure in LIMITS]
    return all(isinstance(value, int | float) and math.isfinite(value) and value >= 0 for value in values)
