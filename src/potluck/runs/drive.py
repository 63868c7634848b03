"""Drives a run: iterates the server program, writes down what happened, evaluates, saves, and decides when to stop.

A method never learns about any of this. It yields its state; what comes after the yield is this file's business.
"""

from __future__ import annotations

import importlib
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from potluck import files
from potluck.engines.log import UNFIT, Event
from potluck.errors import BadInput, Code
from potluck.fleet import FleetEmpty
from potluck.runs import checkpoint
from potluck.runs.build import build
from potluck.runs.evaluate import Evaluation
from potluck.runs.experiment import Experiment
from potluck.runs.record import Recorder
from potluck.runs.results import Run, summarise
from potluck.runs.stage import Stage

ELSEWHERE = {"flower-sim": "potluck.deploy.simulated"}
TARGETS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Look:
    """What a watcher sees after each step."""

    step: int
    round: int
    rounds: int | None  # how many there will be, where that is known
    virtual: float
    wall: float
    accuracy: float | None
    at_work: int  # at this moment
    clients: int
    refused: int
    lost: int  # without those whose device cannot hold the training
    unfit: int = 0  # clients whose device cannot
    answered: int = 0  # clients whose answer this step took in
    seconds: float | None = None  # virtual ones after which it ends at the latest, where that is known

    @property
    def share(self) -> float | None:
        """Of the run that is done, by rounds or by virtual time, whichever ends it first; None: nobody knows."""
        by_rounds = [self.round / self.rounds] if self.rounds else []
        by_time = [self.virtual / self.seconds] if self.seconds else []
        return min(1.0, max(by_rounds + by_time)) if by_rounds or by_time else None

    @property
    def working(self) -> int:
        """Who works now, or has just been waited for: at the end of a synchronous round everybody is idle."""
        return min(self.clients, max(self.at_work, self.answered))


class Watcher(Protocol):
    def began(self, run: Run, parts: Stage) -> None: ...
    def looked(self, look: Look) -> None: ...
    def said(self, sentence: str) -> None: ...
    def doing(self, what: str) -> None: ...
    def ended(self, run: Run) -> None: ...


class Silent:
    """Nobody watches."""

    def began(self, run: Run, parts: Stage) -> None: ...
    def looked(self, look: Look) -> None: ...
    def said(self, sentence: str) -> None: ...
    def doing(self, what: str) -> None: ...
    def ended(self, run: Run) -> None: ...


@dataclass
class Progress:
    """What the driver itself must remember over a restart."""

    step: int = 0
    wall: float = 0.0
    best: float = -1.0
    since_best: int = 0
    accuracy: float | None = None
    evaluated: int = 0  # the round of the last evaluation
    reached: dict[str, float] = field(default_factory=dict)
    accepted: int = 0
    refused: int = 0
    lost: int = 0
    ended: str = ""  # why, once it has


def start(experiment: Experiment, watcher: Watcher | None = None) -> Run:
    """Run an experiment in a folder of its own."""
    if experiment.run.engine in ELSEWHERE:
        began: Run = _elsewhere(experiment).start(experiment, watcher or Silent())
        return began
    parts = build(experiment)  # whatever is wrong with the experiment shows here, before there is a folder
    folder = new_folder(experiment)
    files.write_text(folder / "experiment.toml", experiment.toml())
    try:
        return carry_out(folder, parts, watcher or Silent())
    except NothingRan:
        shutil.rmtree(folder)
        raise


class NothingRan(BadInput):
    """No client could do anything at all."""


def resume(folder: Path, watcher: Watcher | None = None, **stop: Any) -> Run:
    """Go on with a run that was stopped or killed; `stop` may move its end."""
    path = folder / "experiment.toml"
    if not path.exists():
        raise BadInput(Code.RUN_ABSENT, f"run: {str(folder)!r} holds no experiment.toml, so it is not a run.")
    experiment = Experiment.read(path)
    if stop:
        experiment = experiment.with_(stop=stop)
        files.write_text(path, experiment.toml())
    if experiment.run.engine in ELSEWHERE:
        ended: Run = _elsewhere(experiment).go_on(folder, watcher or Silent())
        return ended
    return carry_out(folder, build(experiment), watcher or Silent())


def _elsewhere(experiment: Experiment) -> Any:
    """The module that carries out runs of an engine which this process is only a part of."""
    return importlib.import_module(ELSEWHERE[experiment.run.engine])


def new_folder(experiment: Experiment) -> Path:
    """A folder nobody has, named after the experiment."""
    run = experiment.run
    source = Path(experiment.data.source.partition(":")[0]).stem or "data"
    name = run.name or f"{_short(str(experiment.method['name']))}-{source}-s{run.seed}"
    if "/" in name or name.startswith("."):
        raise BadInput(Code.SETTING_VALUE, f"run.name: {name!r} given, a plain folder name is allowed.")
    parent = Path(run.out)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, 10_000):
            folder = parent / (name if number == 1 else f"{name}-{number}")
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return folder
    except OSError as error:
        raise BadInput(
            Code.OUTPUT_PLACE, f"run.out: {run.out!r} cannot hold a run ({error.strerror or error})."
        ) from None
    raise BadInput(Code.OUTPUT_PLACE, f"run.out: {run.out!r} holds too many runs called {name!r}.")


def _short(method: str) -> str:
    return Path(method).stem if method.endswith(".py") else method.rpartition(".")[2]


def carry_out(folder: Path, parts: Stage, watcher: Watcher) -> Run:
    """A run to its end in its folder, from its last checkpoint where there is one."""
    with files.locked(folder):
        parts.fleet.scratch = folder
        recorder = Recorder(folder / "run.db")
        try:
            return _Drive(folder, parts, recorder, watcher).go()
        finally:
            recorder.close()
            parts.close()


class _Drive:
    def __init__(self, folder: Path, parts: Stage, recorder: Recorder, watcher: Watcher) -> None:
        self.folder = folder
        self.parts = parts
        self.recorder = recorder
        self.watcher = watcher
        self.run = Run(folder)
        self.progress = Progress()
        self.state = parts.method.start(parts.weights, parts.config)
        self.saved_at = time.monotonic()

    def go(self) -> Run:
        self._restore()
        self.watcher.began(self.run, self.parts)
        self.parts.fleet.doing = self.watcher.doing
        for note in self.parts.notes:
            self.watcher.said(note)
        began = time.monotonic() - self.progress.wall
        if not self.progress.ended or self._stops(self._round()) is None:
            self.progress.ended = ""
            self._loop(began)
        self._finish()
        self.watcher.ended(self.run)
        return self.run

    def _loop(self, began: float) -> None:
        parts, progress = self.parts, self.progress
        program = parts.method.server(parts.fleet, self.state, parts.config)
        with interruptible() as asked_to_stop:
            while not progress.ended:
                try:
                    self.state = next(program)
                except FleetEmpty as error:
                    if not progress.accepted:
                        raise NothingRan(Code.NOT_FITTING, f"run: no client could do anything; {error}") from None
                    progress.ended = str(error)
                    break
                except StopIteration:
                    progress.ended = "the method was done"
                    break
                progress.step += 1
                progress.wall = time.monotonic() - began
                ends = self._stops(self._round())
                evaluation = self._evaluation(ends is not None or asked_to_stop.is_set())
                self._write(evaluation)
                progress.ended = ends or self._stops(self._round()) or ("interrupted" if asked_to_stop.is_set() else "")
                if progress.ended or time.monotonic() - self.saved_at >= parts.checkpoint_seconds:
                    self._save()

    def _round(self) -> int:
        return int(getattr(self.state, "round", self.progress.step))

    def _stops(self, round: int) -> str | None:
        stop, progress = self.parts.experiment.stop, self.progress
        if stop.rounds is not None and round >= stop.rounds:
            return "1 round done" if stop.rounds == 1 else f"{stop.rounds} rounds done"
        if stop.virtual_seconds is not None and self.parts.fleet.now >= stop.virtual_seconds:
            return f"{stop.virtual_seconds:g} virtual seconds passed"
        if stop.accuracy is not None and progress.accuracy is not None and progress.accuracy >= stop.accuracy:
            return f"mean accuracy {stop.accuracy:g} reached"
        if stop.patience is not None and progress.since_best >= stop.patience:
            return f"no better mean accuracy for {stop.patience} evaluations"
        return None

    def _evaluation(self, last: bool) -> Evaluation | None:
        parts, progress = self.parts, self.progress
        every = parts.experiment.run.evaluate_every
        if not last and self._round() // every == progress.evaluated // every:
            return None
        progress.evaluated = self._round()
        evaluation = parts.evaluate(self.state)
        if evaluation is None:  # nobody was there to answer
            return None
        mean = float(evaluation.accuracy.mean())
        progress.accuracy = mean
        progress.since_best = 0 if mean > progress.best else progress.since_best + 1
        progress.best = max(progress.best, mean)
        wanted = {f"{target:g}": target for target in TARGETS}
        if parts.experiment.stop.accuracy is not None:
            wanted[f"{parts.experiment.stop.accuracy:g}"] = parts.experiment.stop.accuracy
        for name, target in wanted.items():
            if mean >= target:
                progress.reached.setdefault(name, parts.fleet.now)
        return evaluation

    def _write(self, evaluation: Evaluation | None) -> None:
        parts, progress = self.parts, self.progress
        tasks, events = parts.fleet.log.drain()
        events += [Event(parts.fleet.now, *event) for event in parts.method.events(self.state)]
        progress.accepted += sum(task.outcome == "accepted" for task in tasks)
        progress.refused += sum(task.outcome in ("refused", "repeat") for task in tasks)
        progress.lost += sum(task.outcome == "lost" and not task.reason.startswith(UNFIT) for task in tasks)
        self.recorder.step(
            progress.step,
            round=self._round(),
            virtual=parts.fleet.now,
            wall=progress.wall,
            at_work=parts.fleet.at_work,
            tasks=tasks,
            events=events,
            evaluation=None if evaluation is None else evaluation.figures,
            accuracies=() if evaluation is None else evaluation.rows(),
            by_class=evaluation.classes if evaluation is not None else None,
            clusters=parts.method.clusters(self.state) if evaluation is not None else None,
            records=parts.method.record(self.state) if evaluation is not None else None,
        )
        for event in events:
            if event.kind == "does-not-fit":
                self.watcher.said(f"{event.client}: {event.detail}")
        for note in parts.news():
            self.watcher.said(note)
        self.watcher.looked(
            Look(
                step=progress.step,
                round=self._round(),
                rounds=parts.experiment.stop.rounds,
                virtual=parts.fleet.now,
                wall=progress.wall,
                accuracy=progress.accuracy,
                at_work=parts.fleet.at_work,
                clients=len(parts.fleet.clients),
                refused=progress.refused,
                lost=progress.lost,
                unfit=len(parts.fleet.unfit),
                answered=len({task.client for task in tasks if task.outcome == "accepted"}),
                seconds=parts.experiment.stop.virtual_seconds,
            )
        )

    def _save(self) -> None:
        value = {"state": self.state, "fleet": self.parts.fleet.snapshot(), "progress": dict(vars(self.progress))}
        checkpoint.save(self.folder / "checkpoint", value)
        self.saved_at = time.monotonic()

    def _restore(self) -> None:
        saved = checkpoint.load(self.folder / "checkpoint", self.parts.method.classes)
        if saved is not None:
            self.state = saved["state"]
            self.parts.fleet.restore(saved["fleet"])
            self.progress = Progress(**saved["progress"])
        self.recorder.rewind(self.progress.step)
        if saved is None:
            self.recorder.clients(self.parts.client_rows())

    def _finish(self) -> None:
        self.parts.save_models(self.folder, self.state)
        summary = summarise(self.parts, self.recorder, self.progress.step, vars(self.progress))
        files.write_json(self.folder / "summary.json", summary)


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """The first Ctrl-C asks for a stop after the present round, the second one stops at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def on_interrupt(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
