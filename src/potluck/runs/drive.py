"""Drive a run: iterate the server program, record, evaluate, save, and decide when to stop.

A method knows nothing of this. It yields its state, and this file does what follows each yield.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from potluck import files
from potluck.engines.log import UNFIT, Event, TaskRecord
from potluck.errors import BadInput, Code, must_be
from potluck.fleet import FleetEmpty
from potluck.runs import checkpoint, common_start, limits, manifest, needs, newcomers, saveable, server_rows
from potluck.runs.build import build
from potluck.runs.drive_state import DriveState, NothingRan
from potluck.runs.engines import ENGINES
from potluck.runs.evaluation import Evaluation
from potluck.runs.experiment import Experiment
from potluck.runs.folders import new_folder
from potluck.runs.interrupt import interruptible
from potluck.runs.lasting import lasting
from potluck.runs.private_fleet import guarded
from potluck.runs.record import EvaluationRecord, Recorder, StepRecord, recording
from potluck.runs.results import Run
from potluck.runs.session import Session
from potluck.runs.silence import CountedFleet
from potluck.runs.summary import summarise, told
from potluck.runs.watcher import Progress, Silent, Watcher

PAUSED = "paused"  # why a run ended that waits to be continued
TARGETS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


def start(experiment: Experiment, watcher: Watcher | None = None, pause: float | None = None) -> Run:
    """Run an experiment in a new folder, with what its method needs; `pause` is as for `carry_out`."""
    experiment = needs.filled(experiment)
    if experiment.run.engine in ENGINES:
        _no_pause(experiment, pause)
        return ENGINES[experiment.run.engine]().start(experiment, watcher or Silent())
    session = build(experiment)  # mistakes in the experiment show here, before there is a folder
    folder = new_folder(experiment)
    try:
        with files.refusing(folder):
            files.write_text(folder / "experiment.toml", experiment.toml())
        return carry_out(folder, session, watcher or Silent(), pause)
    except BadInput:
        if not (folder / "checkpoint").exists():  # NothingRan, or refused before its first step was saved
            shutil.rmtree(folder)
        raise


def _no_pause(experiment: Experiment, pause: float | None) -> None:
    if pause is not None:
        raise must_be(Code.SETTINGS_CLASH, "run.engine", "local for a run that pauses", experiment.run.engine)


def resume(folder: Path, watcher: Watcher | None = None, pause: float | None = None, **stop: Any) -> Run:
    """Continue a run that was stopped, killed or paused; `stop` may change when it ends."""
    path = folder / "experiment.toml"
    if not path.exists():
        raise BadInput(Code.RUN_ABSENT, f"run: {str(folder)!r} is not a run: it has no experiment.toml.")
    with files.locked(folder):
        experiment = Experiment.read(path)
        if stop:
            experiment = experiment.with_(stop=stop)
        manifest.check_settings(folder, experiment, checkpoint.manifest(folder / "checkpoint"))
        if experiment.run.engine not in ENGINES:
            return _carried_out(folder, build(experiment), watcher or Silent(), pause, experiment if stop else None)
        _no_pause(experiment, pause)
        if stop:
            files.write_text(path, experiment.toml())
    return ENGINES[experiment.run.engine]().go_on(folder, watcher or Silent())


def carry_out(folder: Path, session: Session, watcher: Watcher, pause: float | None = None) -> Run:
    """Carry out a run in its folder, from its checkpoint if there is one.

    `pause` is a share of the run, 0 to 1. The run pauses at the first evaluation at or past it. The method is not told,
    so a paused run that is continued has the bits of a run that never paused.
    """
    with files.locked(folder):
        return _carried_out(folder, session, watcher, pause)


def _carried_out(
    folder: Path, session: Session, watcher: Watcher, pause: float | None, changed: Experiment | None = None
) -> Run:
    """Under the lock: check that the files belong together, then write. `changed` is kept as the new experiment."""
    with files.refusing(folder), closing(session):
        files.sweep(folder)
        saved = checkpoint.load(folder / "checkpoint", session.method.classes)
        notes = [] if saved is None else manifest.check_files(folder, session, saved.get(checkpoint.MANIFEST))
        session.fleet.scratch = folder
        with recording(folder / "run.db") as recorder, lasting():
            drive = _Drive(folder, session, recorder, watcher, pause)
            drive.restore(saved)
            if changed is not None:
                files.write_text(folder / "experiment.toml", changed.toml())
            return drive.go(notes)


class _Drive:
    def __init__(
        self, folder: Path, session: Session, recorder: Recorder, watcher: Watcher, pause: float | None
    ) -> None:
        self.folder, self.session, self.recorder = folder, session, recorder
        self.watcher, self.pause = watcher, pause
        self.run = Run(folder)
        self.done = DriveState()
        self.state = saveable.first_state(session.method, session.weights, session.config)
        self.fleet = guarded(session.fleet, session.protection, self.state)
        self.saved_at = time.monotonic()

    def go(self, found: Sequence[str]) -> Run:
        self.watcher.start(self.run, self.session)
        self.session.fleet.doing = self.watcher.show_activity
        for note in (*found, *self._notes()):
            self.watcher.say(note)
        began = time.monotonic() - self.done.wall
        waits = self.done.ended == PAUSED and self._pauses()
        if not waits and (not self.done.ended or self._stops() is None):
            self.done.ended = ""
            self._first_evaluation()
            self._loop(began)
        self._finish()
        self.watcher.end(self.run)
        return self.run

    def _notes(self) -> list[str]:
        """What differs from other engines first, then what was chosen for the method, then what the data needs."""
        session = self.session
        own = needs.notes(session.experiment, session.fleet.clients)
        return [*([session.differs] if session.differs else []), *own, *session.notes]

    def _loop(self, began: float) -> None:
        session, done = self.session, self.done
        fleet: Any = CountedFleet(self.fleet, session.method.name, self.watcher.say)
        program = server_rows.program(session.experiment, session.method, fleet, self.state, session.config)
        if not isinstance(program, Iterator):
            raise self._without_yield("must be a generator, got no yield in it")
        with interruptible(self.watcher.say) as asked_to_stop:
            while not done.ended:
                try:
                    self.state = next(program)
                except FleetEmpty as error:
                    if not done.accepted:
                        raise NothingRan(Code.NOT_FITTING, f"run: no client could take part. {error}") from None
                    done.ended = str(error)
                    self._missing_evaluation()
                    break
                except StopIteration:
                    if not done.step:
                        raise self._without_yield("ended without yielding a state") from None
                    done.ended = "the method was done"
                    self._missing_evaluation()
                    break
                fleet.yielded()
                self.fleet.yielded(self.state)
                done.step += 1
                done.wall = time.monotonic() - began
                tasks, events = self._drained()
                ends, due = self._stops(), self._due()
                evaluation = self._evaluation(due or ends is not None, asked_to_stop.is_set())
                self._write(tasks, events, evaluation)
                done.ended = ends or self._stops() or ""
                if not done.ended and due and self._pauses():
                    done.ended = PAUSED
                elif not done.ended and asked_to_stop.is_set():
                    done.ended = "interrupted"
                if done.ended or time.monotonic() - self.saved_at >= session.checkpoint_seconds:
                    self._save()

    def _without_yield(self, what: str) -> NothingRan:
        sentence = f"method {self.session.method.name!r}: its server program {what}. Yield the state after each round."
        return NothingRan(Code.METHOD_OWN, sentence)

    def _round(self) -> int:
        return int(getattr(self.state, "round", self.done.step))

    def _drained(self) -> tuple[list[TaskRecord], list[Event]]:
        """Take what happened since the last step, and add it to the totals."""
        session, done, round = self.session, self.done, self._round()
        tasks, events = session.fleet.log.drain()
        self.recorder.count(tasks, session.fleet.holders)
        share = max(limits.progress(session.experiment, self._used()), min(1.0, session.fleet.spent))
        if share > done.progress or not session.experiment.budget.limits:
            done.grew = round
        done.progress = session.fleet.progress = max(share, done.progress)
        return tasks, events

    def _used(self) -> limits.Used:
        return limits.Used.of(self.session.fleet.now, self._round(), self.recorder.totals)

    def _stops(self) -> str | None:
        stop, done = self.session.experiment.stop, self.done
        ended = limits.ended(self.session.experiment, self._used())
        if ended is not None:
            return ended
        if self._round() - done.grew >= limits.STUCK:
            return f"nothing that the budget counts grew in {limits.STUCK} rounds"
        target, metric = stop.target, self.session.model.task.headline
        if target is not None and done.sure is not None and metric.reached(done.sure, target):
            return f"mean {metric.words} {target:g} reached"
        if stop.patience is not None and done.since_best >= stop.patience:
            return f"no better mean {metric.words} for {stop.patience} evaluations"
        return None

    def _pauses(self) -> bool:
        used = limits.progress(self.session.experiment, self._used())
        return self.pause is not None and used >= self.pause - 1e-9  # shares are rounded

    def _due(self) -> bool:
        """Whether this step has an evaluation by run.evaluate_seconds, or else by run.evaluate_every."""
        run, done = self.session.experiment.run, self.done
        if run.evaluate_seconds:
            return self.session.fleet.now // run.evaluate_seconds != done.looked // run.evaluate_seconds
        return self._round() // run.evaluate_every != done.evaluated // run.evaluate_every

    def _evaluation(self, counts: bool, asked: bool) -> Evaluation | None:
        """Evaluate if it counts or was asked for; the evaluation of an interrupted run must not change its end."""
        session, done = self.session, self.done
        if not counts and not asked:
            return None
        done.evaluated, done.measured, done.looked = self._round(), done.step, session.fleet.now
        evaluation = session.evaluate(self.state)
        if evaluation is None:  # no client answered
            return None
        mean, (low, high) = float(evaluation.accuracy.mean()), evaluation.cautious
        done.accuracy, done.sure, done.backdoor = mean, low, evaluation.backdoor
        if not counts:
            return evaluation
        metric = evaluation.metric  # without the best or without the worst clients: no lie stops a run
        better = metric.gains(low, done.best_sure) or metric.gains(high, done.best)
        done.since_best = 0 if better else done.since_best + 1
        done.best, done.best_sure = metric.best(high, done.best), metric.best(low, done.best_sure)
        target = session.experiment.stop.target
        own = () if target is None else (target,)
        for aim in (*(TARGETS if metric.share else ()), *own):
            if metric.reached(mean, aim):
                done.reached.setdefault(f"{aim:g}", session.fleet.now)
        return evaluation

    def _first_evaluation(self) -> None:
        """Record how good the models are before any training: a curve begins at 0."""
        if self.done.step or self.recorder.rows("SELECT 1 FROM steps LIMIT 1"):
            return
        evaluation = self.session.evaluate(self.state)
        if evaluation is not None:
            step = StepRecord(0, 0, self.session.fleet.now, 0.0, 0, [], [])
            self.recorder.step(step, self._evaluation_record(evaluation))

    def _missing_evaluation(self) -> None:
        """The server program ended by itself: evaluate its last state, if that was not done."""
        if self.done.measured != self.done.step:
            evaluation = self._evaluation(counts=True, asked=True)
            if evaluation is not None:
                self.recorder.evaluation(self.done.step, self._evaluation_record(evaluation))
            self._save()

    def _write(self, tasks: list[TaskRecord], events: list[Event], evaluation: Evaluation | None) -> None:
        session, done = self.session, self.done
        events = events + [Event(session.fleet.now, *event) for event in session.method.events(self.state)]
        done.accepted += sum(task.outcome == "accepted" for task in tasks)
        done.refused += sum(task.outcome in ("refused", "repeat") for task in tasks)
        done.lost += sum(task.outcome == "lost" and not task.reason.startswith(UNFIT) for task in tasks)
        step = StepRecord(done.step, self._round(), session.fleet.now, done.wall, session.fleet.at_work, tasks, events)
        self.recorder.step(step, None if evaluation is None else self._evaluation_record(evaluation))
        for event in events:
            if event.kind == "does-not-fit":
                self.watcher.say(f"{event.client}: {event.detail}")
        for note in session.new_notes():
            self.watcher.say(note)
        self.watcher.step(
            Progress(
                step=done.step,
                round=self._round(),
                rounds=session.experiment.stop.rounds,
                virtual=session.fleet.now,
                wall=done.wall,
                accuracy=done.accuracy,
                at_work=session.fleet.at_work,
                clients=len(session.fleet.clients),
                refused=done.refused,
                lost=done.lost,
                unfit=len(session.fleet.unfit),
                answered=len({task.client for task in tasks if task.outcome == "accepted"}),
                seconds=session.experiment.stop.virtual_seconds,
                metric=session.model.task.headline,
                clock=session.clock,
                used=done.progress if session.experiment.budget.limits else None,
            )
        )

    def _evaluation_record(self, evaluation: Evaluation) -> EvaluationRecord:
        return EvaluationRecord(
            evaluation.figures,
            evaluation.rows(),
            evaluation.classes,
            self.session.method.clusters(self.state),
            {**self.session.method.record(self.state), **self.fleet.record()},
            evaluation.infers,
            evaluation.others_by_metric if told(self.session) else {},
        )

    def _save(self) -> None:
        if self.session.checkpoint_seconds == float("inf"):  # nobody will resume it
            return
        value = {"state": self.state, "fleet": self.session.fleet.snapshot(), "progress": dict(vars(self.done))}
        value["private"] = self.fleet.snapshot()
        rows = self.recorder.seal(self.done.step)  # first: a checkpoint without its rows could not be resumed
        value[checkpoint.MANIFEST] = manifest.manifest(self.session, self.done.step, rows)
        try:
            checkpoint.save(self.folder / "checkpoint", value)
        except TypeError:
            saveable.check(self.session.method, self.state)  # names the field
            raise
        self.saved_at = time.monotonic()

    def restore(self, saved: dict[str, Any] | None) -> None:
        """Take over what a checkpoint holds, and drop the rows that were written after it."""
        if saved is not None:
            self.state = saved["state"]
            self.session.fleet.restore(saved["fleet"])
            self.fleet.restore(saved.get("private", {}), self.state)
            self.done = DriveState(**saved["progress"])
            self.session.fleet.progress = self.done.progress
        self.recorder.rewind(self.done.step if saved is not None else -1, self.done.measured)
        if saved is None:
            self.recorder.clients(self.session.client_rows())
            self.recorder.task(told(self.session) or {})
            common_start.charge(self.session.experiment, self.session.model, self.session.weights, self.session.fleet)

    def _finish(self) -> None:
        paused = self.done.ended == PAUSED
        if not paused:
            self.session.save_models(self.folder, self.state)
            self.recorder.events(self.done.step, self.session.fleet.log.drain()[1])
        if self.done.refused and not self.done.accepted:
            self.watcher.say(f"No update was accepted: {self.done.refused} were refused. The events have the reasons.")
        goes_on = paused or self.done.ended == "interrupted"  # then it measures newcomers at its end
        new = None if goes_on else newcomers.measured(self.session, self.state)
        summary = summarise(self.session, self.recorder, self.done.step, vars(self.done), new)
        private = self.fleet.summary(self.session.method.clusters(self.state))
        files.write_json(self.folder / "summary.json", summary | private)
