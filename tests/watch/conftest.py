"""A run that goes on as fast as a test wants it to, and servers for it."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from potluck.engines.log import Event, TaskRecord
from potluck.files import write_json
from potluck.runs.evaluation import ByClass
from potluck.runs.experiment import Experiment
from potluck.runs.record import EvaluationRecord, Recorder, StepRecord

CLASSES = ("still", "walk")


class Going:
    """A run of made-up figures written by the real recorder: 10 virtual seconds a round.

    A task is received for 1 s, trained on for 5 s and sent for 2 s.
    """

    def __init__(
        self, folder: Path, method: str = "fedavg", clients: int = 4, rounds: int = 9, seconds: float | None = None
    ) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        stop = {"rounds": rounds, **({} if seconds is None else {"virtual_seconds": seconds})}
        values = {"data": {"source": "made"}, "method": {"name": method}, "stop": stop}
        (folder / "experiment.toml").write_text(Experiment.of(values).toml(), encoding="utf-8")
        self.names = [f"c{i:04}" for i in range(clients)]
        self.recorder = Recorder(folder / "run.db")
        self.recorder.clients((name, "pixel-6", "wifi", "client", None, 30, 10) for name in self.names)
        self.done = 0

    def round(self, accuracy: float = 0.5, refused: str | None = None, lost: str | None = None) -> None:
        """Everybody answers; of those named one answer is refused and one lost."""
        start, self.done = 10.0 * self.done, self.done + 1
        tasks = []
        for i, name in enumerate(self.names):
            outcome = {refused: "refused", lost: "lost"}.get(name, "accepted")
            reason = {"refused": "numbers that are not finite", "lost": "went away while it worked"}.get(outcome, "")
            times = (start, start + 1, start + 6, start + 8)
            number = self.done * len(self.names) + i
            tasks.append(TaskRecord(number, name, "Train", *times, 200, 100, 0, 1e3, 5000, 5.0, outcome, reason))
        shape = (len(self.names), len(CLASSES))
        right = np.full(shape, round(5 * accuracy))
        figures = dict.fromkeys(("mean", "worst", "best", "worst_tenth"), accuracy)
        evaluation = EvaluationRecord(
            {**figures, "std": 0.0, "loss": 1.0, "global": None},
            [(name, accuracy, 1.0, 10) for name in self.names],
            (self.names, ByClass(CLASSES, np.full(shape, 15), np.full(shape, 5), right)),
            {name: i % 2 for i, name in enumerate(self.names)},
        )
        self.recorder.step(StepRecord(self.done, self.done, start + 10, 0.1 * self.done, 0, tasks, []), evaluation)
        self.recorder.commit()

    def unfit(self, name: str) -> None:
        self.done += 1
        start = 10.0 * (self.done - 1)
        times = (start,) * 4
        called_off = TaskRecord(
            10_000, name, "Train", *times, 0, 0, 0, 0.0, 5000, 0.0, "lost", "does not fit: too small."
        )
        events = [Event(0.0, "does-not-fit", name, "does not fit: too small.")]
        self.recorder.step(StepRecord(self.done, self.done, 10.0 * self.done, 0.0, 0, [called_off], events))
        self.recorder.commit()  # quick steps are held for a moment

    def finish(self) -> None:
        write_json(self.folder / "summary.json", {"steps": self.done, "ended": "done", "clients": len(self.names)})


@pytest.fixture
def going(tmp_path: Path) -> Iterator[Callable[..., Going]]:
    made: list[Going] = []

    def make(name: str = "one", **settings: object) -> Going:
        made.append(Going(tmp_path / "runs" / name, **settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.recorder.close()


class Served:
    """A server of the page in a thread of its own."""

    def __init__(self, find: Callable[[], list[Path]], port: int = 0) -> None:
        from potluck.watch.app import server

        self._server = server(find, "127.0.0.1", port)
        self.address = self._server.address
        self.port = int(self.address.rstrip("/").rpartition(":")[2])
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()

    def stop(self) -> None:
        self._server.stop()
        self._thread.join(timeout=30)
        assert not self._thread.is_alive()
        with warnings.catch_warnings():  # uvicorn leaves a connection open that came in its last moment
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def start(find: Callable[[], list[Path]], port: int = 0) -> Served:
        started.append(Served(find, port))
        return started[-1]

    yield start
    for one in started:
        one.stop()
