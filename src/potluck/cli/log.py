"""`potluck log`: the history of a run whose models have versions and branches, as a graph, oldest first."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potluck.cli import flags, text
from potluck.errors import BadInput, Code
from potluck.units import plural, quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TURNS = ("open", "split", "merge", "close")
KINDS = (*TURNS, "push", "move", "broadcast", "stale", "forget")


def log(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run")],
    pushes: Annotated[
        bool, typer.Option("--pushes", help="every push, broadcast and conflict on a line of its own")
    ] = False,
    as_json: flags.Json = False,
) -> None:
    """Show the branches of a run: where models split and merged, and what was pushed to them in between.

    Time goes down, one column is one branch (a cluster of clients and its model).
    """
    events = read(folder)
    if as_json:
        text.as_json(events)
        return
    if not events:
        text.line(f"{folder}: no branches; methods that keep versions write them (echopfl).")
        return
    for row in graph(events, pushes):
        text.line(row)


def read(folder: Path) -> list[dict[str, Any]]:
    """What happened to the branches, in order, details and all."""
    from potluck.runs.record import read as rows

    if not (folder / "run.db").is_file():
        raise BadInput(Code.RUN_ABSENT, f"log: {str(folder)!r} holds no run; `potluck runs` lists them.")
    marks = ",".join("?" * len(KINDS))
    found = rows(folder / "run.db", f"SELECT * FROM events WHERE kind IN ({marks}) ORDER BY rowid", *KINDS)
    return [
        {"virtual": row["virtual"], "kind": row["kind"], "client": row["client"], **json.loads(row["detail"] or "{}")}
        for row in found
    ]


@dataclass
class _Stretch:
    """What happened on one branch since its last turn."""

    pushes: int = 0
    broadcasts: int = 0
    clients: set[str] = field(default_factory=set)
    stale: list[int] = field(default_factory=list)
    version: int = 0

    def __str__(self) -> str:
        told = f", {plural(self.broadcasts, 'broadcast')}" if self.broadcasts else ""
        mean = sum(self.stale) / max(1, len(self.stale))
        age = f", staleness {mean:.1f} (most {max(self.stale)})" if self.stale else ""
        who = plural(len(self.clients), "client")
        pushed = "1 push" if self.pushes == 1 else f"{self.pushes:,} pushes"
        return f"to version {self.version}: {pushed} by {who}{told}{age}"


def graph(events: Sequence[dict[str, Any]], pushes: bool = False) -> Iterable[str]:
    """The history line by line: box-drawing lanes on the left, what happened on the right."""
    lanes: list[int] = []
    since: dict[int, _Stretch] = {}
    wide = len({event["branch"] for event in events if event["kind"] in ("open", "split")})
    for event in events:
        kind, branch = event["kind"], event.get("branch", -1)
        if kind in TURNS:
            touched = [number for number in (branch, event.get("parent"), event.get("merged")) if number in since]
            for number in touched:
                if since[number].pushes and not pushes:
                    yield _row(_beside(lanes, number), wide, f"branch {number} {since[number]}")
                since[number] = _Stretch()
            drawn = _turn(lanes, event)
            since.setdefault(branch, _Stretch())
            yield _row(drawn, wide, f"{_moment(event)}  {_words(event)}")
        elif branch in since:
            _count(since[branch], event)
            if pushes and kind in ("push", "broadcast", "move"):
                yield _row(_beside(lanes, branch), wide, f"{_moment(event)}  {_words(event)}")
        elif pushes:  # of a client, and no branch's
            yield _row(_beside(lanes, -1), wide, f"{_moment(event)}  {_words(event)}")
    for number in lanes:
        if since[number].pushes and not pushes:
            yield _row(_beside(lanes, number), wide, f"branch {number} {since[number]}")


def _count(stretch: _Stretch, event: dict[str, Any]) -> None:
    if event["kind"] == "broadcast":
        stretch.broadcasts += 1
    elif event["kind"] == "push":
        stretch.pushes += 1
        stretch.clients.add(event["client"])
        stretch.stale.append(event["staleness"])
        stretch.version = event["version"]


def _turn(lanes: list[int], event: dict[str, Any]) -> str:
    """The lanes with this event drawn into them; they are changed to what they are after it."""
    kind, branch = event["kind"], event["branch"]
    if kind == "open":
        lanes.append(branch)
        return " ".join("●" if lane == branch else "│" for lane in lanes)
    if kind == "close":
        drawn = " ".join("╵" if lane == branch else "│" for lane in lanes)
        if branch in lanes:
            lanes.remove(branch)
        return drawn
    if kind == "split":
        lanes.append(branch)
        return _joined(lanes, event["parent"], branch, "┐", "┌")
    drawn = _joined(lanes, branch, event["merged"], "┘", "└")
    lanes.remove(event["merged"])
    return drawn


def _joined(lanes: Sequence[int], stem: int, other: int, right: str, left: str) -> str:
    """A line between two lanes: the stem goes on, the other one begins or ends."""
    a, b = lanes.index(stem), lanes.index(other)
    low, high = min(a, b), max(a, b)
    drawn = ""
    for i, lane in enumerate(lanes):
        inside = low <= i <= high
        if lane == stem:
            drawn += "├" if a < b else "┤"
        elif lane == other:
            drawn += right if a < b else left
        else:
            drawn += "┼" if inside else "│"
        drawn += "─" if low <= i < high else " "
    return drawn.rstrip()


def _beside(lanes: Sequence[int], branch: int) -> str:
    return " ".join("•" if lane == branch else "│" for lane in lanes)


def _row(drawn: str, wide: int, text: str) -> str:
    return f"{drawn:<{2 * min(wide, 12)}} {text}"


def _moment(event: dict[str, Any]) -> str:
    return quantity(event["virtual"], "s")


def _words(event: dict[str, Any]) -> str:
    branch, version = event.get("branch"), event.get("version")
    match event["kind"]:
        case "open":
            return f"branch {branch} opened by {event['client']}"
        case "split":
            return f"branch {branch} split off branch {event['parent']} with {plural(event['members'], 'client')}"
        case "merge":
            return f"branch {event['merged']} merged into branch {branch}, version {version}"
        case "close":
            return f"branch {branch} closed: nobody was left in it"
        case "push":
            return (
                f"{event['client']} pushed version {version} of branch {branch} "
                f"from version {event['base']} (staleness {event['staleness']})"
            )
        case "broadcast":
            return f"version {version} of branch {branch} told to its {plural(event['members'], 'member')}"
        case "stale":
            return f"{event['client']}'s update was overtaken by a later one of its own, and not merged"
        case "forget":
            return f"{event['client']} forgotten: its model no longer counts"
        case _:
            return f"{event['client']} moved from branch {event['came_from']} to branch {branch}"
