"""Progress of runs: one live line on a terminal, a plain line every few seconds in a log."""

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
LONG = 30.0  # seconds after which a log also shows how far a round is


class Turn:
    """One run of those that are watched."""

    def __init__(self, top: Quiet, name: str, number: int) -> None:
        self.top = top
        self.name, self.number = name, number
        self.facts: Facts | None = None  # once it has started
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
        """Show what the server is doing between two steps."""
        self.top.do(self, what)

    def step(self, progress: Progress) -> None:
        self.progress = progress
        self.share = self.share if progress.share is None else progress.share
        self.top.tell_unfit()
        self.top.show(self, progress, self.top.left(progress))

    def end(self, run: Run) -> None:
        self.close()

    def close(self) -> None:
        """The run has ended, now or in an earlier session."""
        self.share = 1.0
        self.top.tell_unfit()


class Quiet:
    """Shows nothing, but knows how far the runs are and how long they will take; the other watchers build on it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.of = 1
        self.methods: dict[str, str] = {}  # the method of each planned run, by the name of the run
        self.turns: dict[int, Turn] = {}
        self._now = Turn(self, "", 1)
        self._first: tuple[float, float] | None = None
        self._told: set[str] = set()
        self._unfit: dict[str, list[str]] = {}

    def expect(self, runs: Sequence[tuple[str, str]]) -> None:
        """The planned runs and their methods; what was watched before is over."""
        self.methods = dict(runs)
        self.turns.clear()
        self._first = None

    def next_run(self, name: str, number: int, of: int) -> Turn:
        """Open the next of several runs; if runs go on in parallel, each is opened at the start."""
        self.of = of
        self._now = self.turns[number] = Turn(self, name, number)
        self.open(self._now)
        return self._now

    @property
    def folder(self) -> Path | None:
        """The folder of the current run, once there is one."""
        return None if self._now.facts is None else self._now.facts.folder

    # Runs that follow one another report to this object; it passes everything on to the current one.

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
        """Print each note once, however many runs repeat it; collect the clients that are unfit."""
        client, found, detail = sentence.partition(": does not fit: ")
        if found:
            self._unfit.setdefault(detail, []).append(client)
        elif sentence not in self._told:
            self._told.add(sentence)
            self.tell(f"note: {sentence}")

    def tell_unfit(self) -> None:
        for detail, clients in self._unfit.items():
            device = detail.partition(":")[0]
            if device not in self._told:  # methods differ a little in what they need: one note per device is enough
                self._told.add(device)
                self.tell(f"note: {some(clients)} cannot train: {detail}")
        self._unfit.clear()

    def left(self, progress: Progress) -> float | None:
        """Estimate the seconds until all runs are done, at the pace since this process started."""
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
    """Lines for a log: one when a run starts, then one every few seconds."""

    def __init__(self, out: Console, clock: Callable[[], float] = time.monotonic, every: float = EVERY) -> None:
        super().__init__(clock)
        self._out = out
        self._every = every
        self._shown = clock()

    def begin(self, turn: Turn, facts: Facts) -> None:
        which = f"run {turn.number} of {self.of}, " if self.of > 1 else ""
        clients = plural(facts.clients, "client")
        self.tell(f"{which}{turn.name}: {facts.method}, {clients}, {facts.model}, in {facts.folder}")

    def show(self, turn: Turn, progress: Progress, left: float | None) -> None:
        if self.clock() - self._shown >= self._every:
            self._shown = self.clock()
            self.tell(f"{turn.name}: {figures(progress, left)}")

    def do(self, turn: Turn, what: str) -> None:
        if self.clock() - self._shown >= LONG:
            self._shown = self.clock()
            self.tell(f"{turn.name}: {what}")

    def tell(self, text: str) -> None:
        self._out.print(Text(text), soft_wrap=True)


class Live(Quiet):
    """One line on a terminal that is redrawn as the run goes on."""

    def __init__(self, out: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        bar = [BarColumn(bar_width=20)] if out.width >= 110 else []  # on a narrow terminal the figures need the room
        columns = [_words("{task.description}"), *bar, _words("{task.fields[figures]}")]
        self._progress = ProgressBar(*columns, console=out, transient=True, refresh_per_second=8)
        self._task = self._progress.add_task("preparing", total=None, figures="")
        self._progress.start()

    def open(self, turn: Turn) -> None:
        self._progress.reset(self._task, description=self._label(turn), total=None, figures="preparing")

    def begin(self, turn: Turn, facts: Facts) -> None:
        self._progress.reset(self._task, description=self._label(turn), total=None, figures="first round")

    def tell(self, text: str) -> None:
        self._progress.console.print(Text(text, style="dim"))

    def do(self, turn: Turn, what: str) -> None:
        done = turn.progress
        where = "" if done is None or not what.startswith("training") else f"round {done.round + 1}, "
        self._progress.update(self._task, figures=f"{where}{what}")

    def show(self, turn: Turn, progress: Progress, left: float | None) -> None:
        total = None if progress.share is None else 1.0
        self._progress.update(self._task, total=total, completed=progress.share or 0.0, figures=figures(progress, left))

    def _label(self, turn: Turn) -> str:
        return f"{turn.number}/{self.of} {turn.name}" if self.of > 1 else turn.name

    def close(self) -> None:
        self._progress.stop()


def _words(text: str) -> TextColumn:
    return TextColumn(text, markup=False)  # names of folders may contain brackets


def figures(progress: Progress, left: float | None) -> str:
    """How far a run is, and how long it will take."""
    parts = [f"round {progress.round}" + ("" if progress.rounds is None else f" of {progress.rounds}")]
    if progress.accuracy is not None:
        parts.append(f"{progress.metric.words} {progress.metric.plain(progress.accuracy)}")
    most = "" if progress.seconds is None else f" of {quantity(progress.seconds, 's')}"
    parts.append(f"{quantity(progress.virtual, 's')}{most} {progress.clock}")
    if left is not None:
        parts.append(f"{quantity(max(1, round(left)), 's')} left")
    if progress.at_work:
        parts.append(f"{progress.at_work} of {progress.clients} at work")
    troubles = ((progress.refused, "refused"), (progress.lost, "lost"), (progress.unfit, "too small to train"))
    parts += [f"{number} {word}" for number, word in troubles if number]
    return ", ".join(parts)


@contextmanager
def watching(quiet: bool, terminal: Callable[[Console], Quiet] = Live) -> Iterator[Quiet]:
    """The watcher that suits standard error: a terminal or a log. Standard output is for results only."""
    out = console(stderr=True)
    watcher = Quiet() if quiet else terminal(out) if out.is_terminal else Plain(out)
    try:
        yield watcher
    finally:
        watcher.close()
