"""Why are EchoPFL's bytes off in a certificate: is a byte counted wrongly, or did other clients come in between?

    python experiments/plan/notes.py calibration --draws 20

Each real run that `potluck calibrate` measured is simulated again with the moments of arrival that it had, and with
its seed. Then bytes have nothing to do with time. Beside that stand simulated runs with other jitter, as in a
certificate, and with other seeds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from potluck.calibrate import plan
from potluck.calibrate.plan import Network
from potluck.calibrate.tasks import moved
from potluck.engines.local import fleet
from potluck.runs import drive
from potluck.runs.results import Run

METHOD = "echopfl"
PLANNED = fleet.plan


def simulated(folder: Path, network: Network, rounds: int, seed: int = 0, chance: int | None = None) -> Run:
    clients = sorted(one.name for one in plan.CLIENTS)
    fleet: dict[str, Any] = {"devices": [f"calibrated-{name}" for name in clients], "chance": chance}
    fleet["file"] = str(folder / "devices.toml")
    experiment = plan.experiment_of(network, METHOD, folder / "windows.npz", rounds, folder / "notes", **fleet)
    return drive.start(experiment.with_(run={"seed": seed}, partition={"seed": 0}))


def replayed(folder: Path, network: Network, rounds: int, real: Mapping[str, Any]) -> Run:
    """The run with seed 0 whose answers arrive when those of the real run did; what never arrived comes last."""
    arrived = {(task["client"], task["order"]): task["arrived"] - real["began"] for task in real["tasks"]}

    def at_its_moment(order: Any, *rest: Any) -> Any:
        flight = PLANNED(order, *rest)
        moment = arrived.get((order.name, order.earlier), order.sent + 1e6)
        return replace(flight, arrives=moment, trained=moment)

    fleet.plan = at_its_moment  # type: ignore[assignment]
    try:
        return simulated(folder, network, rounds)
    finally:
        fleet.plan = PLANNED


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="of `potluck calibrate`")
    parser.add_argument("--draws", type=int, default=20)
    given = parser.parse_args()
    saved = json.loads((given.folder / "measured.json").read_text())
    networks = {name: Network(**one) for name, one in saved["networks"].items()}
    runs = [one for one in saved["runs"] if one["method"] == METHOD]
    for name in sorted({one["network"] for one in runs}):
        same = [one for one in runs if one["network"] == name]
        for one in same:
            again = moved(replayed(given.folder, networks[name], saved["rounds"], one))
            print(
                f"{name}: {one['nbytes']} bytes, with its arrivals {100 * (again / one['nbytes'] - 1):+.2f} %",
                flush=True,
            )
        real = np.mean([one["nbytes"] for one in same])
        for what in ("chance", "seed"):
            found = [
                100 * (moved(simulated(given.folder, networks[name], saved["rounds"], **{what: draw})) / real - 1)
                for draw in range(1, given.draws + 1)
            ]
            print(
                f"  {given.draws} draws of the {what}: {np.mean(found):+.1f} ± {np.std(found, ddof=1):.1f} %",
                flush=True,
            )


if __name__ == "__main__":
    main()
