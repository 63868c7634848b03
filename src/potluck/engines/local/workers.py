"""Stacks of clients run by other processes, here or on a Ray cluster: the same chunks, the same bits.

Jobs and results travel as the codec's bytes. How stacks are cut never depends on which worker runs them. A worker is a
new process, so it cannot be handed an executor. It is given a `maker` instead, the name `module:function` of what makes
one, and the experiment's text. The caller names the maker, so this engine knows no run.
"""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from potluck.engines.chunks import Job
from potluck.engines.results import Result
from potluck.errors import Code, Missing, install_extra
from potluck.wire.codec import decode, encode

WORKER = "potluck.engines.local.worker_process"


class WorkerPool(ABC):
    """Worker processes that take chunk after chunk. Implements `potluck.engines.execute.Workers`."""

    def __init__(self, classes: Mapping[str, type], workers: int) -> None:
        self._classes = classes
        self._count = workers
        self._notes: list[str] = []

    @abstractmethod
    def _give(self, worker: int, data: bytes) -> None:
        """Send a chunk to an idle worker."""

    @abstractmethod
    def _take(self) -> list[tuple[int, bytes]]:
        """Wait until a worker has finished. Return each worker that has, and its answer."""

    @abstractmethod
    def close(self) -> None: ...

    def news(self) -> list[str]:
        """Notes of the workers since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def run(self, chunks: Sequence[Sequence[Job]]) -> list[list[Result]]:
        """Run the chunks; a worker that has finished takes the next one. Return the results of each chunk."""
        results: dict[int, list[Result]] = {}
        free = list(range(self._count))
        busy: dict[int, int] = {}
        waiting = list(enumerate(chunks))[::-1]
        while waiting or busy:
            while waiting and free:
                number, jobs = waiting.pop()
                worker = free.pop()
                self._give(worker, encode([job._replace(apart=None)._asdict() for job in jobs]))
                busy[worker] = number
            for worker, data in self._take():
                free.append(worker)
                answer = decode(data, self._classes)
                results[busy.pop(worker)] = [Result(one, seen) for one, seen in answer["results"]]
                self._notes += answer["notes"]
        return [results[number] for number in range(len(chunks))]


class RayWorkers(WorkerPool):
    """One worker per core of the cluster that $RAY_ADDRESS names, or of this machine."""

    def __init__(self, maker: str, experiment: str, classes: Mapping[str, type], workers: int | None = None) -> None:
        try:
            ray: Any = importlib.import_module("ray")
        except ImportError:
            raise Missing(Code.EXTRA, f"ray: not installed; `{install_extra('ray')}` adds it.") from None
        self._ray = ray
        if not ray.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            own = {} if os.environ.get("RAY_ADDRESS") else {"_node_ip_address": "127.0.0.1", "num_cpus": os.cpu_count()}
            ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR", **own)
        super().__init__(classes, workers or max(1, int(ray.cluster_resources().get("CPU", 1))))
        actor: Any = ray.remote(num_cpus=1)(importlib.import_module(WORKER).Worker)
        self._actors = [actor.remote(maker, experiment) for _ in range(self._count)]
        self._promised: dict[Any, int] = {}

    def _give(self, worker: int, data: bytes) -> None:
        self._promised[self._actors[worker].run.remote(data)] = worker

    def _take(self) -> list[tuple[int, bytes]]:
        done, _ = self._ray.wait(list(self._promised), num_returns=1)
        return [(self._promised.pop(one), self._ray.get(one)) for one in done]

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []


class ProcessWorkers(WorkerPool):
    """Hands that are processes of this machine, for runs in which Python itself is the bottleneck."""

    def __init__(self, maker: str, experiment: str, classes: Mapping[str, type], workers: int) -> None:
        super().__init__(classes, workers)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._lines: list[Connection] = []
        for _ in range(workers):
            ours, theirs = socket.socketpair()
            with theirs:
                command = [sys.executable, "-m", WORKER, str(theirs.fileno()), maker]
                self.processes.append(subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL))
            self._lines.append(Connection(ours.detach()))
        for line in self._lines:  # after all have started: they build their executors at the same time
            line.send_bytes(experiment.encode())

    def _give(self, worker: int, data: bytes) -> None:
        try:
            self._lines[worker].send_bytes(data)
        except OSError:
            raise self._gone(worker) from None

    def _take(self) -> list[tuple[int, bytes]]:
        taken = []
        for ready in wait(self._lines):
            worker = next(i for i, line in enumerate(self._lines) if line is ready)
            try:
                taken.append((worker, self._lines[worker].recv_bytes()))
            except (EOFError, OSError):
                raise self._gone(worker) from None
        return taken

    def _gone(self, worker: int) -> RuntimeError:
        status = self.processes[worker].wait()
        return RuntimeError(
            f"worker process {worker + 1} of {self._count} ended with status {status}; `potluck resume` continues "
            "from the last checkpoint."
        )

    def close(self) -> None:
        for line in self._lines:
            line.close()  # a worker ends when its connection closes
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._lines, self.processes = [], []
