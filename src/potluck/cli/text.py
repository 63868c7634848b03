"""Text for a terminal, a pipe or a log: lines, tables, JSON, and the result of a run."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from potluck.metrics import METRICS, Metric, headline
from potluck.runs.beside import in_words
from potluck.units import plural, quantity

if TYPE_CHECKING:
    from potluck.runs.results import Run

ONE_TABLE = 140  # columns from which a comparison fits side by side
SCORED = {
    "received": "the model it would receive",
    "start": "the untrained start",
    "personal": "what its method makes of the start",
}
CAUSES = ("training", "radio", "idle", "sleep")  # of energy, as the summary has them
WIDE = 160  # columns for a pipe or a file, which have no width


def console(stderr: bool = False) -> Console:
    """A new console each time, so that it writes to the current standard output."""
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = WIDE
    return made


def show(what: Any) -> None:
    console().print(what)


def line(text: str) -> None:
    """Print one line without wrapping it: a path that is broken in two cannot be copied."""
    console().print(Text(text), soft_wrap=True)


def doing(text: str) -> None:
    """Say on standard error what long work is doing now; only on a terminal."""
    there = console(stderr=True)
    if there.is_terminal:
        there.print(Text(text, style="dim"), soft_wrap=True)


def itself() -> str:
    """This program as it was called, so that a printed command also works where no environment is active."""
    called = Path(sys.argv[0])
    off_path = called.name == "potluck" and called.exists() and shutil.which("potluck") != str(called)
    return shlex.quote(str(called)) if off_path else "potluck"


def as_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def sheet(*columns: str) -> Table:
    """A table; a column whose name begins with > is aligned to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    return table


def some(names: Sequence[str], most: int = 3) -> str:
    """The first few names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _inference(s: Mapping[str, Any]) -> list[str]:
    """Both means, and what clients could infer with; nothing for a run of an older version."""
    metric = headline(s)
    infers, trained, without = s.get("infers_with"), s.get(f"{metric.name}_trained"), s.get("untrained_clients", {})
    if not infers or not trained:
        return []
    known = {kind: infers[kind]["mean"] for kind in ("received", "own") if infers[kind] is not None}
    parts = [
        f"{kind} {metric.plain(mean)}" + (f" (the {metric.words} above)" if kind == infers["headline"] else "")
        for kind, mean in known.items()
    ]
    lines = [f"with the model a client would receive or its own: {', '.join(parts)}"] if len(known) > 1 else []
    if without:
        scored = " or ".join(SCORED[kind] for kind in sorted(set(without.values())))
        mean = (
            ""
            if trained["mean"] is None
            else f"clients that trained {metric.plain(trained['mean'])} ({trained['clients']}); "
        )
        lines.append(f"{mean}{plural(len(without), 'client')} never trained, each scored with {scored}")
    return lines


def _newcomers(s: Mapping[str, Any]) -> list[str]:
    """What clients get that took no part in training; nothing for a run without newcomers."""
    found = s.get("newcomers")
    if not found:
        return []
    rows = {count: one["mean"] for count, one in found["rows"].items()}
    each = ", ".join(
        f"{headline(s).plain(mean)} with {'no' if count == '0' else count}" for count, mean in rows.items()
    )
    clients = plural(found["clients"], "newcomer")
    return [f"{clients}, which took no part in training: {each} labelled rows of each class"]


def _others(s: Mapping[str, Any], metric: Metric) -> str:
    """The means of the task's other metrics."""
    if "task" not in s:
        return ""
    found = [one for one in METRICS.values() if one != metric and isinstance(s.get(one.name), dict)]
    return "".join(
        f"; {one.words} {one.plain(s[one.name]['mean'])}" for one in found if s[one.name]["mean"] is not None
    )


def _beside(s: Mapping[str, Any]) -> str:
    """What the method wants beside its score."""
    return f"; {in_words(s['beside'])}" if s.get("beside") else ""


def _duration(s: Mapping[str, Any]) -> str:
    if s.get("clock") == "wall":
        return f"{quantity(s['virtual_seconds'], 's')} of wall time"
    return f"{quantity(s['virtual_seconds'], 's')} of virtual time, {quantity(s['wall_seconds'], 's')} on this machine"


def _energy(s: Mapping[str, Any]) -> str:
    """All that the devices drew, by cause."""
    if s["energy_joules"] is None:
        return "energy not known"
    found = s.get("energy")
    if found is None:
        idle = s.get("idle_joules")
        waiting = "" if idle is None else f" for work and {quantity(idle, 'J')} while waiting awake"
        return f"{quantity(s['energy_joules'], 'J')}{waiting}"
    parts = ", ".join(f"{cause} {quantity(found[cause], 'J')}" for cause in CAUSES if found[cause])
    return f"{quantity(found['total'], 'J')} in all ({parts})"


def result(run: Run) -> str:
    """The result of a run in a few lines."""
    s = run.summary
    metric, unfit = headline(s), s["unfit_clients"]
    found = s[metric.name]
    shown = {name: None if value is None else metric.plain(value) for name, value in found.items()}
    std = metric.spread(found["std"])
    shared = "" if shown["global"] is None else f"; shared model on the pooled test rows {shown['global']}"
    lines = [
        f"{s['method']} on {s['data']}: {metric.words} {shown['mean']} ± {std} "
        f"over {plural(len(s['per_client']), 'client')}, worst tenth {shown['worst_tenth']}{shared}"
        f"{_others(s, metric)}{_beside(s)}",
        *_inference(s),
        *_newcomers(s),
        f"{s['ended']} in {_duration(s)}; {quantity(s['bytes']['up'], 'B')} up, "
        f"{quantity(s['bytes']['down'], 'B')} down, {_energy(s)}",
    ]
    troubles = [f"{plural(s['refused_updates'], 'update')} refused"] if s["refused_updates"] else []
    troubles += [f"{plural(s['lost_clients'], 'task')} lost"] if s["lost_clients"] else []
    if unfit:
        troubles.append(
            f"{len(unfit)} of {plural(s['clients'], 'client')} had too little memory to train ({some(unfit)})"
        )
    return "\n".join([*lines, "; ".join(troubles)] if troubles else lines)


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation of the values that are known."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "-"
    return f"{statistics.mean(known):.3f} ± {statistics.stdev(known) if len(known) > 1 else 0.0:.3f}"
