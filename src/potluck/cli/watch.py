"""What a person sees while runs go on: a live line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from potluck.cli.say import console, count, quantity, some

if TYPE_CHECKING:
    from potluck.runs.drive import Look
    from potluck.runs.results import Run
    from potluck.runs.stage import Stage

EVERY = 5.0  # seconds between plain lines


class Quiet:
    """Shows nothing, but remembers where the runs are and how long they will take. The others build on it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder: Path | None = None  # of the present run, once there is one
        self.clock = clock
        self.name, self.number, self.of = "", 1, 1
        self._first: tuple[float, float] | None = None
        self._told: set[str] = set()
        self._unfit: dict[str, list[str]] = {}

    def turn(self, name: str, number: int, of: int) -> None:
        """Which of several runs comes next."""
        self.name, self.number, self.of = name, number, of

    def began(self, run: Run, parts: Stage) -> None:
        self.folder = run.folder
        self.name = run.name
        self.begin(run, parts)

    def said(self, sentence: str) -> None:
        """Every sentence once, however many runs repeat it; clients that do not fit are gathered."""
        client, found, detail = sentence.partition(": does not fit: ")
        if found:
            self._unfit.setdefault(detail, []).append(client)
        elif sentence not in self._told:
            self._told.add(sentence)
            self.tell(f"note: {sentence}")

    def doing(self, what: str) -> None:
        """What the server is at between two looks."""

    def looked(self, look: Look) -> None:
        self._tell_unfit()
        self.show(look, self._left(look))

    def ended(self, run: Run) -> None:
        self._tell_unfit()

    def _tell_unfit(self) -> None:
        for detail, clients in self._unfit.items():
            device = detail.partition(":")[0]
            if device not in self._told:  # another method needs a little more or less there: one sentence will do
                self._told.add(device)
                self.tell(f"note: {some(clients)} cannot take part in training: {detail}")
        self._unfit.clear()

    def _left(self, look: Look) -> float | None:
        """Seconds until all runs are done, at the pace since this process began."""
        if look.rounds is None:
            return None
        done = (self.number - 1 + min(1.0, look.round / look.rounds)) / self.of
        now = self.clock()
        if self._first is None:
            self._first = (done, now)
        was, then = self._first
        return (1.0 - done) * (now - then) / (done - was) if done > was else None

    def begin(self, run: Run, parts: Stage) -> None: ...
    def tell(self, text: str) -> None: ...
    def show(self, look: Look, left: float | None) -> None: ...
    def close(self) -> None: ...


class Plain(Quiet):
    """Lines for a log: one when a run begins, then one every few seconds."""

    def __init__(self, out: Console, clock: Callable[[], float] = time.monotonic, every: float = EVERY) -> None:
        super().__init__(clock)
        self._out = out
        self._every = every
        self._shown = clock()

    def begin(self, run: Run, parts: Stage) -> None:
        place = f"run {self.number} of {self.of}, " if self.of > 1 else ""
        clients = count(len(parts.fleet.clients), "client")
        self.tell(f"{place}{run.name}: {parts.method.name}, {clients}, {parts.model.name}, in {run.folder}")

    def show(self, look: Look, left: float | None) -> None:
        if self.clock() - self._shown >= self._every:
            self._shown = self.clock()
            self.tell(f"{self.name}: {figures(look, left)}")

    def tell(self, text: str) -> None:
        self._out.print(Text(text), soft_wrap=True)


class Live(Quiet):
    """A line that is drawn over and over on a terminal."""

    def __init__(self, out: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        bar = [BarColumn(bar_width=20)] if out.width >= 110 else []  # where it is narrow, figures say more
        columns = [_words("{task.description}"), *bar, _words("{task.fields[figures]}")]
        self._progress = Progress(*columns, console=out, transient=True, refresh_per_second=8)
        self._task = self._progress.add_task("getting ready", total=None, figures="")
        self._progress.start()

    def turn(self, name: str, number: int, of: int) -> None:
        super().turn(name, number, of)
        self._progress.reset(self._task, description=self._label(name), total=None, figures="getting ready")

    def begin(self, run: Run, parts: Stage) -> None:
        rounds = parts.experiment.stop.rounds
        self._progress.reset(self._task, description=self._label(run.name), total=rounds, figures="first round")

    def tell(self, text: str) -> None:
        self._progress.console.print(Text(text, style="dim"))

    def doing(self, what: str) -> None:
        self._progress.update(self._task, figures=what)

    def show(self, look: Look, left: float | None) -> None:
        self._progress.update(self._task, completed=look.round, figures=figures(look, left))

    def _label(self, name: str) -> str:
        return f"{self.number}/{self.of} {name}" if self.of > 1 else name

    def close(self) -> None:
        self._progress.stop()


def _words(text: str) -> TextColumn:
    return TextColumn(text, markup=False)  # names of folders may have brackets


def figures(look: Look, left: float | None) -> str:
    """Where a run is, and how long it will take."""
    parts = [f"round {look.round}" + ("" if look.rounds is None else f" of {look.rounds}")]
    if look.accuracy is not None:
        parts.append(f"accuracy {look.accuracy:.3f}")
    parts.append(f"{quantity(look.virtual, 's')} virtual")
    if left is not None:
        parts.append(f"{quantity(max(1, round(left)), 's')} left")
    if look.at_work:
        parts.append(f"{look.at_work} of {look.clients} at work")
    parts += [f"{number} {word}" for number, word in ((look.refused, "refused"), (look.lost, "lost")) if number]
    return ", ".join(parts)


@contextmanager
def watching(quiet: bool) -> Iterator[Quiet]:
    """The watcher for what standard error is; results go to standard output, so that a pipe gets nothing else."""
    out = console(stderr=True)
    watcher = Quiet() if quiet else Live(out) if out.is_terminal else Plain(out)
    try:
        yield watcher
    finally:
        watcher.close()
