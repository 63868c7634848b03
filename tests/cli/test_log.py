"""`potluck log`: the graph of a history one can check by eye, and of a real run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from potluck.cli.log import graph

from .conftest import Potluck


def event(kind: str, virtual: float, cluster: int, client: str = "", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "virtual": virtual, "cluster": cluster, "client": client, **more}


def push(virtual: float, cluster: int, client: str, version: int, staleness: int = 0) -> dict[str, Any]:
    return event("push", virtual, cluster, client, version=version, base=version - 1, staleness=staleness)


HISTORY = [
    event("open", 1.0, 0, "ann", version=1),
    event("open", 2.0, 1, "ben", version=1),
    push(3.0, 0, "cy", 2),
    push(4.0, 0, "ann", 3, staleness=2),
    event("broadcast", 4.0, 0, version=3, members=2),
    event("split", 5.0, 2, version=3, parent=0, members=1),
    event("merge", 6.0, 1, version=4, merged=2),
    push(7.0, 1, "ben", 5),
    event("close", 8.0, 0),
]


def test_the_graph_has_a_lane_for_each_cluster() -> None:
    lines = list(graph(HISTORY))
    assert [line[:6].rstrip() for line in lines] == ["●", "│ ●", "• │", "├─┼─┐", "│ ├─┘", "╵ │", "•"]
    assert "cluster 0 to version 3: 2 pushes by 2 clients, 1 broadcast, staleness 1.0 (most 2)" in lines[2]
    assert "cluster 2 split off cluster 0 with 1 client" in lines[3]
    assert "cluster 2 merged into cluster 1, version 4" in lines[4]
    assert "cluster 0 closed" in lines[5]
    assert "1 push by 1 client" in lines[6]


def test_every_push_on_a_line_of_its_own() -> None:
    lines = list(graph(HISTORY, pushes=True))
    assert len(lines) == len(HISTORY)
    assert "cy pushed version 2 of cluster 0 from version 1 (staleness 0)" in lines[2]
    assert "version 3 of cluster 0 sent to its 2 members" in lines[4]


def test_conflicts_are_listed_among_the_pushes() -> None:
    """An update that was overtaken, and a client whose model no longer counts: neither belongs to one cluster."""
    conflicts = [
        {"kind": "stale", "virtual": 4.5, "client": "cy", "base": 1, "known": 3},
        {"kind": "forget", "virtual": 4.6, "client": "ann"},
    ]
    history = [*HISTORY[:5], *conflicts, *HISTORY[5:]]
    assert list(graph(history)) == list(graph(HISTORY))
    lines = list(graph(history, pushes=True))
    assert len(lines) == len(history)
    assert lines[5].startswith("│ │")
    assert "cy's update was older than another one it had sent, so it was not merged" in lines[5]
    assert "ann forgotten" in lines[6]


def test_a_real_run(potluck: Potluck, here: Path) -> None:
    flags = ["--data", "made", "--clients", "6", "--rounds", "3", "--quiet", "--set", "method.broadcast.predictor=ewma"]
    assert potluck("run", "--method", "echopfl", "--fleet", "boards", *flags, "--name", "echo").exit_code == 0
    shown = potluck("log", here / "runs" / "echo")
    assert shown.exit_code == 0
    assert "cluster 0 opened by" in shown.stdout
    events = json.loads(potluck("log", here / "runs" / "echo", "--json").stdout)
    pushes = [e for e in events if e["kind"] == "push"]
    # Staleness is what lay between the version an update began from and the one it was merged into.
    assert all(e["staleness"] == max(0, e["version"] - 1 - e["base"]) for e in pushes)
    assert len(pushes) + sum(e["kind"] == "open" for e in events) == 18
    summary = json.loads((here / "runs" / "echo" / "summary.json").read_text(encoding="utf-8"))
    assert summary["mean_stack"] > 1.5  # work in flight was trained together


def test_a_run_without_clusters_and_a_folder_without_a_run(potluck: Potluck, here: Path) -> None:
    assert potluck("run", "--data", "made", "--rounds", "1", "--quiet", "--name", "plain").exit_code == 0
    assert "no history of clusters" in potluck("log", here / "runs" / "plain").stdout
    assert potluck("log", here).exit_code == 2
