"""`potluck log`: the history of a run's clusters as a graph, oldest first: how they split, merged and were updated."""

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
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run of echopfl")],
    pushes: Annotated[
        bool, typer.Option("--pushes", help="show every push, broadcast and move on its own line")
    ] = False,
    as_json: flags.Json = False,
) -> None:
    """Show the history of the clusters of an EchoPFL run: where they split and merged, and the updates in between.

    Other methods do not record one. Time goes down. Each column is one cluster of clients with its own model.
    """
    events = read(folder)
    if as_json:
        text.as_json(events)
        return
    if not events:
        text.line(f"{folder}: no history of clusters; only echopfl records one.")
        return
    for row in graph(events, pushes):
        text.line(row)


def read(folder: Path) -> list[dict[str, Any]]:
    """The events of the clusters in order, with their details."""
    from potluck.runs.record import read as rows

    if not (folder / "run.db").is_file():
        raise BadInput(Code.RUN_ABSENT, f"log: {str(folder)!r} is not a run; `potluck runs` lists the runs.")
    marks = ",".join("?" * len(KINDS))
    found = rows(folder / "run.db", f"SELECT * FROM events WHERE kind IN ({marks}) ORDER BY rowid", *KINDS)
    return [
        {"virtual": row["virtual"], "kind": row["kind"], "client": row["client"], **json.loads(row["detail"] or "{}")}
        for row in found
    ]


@dataclass
class _Stretch:
    """What happened in one cluster since it last split, merged or opened."""

    pushes: int = 0
    broadcasts: int = 0
    clients: set[str] = field(default_factory=set)
    stale: list[int] = field(default_factory=list)
    version: int = 0

    def __str__(self) -> str:
        sent = f", {plural(self.broadcasts, 'broadcast')}" if self.broadcasts else ""
        mean = sum(self.stale) / max(1, len(self.stale))
        age = f", staleness {mean:.1f} (most {max(self.stale)})" if self.stale else ""
        who = plural(len(self.clients), "client")
        pushed = "1 push" if self.pushes == 1 else f"{self.pushes:,} pushes"
        return f"to version {self.version}: {pushed} by {who}{sent}{age}"


def graph(events: Sequence[dict[str, Any]], pushes: bool = False) -> Iterable[str]:
    """The history line by line: a column of box-drawing characters per cluster, then what happened."""
    lanes: list[int] = []
    since: dict[int, _Stretch] = {}
    wide = len({event["cluster"] for event in events if event["kind"] in ("open", "split")})
    for event in events:
        kind, cluster = event["kind"], event.get("cluster", -1)
        if kind in TURNS:
            touched = [number for number in (cluster, event.get("parent"), event.get("merged")) if number in since]
            for number in touched:
                if since[number].pushes and not pushes:
                    yield _row(_marked(lanes, number), wide, f"cluster {number} {since[number]}")
                since[number] = _Stretch()
            drawn = _turn(lanes, event)
            since.setdefault(cluster, _Stretch())
            yield _row(drawn, wide, f"{_moment(event)}  {_words(event)}")
        elif cluster in since:
            _count(since[cluster], event)
            if pushes and kind in ("push", "broadcast", "move"):
                yield _row(_marked(lanes, cluster), wide, f"{_moment(event)}  {_words(event)}")
        elif pushes:  # an event of a client that belongs to no cluster
            yield _row(_marked(lanes, -1), wide, f"{_moment(event)}  {_words(event)}")
    for number in lanes:
        if since[number].pushes and not pushes:
            yield _row(_marked(lanes, number), wide, f"cluster {number} {since[number]}")


def _count(stretch: _Stretch, event: dict[str, Any]) -> None:
    if event["kind"] == "broadcast":
        stretch.broadcasts += 1
    elif event["kind"] == "push":
        stretch.pushes += 1
        stretch.clients.add(event["client"])
        stretch.stale.append(event["staleness"])
        stretch.version = event["version"]


def _turn(lanes: list[int], event: dict[str, Any]) -> str:
    """Draw this event into the lanes, and change them to what they are after it."""
    kind, cluster = event["kind"], event["cluster"]
    if kind == "open":
        lanes.append(cluster)
        return " ".join("●" if lane == cluster else "│" for lane in lanes)
    if kind == "close":
        drawn = " ".join("╵" if lane == cluster else "│" for lane in lanes)
        if cluster in lanes:
            lanes.remove(cluster)
        return drawn
    if kind == "split":
        lanes.append(cluster)
        return _joined(lanes, event["parent"], cluster, "┐", "┌")
    drawn = _joined(lanes, cluster, event["merged"], "┘", "└")
    lanes.remove(event["merged"])
    return drawn


def _joined(lanes: Sequence[int], stem: int, other: int, right: str, left: str) -> str:
    """Draw a line between two lanes: the stem continues, the other lane begins or ends."""
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


def _marked(lanes: Sequence[int], cluster: int) -> str:
    return " ".join("•" if lane == cluster else "│" for lane in lanes)


def _row(drawn: str, wide: int, text: str) -> str:
    return f"{drawn:<{2 * min(wide, 12)}} {text}"


def _moment(event: dict[str, Any]) -> str:
    return quantity(event["virtual"], "s")


def _words(event: dict[str, Any]) -> str:
    cluster, version = event.get("cluster"), event.get("version")
    match event["kind"]:
        case "open":
            return f"cluster {cluster} opened by {event['client']}"
        case "split":
            return f"cluster {cluster} split off cluster {event['parent']} with {plural(event['members'], 'client')}"
        case "merge":
            return f"cluster {event['merged']} merged into cluster {cluster}, version {version}"
        case "close":
            return f"cluster {cluster} closed: no client was left in it"
        case "push":
            return (
                f"{event['client']} pushed version {version} of cluster {cluster} "
                f"from version {event['base']} (staleness {event['staleness']})"
            )
        case "broadcast":
            return f"version {version} of cluster {cluster} sent to its {plural(event['members'], 'member')}"
        case "stale":
            return f"{event['client']}'s update was older than another one it had sent, so it was not merged"
        case "forget":
            return f"{event['client']} forgotten: its model is no longer used"
        case _:
            return f"{event['client']} moved from cluster {event['came_from']} to cluster {cluster}"
