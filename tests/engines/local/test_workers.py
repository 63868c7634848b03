"""Stacks run by other processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import potluck
from potluck.engines.local.workers import ProcessWorkers
from potluck.errors import BadInput
from potluck.runs.build import build
from potluck.runs.experiment import Experiment


def experiment(folder: Path, workers: int | str, method: str = "ftl") -> Experiment:
    return Experiment.of(
        {
            "data": {"source": "made"},
            "partition": {"clients": 6},
            "model": {"name": "mlp", "hidden": [6]},
            "method": {"name": method},
            "stop": {"rounds": 2},
            "run": {"workers": workers, "out": str(folder), "name": f"{method}-{workers}".replace(":", "-")},
        }
    )


def models(run: potluck.Run) -> dict[str, dict[str, torch.Tensor]]:
    return {path.name: load_file(path) for path in sorted((run.folder / "models").rglob("*.safetensors"))}


@pytest.mark.parametrize("method", ["ftl", pytest.param("echopfl", marks=pytest.mark.slow)])
def test_processes_give_the_bits_of_one_thread(method: str, tmp_path: Path) -> None:
    one, other = (potluck.run(experiment(tmp_path, workers, method)) for workers in (1, "processes:2"))
    assert one.table("tasks") == other.table("tasks")
    here, there = models(one), models(other)
    assert here
    assert here.keys() == there.keys()
    for client, weights in here.items():
        assert all(torch.equal(there[client][name], value) for name, value in weights.items())


def test_a_worker_that_dies_is_named_and_the_others_are_ended(tmp_path: Path) -> None:
    parts = build(experiment(tmp_path, "processes:2"))
    spread = parts.executor.workers
    assert isinstance(spread, ProcessWorkers)
    processes = list(spread.processes)
    for process in processes:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with pytest.raises(RuntimeError, match=r"worker process \d of 2 ended with status -9; `potluck resume`"):
        spread.run([[]])
    parts.executor.close()
    assert all(process.poll() is not None for process in processes)


@pytest.mark.parametrize("workers", [0, 257, "0", "processes", "processes:0", "processes:x", "threads", "spark"])
def test_other_workers_are_refused(workers: int | str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"run.workers.*1 to 256 threads, 'processes:N'.*or 'ray', got"):
        experiment(tmp_path, workers)


def test_a_number_in_quotes_is_a_number(tmp_path: Path) -> None:
    assert experiment(tmp_path, "2").run.workers == 2
