"""Tasks of a finished run, with what each costs by count: the measured ones of a deployment, or predicted ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from potluck.calibrate.fit import Timed
from potluck.runs.record import read
from potluck.runs.results import Run


class Counts(NamedTuple):
    macs: float
    ops: float
    recorded: float
    moved: float
    memory: int
    fresh: float


def timed(run: Run, network: str, method: str, counts: Mapping[str, Counts] | None = None) -> list[Timed]:
    """The accepted tasks of a run in the order of arrival; `counts` replace what a real run cannot know."""
    rows = read(run.folder / "run.db", "SELECT * FROM tasks WHERE outcome = 'accepted' ORDER BY arrived, number")
    done: defaultdict[str, int] = defaultdict(int)
    found = []
    for row in sorted(rows, key=lambda row: row["number"]):
        client = row["client"]
        cost = Counts(*(row[name] for name in Counts._fields)) if counts is None else counts[client]
        found.append(
            Timed(
                network=network,
                method=method,
                client=client,
                order=done[client],
                macs=cost.macs,
                ops=cost.ops,
                recorded=cost.recorded,
                moved=cost.moved,
                memory=cost.memory,
                fresh=cost.fresh,
                bytes_down=row["bytes_down"],
                bytes_up=row["bytes_up"],
                worked=row["trained"] - row["started"],
                seconds=row["arrived"] - row["sent"],
                arrived=row["arrived"],
            )
        )
        done[client] += 1
    return sorted(found, key=lambda task: task.arrived)


def first_sent(run: Run) -> float:
    return float(read(run.folder / "run.db", "SELECT min(sent) AS t FROM tasks WHERE outcome = 'accepted'")[0]["t"])


def moved(run: Run) -> int:
    """The payloads of all accepted tasks, up and down, and of the notes that went along with them.

    A note goes with its client's first task that is sent after it was posted. One that goes with a task under way at
    the end is left out, as that task is: an engine that computes tasks in stacks may have read it already.
    """
    later = "SELECT outcome FROM tasks WHERE client = note.client AND outcome != 'post' AND sent >= note.sent"
    counted = f"outcome = 'accepted' OR outcome = 'post' AND ({later} ORDER BY sent LIMIT 1) = 'accepted'"
    what = f"SELECT sum(bytes_up + bytes_down) AS n FROM tasks AS note WHERE {counted}"
    return int(read(run.folder / "run.db", what)[0]["n"])


def counts_of(run: Run) -> dict[str, Counts]:
    """What a task of each client costs, from a simulated run; all tasks of a client cost the same."""
    rows = read(
        run.folder / "run.db", f"SELECT client, {', '.join(Counts._fields)} FROM tasks WHERE outcome = 'accepted'"
    )
    return {row["client"]: Counts(*(row[name] for name in Counts._fields)) for row in rows}
