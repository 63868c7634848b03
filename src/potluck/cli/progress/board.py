"""Progress of a comparison on a terminal: a table with a row per method, redrawn as the runs go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live as Redrawn
from rich.table import Table
from rich.text import Text

from potluck.cli.progress.line import Quiet, Turn
from potluck.cli.text import sheet
from potluck.metrics import ACCURACY
from potluck.units import quantity

if TYPE_CHECKING:
    from potluck.runs.watcher import Progress

NOTHING = "–"
CLIENTS = ("busy", "idle", "lost", "too\nsmall")  # how many
COLUMNS = ("runs", "round", "accuracy", *CLIENTS, "virtual\ntime", "virtual\nleft")


class Board(Quiet):
    """A row per method: accuracy so far, how many clients are busy, idle, lost or too small to train, time left."""

    def __init__(self, out: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._left: float | None = None
        self._begun = clock()
        self._what: dict[int, str] = {}  # what the server of a run is doing
        self._shown = Redrawn(console=out, transient=True, refresh_per_second=4, get_renderable=self.drawn)
        self._shown.start()

    def tell(self, text: str) -> None:
        self._shown.console.print(Text(text, style="dim"))

    def do(self, turn: Turn, what: str) -> None:
        self._what[turn.number] = what

    def show(self, turn: Turn, progress: Progress, left: float | None) -> None:
        self._left = left
        self._what.pop(turn.number, None)

    def close(self) -> None:
        self._shown.stop()

    def drawn(self) -> Group:
        """The current table, and a line below it."""
        clocks = {turn.progress.clock for turn in self.turns.values() if turn.progress is not None}
        columns = COLUMNS if clocks != {"wall"} else [name.replace("virtual", "wall") for name in COLUMNS]
        words = {turn.progress.metric.words for turn in self.turns.values() if turn.progress is not None}
        columns = [next(iter(words)) if name == "accuracy" and words else name for name in columns]
        table = sheet("method", *(f">{name}" for name in columns))  # fits into 80 characters, names of methods included
        turns = list(self.turns.values())
        for method in dict.fromkeys(self.methods.values()):
            _add(table, method, [turn for turn in turns if self.methods.get(turn.name) == method])
        return Group(table, Text(self._below(turns), style="dim", no_wrap=True, overflow="ellipsis"))

    def _below(self, turns: list[Turn]) -> str:
        done = sum(turn.share >= 1.0 for turn in turns)
        passed = quantity(round(self.clock() - self._begun), "s")
        left = "" if self._left is None else f", about {quantity(max(1, round(self._left)), 's')} left"
        busy = [f"{turn.name}: {self._what[turn.number]}" for turn in turns if turn.number in self._what]
        text = f"{done} of {len(self.methods)} runs done, {passed} on this machine{left}" if turns else "preparing"
        return "; ".join([text, *busy])


def _add(table: Table, method: str, turns: list[Turn]) -> None:
    """The row of a method: its finished runs, and how far the current one is."""
    done = [turn for turn in turns if turn.share >= 1.0]
    begun = [turn for turn in turns if turn.progress is not None]
    at_work = [turn for turn in begun if turn.share < 1.0]
    found = [
        turn.progress.accuracy for turn in begun if turn.progress is not None and turn.progress.accuracy is not None
    ]
    metric = next((turn.progress.metric for turn in begun if turn.progress is not None), ACCURACY)
    accuracy = metric.plain(sum(found) / len(found)) if found else NOTHING
    progress = next((turn.progress for turn in reversed(at_work or begun)), None)
    cells = [NOTHING] * 7 if progress is None else _cells(progress, bool(at_work))
    style = "bold" if at_work else "" if done else "dim"
    runs = f"{len(done)}/{max(1, len(turns))}"
    table.add_row(*(Text(cell, style=style) for cell in (method, runs, cells[0], accuracy, *cells[1:])))


def _cells(progress: Progress, at_work: bool) -> list[str]:
    """Round; clients that are busy, idle, lost, too small to train; virtual time, and how much of it is left."""
    round = f"{progress.round}" + ("" if progress.rounds is None else f"/{progress.rounds}")
    idle = max(0, progress.clients - progress.working - progress.unfit)
    working, waiting = (str(progress.working), str(idle)) if at_work else (NOTHING, NOTHING)
    left = NOTHING
    if at_work and progress.share:
        left = quantity(progress.virtual * (1.0 - progress.share) / progress.share, "s")
    return [round, working, waiting, str(progress.lost), str(progress.unfit), quantity(progress.virtual, "s"), left]
