"""Carry out several runs of a comparison in parallel, each in its own process, and pass their reports on to this one.

Runs are independent, so their results have the same bits. Two runs on two cores end sooner than one after another on
two threads, because most steps of a small model are too short to be divided.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Protocol

from potluck.runs.interrupt import interruptible
from potluck.runs.results import Run
from potluck.runs.session import Session
from potluck.runs.watcher import Progress, Watcher

PATIENCE = 1.0  # seconds between checks whether the processes are alive


@dataclass(frozen=True)
class Facts:
    """What another process needs to know of a run that starts."""

    folder: Path
    method: str
    model: str
    clients: int

    @classmethod
    def of(cls, run: Run, session: Session) -> Facts:
        return cls(run.folder, session.method.name, session.model.name, len(session.fleet.clients))


class RunWatcher(Watcher, Protocol):
    """Watches one run, which may be carried out by another process."""

    def start_from(self, facts: Facts) -> None: ...
    def close(self) -> None: ...


class Job(Protocol):
    """A run to carry out in another process."""

    def __call__(self, watcher: Watcher) -> Run: ...


class Failed(RuntimeError):
    """A process that carried out runs ended without a result."""


def carry_out(jobs: Sequence[Job], watchers: Sequence[RunWatcher], at_a_time: int) -> list[Run | None]:
    """Carry out the jobs; return their runs in order, None for those not started because the user asked to stop."""
    context = multiprocessing.get_context("spawn")  # a fork would copy PyTorch's threads in an undefined state
    todo: Queue[Any] = context.Queue()
    news: Queue[Any] = context.Queue()
    stop = context.Event()
    for pair in enumerate(jobs):
        todo.put(pair)
    count = min(at_a_time, len(jobs))
    for _ in range(count):
        todo.put(None)
    workers: list[BaseProcess] = [
        context.Process(target=_work, args=(todo, news, stop), daemon=True) for _ in range(count)
    ]
    try:
        for worker in workers:
            worker.start()
        return _followed(workers, news, stop, jobs, watchers)
    finally:
        stop.set()
        for worker in workers:
            worker.terminate()
            worker.join()
        for pipe in (todo, news):
            pipe.cancel_join_thread()


def _followed(
    workers: Sequence[BaseProcess], news: Queue[Any], stop: Event, jobs: Sequence[Job], watchers: Sequence[RunWatcher]
) -> list[Run | None]:
    """Pass on what the workers report until the last one ends; the first Ctrl-C asks them to stop."""
    done: list[Run | None] = [None] * len(jobs)
    left = len(workers)
    with interruptible(watchers[0].say) as asked_to_stop:
        while left:
            if asked_to_stop.is_set():
                stop.set()
            match _next(news, workers):
                case ("bye",):
                    left -= 1
                case ("done", int(number), folder):
                    done[number] = Run(folder)
                    watchers[number].close()
                case ("failed", BaseException() as error):
                    raise error
                case (str(what), int(number), given):
                    getattr(watchers[number], what)(given)
    return done


def _next(news: Queue[Any], workers: Sequence[BaseProcess]) -> Any:
    """Return the next message, or None after a while without one."""
    try:
        return news.get(timeout=PATIENCE)
    except queue.Empty:
        gone = [worker.exitcode for worker in workers if worker.exitcode]
        if gone:
            raise Failed(f"a process that carried out runs ended with status {gone[0]}") from None
        return None


def _work(todo: Queue[Any], news: Queue[Any], stop: Event) -> None:
    """Do one job after another, until there are no more or the user asks to stop."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if hasattr(os, "setpgrp"):  # not on Windows
        os.setpgrp()  # only the parent receives the terminal's Ctrl-C; it passes the wish on
    while (pair := todo.get()) is not None and not stop.is_set():
        number, job = pair
        try:
            run = job(_Reporter(number, news, stop))
        except Exception as error:
            news.put(("failed", error))
            return
        news.put(("done", number, run.folder))
    news.put(("bye",))
    news.close()
    news.join_thread()


def _end_with_parent() -> None:
    """End this process when its parent is gone, as after a kill: the run can be resumed, as after any kill.

    Waiting for a job would not tell: this process holds both ends of that queue itself.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _Reporter:
    """Sends what a run reports to the parent process, and the wish to stop to the run."""

    def __init__(self, number: int, news: Queue[Any], stop: Event) -> None:
        self._number = number
        self._news = news
        self._stop = stop
        self._asked = False

    def _send(self, what: str, given: Any) -> None:
        self._news.put((what, self._number, given))

    def start(self, run: Run, session: Session) -> None:
        self._send("start_from", Facts.of(run, session))

    def step(self, progress: Progress) -> None:
        self._send("step", progress)
        if not self._asked and self._stop.is_set():
            self._asked = True
            signal.raise_signal(signal.SIGINT)  # like Ctrl-C: the run stops after this round and can be resumed

    def say(self, sentence: str) -> None:
        self._send("say", sentence)

    def show_activity(self, what: str) -> None:
        self._send("show_activity", what)

    def end(self, run: Run) -> None: ...
