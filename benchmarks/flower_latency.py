"""Seconds per task on real processes with TLS and keys: the client that stays beside Flower's own SuperNode.

    python benchmarks/flower_latency.py [--tasks 5] [--sizes 250000 5000000]

One client on this machine does FedAvg's task on a few rows; what is measured is the way there and back. The model is
a perceptron as large as the payload asked for. Both kinds of client serve the same server program in turn.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from potluck.deploy import commands
from potluck.deploy.layout import Deployment
from potluck.deploy.server.control import Control
from potluck.deploy.server.supervisor import Supervisor, finished
from potluck.errors import BadInput
from potluck.runs.experiment import Experiment
from potluck.runs.record import read

FEATURES = 64


def experiment(folder: Path, nbytes: int, tasks: int) -> Experiment:
    hidden = max(1, nbytes // 4 // (FEATURES + 4))
    return Experiment.of(
        {
            "data": {"source": str(folder / "rows.npz")},
            "model": {"name": "mlp", "hidden": [hidden]},
            "method": {"name": "fedavg", "epochs": 1},
            "stop": {"rounds": tasks},
            "run": {"out": str(folder / "runs"), "evaluate_every": tasks},
        }
    )


def online(deployment: Deployment) -> bool:
    control = Control(deployment)
    try:
        return "online" in control.nodes().values()
    except BadInput:
        return False
    finally:
        control.close()


def waited(what: str, is_so: object, seconds: float = 600.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():  # type: ignore[operator]
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not within {seconds:g} s")
        time.sleep(0.3)


def measured(folder: Path, port: int, stock: bool, nbytes: int, tasks: int) -> list[float]:
    """Seconds from sending a task to having its answer."""
    one = experiment(folder, nbytes, tasks)
    deployment = Deployment(folder / f"deploy-{port}", port=port)
    names = commands.make(deployment, [], one)
    stop = threading.Event()
    thread = threading.Thread(target=Supervisor(deployment, lambda sentence: None).run, args=(stop,))
    thread.start()
    place = deployment.client(names[0])
    command = [sys.executable, "-m", "potluck.cli", "deploy", "client", "--folder", str(place)]
    client = None
    try:
        with (place / "client.log").open("ab") as log:
            client = subprocess.Popen(command + (["--stock"] if stock else []), stdout=log, stderr=log)
        waited("client", lambda: online(deployment))
        run = commands.start(deployment, one, clients=1)
        waited("run", lambda: finished(run))
        rows = read(run / "run.db", "SELECT arrived - sent AS s FROM tasks WHERE outcome = 'accepted' ORDER BY number")
        return [float(row["s"]) for row in rows]
    finally:
        if client is not None:
            client.terminate()
            client.wait(60)
        stop.set()
        thread.join(60)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[250_000, 5_000_000])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        draw = np.random.Generator(np.random.Philox(0))
        rows = {"x": draw.normal(size=(16, FEATURES)).astype(np.float32), "y": np.arange(16) % 2}
        np.savez(folder / "rows.npz", **rows, subject=np.zeros(16, dtype=int))
        port = 24_100
        print(f"{'payload':>10}  {'client':<18}{'median s':>9}{'best s':>8}   every task")
        for nbytes in given.sizes:
            for stock in (False, True):
                times = measured(folder, port, stock, nbytes, given.tasks)
                port += 10
                which = "Flower's SuperNode" if stock else "the one that stays"
                every = " ".join(f"{one:.2f}" for one in times)
                print(
                    f"{nbytes:>10}  {which:<18}{statistics.median(times):>9.2f}{min(times):>8.2f}   {every}", flush=True
                )


if __name__ == "__main__":
    main()
