"""ClusterFL's pictures: there for a run that has something to show, offline, and quiet for one that has not."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import potluck
from potluck.report import pictures
from potluck.report.pictures.clusterfl import followed, known_groups


def _run(out: Path, **method: Any) -> Any:
    return potluck.run(
        {
            "data": {"source": "potluck.data.made:opposite"},
            "partition": {"kind": "subject", "split": "random"},
            "fleet": {"devices": "raspberry-pi-4"},
            "model": {"name": "softmax"},
            "method": {
                "name": "clusterfl",
                "recipe.epochs": 1,
                "recipe.batch": 8,
                "recipe.lr": 0.05,
                "beta": 0.3,
                "f_every": 2,
                **method,
            },
            "stop": {"rounds": 6},
            "run": {"out": str(out)},
        }
    )


def test_the_four_pictures_tell_what_happened(tmp_path: Path) -> None:
    found = {one.title: one for one in pictures.of(_run(tmp_path, savers={"select": 4, "select_at": 4}))}
    assert list(found) == [
        "Similarity of clients",
        "Clusters over the rounds",
        "Accuracy of all clients",
        "Participation and dropped clients",
    ]
    assert "Adjusted Rand index with the 2 groups" in found["Clusters over the rounds"].caption
    # 4 of 12 clients are not asked in 2 of 6 rounds
    assert "11 % of all client-rounds" in found["Participation and dropped clients"].caption
    for one in found.values():
        assert one.svg.startswith("<svg")
        assert "<image" not in one.svg  # a bitmap would be an address, which the report's policy forbids
        assert "http" not in one.svg.replace("http://www.w3.org", "")


def test_updates_that_did_not_count_have_their_own_colour(tmp_path: Path) -> None:
    run = _run(tmp_path, f_every=50)
    with closing(sqlite3.connect(run.folder / "run.db")) as db, db:
        db.execute("UPDATE tasks SET outcome = 'lost' WHERE number = (SELECT max(number) FROM tasks)")
    (part,) = [one for one in pictures.of(run) if one.title == "Participation and dropped clients"]
    assert "no update accepted" in part.svg


def test_before_f_is_known_there_is_less_to_show(tmp_path: Path) -> None:
    run = _run(tmp_path, f_every=50)
    with closing(sqlite3.connect(run.folder / "run.db")) as db, db:  # as in a run that was stopped in its first round
        db.execute("DELETE FROM records WHERE name = 'relation'")
        db.execute("DELETE FROM clusters")
    titles = [one.title for one in pictures.of(run)]
    assert titles == ["Accuracy of all clients", "Participation and dropped clients"]


def test_groups_are_read_from_names_that_tell_them() -> None:
    assert known_groups(["room-1", "room-2", "hall-1"]) == {"room-1": "room", "room-2": "room", "hall-1": "hall"}
    assert known_groups(["s01", "s02"]) == {}
    assert known_groups(["a-1", "b-1"]) == {}  # everybody alone
    assert known_groups(["a-1", "a-2"]) == {}  # everybody together


def test_a_cluster_keeps_its_number_while_its_clients_stay() -> None:
    history = [{"a": 0, "b": 0, "c": 1, "d": 2}, {"a": 1, "b": 1, "c": 0, "d": 0}, {"a": 0, "b": 1, "c": 2, "d": 2}]
    first, second, third = followed(history)
    assert first == history[0]
    assert second == {"a": 0, "b": 0, "c": second["c"], "d": second["c"]}
    assert second["c"] in (1, 2)
    assert third["c"] == third["d"] == second["c"]
    assert sorted((third["a"], third["b"])) == [0, 3]  # one goes on as before, the other is new
