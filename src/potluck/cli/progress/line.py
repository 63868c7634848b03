"""What a person sees while runs go on: a live line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as ProgressBar
from rich.text import Text

from potluck.cli.text import console, some
from potluck.units import plural, quantity

if TYPE_CHECKING:
    from potluck.runs.parallel import Facts
    from potluck.runs.results import Run
    from potluck.runs.session import Session
    from potluck.runs.watcher import Progress

EVERY = 5.0  # seconds between plain lines


class Turn:
    """One run as it is watched."""

    def __init__(self, top: Quiet, name: str, number: int) -> None:
        self.top = top
        self.name, self.number = name, number
        self.facts: Facts | None = None  # once it has begun
        self.progress: Progress | None = None  # the latest
        self.share = 0.0  # of it that is done

    def start(self, run: Run, session: Session) -> None:
        from potluck.runs.parallel import Facts

        self.start_from(Facts.of(run, session))

    def start_from(self, facts: Facts) -> None:
        self.facts = facts
        self.name = facts.folder.name
        self.top.begin(self, facts)

    def say(self, sentence: str) -> None:
        self.top.say(sentence)

    def show_activity(self, what: str) -> None:
        """What the server is at between two looks."""
        self.top.do(self, what)

    def step(self, progress: Progress) -> None:
        self.progress = progress
        self.share = self.share if progress.share is None else progress.share
        self.top.tell_unfit()
        self.top.show(self, progress, self.top.left(progress))

    def end(self, run: Run) -> None:
        self.close()

    def close(self) -> None:
        """It is at its end, or was before."""
        self.share = 1.0
        self.top.tell_unfit()


class Quiet:
    """Shows nothing, but remembers where the runs are and how long they will take. The others build on it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.of = 1
        self.methods: dict[str, str] = {}  # of the runs to come, by their names
        self.turns: dict[int, Turn] = {}
        self._now = Turn(self, "", 1)
        self._first: tuple[float, float] | None = None
        self._told: set[str] = set()
        self._unfit: dict[str, list[str]] = {}

    def expect(self, runs: Sequence[tuple[str, str]]) -> None:
        """The runs there will be, with their methods."""
        self.methods = dict(runs)

    def next_run(self, name: str, number: int, of: int) -> Turn:
        """Which of several runs comes next; with several at a time, all at once."""
        self.of = of
        self._now = self.turns[number] = Turn(self, name, number)
        self.open(self._now)
        return self._now

    @property
    def folder(self) -> Path | None:
        """Of the present run, once there is one."""
        return None if self._now.facts is None else self._now.facts.folder

    # For one run, or one after another, the watcher of all is the watcher of the present one.

    def start(self, run: Run, session: Session) -> None:
        self.turns.setdefault(self._now.number, self._now)
        self._now.start(run, session)

    def show_activity(self, what: str) -> None:
        self._now.show_activity(what)

    def step(self, progress: Progress) -> None:
        self._now.step(progress)

    def end(self, run: Run) -> None:
        self._now.end(run)

    def say(self, sentence: str) -> None:
        """Every sentence once, however many runs repeat it; clients that do not fit are gathered."""
        client, found, detail = sentence.partition(": does not fit: ")
        if found:
            self._unfit.setdefault(detail, []).append(client)
        elif sentence not in self._told:
            self._told.add(sentence)
            self.tell(f"note: {sentence}")

    def tell_unfit(self) -> None:
        for detail, clients in self._unfit.items():
            device = detail.partition(":")[0]
            if device not in self._told:  # another method needs a little more or less there: one sentence will do
                self._told.add(device)
                self.tell(f"note: {some(clients)} cannot take part in training: {detail}")
        self._unfit.clear()

    def left(self, progress: Progress) -> float | None:
        """Seconds until all runs are done, at the pace since this process began."""
        if progress.share is None:
            return None
        done = sum(turn.share for turn in self.turns.values()) / self.of
        now = self.clock()
        if self._first is None:
            self._first = (done, now)
        was, then = self._first
        return (1.0 - done) * (now - then) / (done - was) if done > was else None

    def open(self, turn: Turn) -> None: ...
    def begin(self, turn: Turn, facts: Facts) -> None: ...
    def tell(self, text: str) -> None: ...
    def do(self, turn: Turn, what: str) -> None: ...
    def show(self, turn: Turn, progress: Progress, left: float | None) -> None: ...
    def close(self) -> None: ...


class Plain(Quiet):
    """Lines for a log: one when a run begins, then one every few seconds."""

    def __init__(self, out: Console, clock: Callable[[], float] = time.monotonic, every: float = EVERY) -> None:
        super().__init__(clock)
        self._out = out
        self._every = every
        self._shown = clock()

    def begin(self, turn: Turn, facts: Facts) -> None:
        place = f"run {turn.number} of {self.of}, " if self.of > 1 else ""
        clients = plural(facts.clients, "client")
        self.tell(f"{place}{turn.name}: {facts.method}, {clients}, {facts.model}, in {facts.folder}")

    def show(self, turn: Turn, progress: Progress, left: float | None) -> None:
        if self.clock() - self._shown >= self._every:
            self._shown = self.clock()
            self.tell(f"{turn.name}: {figures(progress, left)}")

    def tell(self, text: str) -> None:
        self._out.print(Text(text), soft_wrap=True)


class Live(Quiet):
    """A line that is drawn over and over on a terminal."""

    def __init__(self, out: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        bar = [BarColumn(bar_width=20)] if out.width >= 110 else []  # where it is narrow, figures say more
        columns = [_words("{task.description}"), *bar, _words("{task.fields[figures]}")]
        self._progress = ProgressBar(*columns, console=out, transient=True, refresh_per_second=8)
        self._task = self._progress.add_task("getting ready", total=None, figures="")
        self._progress.start()

    def open(self, turn: Turn) -> None:
        self._progress.reset(self._task, description=self._label(turn), total=None, figures="getting ready")

    def begin(self, turn: Turn, facts: Facts) -> None:
        self._progress.reset(self._task, description=self._label(turn), total=None, figures="first round")

    def tell(self, text: str) -> None:
        self._progress.console.print(Text(text, style="dim"))

    def do(self, turn: Turn, what: str) -> None:
        self._progress.update(self._task, figures=what)

    def show(self, turn: Turn, progress: Progress, left: float | None) -> None:
        total = None if progress.share is None else 1.0
        self._progress.update(self._task, total=total, completed=progress.share or 0.0, figures=figures(progress, left))

    def _label(self, turn: Turn) -> str:
        return f"{turn.number}/{self.of} {turn.name}" if self.of > 1 else turn.name

    def close(self) -> None:
        self._progress.stop()


def _words(text: str) -> TextColumn:
    return TextColumn(text, markup=False)  # names of folders may have brackets


def figures(progress: Progress, left: float | None) -> str:
    """Where a run is, and how long it will take."""
    parts = [f"round {progress.round}" + ("" if progress.rounds is None else f" of {progress.rounds}")]
    if progress.accuracy is not None:
        parts.append(f"accuracy {progress.accuracy:.3f}")
    most = "" if progress.seconds is None else f" of {quantity(progress.seconds, 's')}"
    parts.append(f"{quantity(progress.virtual, 's')}{most} virtual")
    if left is not None:
        parts.append(f"{quantity(max(1, round(left)), 's')} left")
    if progress.at_work:
        parts.append(f"{progress.at_work} of {progress.clients} at work")
    troubles = ((progress.refused, "refused"), (progress.lost, "lost"), (progress.unfit, "too small to train"))
    parts += [f"{number} {word}" for number, word in troubles if number]
    return ", ".join(parts)


@contextmanager
def watching(quiet: bool, terminal: Callable[[Console], Quiet] = Live) -> Iterator[Quiet]:
    """The watcher for what standard error is; results go to standard output, so that a pipe gets nothing else."""
    out = console(stderr=True)
    watcher = Quiet() if quiet else terminal(out) if out.is_terminal else Plain(out)
    try:
        yield watcher
    finally:
        watcher.close()
